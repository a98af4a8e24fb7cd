"""CPU per tick of the console on a changing Snapshot, terminal output included.

    python -m benchmarks.bench_draw [--size 120x40] [--ticks 200] [--repeats 5] [--objectives]

The world moves half a second a tick, as at 2 Hz. Prints the best and the median over repeats of
the mean CPU time (all threads of this process) of a tick. With `--objectives`
budgets are kept and drawn, and looked at once in two ticks as a watchkeeper does, which counts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from pathlib import Path

from console.app import Console, build_app
from console.commands.headless_console import NullDriver
from engine.observing.objectives import Objective
from engine.simulated.demo import DemoEngine
from playbooks.alerts.watchkeeper import Watchkeeper
from playbooks.objectives.book import Book
from playbooks.objectives.file import Objectives

PROMISED = Objectives(
    (Objective("ttft", 0.99, 1.0), Objective("tpot", 0.95, 0.07), Objective("e2e", 0.95, 30.0),
     Objective("availability", 0.999)),
    8 * 86_400.0,
)  # fmt: skip


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


async def measure(
    size: tuple[int, int], ticks: int, keys: list[str], promised: Objectives | None
) -> tuple[float, float]:
    """Milliseconds of CPU and bytes written per tick."""
    clock = Clock()
    engine = DemoEngine(clock=clock, objectives=promised.each if promised is not None else ())
    book = None if promised is None else Book(promised, Path("unread"))
    keeper = Watchkeeper(None, (), lambda: {"demo": engine.snapshot()}, book=book)
    app: Console = build_app(engine, clock=clock, refresh_hz=0.001, keeper=keeper)
    app.driver_class = NullDriver
    async with app.run_test(headless=False, size=size) as pilot:
        await pilot.press(*keys)
        for _ in range(20):
            await one_tick(app, clock)
        driver = app._driver
        assert isinstance(driver, NullDriver)
        before = driver.written
        spent = 0.0
        for _ in range(ticks):
            spent += await one_tick(app, clock)
    return spent * 1e3 / ticks, (driver.written - before) / ticks


async def one_tick(app: Console, clock: Clock) -> float:
    """CPU seconds; the fake engine's own time is not the console's and does not count."""
    clock.now += 0.5
    snapshot = app.bridge.poll()
    start = time.process_time()
    if app.keeper is not None and app.keeper.book is not None and clock.now % 1.0 == 0:
        app.keeper.book.look({"demo": snapshot})
    app.history.push(snapshot)
    drawn = asyncio.Event()
    app.draw(snapshot)
    # The screen paints when its queue is empty and its timer has fired.
    app.overview.call_after_refresh(drawn.set)
    await drawn.wait()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--objectives", action="store_true", help="keep and draw budgets")
    parser.add_argument("--keys", default="", help="pressed first, comma-separated")
    options = parser.parse_args()
    width, height = map(int, options.size.split("x"))
    keys = options.keys.split(",") if options.keys else []
    promised = PROMISED if options.objectives else None
    runs = [
        asyncio.run(measure((width, height), options.ticks, keys, promised))
        for _ in range(options.repeats)
    ]
    best, middle = min(run[0] for run in runs), statistics.median(run[0] for run in runs)
    print(
        f"{options.size}: {best:.2f} ms CPU a tick at best, {middle:.2f} median of "
        f"{options.repeats} runs; {runs[0][1]:,.0f} bytes a tick"
    )


if __name__ == "__main__":
    main()
