"""Draws the pictures of the documentation, through the console itself on the scripted engine.

    python docs/make_pictures.py [--out docs] [--script typical] [--size 120x40]

The same input gives the same file: the clock, the seed and the ids are fixed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from console.app import build_app  # noqa: E402
from console.renderables.frame import Phase  # noqa: E402
from engine.fake import SCRIPTS, FakeEngine  # noqa: E402

EVE = 1_798_138_800.0
"""2026-12-24 19:00:00 UTC."""
SECONDS = 150
CELL = 12.2
"""Width of a character in the exported picture."""


async def screenshot(script: str, size: tuple[int, int], keys: list[str]) -> str:
    """SVG of the console after SECONDS of the script."""
    now = EVE
    app = build_app(FakeEngine(script, clock=lambda: now), clock=lambda: now, refresh_hz=0.001)
    async with app.run_test(size=size) as pilot:
        while app.bridge.phase is not Phase.UP:
            await pilot.pause(0.01)
        await pilot.press(*keys)
        for _ in range(SECONDS * 2):
            now += 0.5
            app.history.push(app.bridge.poll())
        app.draw(app.bridge.poll())
        await pilot.pause()
        return tidy(app.export_screenshot(title="evewatch"))


def tidy(svg: str) -> str:
    """Without fonts from elsewhere and random ids; leading blanks as positions, because not
    every viewer keeps them."""
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.S)
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    return re.sub(
        r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>'
        r"((?:&#160;)*)([^<]*)</text>",
        _without_blanks,
        svg,
    )


def _without_blanks(found: re.Match[str]) -> str:
    kind, x, y, length, rest, blanks, text = found.groups()
    shown = text.replace("&#160;", " ").rstrip()
    if not shown:
        return ""
    lead = len(blanks) // len("&#160;") * CELL
    tail = (len(text.replace("&#160;", " ")) - len(shown)) * CELL
    start, width = float(x) + lead, float(length) - lead - tail
    text = shown.replace(" ", "&#160;")
    return (
        f'<text class="{kind}" x="{start:.1f}" y="{y}" textLength="{width:.1f}"{rest}>{text}</text>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    parser.add_argument("--script", choices=SCRIPTS, default="typical")
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--keys", default="", help="pressed first, comma-separated")
    parser.add_argument("--name", default="overview")
    options = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    width, height = map(int, options.size.split("x"))
    keys = options.keys.split(",") if options.keys else []
    svg = asyncio.run(screenshot(options.script, (width, height), keys))
    path = options.out / f"{options.name}.svg"
    path.write_text(svg, "utf-8")
    print(path)


if __name__ == "__main__":
    main()
