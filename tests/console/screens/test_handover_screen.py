"""H: the page for who comes next, made of the log and of what is seen."""

from __future__ import annotations

from datetime import datetime

from console.app import build_app
from console.renderables.screen_state import EnginePhase
from engine.simulated.demo import DemoEngine
from journeys import journey
from playbooks.optlog import Change, OptLog, Record
from screens import settle, text_of
from waiting import until_shown


@journey("app.show_handover")
async def test_the_page_is_shown_and_can_be_written(clock, tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    log = OptLog(tmp_path / "log.jsonl")
    stored = log.append(Record("Cap 48 → 24", (Change("cap", 48, 24),), rollback="set it back"))
    clock.now = datetime.fromisoformat(stored.time).timestamp() + 60
    app = build_app(DemoEngine(clock=clock), clock=clock, refresh_hz=0.001, language="en", log=log)
    async with app.run_test(size=(100, 50)) as pilot:
        await until_shown(pilot, lambda: app.bridge.phase is EnginePhase.UP)
        await pilot.press("H")
        await until_shown(pilot, lambda: "Nobody keeps watch" in text_of(app))
        await settle(pilot, app)
        for words in ("No alert in this time; 1 change", "what: cap: 48 → 24", "set it back",
                      "engine: SmolLM2-135M", "state: live"):  # fmt: skip
            assert words in text_of(app), words
        await pilot.press("e")
        await settle(pilot, app)
        path = tmp_path / "page.md"
        await pilot.press("ctrl+u", *str(path), "enter")
        await until_shown(pilot, path.exists)
        assert "## What was changed, and what it did" in path.read_text()
