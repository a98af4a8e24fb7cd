"""Whole screens as text, compared with tests/console/golden/.

After a wanted change write them anew and look at the difference before committing:

    EVEWATCH_GOLDEN=write python -m pytest tests/console/renderables/test_golden.py
"""

import pytest

from console.app import build_app
from console.renderables.screen_state import EnginePhase
from engine.simulated.demo import DemoEngine
from playbooks.optlog import OptLog
from screens import check, settle, text_of
from waiting import until_shown

SCREENS = {
    # name: (script, (columns, rows), keys)
    "typical-120x40": ("typical", (120, 40), []),
    "typical-80x24": ("typical", (80, 24), []),
    "full-120x40": ("full", (120, 40), []),
    "full-80x24": ("full", (80, 24), []),
    "idle-80x24": ("idle", (80, 24), []),
    "dead-120x40": ("dead", (120, 40), []),
    "stale-80x24": ("stale", (80, 24), []),
    "kv-120x40": ("typical", (120, 40), ["3"]),
    "queue-120x40": ("full", (120, 40), ["1"]),
    "latency-80x24": ("typical", (80, 24), ["4"]),
    "answer-120x40": ("typical", (120, 40), ["i", "h", "i", "enter"]),
    "answer-80x24": ("typical", (80, 24), ["i", "h", "i", "enter"]),
    "help-80x24": ("typical", (80, 24), ["question_mark"]),
    "smallest-62x20": ("typical", (62, 20), []),
    "requests-80x24": ("full", (80, 24), ["r"]),
    "drain-80x24": ("typical", (80, 24), ["D"]),
}


@pytest.mark.parametrize("name", SCREENS)
async def test_screen(name, clock, tmp_path):
    script, size, keys = SCREENS[name]
    app = build_app(
        DemoEngine(script, clock=clock), clock=clock, refresh_hz=0.001, theme="evewatch",
        language="en", log=OptLog(tmp_path / "log.jsonl"),
    )  # fmt: skip
    app.talk.clock = clock
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, lambda: app.bridge.phase is EnginePhase.UP)
        await pilot.press(*keys)
        for _ in range(60):
            clock.now += 0.5
            app.history.push(app.bridge.poll())
            app.talk.take()
        app.overview.show_answer(app.talk)
        app.draw(app.bridge.poll())
        await settle(pilot, app)
        check(name, text_of(app))
