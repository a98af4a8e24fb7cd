"""What a console in a test shows, as text."""

from __future__ import annotations

import os
from typing import Any

from repository import ROOT

GOLDEN = ROOT / "tests" / "console" / "renderables" / "golden"
WRITE = os.environ.get("EVEWATCH_GOLDEN") == "write"


async def settle(pilot: Any, app: Any) -> None:
    """Until two looks in a row are the same."""
    before = ""
    for _ in range(100):
        await pilot.pause()
        now = text_of(app)
        if now == before:
            return
        before = now
    raise AssertionError("the screen does not come to rest")


def text_of(app: Any) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


def check(name: str, text: str) -> None:
    """Against tests/console/golden/; EVEWATCH_GOLDEN=write writes it anew."""
    path = GOLDEN / f"{name}.txt"
    if WRITE:
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")
