"""What grew: memory, containers that live as long as the engine, and objects by class.

Looked at between two waves of requests, when the engine is idle: then nothing may be more than
it was before, whatever came in between.
"""

from __future__ import annotations

import gc
import itertools
import queue
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from engine.core import Engine
from engine.observing.machine import system_heap, torch_cuda
from engine.scheduling.pages import PagePool
from engine.scheduling.prefix import PrefixIndex
from playbooks.diagnosis import Growth
from playbooks.statistics.intervals import theil_sen

SERVING = ("engine.", "kernels.")
BESIDE = ("engine.observing.host.", "engine.remote.", "engine.simulated.", "engine.snapshot.")
"""What lives beside an engine and is not its: rows of the machine's processes, what is known of
engines that are watched, simulated ones, and what somebody keeps of the past."""
OURS = (*SERVING, "playbooks.")
SIZED = (dict, list, set, deque, bytearray)
BOUNDED = (PagePool, PrefixIndex)
"""Their entries are pages, which the ledger and the integrity check count."""
DEPTH, INSIDE = 6, 16
LEAST_RATE = 0.02
"""Entries per request: one in fifty requests leaves something."""
LEAST_GROWTH = 4
LEAST_BYTES, LEAST_RSS = 1024, 8 << 20
"""Per request, and in all: the resident set jumps by a few MiB for many reasons."""
PAGES = "pages"


@dataclass(frozen=True)
class Look:
    """The engine at idle, after `served` requests."""

    served: int
    rss: int
    allocated: int | None
    """Bytes in use by the allocator, where it says so."""
    reserved: int | None
    pages: int
    """Pages that are neither free nor cached."""
    ledger: dict[str, int]
    containers: dict[str, int]


def look(engine: Engine, served: int) -> Look:
    allocated, reserved = allocator()
    return Look(
        served, int(psutil.Process().memory_info().rss), allocated, reserved, engine.pool.used,
        engine.ledger().totals, containers(engine),
    )  # fmt: skip


# --- containers ------------------------------------------------------------------------------


def containers(engine: Engine) -> dict[str, int]:
    """Entries of every container that the engine or one of its modules keeps, by its path."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    todo: deque[tuple[str, Any, int]] = deque([("engine", engine, 0), *_globals()])
    while todo:
        path, value, depth = todo.popleft()  # so that what is shared has its shortest path
        if id(value) in seen or depth > DEPTH:
            continue
        seen.add(id(value))
        if isinstance(value, queue.SimpleQueue):
            found[path] = value.qsize()
        elif isinstance(value, SIZED):
            found[path] = len(value)
            if len(value) <= INSIDE and not isinstance(value, bytearray):
                inside = list(value.values() if isinstance(value, dict) else value)
                todo += [(f"{path}[]", v, depth + 1) for v in inside if _is_ours(v)]
        elif _is_ours(value):
            todo += [(f"{path}.{n}", v, depth + 1) for n, v in _attributes(value)]
    return found


def _globals() -> Iterator[tuple[str, Any, int]]:
    for name, module in list(sys.modules.items()):
        if name.startswith(SERVING):
            for key, value in list(vars(module).items()):
                if isinstance(value, SIZED) and not key.startswith("__"):
                    yield f"{name}:{key}", value, DEPTH


def _is_ours(value: object) -> bool:
    kind = type(value)
    return str(kind.__module__).startswith(OURS) and not isinstance(value, (*BOUNDED, type))


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(value, "__dict__", {}).items())
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(value, name):
                yield name, getattr(value, name)


# --- objects and memory ------------------------------------------------------------------------


def objects() -> Counter[str]:
    """Living objects of the engine's classes, by class. Collects garbage first."""
    gc.collect()
    kinds = ((str(kind.__module__), kind.__qualname__, n)
             for kind, n in Counter(map(type, gc.get_objects())).items())  # fmt: skip
    return Counter(
        {f"{module}.{name}": n for module, name, n in kinds
         if module.startswith(SERVING) and not f"{module}.".startswith(BESIDE)}
    )  # fmt: skip


def allocator() -> tuple[int | None, int | None]:
    """Bytes in use and bytes taken from the system; of the GPU's allocator where one runs."""
    state = torch_cuda() or system_heap()
    return (None, None) if state is None else (state.allocated_bytes, state.reserved_bytes)


# --- slopes --------------------------------------------------------------------------------------


def growth(looks: Sequence[Look], classes: Sequence[tuple[int, Counter[str]]]) -> list[Growth]:
    """What rose from look to look, by a robust slope over the requests served.

    `classes`: objects by class after so many requests, three times or more.
    """
    if len(looks) < 3:
        return []
    return [*_held(looks), *_entries(looks), *_objects(classes), *_memory(looks)]


def slope(looks: Sequence[Look], values: Sequence[float], what: str, kind: str) -> Growth | None:
    found = theil_sen([look.served for look in looks], values)
    return None if found is None else Growth(what, kind, found.estimate, found.low)


def _rises(one: Growth | None, first: float, last: float) -> bool:
    sure = one is not None and one.low is not None and one.low > 0
    return sure and one is not None and one.per_request >= LEAST_RATE and (
        last - first >= LEAST_GROWTH
    )  # fmt: skip


def _held(looks: Sequence[Look]) -> Iterator[Growth]:
    """Anything that is still held at idle, growing or not."""
    for name in looks[-1].ledger:
        values = [look.ledger.get(name, 0) for look in looks]
        if values[-1] > 0:
            one = slope(looks, values, name, "ledger")
            rate = values[-1] / max(looks[-1].served, 1)
            yield one if one is not None and one.per_request > 0 else Growth(name, "ledger", rate)
    pages = [look.pages for look in looks]
    if pages[-1] > 0 and not looks[-1].ledger.get(PAGES):
        yield Growth(PAGES, "ledger", pages[-1] / max(looks[-1].served, 1))


def _entries(looks: Sequence[Look]) -> Iterator[Growth]:
    for path in looks[-1].containers:
        values = [look.containers.get(path, 0) for look in looks]
        one = slope(looks, values, path, "container")
        if one is not None and _rises(one, values[0], values[-1]):
            yield one


def _objects(classes: Sequence[tuple[int, Counter[str]]]) -> Iterator[Growth]:
    """Classes with more objects each time."""
    if len(classes) < 3:
        return
    served = classes[-1][0] - classes[0][0]
    for name in classes[-1][1]:
        counts = [count[name] for _, count in classes]
        rises = all(b > a for a, b in itertools.pairwise(counts))
        rate = (counts[-1] - counts[0]) / max(served, 1)
        if rises and rate >= LEAST_RATE and counts[-1] - counts[0] >= LEAST_GROWTH:
            yield Growth(name, "object", rate)


def _memory(looks: Sequence[Look]) -> Iterator[Growth]:
    for name, values in (
        ("resident set", [look.rss for look in looks]),
        ("allocated memory", [look.allocated for look in looks]),
    ):
        known = [float(v) for v in values if v is not None]
        if len(known) < len(values) or known[-1] - known[0] < LEAST_RSS:
            continue
        one = slope(looks, known, name, "memory")
        sure = one is not None and one.low is not None and one.low > 0
        if one is not None and sure and one.per_request >= LEAST_BYTES:
            yield one
