"""Replicas of one service beside each other: which one is slower, and whose settings or answers
differ.

Each is asked the same small load in turns, one request at a time, so that what else goes on there
or here meets all of them alike. The fleet's rule says which one stands out; where one does, all are
asked once more, and it has to be the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.observing.telemetry import percentiles
from engine.remote.fleet.odd import Oddity, odd_ones
from engine.snapshot import LatencyState, Snapshot
from playbooks.load.arrivals import Closed
from playbooks.load.client import run_load
from playbooks.load.mix import parse_mix
from playbooks.load.prompts import derived_seed, fresh_seed
from playbooks.load.record import RequestRecord
from playbooks.load.targets import TargetUnreachable
from playbooks.load.workload import LoadSpec
from playbooks.outside.care import GuardTripped
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint

TURNS, REQUESTS = 4, 4
LENGTHS, TOKENS = "fixed:24,12", 36
"""Of each request: prompt and output, and both."""
BEGINNING = 8
"""Characters of a greedy answer: so far replicas of one model say the same, but for rounding."""
ALIKE = 0.5
"""Of the answers, those that begin alike: with fewer they are not of one model."""
LEAST_ANSWERS = 8


@dataclass
class Replica:
    records: list[RequestRecord] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What its metrics page and its API say; None: not told."""
    down: str | None = None
    """Why nothing was measured."""

    def and_then(self, later: Replica) -> Replica:
        return Replica([*self.records, *later.records], later.settings, self.down or later.down)

    @property
    def beginnings(self) -> list[str | None]:
        """Of its answers, in the order of the requests; None: not answered."""
        return ["".join(r.text or ())[:BEGINNING] if r.completed else None for r in self.records]

    @property
    def measured(self) -> Snapshot:
        """The latencies that clients saw."""
        done = [r for r in self.records if r.completed]
        return Snapshot(
            latency=LatencyState(
                ttft_ms=percentiles(np.array([r.ttft_ms for r in done], float)),
                tpot_ms=percentiles(np.array([r.tpot_ms for r in done], float)),
            )
        )


def odd_replicas(group: Sequence[UrlSite]) -> tuple[str, ...]:
    """In words; () where they are alike. Raises GuardTripped where one has had enough."""
    seed = fresh_seed()
    with ExitStack() as stack:
        for site in group:
            stack.enter_context(site.watched())
        endpoints = [GuardedEndpoint(site, keep_text=True) for site in group]
        first = _round(group, endpoints, seed, range(TURNS))
        if not _slow(first):
            return judge(first)
        return judge(first, _round(group, endpoints, seed, range(TURNS, 2 * TURNS)))


def _round(
    group: Sequence[UrlSite], endpoints: Sequence[GuardedEndpoint], seed: int, turns: range
) -> dict[str, Replica]:
    replicas = {site.spec.base: Replica(settings=_settings(site)) for site in group}
    for turn in turns:
        for endpoint in endpoints:
            load = LoadSpec(
                Closed(1), parse_mix(LENGTHS), requests=REQUESTS, seed=turn,
                prompt_seed=derived_seed(seed, turn, 0),
            )  # fmt: skip
            _ask(endpoint, load, replicas[endpoint.spec.base])
    return replicas


def _ask(endpoint: GuardedEndpoint, load: LoadSpec, replica: Replica) -> None:
    if replica.down is not None:
        return
    try:
        result = run_load(endpoint, load)
    except TargetUnreachable as error:
        replica.down = str(error)
        return
    if endpoint.tripped:
        raise GuardTripped(f"{endpoint.spec.base}: {endpoint.tripped}")
    if result.interrupted:
        raise KeyboardInterrupt
    replica.records.extend(result.records)


def judge(
    first: Mapping[str, Replica], again: Mapping[str, Replica] | None = None
) -> tuple[str, ...]:
    """`again`: measured once more; only who was slow both times is."""
    slow, every = _slow(first), dict(first)
    if again is not None:
        before = {odd.replica for odd in slow}
        slow = [odd for odd in _slow(again) if odd.replica in before]
        every = {name: one.and_then(again[name]) for name, one in first.items()}
    down = [f"{name} is down: {one.down}" for name, one in every.items() if one.down is not None]
    up = _up(every)
    return (*down, *_failing(up), *(f"{odd.replica}: {odd.text}" for odd in slow), *_differing(up),
            *_saying_other(up))  # fmt: skip


def _slow(replicas: Mapping[str, Replica]) -> list[Oddity]:
    return odd_ones({name: replica.measured for name, replica in _up(replicas).items()})


def _up(replicas: Mapping[str, Replica]) -> dict[str, Replica]:
    return {name: one for name, one in replicas.items() if one.down is None}


def _failing(replicas: Mapping[str, Replica]) -> list[str]:
    """Those that answer with errors where others do not."""
    failed = {name: sum(r.failed for r in replica.records)
              for name, replica in replicas.items()}  # fmt: skip
    if 0 not in failed.values():
        return []
    return [f"{name}: {count} of {len(replicas[name].records)} requests failed, none elsewhere"
            for name, count in failed.items() if count]  # fmt: skip


def _differing(replicas: Mapping[str, Replica]) -> list[str]:
    """The odd one is named where the others agree, else all values are."""
    names = dict.fromkeys(name for r in replicas.values() for name in r.settings)
    lines = []
    for name in names:
        told = {who: value for who, replica in replicas.items()
                if (value := replica.settings.get(name)) is not None}  # fmt: skip
        values = Counter(told.values())
        if len(values) < 2:
            continue
        (usual, count), *_ = values.most_common(1)
        if count > len(told) / 2:
            lines += [f"{who}: {name} {value}, the others {usual}"
                      for who, value in told.items() if value != usual]  # fmt: skip
        else:
            lines.append(f"{name} differs: {', '.join(f'{v} at {w}' for w, v in told.items())}")
    return lines


def _saying_other(replicas: Mapping[str, Replica]) -> list[str]:
    """Those whose greedy answers begin as nobody else's; of two, who is right is not known."""
    lines = []
    for name, one in replicas.items():
        shares = {other: share for other, it in replicas.items() if other != name
                  and (share := _alike(one.beginnings, it.beginnings)) is not None}  # fmt: skip
        if shares and max(shares.values()) < ALIKE:
            nearest = max(shares, key=lambda other: shares[other])
            lines.append(f"{name}: {shares[nearest]:.0%} of its answers to the same prompts begin "
                         f"as those of {nearest}")  # fmt: skip
    return lines[:1] if len(replicas) == 2 else lines


def _alike(a: Sequence[str | None], b: Sequence[str | None]) -> float | None:
    both = [(x, y) for x, y in zip(a, b, strict=False) if x is not None and y is not None]
    return sum(x == y for x, y in both) / len(both) if len(both) >= LEAST_ANSWERS else None


def _settings(site: UrlSite) -> dict[str, Any]:
    """Inside its watch."""
    seen = site.watch.look()
    if seen.source.state != "live":
        return {}
    return {
        "engine": seen.source.engine,
        "version": site.watch.version,
        "model": seen.engine.model,
        "longest context": seen.engine.max_model_len,
        "KV format": seen.kv.format,
        "KV pages": seen.kv.total,
        "page size": seen.kv.page_tokens,
        "batch cap": seen.batch.cap_max,
    }
