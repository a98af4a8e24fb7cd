"""What must not break the screen: many sizes, many rows, other scripts, sources in every state."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from console.actions import CHECKLIST, OVERVIEW, REQUESTS, RUN
from console.app import build_app
from console.renderables.screen_state import EnginePhase
from engine.simulated.demo import DemoEngine
from engine.snapshot import Event, Source, SourceState
from journeys import Console
from places import SCREENS_OF, open_place
from playbooks.optlog import OptLog

SIZES = [(200, 60), (1, 1), (62, 20), (120, 40), (61, 40), (115, 33), (300, 10), (80, 24)]
WIDE = "模型🎄日本語한국어 👩‍👩‍👧 é ﷽ "


class Shouting(DemoEngine):
    """The scripted engine, with something about its Snapshots changed."""

    def __init__(self, change, clock):
        super().__init__(clock=clock)
        self._change = change

    def snapshot(self):
        return self._change(super().snapshot())


@pytest.fixture
def opened(clock, tmp_path):
    class Opened:
        def __init__(self, engine=None, size=(120, 40)):
            log = OptLog(tmp_path / "log.jsonl")
            self.app = build_app(
                engine or DemoEngine(clock=clock), clock=clock, refresh_hz=0.001, log=log
            )
            self.context = self.app.run_test(size=size)

        async def __aenter__(self):
            pilot = await self.context.__aenter__()
            c = Console(self.app, pilot, clock)
            await c.until(lambda: self.app.bridge.phase is EnginePhase.UP)
            await c.pass_time()
            return c

        async def __aexit__(self, *error):
            await self.context.__aexit__(*error)

    return Opened


def whole(c, size):
    rows = c.screen.splitlines()
    assert len(rows) == size[1]
    assert all(cell_len(row) == size[0] for row in rows), c.screen


@pytest.mark.parametrize("where", [OVERVIEW, REQUESTS, CHECKLIST, RUN])
async def test_a_storm_of_sizes(where, opened):
    async with opened() as c:
        await open_place(c.app, c.pilot, where)
        for size in SIZES:
            await c.pilot.resize_terminal(*size)
            await c.pass_time(0.1)
            whole(c, size)
        assert isinstance(c.app.screen, SCREENS_OF[where])
        assert "? help" in c.screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_ten_thousand_events_and_requests(size, opened, clock):
    def many(snapshot):
        events = tuple(Event(snapshot.time, "info", f"{WIDE}{i}") for i in range(10_000))
        row = snapshot.requests[0]
        rows = tuple(replace(row, id=f"{WIDE}{i}", source=WIDE) for i in range(10_000))
        return replace(snapshot, events=events, requests=rows)

    async with opened(Shouting(many, clock), size) as c:
        whole(c, size)
        await c.press("6")
        whole(c, size)
        await c.press("r", "end")
        assert "10,000/10,000" in c.screen
        whole(c, size)
        await c.press("enter")
        whole(c, size)


async def test_a_prompt_in_other_scripts_keeps_the_columns(opened):
    async with opened(size=(80, 24)) as c:
        c.app.ask(WIDE * 9)
        await c.pass_time()
        whole(c, (80, 24))
        assert "模型" in c.screen


@pytest.mark.parametrize("state", SourceState)
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_every_state_of_a_source_looks_different_and_says_why(state, size, opened, clock):
    def changed(snapshot):
        reason = None if state is SourceState.LIVE else "the reason, 原因"
        return replace(snapshot, source=Source(state, age_s=12.0, reason=reason))

    signs = {"live": "●", "stale": "◌", "unreachable": "○", "unparsable": "×", "wrong_engine": "≠"}
    async with opened(Shouting(changed, clock), size) as c:
        if state is SourceState.LIVE:  # numbers of twelve seconds ago are not live
            assert "◌ stale" in c.screen
            return
        head, why = c.screen.splitlines()[:2]
        assert f"{signs[state]} {state.replace('_', ' ')}" in head
        assert "the reason, 原因" in why
        assert all("old" in panel.text or "old" in c.screen for panel in c.app.overview.panels)
