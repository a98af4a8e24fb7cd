"""The one registry of what the operator can do: bindings, footer, help and palette read it.

A key that is not here does not exist; a test fails when an action is missing from one of the
four. An action names the places it works in; a screen binds those of its places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from textual.binding import Binding

from console.panels.specs import PANELS

OVERVIEW, PROMPT, FILTER = "overview", "prompt", "filter"
"""Where the keyboard is: on the panels, in the line that asks the model, in a list's filter."""
REQUESTS, REQUEST = "requests", "request"
PLAYBOOKS, RUN = "playbooks", "run"
CHECKLISTS, CHECKLIST = "checklists", "checklist"
LOG, RECORD = "log", "record"
FLEET = "fleet"
LISTS = (REQUESTS, PLAYBOOKS, CHECKLISTS, CHECKLIST, LOG, FLEET)
PAGES = (REQUEST, RUN, RECORD)
SCREENS = (OVERVIEW, *LISTS, *PAGES)
"""Everywhere but in a line of input."""
PLAYED = (OVERVIEW, REQUESTS, REQUEST)
"""Where the keys of a replay work."""


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
    control: str = ""
    """What of the engine it works on, "set_cap" say: --readonly and an engine without it forbid
    the action."""
    needs: str = ""
    """An attribute that the engine must have, "seek" of a recording say; else there is no such
    action."""
    right: bool = False
    """At the right end of the footer, where it is never cut."""

    @property
    def method(self) -> str:
        """ "screen.maximise_panel('kv')" -> "maximise_panel"."""
        return method_of(self.name)


