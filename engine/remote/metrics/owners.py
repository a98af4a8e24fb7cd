"""Whose number a series is. A number has one owner.

Replicas and data-parallel ranks own their numbers, and those add up. The ranks that share one
model (tensor, pipeline) repeat the same work. Any other label (the process that exported a gauge,
an API server, a worker) makes no owner: of gauges that differ only in it one is meant, the newest
where the page says when, else the largest, because what a dead process left behind is small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

Labels = tuple[tuple[str, str], ...]
"""Sorted; without `le`."""
Series = dict[Labels, float]
MODEL = ("model_name", "served_model_name", "model")
_OWNERS = frozenset((
    "engine", "engineid", "engineindex", "enginetype", "role", "dprank", "dp", "dataparallelrank",
    "replica", "replicaid", "replicaname", "instance", "exportedinstance", "pod", "podname",
    "podip", "exportedpod", "kubernetespodname", "node", "nodename", "nodeid", "nodeaddress",
    "host", "hostname", "server", "serverid", "serveraddr", "backend", "backendid", "workeraddr",
    "workeraddress", "workerurl", "addr", "address", "url", "namespace", "cluster", "deployment",
    "application", "job", "region", "zone",
))  # fmt: skip
_PARTS = frozenset((
    "priority", "reason", "finishedreason", "state", "status", "kind", "type", "method",
))  # fmt: skip
"""Parts of one number: they add up, and a series without such a label is their total."""
_SAME_WORK = ("tp_rank", "pp_rank", "moe_ep_rank", "ep_rank", "attn_tp_rank", "moe_tp_rank")


@lru_cache(maxsize=1 << 15)
def owner_of(key: Labels) -> Labels:
    """The labels that say whose it is."""
    return tuple(pair for pair in key if _plain(pair[0]) in _OWNERS)


@lru_cache(maxsize=1 << 15)
def _part_of(key: Labels) -> Labels:
    return tuple(pair for pair in key if _plain(pair[0]) in _PARTS and pair[1])


def owned(gauge: Mapping[Labels, float], times: Mapping[Labels, float]) -> Series:
    """One value an owner; NaN where none of its series has a number. `times` are of those series
    that the page dates."""
    found: dict[Labels, dict[Labels, list[Labels]]] = {}
    for key in gauge:
        found.setdefault(owner_of(key), {}).setdefault(_part_of(key), []).append(key)
    return {
        owner: _one(parts[()], gauge, times)
        if () in parts
        else sum(_one(keys, gauge, times) for keys in parts.values())
        for owner, parts in found.items()
    }


def unrepeated(keys: Iterable[Labels]) -> set[Labels]:
    """Of counters and histograms: the lowest of the ranks that do the same work, and of series
    with priorities the one without, which is their total."""
    several = list(keys)
    totals = [key for key in several if dict(key).get("priority") == ""]
    lowest: dict[Labels, Labels] = {}
    for key in totals or several:
        group = tuple((name, value) for name, value in key if name not in _SAME_WORK)
        if group not in lowest or _position(key) < _position(lowest[group]):
            lowest[group] = key
    return set(lowest.values())


def title(owner: Labels) -> str:
    """ "engine 1", for the operator."""
    ranks = {"engine": "engine", "dp_rank": "dp"}
    return ", ".join(f"{ranks[name]} {value}" if name in ranks else value for name, value in owner)


def model_of(key: Labels) -> str | None:
    labels = dict(key)
    return next((labels[name] for name in MODEL if labels.get(name)), None)


def _one(keys: list[Labels], gauge: Mapping[Labels, float], times: Mapping[Labels, float]) -> float:
    sound = [key for key in keys if math.isfinite(gauge[key])]
    if not sound:
        return math.nan
    dated = all(key in times for key in sound)
    return max((times[key] if dated else 0.0, gauge[key]) for key in sound)[1]


@lru_cache(maxsize=1 << 10)
def _plain(label: str) -> str:
    return label.replace("_", "").replace("-", "").lower()


def _position(key: Labels) -> list[tuple[int, str]]:
    values = [dict(key).get(name, "") for name in _SAME_WORK]
    return [(int(v) if v.isascii() and v.isdigit() and len(v) < 9 else -1, v) for v in values]
