"""Do the target's counters say what its clients got? Others' traffic may add, nothing may lack."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from engine.snapshot import Snapshot
from playbooks.load.record import RequestRecord
from playbooks.outside.watch import Watch

SLACK = 0.02
"""Of what was counted by the clients."""
SETTLE_S = 5.0
"""A page may lag behind the answers so long."""
LOOK_S = 0.25


@dataclass(frozen=True)
class Counters:
    """Totals of a metrics page; None: not told."""

    ended: int | None = None
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    prefix_queried: int | None = None
    prefix_hits: int | None = None

    @classmethod
    def of(cls, seen: Snapshot) -> Counters:
        if seen.source.state != "live":
            return cls()
        ended = sum(seen.finished.values()) if seen.finished else None
        return cls(
            ended, seen.batch.output_tokens_total, seen.batch.prompt_tokens_total,
            seen.kv.prefix_queried_total, seen.kv.prefix_hits_total,
        )  # fmt: skip

    def hit_ratio(self, before: Counters) -> float | None:
        """Of the prefix cache since then; None: not told, or nothing was looked up."""
        if self.prefix_queried is None or self.prefix_hits is None:
            return None
        queried = self.prefix_queried - (before.prefix_queried or 0)
        hits = self.prefix_hits - (before.prefix_hits or 0)
        return hits / queried if queried > 0 and 0 <= hits <= queried else None


def disagreements(
    before: Counters, records: Sequence[RequestRecord], watch: Watch
) -> tuple[str, ...] | None:
    """In words; None where the target tells no counter, or began again meanwhile."""
    done = [r for r in records if r.completed]
    counted = [r for r in done if r.usage and r.prompt_usage]
    cached = sum(r.cached_tokens or 0 for r in counted)
    told_cached = all(r.cached_tokens is not None for r in counted)
    got = {
        "requests ended": (len(done), "ended"),
        "output tokens": (sum(r.output_tokens for r in counted), "output_tokens"),
    }
    if told_cached:  # some engines count what they computed, others all
        computed = sum(r.prompt_tokens for r in counted) - cached
        got["prompt tokens"] = (computed, "prompt_tokens")
    end = time.monotonic() + SETTLE_S
    while True:
        after = Counters.of(watch.look())
        found, told = [], 0
        for what, (ours, name) in got.items():
            first, last = getattr(before, name), getattr(after, name)
            if last is None or (first is None and name != "ended"):
                continue
            told += 1
            counts = last - (first or 0)
            if counts < ours * (1 - SLACK) - 1:
                found.append(f"{what}: clients got {ours}, its counter rose by {counts}")
        if not found or time.monotonic() > end:
            break
        time.sleep(LOOK_S)
    if not told or watch.restarts:
        return None
    return tuple(found)
