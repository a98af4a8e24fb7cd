"""What a busy hour takes in a recording, and how long it is until a moment of it is on the screen.

    python -m benchmarks.bench_recording [--minutes 60] [--script full] [--keep FILE]

Records a scripted engine on a virtual clock, four looks a second, page owners included. Prints
bytes, the CPU time of a look, and over positions spread through the file the median and the worst
of: the frame alone (unpack, parse), and with what graphs look back on, from a cold file each time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from console.recording.recorder import About, Recorder
from console.recording.replay import Replay
from engine.simulated.demo import DemoEngine

HZ = 4
SEEKS = 25


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def record(path: Path, script: str, minutes: float) -> float:
    """Milliseconds of CPU that a look takes the recorder."""
    clock = Clock()
    engine = DemoEngine(script, clock=clock)
    recorder, spent = Recorder(path, About(script, HZ, engine.config), clock), 0.0
    for _ in range(round(minutes * 60 * HZ)):
        clock.now += 1 / HZ
        snapshot = engine.snapshot()
        start = time.process_time()
        recorder.add(snapshot)
        spent += time.process_time() - start
    recorder.close()
    return spent * 1e3 / recorder.frames


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def seeks(path: Path) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds: opening, a frame, a frame with its graphs; each on a file opened anew."""
    opening, frames, graphs = [], [], []
    for number in range(SEEKS):
        start = time.perf_counter()
        player = Replay.open(path, clock=lambda: 0.0)
        length = player.length_s
        opening.append((time.perf_counter() - start) * 1e3)
        position = length * (number + 0.5) / SEEKS
        frame = timed(lambda p=player, to=position: (p.seek(to), p.snapshot()))  # type: ignore[misc]
        frames.append(frame)
        graphs.append(frame + timed(player.refill))
    return opening, frames, graphs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--script", default="full")
    parser.add_argument("--keep", type=Path, help="the file, instead of a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "busy.everec"
        cost = record(path, options.script, options.minutes)
        size = path.stat().st_size
        print(f"{options.script}, {options.minutes:g} min at {HZ} Hz: {size:,} bytes")
        print(f"recording: {cost:.2f} ms CPU a look")
        for name, found in zip(("open", "seek", "seek + graphs"), seeks(path), strict=True):
            print(f"{name}: {statistics.median(found):.1f} ms median, {max(found):.1f} worst")


if __name__ == "__main__":
    main()
