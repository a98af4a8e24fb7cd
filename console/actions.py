"""The one registry of what the operator can do: bindings, footer, help and palette read it.

A key that is not here does not exist; a test fails when an action is missing from one of the
four. An action names the places it works in; a screen binds those of its places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
FORECAST = "forecast"
HANDOVER = "handover"
LISTS = (REQUESTS, PLAYBOOKS, CHECKLISTS, CHECKLIST, LOG, FLEET, FORECAST)
PAGES = (REQUEST, RUN, RECORD, HANDOVER)
MOVED = (*LISTS, *PAGES)
"""What rows are moved through in."""
SCREENS = (OVERVIEW, *LISTS, *PAGES)
"""Everywhere but in a line of input."""
PLAYED = (OVERVIEW, REQUESTS, REQUEST)
"""Where the keys of a replay work."""


PRINTED = {
    "slash": "/", "colon": ":", "question_mark": "?", "minus": "-", "plus": "+",
    "less_than_sign": "<", "greater_than_sign": ">",
    "left_square_bracket": "[", "right_square_bracket": "]",
    "escape": "esc", "ctrl+g": "^g", "up": "↑", "down": "↓", "pageup": "pgup", "pagedown": "pgdn",
}  # fmt: skip
"""Textual's names of keys that a terminal prints otherwise."""


@dataclass(frozen=True)
class Action:
    name: str
    """A Textual action; its method is `action_…` of the app or the screen."""
    keys: tuple[str, ...]
    """Textual's key names, the first one is advertised."""
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
    def shown(self) -> str:
        """The advertised key as it is printed."""
        return PRINTED.get(self.keys[0], self.keys[0])

    @property
    def method(self) -> str:
        """ "screen.maximise_panel('kv')" -> "maximise_panel"."""
        return method_of(self.name)


def method_of(name: str) -> str:
    return name.partition("(")[0].rpartition(".")[2]


def _rows(
    where: tuple[str, ...],
    control: str = "",
    needs: str = "",
    right: bool = False,
    *,
    rows: Iterable[tuple[str, ...]],
) -> Iterator[Action]:
    """Rows are keys, name, footer, title and help; without a help it is that of the neighbour
    with the same footer, else the title."""
    footer = help_ = ""
    for keys, name, words, title, *told in rows:
        help_ = told[0] if told else help_ if words == footer else title
        footer = words
        yield Action(name, tuple(keys.split()), words, title, help_, where, control, needs, right)


