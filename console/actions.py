"""The one registry of what the operator can do: bindings, footer, help and palette read it.

A key that is not here does not exist; a test fails when an action is missing from one of the
four.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from textual.binding import Binding

from console.panels.specs import PANELS
from console.renderables.lines import Line, Span, spread, width_of

OVERVIEW, PROMPT = "overview", "prompt"
"""Where the keyboard is: on the panels, or in the line that asks the model."""


@dataclass(frozen=True)
class Action:
    name: str
    """A Textual action; its method is `action_…` of the app or the screen."""
    keys: tuple[str, ...]
    """Textual's key names, the first one is advertised."""
    shown: str
    """The advertised key as it is printed."""
    footer: str
    """One or two words; neighbours with the same words share an entry."""
    title: str
    """A command of the palette."""
    help: str
    """A line of the help; neighbours with the same footer words share it."""
    where: tuple[str, ...] = (OVERVIEW,)
    changes_engine: bool = False
    """Forbidden by --readonly."""
    right: bool = False
    """At the right end of the footer, where it is never cut."""

    @property
    def method(self) -> str:
        """ "screen.maximise_panel('kv')" -> "maximise_panel"."""
        return self.name.partition("(")[0].rpartition(".")[2]


_BOTH = (OVERVIEW, PROMPT)

_MAXIMISE = tuple(
    Action(
        f"screen.maximise_panel('{panel.id}')",
        (panel.key,),
        panel.key,
        "maximise",
        f"Maximise {panel.title}",
        "Show more of a panel, or go back",
    )
    for panel in PANELS
)
_TALK = (
    Action(
        "screen.focus_prompt",
        ("i", "tab", "enter"),
        "i",
        "ask",
        "Ask the model",
        "Write to the model while the load goes on; enter sends",
        changes_engine=True,
    ),
    Action(
        "screen.go_back",
        ("escape",),
        "esc",
        "back",
        "Go back",
        "Leave the prompt, then the panel, then the answer",
        where=_BOTH,
    ),
    Action(
        "app.cancel_answer",
        ("ctrl+g", "x"),
        "^g",
        "cancel",
        "Cancel the answer",
        "Cancel the running answer",
        where=_BOTH,
        changes_engine=True,
    ),
    Action(
        "app.new_conversation",
        ("n",),
        "n",
        "new",
        "New conversation",
        "Forget the conversation and start a new one",
        changes_engine=True,
    ),
    Action(
        "screen.scroll_answer(-1)",
        ("pageup",),
        "pgup",
        "scroll",
        "Scroll the answer up",
        "Scroll the answer",
        where=_BOTH,
    ),
    Action(
        "screen.scroll_answer(1)",
        ("pagedown",),
        "pgdn",
        "scroll",
        "Scroll the answer down",
        "Scroll the answer",
        where=_BOTH,
    ),
)
_ENGINE = (
    Action(
        "app.change_cap(-1)",
        ("minus",),
        "-",
        "cap",
        "Lower the batch cap",
        "Lower or raise the batch cap by one and hold it there",
        changes_engine=True,
    ),
    Action(
        "app.change_cap(1)",
        ("plus", "equals_sign"),
        "+",
        "cap",
        "Raise the batch cap",
        "Lower or raise the batch cap by one and hold it there",
        changes_engine=True,
    ),
    Action(
        "app.toggle_admission",
        ("a",),
        "a",
        "admission",
        "Pause or resume admission",
        "Pause admission: running requests go on, waiting ones stay",
        changes_engine=True,
    ),
)
_CONSOLE = (
    Action(
        "app.pause_display",
        ("space",),
        "space",
        "pause",
        "Pause the display",
        "Hold the display still; the engine goes on",
    ),
    Action(
        "screen.copy_text",
        ("y",),
        "y",
        "copy",
        "Copy the panel's text",
        "Copy the maximised panel's text, or that of all panels",
    ),
    Action(
        "app.command_palette",
        ("colon", "ctrl+p"),
        ":",
        "commands",
        "Find a command",
        "Find a command by name",
    ),
    Action("app.change_theme", ("t",), "t", "theme", "Choose a theme", "Choose the colours"),
    Action("app.show_help", ("question_mark",), "?", "help", "Help", "Show this list", right=True),
    Action(
        "app.quit",
        ("q", "ctrl+q"),
        "q",
        "quit",
        "Quit",
        "Stop the engine and leave",
        right=True,
    ),
)
ACTIONS: tuple[Action, ...] = (*_MAXIMISE, *_TALK, *_ENGINE, *_CONSOLE)


def bindings(actions: Iterable[Action] = ACTIONS) -> list[Binding]:
    return [
        Binding(",".join(action.keys), action.name, action.footer, show=False) for action in actions
    ]


def allowed(method: str, readonly: bool) -> bool:
    """Whether `--readonly` lets an action's method run."""
    return not readonly or not any(a.changes_engine for a in ACTIONS if a.method == method)


def in_place(where: str) -> list[Action]:
    return [action for action in ACTIONS if where in action.where]


def footer(where: str, readonly: bool, width: int) -> Line:
    """As many entries as fit, those of the right end always; a click runs the action."""
    actions = in_place(where)
    entries = list(_entries([a for a in actions if not a.right], readonly))
    right: Line = ()
    for entry in _entries([a for a in actions if a.right], readonly):
        right = (*right, *entry)
    if where == PROMPT:
        entries.insert(0, _entry("enter", "send", "", False))
    left: Line = (Span(" "),)
    for entry in entries:
        if width_of(left) + width_of(entry) + width_of(right) > width:
            break
        left = (*left, *entry)
    return spread(left, right, width) if right else left


def _entries(actions: Iterable[Action], readonly: bool) -> Iterator[Line]:
    for several in _neighbours(actions):
        first = several[0]
        yield _entry(_keys(several), first.footer, first.name, readonly and first.changes_engine)


def _neighbours(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """Neighbours with the same words are one entry."""
    for _, group in groupby(actions, key=lambda action: action.footer):
        yield list(group)


def _keys(several: list[Action]) -> str:
    """ "1-6", "-/+", or the one key."""
    first, last = several[0].shown, several[-1].shown
    if first == last:
        return first
    return f"{first}-{last}" if first.isdigit() else f"{first}/{last}"


def _entry(shown: str, words: str, link: str, dimmed: bool) -> Line:
    if dimmed:
        return (Span(f"({shown} {words})  ", "faint"),)
    return (Span(shown, "key", link), Span(f" {words}  ", "label", link))


def help_lines(readonly: bool) -> list[Line]:
    """One line an entry: its keys and what they do."""
    lines: list[Line] = []
    for several in _neighbours(ACTIONS):
        first = several[0]
        forbidden = readonly and first.changes_engine
        keys = " ".join([_keys(several), *(k for k in first.keys[1:] if len(several) == 1)])
        lines.append(
            (
                Span(f" {keys:<13}", "faint" if forbidden else "key"),
                Span(first.help),
                Span("  (read-only)" if forbidden else "", "faint"),
            )
        )
    return lines
