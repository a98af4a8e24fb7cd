"""Signals that end a command in order: with its report, and without a child left behind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def ended_by(*numbers: signal.Signals, by: Callable[[int], BaseException]) -> Iterator[None]:
    """Within it these signals raise what `by` makes of them, in the main thread."""

    def end(number: int, frame: object) -> NoReturn:
        raise by(number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
