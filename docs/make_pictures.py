"""Draws the pictures of the documentation: a recording of the real engine, through the console.

    python docs/make_pictures.py [--out docs] [--recording docs/overview.everec] [--only NAME]

In English, and in Chinese beside the Chinese pages. The same recording gives the same pictures. A
new one, of about a minute:

    evewatch record embedded --kv-memory 160M --set dynamic_batch=true --hz 2 --duration 60s \
        --out docs/overview.everec
"""

from __future__ import annotations

import argparse
import asyncio
import html
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from rich.cells import cell_len

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from console.app import build_app  # noqa: E402
from console.recording.replay import Replay  # noqa: E402
from console.renderables.screen_state import EnginePhase  # noqa: E402

PICTURES: dict[str, tuple[tuple[int, int], list[str], float]] = {
    # name: (columns and rows, keys, where in the recording: 0 to 1)
    "overview": ((120, 40), [], 0.9),
    "kv": ((120, 40), ["3"], 0.9),
    "latency": ((120, 40), ["4"], 0.9),
}
FOLDERS = {"en": ".", "zh": "zh"}
CELL = 12.2
"""Width of a character in the exported picture."""


async def screenshot(
    recording: Path, language: str, size: tuple[int, int], keys: list[str], share: float
) -> str:
    """SVG of the console at that place of the recording."""
    player = Replay.open(recording, clock=lambda: 0.0)
    app = build_app(player, clock=player.now, refresh_hz=0.001, theme="evewatch", language=language)
    async with app.run_test(size=size) as pilot:
        while app.bridge.phase is not EnginePhase.UP:
            await pilot.pause(0.01)
        player.seek(share * player.length_s)
        app.tick()
        await app.workers.wait_for_complete()  # the graphs are filled
        await pilot.press(*keys)
        app.tick()
        await pilot.pause()
        return tidy(app.export_screenshot(title="evewatch"))


def tidy(svg: str) -> str:
    """Without fonts from elsewhere and random ids; leading blanks as positions, because not
    every viewer keeps them; lengths in cells, where Rich counts a wide character as one."""
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.S)
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    return re.sub(
        r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="[\d.]+"([^>]*)>'
        r"((?:&#160;)*)([^<]*)</text>",
        _without_blanks,
        svg,
    )


def _without_blanks(found: re.Match[str]) -> str:
    kind, x, y, rest, blanks, text = found.groups()
    shown = text.replace("&#160;", " ").rstrip()
    if not shown:
        return ""
    lead = len(blanks) // len("&#160;") * CELL
    start, width = float(x) + lead, cell_len(html.unescape(shown)) * CELL
    text = shown.replace(" ", "&#160;")
    return (
        f'<text class="{kind}" x="{start:.1f}" y="{y}" textLength="{width:.1f}"{rest}>{text}</text>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    parser.add_argument("--recording", type=Path, default=ROOT / "docs" / "overview.everec")
    parser.add_argument("--only", choices=PICTURES, help="this picture alone")
    options = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory() as home:
        os.environ["EVEWATCH_HOME"] = home  # nothing of the user's may get into a picture
        for name in [options.only] if options.only else PICTURES:
            for language, folder in FOLDERS.items():
                svg = asyncio.run(screenshot(options.recording, language, *PICTURES[name]))
                path = options.out / folder / f"{name}.svg"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(svg, "utf-8")
                print(path)


if __name__ == "__main__":
    main()
