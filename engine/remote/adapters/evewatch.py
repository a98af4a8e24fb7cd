"""EveWatch itself: the Snapshot as it is, and the metrics for what merges with other engines."""

from __future__ import annotations

from dataclasses import replace

from engine.remote.adapters.base import Adapter, vllm_names

_SHARED = vllm_names("vllm:")
EVEWATCH = Adapter(
    name="evewatch",
    title="EveWatch",
    prefixes=("evewatch:",),
    names=replace(
        _SHARED,
        cap=("evewatch:batch_cap",),
        pages=("evewatch:kv_pages",),
        free_pages=("evewatch:kv_pages_free",),
        finished=("evewatch:requests_finished_total",),
        reason="reason",
        counters={**_SHARED.counters, "steps": ("evewatch:steps_total",)},
    ),
    cannot_know=(),
)
