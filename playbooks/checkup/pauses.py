"""Pauses of a whole target: requests were open, nobody got a token, and this machine was in time.

A request that waits while others go on is a tail (client_view.py). Here all wait: whoever serves
them stood still. Whether that was this machine is not guessed: the client's own loop says when it
woke late, and a pause in which it did is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from playbooks.diagnosis import Tail
from playbooks.load.record import RequestRecord

FAR = 6.0
"""So many times what is usual between two tokens."""
SHARE = 0.05
"""Of the time in which requests are open: less is noise."""
SHORT_MS, SHORT_COUNT = 300.0, 3
"""Pauses of this length count where there are so many."""
LONG_MS = 1000.0
"""And one of this length."""
OWN = 0.2
"""Of a pause, what this machine may have overslept."""
LEAST = 12
"""Requests from which on it is known what is usual."""

Span = tuple[int, int]
"""Nanoseconds: begin and end."""


@dataclass
class Stood:
    """What the pauses of several spans of load come to."""

    requests: int = 0
    busy_ms: float = 0.0
    """Time in which requests were open."""
    typical_ms: float = 0.0
    spans: list[Span] = field(default_factory=list)
    held: int = 0
    """Requests that were open in any of them."""

    def add(self, records: Sequence[RequestRecord], late: Sequence[Span]) -> None:
        """Of requests at the same load; `late`: when this machine's own loop slept too long."""
        done = [r for r in records if r.completed]
        if len(done) < LEAST:
            return
        gap = float(np.median([_longest_gap_ms(r) for r in done]))
        first = max(gap, float(np.median([r.first - r.sent for r in done])) / 1e6)
        least = max(SHORT_MS, FAR * gap)
        found = [span for span, waits in _silences(done, least)
                 if _ms(span) > (max(least, FAR * first) if waits else least)
                 and _overslept(span, late) < OWN * _ms(span)]  # fmt: skip
        self.requests += len(done)
        self.busy_ms += sum(map(_ms, _joined((r.sent, r.last) for r in done)))
        self.typical_ms = max(self.typical_ms, gap)
        self.spans += found
        self.held += sum(any(r.sent < end and r.last > begin for begin, end in found)
                         for r in done)  # fmt: skip

    def tail(self) -> Tail | None:
        """None: no pauses, or none that chance could not explain."""
        times = [_ms(span) for span in self.spans]
        share = sum(times) / self.busy_ms if self.busy_ms else 0.0
        enough = len(times) >= SHORT_COUNT or max(times, default=0.0) > LONG_MS
        if not enough or share < SHARE:
            return None
        return Tail(self.requests, self.held, self.typical_ms, float(np.median(times)),
                    pauses=len(times), stood_share=share)  # fmt: skip


def _silences(done: Sequence[RequestRecord], least_ms: float) -> Iterator[tuple[Span, bool]]:
    """Longer ones between two tokens, whosever, while somebody was open; and whether one that was
    open then waited for its first token."""
    tokens = sorted({event for r in done for event in r.events})
    for before, after in zip([0, *tokens], tokens, strict=False):
        if _ms((before, after)) <= least_ms:
            continue
        open_then = [r for r in done if r.sent < after <= r.last]
        begin = max(before, min(r.sent for r in open_then))
        yield (begin, after), any(r.first >= after for r in open_then)


def _longest_gap_ms(record: RequestRecord) -> float:
    return float(max(record.itl_ms, default=0.0))


def _overslept(span: Span, late: Sequence[Span]) -> float:
    return sum(max(0, min(span[1], end) - max(span[0], begin)) for begin, end in late) / 1e6


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Without overlaps."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _ms(span: Span) -> float:
    return (span[1] - span[0]) / 1e6
