"""Budgets on the screen: a panel of their own while objectives are set, and none otherwise."""

from __future__ import annotations

import pytest

from console.app import build_app
from console.renderables.screen_state import EnginePhase
from engine.observing.objectives import Objective
from engine.simulated.demo import DemoEngine
from playbooks.alerts.file import load
from playbooks.alerts.watchkeeper import Watchkeeper
from playbooks.objectives.book import Book
from playbooks.objectives.file import Objectives
from playbooks.optlog import OptLog
from screens import check, settle, text_of
from waiting import until_shown

PROMISED = Objectives(
    (
        Objective("ttft", 0.9, 1.0), Objective("tpot", 0.9, 0.06), Objective("e2e", 0.95, 30.0),
        Objective("availability", 0.999),
    ),
    8 * 86_400.0,
)  # fmt: skip


def opened(clock, tmp_path, objectives: Objectives | None = PROMISED):
    each = objectives.each if objectives is not None else ()
    engine = DemoEngine("typical", clock=clock, objectives=each)
    book = None if objectives is None else Book(objectives, tmp_path / "objectives.json")
    keeper = Watchkeeper(None, (), lambda: {"demo": engine.snapshot()}, book=book)
    app = build_app(
        engine, clock=clock, refresh_hz=0.001, theme="evewatch", language="en",
        log=OptLog(tmp_path / "log.jsonl"), keeper=keeper,
    )  # fmt: skip
    app.talk.clock = clock
    return app, keeper


async def lived(app, keeper, clock, pilot, seconds: int) -> None:
    await until_shown(pilot, lambda: app.bridge.phase is EnginePhase.UP)
    for _ in range(2 * seconds):
        clock.now += 0.5
        app.history.push(app.bridge.poll())
        keeper.look(clock.now)
    app.draw(app.bridge.poll())
    await settle(pilot, app)


@pytest.mark.parametrize(
    ("name", "size", "keys"),
    [
        ("budget-120x40", (120, 40), []),
        ("budget-80x24", (80, 24), []),
        ("budget-all-120x40", (120, 40), ["8"]),
    ],
)
async def test_screens(name, size, keys, clock, tmp_path):
    app, keeper = opened(clock, tmp_path)
    async with app.run_test(size=size) as pilot:
        await lived(app, keeper, clock, pilot, 120)
        await pilot.press(*keys)
        await settle(pilot, app)
        check(name, text_of(app))


async def test_the_stages_are_there_again_without_objectives(clock, tmp_path):
    app, keeper = opened(clock, tmp_path, None)
    async with app.run_test(size=(120, 40)) as pilot:
        await lived(app, keeper, clock, pilot, 1)
        assert "⁵ Where the time goes" in text_of(app) and "⁸" not in text_of(app)


async def test_the_stages_stay_a_key_away(clock, tmp_path):
    app, keeper = opened(clock, tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await lived(app, keeper, clock, pilot, 1)
        assert "⁸ Budget" in text_of(app) and "⁵" not in text_of(app)
        await pilot.press("5")
        await settle(pilot, app)
        assert "⁵ Where the time goes" in text_of(app)
        await pilot.press("escape")
        await settle(pilot, app)
        assert "⁸ Budget" in text_of(app) and "⁵" not in text_of(app)


async def test_alerts_are_events(clock, tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    file = tmp_path / "alerts.toml"
    file.write_text(
        'group = "1s"\n[[rules]]\nname = "busy"\nfield = "batch.running"\nabove = 0\nlasts = "2s"\n'
    )
    app, _ = opened(clock, tmp_path, None)
    engine = app.bridge.engine
    app.keeper = Watchkeeper(load(file, {}), (), lambda: {"demo": engine.snapshot()})
    async with app.run_test(size=(120, 40)) as pilot:
        await lived(app, app.keeper, clock, pilot, 10)
        await pilot.press("6")
        await settle(pilot, app)
        assert "▲ warning firing: busy: batch.running above 0: demo" in text_of(app)