def method_of(name: str) -> str:
    return name.partition("(")[0].rpartition(".")[2]


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
_LISTS = (
    Action(
        "screen.open_row",
        ("enter",),
        "enter",
        "open",
        "Open the chosen row",
        "Open the chosen row",
        where=(REQUESTS, CHECKLISTS, LOG, FLEET),
    ),
    Action(
        "screen.run_playbook",
        ("enter",),
        "enter",
        "run",
        "Run the chosen playbook",
        "Run the chosen playbook, or watch it if it runs",
        where=(PLAYBOOKS,),
        control="measure",
    ),
    Action(
        "screen.answer_item",
        ("enter",),
        "enter",
        "answer",
        "Answer the chosen item",
        "Answer the chosen item, or see how it was answered",
        where=(CHECKLIST,),
    ),
    Action(
        "screen.update_answers",
        ("u",),
        "u",
        "update",
        "Answer the automatic items again",
        "Answer the automatic items again, from the numbers of now",
        where=(CHECKLIST,),
    ),
    Action(
        "screen.sign_off",
        ("S",),
        "S",
        "sign off",
        "Sign the checklist off",
        "Sign the list off with your name: it goes into the log",
        where=(CHECKLIST,),
    ),
    Action(
        "screen.add_record",
        ("n",),
        "n",
        "new",
        "Write an entry into the log",
        "Write a new entry into the optimization log",
        where=(LOG,),
    ),
    Action(
        "screen.filter_rows",
        ("slash",),
        "/",
        "filter",
        "Filter the rows",
        "Show only rows with these words; escape shows all again",
        where=LISTS,
    ),
    Action(
        "screen.sort_rows",
        ("s",),
        "s",
        "sort",
        "Sort by the next column",
        "Sort by the next column, or turn the order round",
        where=(REQUESTS,),
    ),
    Action(
        "screen.reverse_rows",
        ("o",),
        "o",
        "sort",
        "Turn the order round",
        "Sort by the next column, or turn the order round",
        where=(REQUESTS,),
    ),
    Action(
        "screen.cancel_request",
        ("x",),
        "x",
        "cancel",
        "Cancel the request",
        "Cancel this request and free what it holds",
        where=(REQUESTS, REQUEST),
        control="cancel",
    ),
    Action(
        "screen.cancel_run",
        ("x",),
        "x",
        "cancel",
        "Cancel the playbook that runs",
        "Cancel the playbook that runs; its report is written",
        where=(PLAYBOOKS, RUN),
        control="measure",
    ),
    Action(
        "screen.export_shown",
        ("e",),
        "e",
        "export",
        "Export to a file",
        "Write what is shown here to a file",
        where=(CHECKLIST, LOG, RECORD, RUN),
    ),
    Action(
        "screen.leave",
        ("escape",),
        "esc",
        "back",
        "Go back to where you were",
        "One step back: out of the filter, then out of the screen",
        where=(FILTER, *LISTS, *PAGES),
    ),
)
_BACK = (
    Action(
        "screen.go_back",
        ("escape",),
        "esc",
        "back",
        "Go back",
        "Leave the prompt, then the panel, then the answer",
        where=(OVERVIEW, PROMPT),
    ),
)
_MOVES = (
    Action(
        "screen.move_row(-1)",
        ("up", "k"),
        "↑",
        "move",
        "Move up",
        "Move by a row",
        where=(*LISTS, *PAGES),
    ),
    Action(
        "screen.move_row(1)",
        ("down", "j"),
        "↓",
        "move",
        "Move down",
        "Move by a row",
        where=(*LISTS, *PAGES),
    ),
    Action(
        "screen.move_page(-1)",
        ("pageup",),
        "pgup",
        "page",
        "Move up by a page",
        "Move by a page",
        where=(*LISTS, *PAGES),
    ),
    Action(
        "screen.move_page(1)",
        ("pagedown",),
        "pgdn",
        "page",
        "Move down by a page",
        "Move by a page",
        where=(*LISTS, *PAGES),
    ),
    Action(
        "screen.move_end(-1)",
        ("home", "g"),
        "home",
        "ends",
        "Move to the first row",
        "Move to the first or the last row",
        where=(*LISTS, *PAGES),
    ),
    Action(
        "screen.move_end(1)",
        ("end", "G"),
        "end",
        "ends",
        "Move to the last row",
        "Move to the first or the last row",
        where=(*LISTS, *PAGES),
    ),
)
_GO = (
    Action(
        "app.show_requests",
        ("r",),
        "r",
        "requests",
        "Requests",
        "Requests: state, position, tokens, pages, wait, TTFT of each",
        where=SCREENS,
    ),
    Action(
        "app.show_playbooks",
        ("p",),
        "p",
        "playbooks",
        "Playbooks",
        "Playbooks: run a health check or a measurement and watch it",
        where=SCREENS,
    ),
    Action(
        "app.show_checklists",
        ("c",),
        "c",
        "checklists",
        "Checklists",
        "Checklists: what to look at before a holiday or a rollout",
        where=SCREENS,
    ),
    Action(
        "app.show_log",
        ("l",),
        "l",
        "log",
        "Optimization log",
        "Optimization log: what was changed, why, and what it did",
        where=SCREENS,
    ),
    Action(
        "app.show_fleet",
        ("f",),
        "f",
        "fleet",
        "Fleet",
        "The engines that are watched, by model; enter opens one",
        where=SCREENS,
        needs="fleet",
    ),
    Action(
        "app.find_request",
        ("slash",),
        "/",
        "filter",
        "Find a request",
        "Find a request by its id, state or source",
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
        where=SCREENS,
    ),
)
_RECORDINGS = (
    Action(
        "app.step_frames(-1)",
        ("left_square_bracket",),
        "[",
        "step",
        "Step back",
        "Stand still, one frame back or on",
        where=PLAYED,
        needs="seek_event",
    ),
    Action(
        "app.step_frames(1)",
        ("right_square_bracket",),
        "]",
        "step",
        "Step on",
        "Stand still, one frame back or on",
        where=PLAYED,
        needs="seek_event",
    ),
    Action(
        "app.change_speed(-1)",
        ("less_than_sign",),
        "<",
        "speed",
        "Play slower",
        "Play slower or faster",
        where=PLAYED,
        needs="seek_event",
    ),
    Action(
        "app.change_speed(1)",
        ("greater_than_sign",),
        ">",
        "speed",
        "Play faster",
        "Play slower or faster",
        where=PLAYED,
        needs="seek_event",
    ),
    Action(
        "app.seek_position",
        ("S",),
        "S",
        "go to",
        "Go to a time in the recording",
        "Go to a time in the recording",
        where=PLAYED,
        needs="seek_event",
    ),
    Action(
        "app.seek_event(-1)",
        ("E",),
        "E",
        "event",
        "Go to the event before",
        "Go to the event before, or the next one",
        where=PLAYED,
        needs="seek_event",
    ),
    Action(
        "app.seek_event(1)",
        ("e",),
        "e",
        "event",
        "Go to the next event",
        "Go to the event before, or the next one",
        where=PLAYED,
        needs="seek_event",
    ),
    Action(
        "app.toggle_recording",
        ("R",),
        "R",
        "record",
        "Record, or stop recording",
        "Record what is seen to a file for `evewatch replay`, or stop",
        where=SCREENS,
    ),
)
_TALK = (
    Action(
        "screen.focus_prompt",
        ("i", "tab", "enter"),
        "i",
        "ask",
        "Ask the model",
        "Write to the model while the load goes on; enter sends",
        control="submit",
    ),
    Action(
        "app.cancel_answer",
        ("ctrl+g", "x"),
        "^g",
        "cancel",
        "Cancel the answer",
        "Cancel the running answer",
        where=(OVERVIEW, PROMPT),
        control="cancel",
    ),
    Action(
        "app.new_conversation",
        ("n",),
        "n",
        "new",
        "New conversation",
        "Forget the conversation and start a new one",
        control="submit",
    ),
    Action(
        "screen.scroll_answer(-1)",
        ("pageup",),
        "pgup",
        "scroll",
        "Scroll the answer up",
        "Scroll the answer",
        where=(OVERVIEW, PROMPT),
    ),
    Action(
        "screen.scroll_answer(1)",
        ("pagedown",),
        "pgdn",
        "scroll",
        "Scroll the answer down",
        "Scroll the answer",
        where=(OVERVIEW, PROMPT),
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
        control="set_cap",
    ),
    Action(
        "app.change_cap(1)",
        ("plus", "equals_sign"),
        "+",
        "cap",
        "Raise the batch cap",
        "Lower or raise the batch cap by one and hold it there",
        control="set_cap",
    ),
    Action(
        "app.enter_cap",
        ("b",),
        "b",
        "set cap",
        "Set the batch cap",
        "Enter the batch cap; a large step asks first",
        control="set_cap",
    ),
    Action(
        "app.toggle_dynamic",
        ("d",),
        "d",
        "dynamic",
        "Dynamic batch on or off",
        "Let the cap move with the queue, or hold it where it is",
        control="set_dynamic",
    ),
    Action(
        "app.enter_max_wait",
        ("w",),
        "w",
        "max wait",
        "Set the longest wait",
        "Enter how long a request may wait for a fuller batch",
        control="set_max_wait",
    ),
    Action(
        "app.toggle_admission",
        ("a",),
        "a",
        "admission",
        "Pause or resume admission",
        "Pause admission: running requests go on, waiting ones stay",
        control="set_paused",
    ),
    Action(
        "app.toggle_draining",
        ("D",),
        "D",
        "drain",
        "Drain the engine, or accept again",
        "Drain: finish what was accepted, reject what comes",
        control="set_draining",
    ),
    Action(
        "app.log_change",
        ("L",),
        "L",
        "log it",
        "Write the last change into the log",
        "Write your last change of the engine into the log",
        where=(OVERVIEW, LOG),
    ),
)
_ALWAYS = (
    Action(
        "screen.copy_text",
        ("y",),
        "y",
        "copy",
        "Copy what is shown",
        "Copy the text of the maximised panel or the whole screen",
        where=SCREENS,
    ),
    Action(
        "app.command_palette",
        ("colon", "ctrl+p"),
        ":",
        "commands",
        "Find a command",
        "Find a command by name",
        where=SCREENS,
    ),
    Action(
        "app.change_theme",
        ("t",),
        "t",
        "theme",
        "Choose a theme",
        "Choose colours: dark, light, high contrast, monochrome",
        where=SCREENS,
    ),
    Action(
        "app.show_help",
        ("question_mark",),
        "?",
        "help",
        "Help",
        "Show this list",
        where=SCREENS,
        right=True,
    ),
    Action(
        "app.quit",
        ("q", "ctrl+q"),
        "q",
        "quit",
        "Quit",
        "Stop the engine and leave",
        where=SCREENS,
        right=True,
    ),
)
ACTIONS: tuple[Action, ...] = (
    *_MAXIMISE,
    *_LISTS,
    *_GO,
    *_MOVES,
    *_CONSOLE,
    *_RECORDINGS,
    *_BACK,
    *_TALK,
    *_ENGINE,
    *_ALWAYS,
)


@dataclass(frozen=True)
class Scope:
    """Where the keyboard is, and what may be done there."""

    where: str
    refusal: Callable[[str], str] = lambda control: ""
    """Why the engine's `control` may not be used, "" if it may."""
    has: Callable[[str], bool] = lambda attribute: True
    """Whether the engine has what an action needs."""

    def actions(self) -> list[Action]:
        return [a for a in ACTIONS if self.where in a.where and (not a.needs or self.has(a.needs))]

    def forbidden(self, action: Action) -> str:
        """Why the action may not run, "" if it may."""
        return self.refusal(action.control) if action.control else ""

    def find(self, method: str) -> Action | None:
        """The action of this place with that method."""
        return next((a for a in self.actions() if a.method == method), None)


def bindings(*places: str, actions: Iterable[Action] = ACTIONS) -> list[Binding]:
    """Those of the actions that work in one of `places`."""
    return [
        Binding(",".join(action.keys), action.name, action.footer, show=False)
        for action in actions
        if set(places) & set(action.where)
    ]
