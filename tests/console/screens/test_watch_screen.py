"""The console on external engines: one with the usual panels, several as a fleet."""

import httpx
import pytest

from console.commands.watch import build_watch
from console.renderables.fleet import FleetRow, GroupView, head, row_line, rows_of
from console.renderables.lines import plain, width_of
from console.renderables.screen_state import EnginePhase
from console.screens.fleet import FleetScreen
from engine.remote.fleet.fleet import Fleet
from engine.snapshot import Percentiles, Snapshot
from journeys import Console, journey
from remote_stub import Server, page
from screens import check, settle, text_of


def watched(*bodies, clock=None):
    engines = []
    for i, body in enumerate(bodies):
        engines.append(
            Server(body).attach(
                f"http://10.0.0.{i}:8000", name=f"r{i}", group="chat", interval_s=600.0, clock=clock
            )
        )
    return Fleet(engines)


@pytest.fixture
def console(clock):
    class Context:
        def __init__(self, *bodies, size=(120, 40), **options):
            self.fleet = watched(*bodies, clock=clock)
            self.app = build_watch(self.fleet, clock=clock, refresh_hz=0.001, **options)
            self.context = self.app.run_test(size=size, notifications=True)

        async def __aenter__(self):
            pilot = await self.context.__aenter__()
            running = Console(self.app, pilot, clock)
            await running.until(lambda: self.app.bridge.phase is EnginePhase.UP)
            self.app.tick()
            self.app.tick()
            await pilot.pause()
            return running

        async def __aexit__(self, *error):
            await self.context.__aexit__(*error)
            self.fleet.stop()

    return Context


BUSY, AFTER, IDLE = page("vllm/busy"), page("vllm/after"), page("vllm/idle")


async def test_one_target_has_the_usual_panels(console):
    async with console(BUSY) as c:
        screen = c.screen
        assert "vllm 10.0.0.0:8000 · smollm2" in screen
        assert "● live" in screen
        assert "waiting" in screen and "13" in screen
        assert "8.8 % of 182" in screen
        assert "3.8 s" in screen and "< 300 ms" in screen
        assert "f fleet" not in screen  # there is none


TWO, LOADED = page("vllm/two_engines"), page("vllm/loaded")
TOLD = {
    "watched-120x40": (LOADED, (120, 40), []),
    "watched-80x24": (LOADED, (80, 24), []),
    "watched-two-120x40": (TWO, (120, 40), []),
    "watched-kv-80x24": (TWO, (80, 24), ["3"]),
    "watched-batch-120x40": (TWO, (120, 40), ["2"]),
}


@pytest.mark.parametrize("name", TOLD)
async def test_what_is_told_has_the_room_and_what_is_not_has_none(console, name):
    body, size, keys = TOLD[name]
    async with console(body, size=size) as c:
        await c.press(*keys)
        await settle(c.pilot, c.app)
        check(name, text_of(c.app))
        bare = [line for line in c.screen.splitlines() if line.count("–  ") > 2]
        assert not bare, "rows of nothing"


@journey("app.show_requests")
async def test_single_requests_are_not_said_to_be_none(console):
    async with console(BUSY) as c:
        await c.press("r")
        await c.until(lambda: "the first 0 of 24" in c.screen)
        assert "single requests are not told" in c.screen


async def test_a_target_that_dies_says_so_on_every_panel_and_comes_back(console, clock):
    pages = [BUSY]
    async with console(lambda request: answer(pages[0])) as c:
        engine = c.app.bridge.engine
        assert "● live" in c.screen
        pages[0] = httpx.ConnectError("Connection refused")
        clock.now += 3.0
        engine.poll()
        await c.pass_time(4.0)
        await c.until(lambda: "unreachable for 7.0 s: Connection refused" in c.screen)
        assert c.screen.count("7.0 s old") >= 4  # the panels' titles
        assert "unreachable: Connection refused"[:20] in c.screen  # the events
        pages[0] = AFTER
        engine.poll()
        await c.pass_time(0.0)
        await c.until(lambda: "● live" in c.screen and "these numbers are old" not in c.screen)


