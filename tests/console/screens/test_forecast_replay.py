"""An hour of a forecast through the panels: from what the command kept, and back again."""

from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from typer.testing import CliRunner

from console import cli
from console.app import build_app
from console.recording import simulated
from console.recording.past import read_past
from console.renderables.screen_state import EnginePhase
from console.screens.forecast import ForecastScreen
from console.screens.overview import Overview
from engine.errors import ConfigError
from engine.simulated.demo import DemoEngine
from engine.simulated.scaling import Loss
from engine.snapshot import Snapshot, SourceState
from forecasts import MONDAY, a_fit, a_scenario, traffic
from journeys import Console, journey
from playbooks.forecast import hour
from playbooks.forecast.course import World
from playbooks.forecast.hour import scenario_and_world
from playbooks.optlog import OptLog
from playbooks.reports import results


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a small forecast was made: an hour of 0.3 requests/s and a what-if."""
    where = tmp_path_factory.mktemp("forecast")
    hours = [f"2026-12-{d:02} {h:02}:00,{1080 + h % 3}" for d in range(1, 15) for h in range(24)]
    (where / "counts.csv").write_text("time,requests\n" + "\n".join(hours) + "\n")
    a_fit().save(where / "fit.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVEWATCH_HOME", str(where))
        args = ["forecast", "run", "--quiet", "--no-log", "--no-smallest", "--days", "0.05"]
        args += ["--fit", str(where / "fit.json"), "--history", str(where / "counts.csv")]
        args += ["--lengths", "fixed:20,10", "--plausible", "1", "--what-if", "max_batch=4"]
        done = CliRunner().invoke(cli.app, args)
        assert done.exit_code == 0, done.output
    return where


@pytest.fixture
def home(folder, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(folder))
    return folder


@pytest.fixture
def report(home):
    return next(results.saved("forecast"))


@journey("screen.replay_hour")
async def test_an_hour_is_played_through_the_panels_and_f_leads_back(home, clock, tmp_path):
    engine = DemoEngine(clock=clock)
    app = build_app(
        engine, clock=clock, refresh_hz=0.001, theme="evewatch", language="en",
        log=OptLog(tmp_path / "log.jsonl"),
    )  # fmt: skip
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        c = Console(app, pilot, clock)
        await c.until(lambda: app.bridge.phase is EnginePhase.UP)
        await c.pass_time()
        own = app.history
        await c.press("F")
        await c.until(lambda: app.forecasts.view is not None)
        await c.pass_time()
        await c.press("s", "enter")  # with max_batch=4
        await c.until(lambda: app.player is not None)
        player = app.player
        assert isinstance(app.screen, Overview) and player.playback.speed == 60.0
        assert player.length_s == pytest.approx(3600, abs=30)
        await c.press("space")
        player.seek(1201.0)
        await c.pass_time()
        await c.until(lambda: app.history.newest_time > 0 and not app._moving)
        shown = app.bridge.poll()
        assert shown.batch.cap == 4 and shown.source.state is SourceState.LIVE
        assert shown.queue.requests_total > 300
        assert "‖ ×60  00:20:01" in c.screen and "a forecast; F goes back" in c.screen
        await c.press("plus")
        await c.until(lambda: "this is a recording" in c.screen)
        await c.press("F")
        assert isinstance(app.screen, ForecastScreen) and app.player is None
        assert app.history is own and app.bridge.engine is engine and app.clock is clock


async def test_leaving_the_screen_ends_the_simulation(home, clock, tmp_path, monkeypatch):
    goes_on, ended = Event(), Event()

    def slowly(*given):
        goes_on.wait()
        try:
            given[-1](0.0, 3600.0)
            yield 0.0, Snapshot()
        finally:
            ended.set()

    monkeypatch.setattr(simulated, "frames", slowly)
    app = build_app(
        DemoEngine(clock=clock), clock=clock, refresh_hz=0.001, log=OptLog(tmp_path / "log.jsonl")
    )
    async with app.run_test(size=(120, 40)) as pilot:
        c = Console(app, pilot, clock)
        await c.until(lambda: app.bridge.phase is EnginePhase.UP)
        await c.press("F")
        await c.until(lambda: app.forecasts.view is not None)
        await c.pass_time()
        await c.press("enter")
        assert "simulating 00:00" in c.screen
        await c.press("escape")
        goes_on.set()
        await c.until(ended.is_set)
        await c.pass_time()
        assert app.player is None and not app.forecasts.at_work


def test_a_report_says_what_its_hours_are_made_of(report):
    first, world = scenario_and_world(report, 0, read_past)
    second, _ = scenario_and_world(report, 1, read_past)
    assert (first.config.max_batch, second.config.max_batch) == (8, 4)
    assert world.traffic.rate(0) == pytest.approx(0.3, rel=0.05)


def test_what_has_gone_or_changed_is_said(report, tmp_path):
    with pytest.raises(ConfigError, match="make it again"):
        scenario_and_world(report | {"asked": None}, 0, read_past)
    other = tmp_path / "counts.csv"
    path = Path(report["asked"]["step"]["history"])
    other.write_text(path.read_text().replace("1080", "2080"))
    asked = report["asked"] | {"step": report["asked"]["step"] | {"history": str(other)}}
    with pytest.raises(ConfigError, match="has changed since"):
        scenario_and_world(report | {"asked": asked}, 0, read_past)


# --- the hour itself ----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """A frame is what costs; queues form in minutes too."""
    monkeypatch.setattr(hour, "FRAME_S", 30.0)
    monkeypatch.setattr(hour, "WARM_S", 30.0)


def second_part(scenario, rates, since=150.0):
    """Of two parts of 150 s: (seconds, Snapshot)."""
    world = World(traffic(rates, slot_s=150.0))
    return list(hour.frames(scenario, world, 150.0, since))


def test_frames_by_the_clock_from_a_batch_that_is_not_empty():
    found = second_part(a_scenario(), (3.0, 3.0))
    assert [at for at, _ in found] == [150.0, 180.0, 210.0, 240.0, 270.0, 300.0]
    start = MONDAY.timestamp()
    assert all(s.time == start + at for at, s in found)
    assert found[0][1].queue.requests_total > 50 and found[0][1].batch.running > 0
    assert all(start <= e.time <= start + 301 for _, s in found for e in s.events)


def test_an_hour_in_a_saturation_begins_with_its_queue():
    fresh = second_part(a_scenario(), (9.0, 5.0))
    late = second_part(a_scenario(), (9.0, 5.0), since=0.0)
    assert late[0][1].queue.waiting > fresh[0][1].queue.waiting + 200


def test_of_several_replicas_one_is_shown_with_its_part():
    alone = second_part(a_scenario(1), (2.0, 2.0))
    many = second_part(a_scenario(8), (16.0, 16.0))
    assert "1 of 8 replicas" in many[-1][1].source.target
    totals = [found[-1][1].queue.requests_total for found in (many, alone)]
    assert totals[0] == pytest.approx(totals[1], rel=0.2)


def test_where_no_replica_is_left_that_is_what_is_shown():
    lost = replace(a_scenario(), losses=(Loss(1, 200.0),))
    states = [s.source for _, s in second_part(lost, (2.0, 2.0))]
    assert states[0].state is SourceState.LIVE
    assert states[-1].state is SourceState.UNREACHABLE
    assert states[-1].reason == "no replica is left"


def test_it_is_told_how_far_it_is_from_where_it_begins():
    told = []
    world = World(traffic((2.0, 2.0), slot_s=150.0))
    list(hour.frames(a_scenario(), world, 150.0, 0.0, lambda *at: told.append(at)))
    assert told[0] == (0.0, 300.0) and told[-1] == (300.0, 300.0)
