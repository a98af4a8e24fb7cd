"""What the clients of a load saw, as evidence: broken streams, and a tail that no load explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from playbooks.diagnosis import Broken, Tail
from playbooks.load.limits import CLIENT_LIMIT
from playbooks.load.record import RequestRecord

BROKEN = ("dropped", "bad_stream", "aborted")
"""Kinds of failure in which an answer began and did not end as it should."""
FAR = 6.0
"""So many typical times is far slower than the neighbours."""
FLOOR_MS = 1000.0
"""And at least so much longer: less is a scheduler's or a shared machine's noise."""
LONG_MS = 2000.0
"""A wait that counts although nobody else got a token meanwhile, or no other was as long."""
MOST_SHARE = 0.25
"""Of the requests: more than this is no tail, it is how the engine is."""
SAME_LOAD = 1.5
"""Times the usual number in flight: where more are open a wait has a reason."""
LONG_PROMPT = 3.0
"""Times the middle prompt: a longer one may take its time."""
LEAST = 12
"""Requests that have a tail."""
EVEN = 0.12
"""Relative spread of the distances between slow ones that come in a rhythm."""


def client_facts(records: Sequence[RequestRecord]) -> dict[str, Any]:
    """Facts of Evidence that any load's records give."""
    return {
        "broken": broken_of(records),
        "tail": find_tail(records),
        "refused_share": refused_share(records),
    }


def broken_of(records: Sequence[RequestRecord]) -> Broken | None:
    """None when nothing was sent."""
    kinds = Counter(r.error for r in records if r.error in BROKEN)
    how = {r.error: r.detail or "" for r in records if r.error in BROKEN}
    said = tuple(f"{n} × {kind}: {how[kind]}" for kind, n in kinds.most_common() if kind)
    return Broken(len(records), kinds.total(), said) if records else None


def refused_share(records: Sequence[RequestRecord]) -> float | None:
    """Of those that could be sent, those that failed otherwise than by a broken stream."""
    sent = [r for r in records if r.error != CLIENT_LIMIT]
    failed = sum(r.failed and r.error not in BROKEN for r in sent)
    return failed / len(sent) if sent else None


def find_tail(records: Sequence[RequestRecord]) -> Tail | None:
    """The requests that waited far longer than the others at the same load, and their rhythm.

    A wait during which others got their tokens is the request's own. One in which nobody got any
    may be this machine's: it counts when it is long. None where there are too few to tell.
    """
    done = sorted((r for r in records if r.completed), key=lambda r: r.sent)
    if len(done) < LEAST:
        return None
    first = [_Wait(r.sent, r.first) for r in done]
    gaps = [_longest_gap(r) for r in done]
    comparable = _comparable(done)
    tails = [_tail(done, comparable, *one) for one in ((first, "the first token"),
                                                      (gaps, "the next token"))]  # fmt: skip
    return max(tails, key=lambda tail: tail.slow * tail.slow_ms)


@dataclass(frozen=True)
class _Wait:
    """Nanoseconds."""

    begin: int
    end: int

    @property
    def ms(self) -> float:
        return (self.end - self.begin) / 1e6


def _longest_gap(record: RequestRecord) -> _Wait:
    events = np.frombuffer(record.events, np.int64)
    if len(events) < 2:
        return _Wait(record.first, record.first)
    at = int(np.argmax(np.diff(events)))
    return _Wait(int(events[at]), int(events[at + 1]))


def _comparable(done: Sequence[RequestRecord]) -> np.ndarray:
    """Of each: sent while no more than usual were open, with a prompt that is not a long one."""
    sent = np.array([r.sent for r in done])  # rising
    ended = np.sort([r.ended or r.last for r in done])
    open_then = np.searchsorted(sent, sent) - np.searchsorted(ended, sent, "right") + 1
    prompt = np.array([r.prompt_tokens or r.prompt_asked for r in done])
    usual = (open_then <= SAME_LOAD * np.median(open_then)) & (
        prompt <= LONG_PROMPT * np.median(prompt)
    )
    return np.asarray(usual)


def _tail(
    done: Sequence[RequestRecord], comparable: np.ndarray, waits: Sequence[_Wait], where: str
) -> Tail:
    times = np.array([wait.ms for wait in waits])
    typical = float(np.median(times))
    beyond = times - typical
    slow = np.flatnonzero(comparable & (beyond > FLOOR_MS) & (times > FAR * typical))
    found = np.array(
        [i for i in map(int, slow) if beyond[i] > LONG_MS or _others_went_on(done, i, waits[i])]
    )
    chance = len(found) == 1 and beyond[found[0]] <= LONG_MS
    if not len(found) or chance or len(found) > MOST_SHARE * len(done):
        return Tail(len(done), typical_ms=typical, where=where)
    sent_s = np.array([r.sent for r in done])[found] / 1e9
    every, every_s = _even(found), _even(sent_s)
    return Tail(
        len(done),
        len(found),
        typical,
        float(np.median(beyond[found])),
        where,
        None if every is None else round(every),
        every_s if every is None else None,
    )


def _others_went_on(done: Sequence[RequestRecord], own: int, wait: _Wait) -> bool:
    """Did others get tokens through the middle of the wait?"""
    quarter = (wait.end - wait.begin) // 4
    begin, end = wait.begin + quarter, wait.end - quarter
    return any(
        begin < event < end
        for i, record in enumerate(done)
        if i != own and record.sent < end and record.last > begin
        for event in record.events
    )


def _even(places: np.ndarray) -> float | None:
    """The distance between neighbours, where they are all alike; three at least have a rhythm."""
    steps = np.diff(places)
    if len(steps) < 2:
        return None
    middle = float(np.median(steps))
    return middle if middle and np.abs(steps / middle - 1).max() <= EVEN else None