def answer(found):
    if isinstance(found, Exception):
        raise found
    return httpx.Response(200, content=found)


async def test_several_open_as_a_fleet_that_names_the_odd_one(console):
    async with console(BUSY, AFTER, AFTER, httpx.ConnectError("Connection refused")) as c:
        await c.until(lambda: isinstance(c.app.screen, FleetScreen))
        await c.until(lambda: "stands out" in c.screen)
        screen = c.screen
        assert "3 of 4 live; r3 unreachable" in screen and "Connection refused" in screen
        assert "r0 stands out: queue 13 (others 0)" in screen
        for name in ("r0", "r1", "r2", "r3"):
            assert name in screen


@journey("app.show_fleet", "screen.open_row")
async def test_enter_opens_one_and_f_leads_back(console):
    async with console(BUSY, AFTER) as c:
        await c.until(lambda: "r1" in c.screen)
        await c.press("end")
        await c.press("enter")
        await c.until(lambda: c.app.screen is c.app.overview)
        await c.until(lambda: "vllm 10.0.0.1:8000" in c.screen)
        assert c.app.bridge.poll().queue.waiting == 0
        await c.press("f")
        assert isinstance(c.app.screen, FleetScreen)
        await c.press("home", "enter")
        await c.until(lambda: "chat" in c.app.bridge.engine.chosen)
        assert c.app.bridge.poll().queue.waiting == 13  # both together
        assert c.app.bridge.poll().queue.requests_total == 60


async def test_the_filter_finds_replicas_by_state(console):
    async with console(BUSY, httpx.ConnectError("refused")) as c:
        await c.until(lambda: "r1" in c.screen)
        await c.press("slash", *"unreachable")
        await c.until(lambda: "r0  " not in c.screen)
        assert "r1" in c.screen


async def test_what_only_the_inside_can_do_says_why_and_changes_nothing(console):
    async with console(BUSY) as c:
        for key in ("plus", "a", "d", "D"):
            await c.press(key)
        assert c.app.is_running
        await c.until(lambda: "watched from outside" in c.screen)


async def test_it_fits_the_smallest_window(console):
    async with console(BUSY, AFTER, AFTER, size=(80, 24)) as c:
        await c.until(lambda: "r2" in c.screen)
        assert all(len(line) <= 80 for line in c.screen.splitlines())
        assert "r0 stands out" in c.screen.replace("\n", " ")


async def test_quitting_stops_the_polling(console):
    async with console(BUSY, AFTER) as c:
        await c.until(lambda: "r1" in c.screen)
        await c.press("q")
        await c.until(
            lambda: all(e._ended.is_set() for e in c.app.bridge.engine.fleet.engines.values())
        )


# --- lines -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 118, 200])
def test_rows_are_as_wide_as_their_heading(width):
    latency = Percentiles(p50=300.0, p99=None, n=500, floor=300.0, ceiling=2560000.0)
    snapshot = Snapshot()
    snapshot = Snapshot(latency=type(snapshot.latency)(ttft_ms=latency))
    row = FleetRow("a", "replica", "名" * 40 + "\x1b[2J", snapshot)
    line = row_line(row, width)
    assert width_of(line) == width_of(head(width)) <= width
    assert "\x1b" not in plain(line)
    if width >= 118:
        assert "< 300 ms" in plain(line) and "> 43 min" in plain(line)


def test_a_long_verdict_is_wrapped_and_never_cut():
    verdict = " ".join(f"word{i}" for i in range(60))
    group = GroupView("chat", {"a": Snapshot(), "b": Snapshot()}, Snapshot(), verdict, "a")
    rows = rows_of([group], 60)
    assert " ".join(r.text for r in rows if r.kind == "verdict") == verdict
    assert all(width_of(row_line(r, 56)) <= 56 for r in rows)
    assert [r.name for r in rows if r.kind == "replica" and r.trouble] == ["a"]
