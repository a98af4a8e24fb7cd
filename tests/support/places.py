"""Which screen has which place, and how to get there with a running console."""

from console import actions
from console.control.run_state import PlaybookRun
from console.screens.checklists import ChecklistScreen, ChecklistsScreen
from console.screens.fleet import FleetScreen
from console.screens.forecast import ForecastScreen
from console.screens.handover import HandoverScreen
from console.screens.log import LogScreen, RecordScreen
from console.screens.overview import Overview
from console.screens.playbooks import PlaybooksScreen
from console.screens.requests import RequestScreen, RequestsScreen
from console.screens.run import RunScreen
from playbooks.optlog import Record
from playbooks.runs.spec import load

SCREENS_OF = {
    actions.OVERVIEW: Overview,
    actions.PROMPT: Overview,
    actions.FILTER: RequestsScreen,
    actions.REQUESTS: RequestsScreen,
    actions.REQUEST: RequestScreen,
    actions.PLAYBOOKS: PlaybooksScreen,
    actions.RUN: RunScreen,
    actions.CHECKLISTS: ChecklistsScreen,
    actions.CHECKLIST: ChecklistScreen,
    actions.LOG: LogScreen,
    actions.RECORD: RecordScreen,
    actions.FLEET: FleetScreen,
    actions.FORECAST: ForecastScreen,
    actions.HANDOVER: HandoverScreen,
}
KEYS = {
    actions.OVERVIEW: (),
    actions.REQUESTS: ("r",),
    actions.REQUEST: ("r", "enter"),
    actions.PLAYBOOKS: ("p",),
    actions.CHECKLISTS: ("c",),
    actions.CHECKLIST: ("c", "enter"),
    actions.LOG: ("l",),
    actions.FORECAST: ("F",),
    actions.HANDOVER: ("H",),
}


async def open_place(app, pilot, where):
    """Through the keys an operator would use, as far as there is something to open."""
    await pilot.pause()
    app.tick()
    app.tick()
    if where == actions.RUN:
        app.push_screen(RunScreen(PlaybookRun(load("quick_check"), app.clock())))
    elif where == actions.RECORD:
        app.push_screen(RecordScreen(Record("Cap 48"), app.log_book))
    elif where == actions.FLEET:
        app.push_screen(FleetScreen())
    else:
        await pilot.press(*KEYS[where])
    await pilot.pause()
    assert isinstance(app.screen, SCREENS_OF[where])