# fmt: off
ACTIONS: tuple[Action, ...] = (
    *_rows((OVERVIEW,), rows=[
        (panel.key, f"screen.maximise_panel('{panel.id}')", "maximise", f"Maximise {panel.title}",
         "Show more of a panel, or go back")
        for panel in PANELS
    ]),
    *_rows((REQUESTS, CHECKLISTS, LOG, FLEET), rows=(
        ("enter", "screen.open_row", "open", "Open the chosen row"),
    )),
    *_rows((PLAYBOOKS,), control="measure", rows=(
        ("enter", "screen.run_playbook", "run", "Run the chosen playbook",
         "Run the chosen playbook, or watch it if it runs"),
    )),
    *_rows((CHECKLIST,), rows=(
        ("enter", "screen.answer_item", "answer", "Answer the chosen item",
         "Answer the chosen item, or see how it was answered"),
        ("u", "screen.update_answers", "update", "Answer the automatic items again",
         "Answer the automatic items again, from the numbers of now"),
        ("S", "screen.sign_off", "sign off", "Sign the checklist off",
         "Sign the list off with your name: it goes into the log"),
    )),
    *_rows((LOG,), rows=(
        ("n", "screen.add_record", "new", "Write an entry into the log",
         "Write a new entry into the optimization log"),
    )),
    *_rows((FORECAST,), rows=(
        ("enter", "screen.replay_hour", "replay", "Replay the chosen hour",
         "Play the chosen hour through the panels, sixty times as fast"),
        ("n", "screen.new_forecast", "new", "Make a forecast",
         "Ask for a forecast: history, replicas, objective, what-ifs"),
        ("w", "screen.compare_what_ifs", "what-ifs", "What-ifs side by side",
         "What-ifs side by side, and what was assumed"),
        ("s", "screen.next_scenario", "scenario", "Show the next scenario",
         "Curves and hours of the next what-if"),
        ("o", "screen.open_forecast", "open", "Open the report of another forecast",
         "Open the report of another forecast, a JSON file"),
        ("x", "screen.cancel_forecast", "cancel", "Cancel the forecast that is being made",
         "Cancel what is being made: a forecast, or an hour to replay"),
    )),
    *_rows(LISTS, rows=(
        ("slash", "screen.filter_rows", "filter", "Filter the rows",
         "Show only rows with these words; escape shows all again"),
    )),
    *_rows((REQUESTS,), rows=(
        ("s", "screen.sort_rows", "sort", "Sort by the next column",
         "Sort by the next column, or turn the order round"),
        ("o", "screen.reverse_rows", "sort", "Turn the order round"),
    )),
    *_rows((REQUESTS, REQUEST), control="cancel", rows=(
        ("x", "screen.cancel_request", "cancel", "Cancel the request",
         "Cancel this request and free what it holds"),
    )),
    *_rows((PLAYBOOKS, RUN), control="measure", rows=(
        ("x", "screen.cancel_run", "cancel", "Cancel the playbook that runs",
         "Cancel the playbook that runs; its report is written"),
    )),
    *_rows((CHECKLIST, LOG, RECORD, RUN, FORECAST, HANDOVER), rows=(
        ("e", "screen.export_shown", "export", "Export to a file",
         "Write what is shown here to a file"),
    )),
    *_rows((FILTER, *MOVED), rows=(
        ("escape", "screen.leave", "back", "Go back to where you were",
         "One step back: out of the filter, then out of the screen"),
    )),
    *_rows(SCREENS, rows=(
        ("r", "app.show_requests", "requests", "Requests",
         "Requests: state, position, tokens, pages, wait, TTFT of each"),
        ("p", "app.show_playbooks", "playbooks", "Playbooks",
         "Playbooks: run a health check or a measurement and watch it"),
        ("c", "app.show_checklists", "checklists", "Checklists",
         "Checklists: what to look at before a holiday or a rollout"),
        ("l", "app.show_log", "log", "Optimization log",
         "Optimization log: what was changed, why, and what it did"),
    )),
    *_rows(SCREENS, needs="fleet", rows=(
        ("f", "app.show_fleet", "fleet", "Fleet",
         "The engines that are watched, by model; enter opens one"),
    )),
    *_rows((OVERVIEW,), rows=(
        ("slash", "app.find_request", "filter", "Find a request",
         "Find a request by its id, state or source"),
    )),
    *_rows(MOVED, rows=(
        ("up k", "screen.move_row(-1)", "move", "Move up", "Move by a row"),
        ("down j", "screen.move_row(1)", "move", "Move down"),
        ("pageup", "screen.move_page(-1)", "page", "Move up by a page", "Move by a page"),
        ("pagedown", "screen.move_page(1)", "page", "Move down by a page"),
        ("home g", "screen.move_end(-1)", "ends", "Move to the first row",
         "Move to the first or the last row"),
        ("end G", "screen.move_end(1)", "ends", "Move to the last row"),
    )),
    *_rows(SCREENS, rows=(
        ("space", "app.pause_display", "pause", "Pause the display",
         "Hold the display still; the engine goes on"),
    )),
    *_rows(PLAYED, needs="seek_event", rows=(
        ("left_square_bracket", "app.step_frames(-1)", "step", "Step back",
         "Stand still, one frame back or on"),
        ("right_square_bracket", "app.step_frames(1)", "step", "Step on"),
        ("less_than_sign", "app.change_speed(-1)", "speed", "Play slower", "Play slower or faster"),
        ("greater_than_sign", "app.change_speed(1)", "speed", "Play faster"),
        ("S", "app.seek_position", "go to", "Go to a time in the recording"),
        ("E", "app.seek_event(-1)", "event", "Go to the event before",
         "Go to the event before, or the next one"),
        ("e", "app.seek_event(1)", "event", "Go to the next event"),
    )),
    *_rows(SCREENS, rows=(
        ("R", "app.toggle_recording", "record", "Record, or stop recording",
         "Record what is seen to a file for `evewatch replay`, or stop"),
    )),
    *_rows((OVERVIEW, PROMPT), rows=(
        ("escape", "screen.go_back", "back", "Go back",
         "Leave the prompt, then the panel, then the answer"),
    )),
    *_rows((OVERVIEW,), control="submit", rows=(
        ("i tab enter", "screen.focus_prompt", "ask", "Ask the model",
         "Write to the model while the load goes on; enter sends"),
    )),
    *_rows(SCREENS, rows=(
        ("F", "app.show_forecast", "forecast", "Forecast",
         "Forecast: the coming days hour by hour, and what could be"),
    )),
    *_rows(SCREENS, rows=(
        ("H", "app.show_handover", "handover", "Handover",
         "Handover: one page for who comes next"),
    )),
    *_rows((OVERVIEW, PROMPT), control="cancel", rows=(
        ("ctrl+g x", "app.cancel_answer", "cancel", "Cancel the answer",
         "Cancel the running answer"),
    )),
    *_rows((OVERVIEW,), control="submit", rows=(
        ("n", "app.new_conversation", "new", "New conversation",
         "Forget the conversation and start a new one"),
    )),
    *_rows((OVERVIEW, PROMPT), rows=(
        ("pageup", "screen.scroll_answer(-1)", "scroll", "Scroll the answer up",
         "Scroll the answer"),
        ("pagedown", "screen.scroll_answer(1)", "scroll", "Scroll the answer down"),
    )),
    *_rows((OVERVIEW,), control="set_cap", rows=(
        ("minus", "app.change_cap(-1)", "cap", "Lower the batch cap",
         "Lower or raise the batch cap by one and hold it there"),
        ("plus equals_sign", "app.change_cap(1)", "cap", "Raise the batch cap"),
        ("b", "app.enter_cap", "set cap", "Set the batch cap",
         "Enter the batch cap; a large step asks first"),
    )),
    *_rows((OVERVIEW,), control="set_dynamic", rows=(
        ("d", "app.toggle_dynamic", "dynamic", "Dynamic batch on or off",
         "Let the cap move with the queue, or hold it where it is"),
    )),
    *_rows((OVERVIEW,), control="set_max_wait", rows=(
        ("w", "app.enter_max_wait", "max wait", "Set the longest wait",
         "Enter how long a request may wait for a fuller batch"),
    )),
    *_rows((OVERVIEW,), control="set_paused", rows=(
        ("a", "app.toggle_admission", "admission", "Pause or resume admission",
         "Pause admission: running requests go on, waiting ones stay"),
    )),
    *_rows((OVERVIEW,), control="set_draining", rows=(
        ("D", "app.toggle_draining", "drain", "Drain the engine, or accept again",
         "Drain: finish what was accepted, reject what comes"),
    )),
    *_rows((OVERVIEW, LOG), rows=(
        ("L", "app.log_change", "log it", "Write the last change into the log",
         "Write your last change of the engine into the log"),
    )),
    *_rows(SCREENS, rows=(
        ("y", "screen.copy_text", "copy", "Copy what is shown",
         "Copy the text of the maximised panel or the whole screen"),
        ("colon ctrl+p", "app.command_palette", "commands", "Find a command",
         "Find a command by name"),
        ("t", "app.change_theme", "theme", "Choose a theme",
         "Choose colours: dark, light, high contrast, monochrome"),
    )),
    *_rows(SCREENS, right=True, rows=(
        ("question_mark", "app.show_help", "help", "Help", "Show this list"),
        ("q ctrl+q", "app.quit", "quit", "Quit", "Stop the engine and leave"),
    )),
)
# fmt: on


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
