"""The ledger under a small load with cancellations: afterwards nobody may hold anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.config import EngineConfig
from engine.core import Engine
from engine.request import SamplingParams

PROMPT_TOKENS, OUTPUT_TOKENS = 64, 24


def run_ledger(config: EngineConfig, requests: int) -> dict[str, Any]:
    """Take the ledger before, during and after. Verdict fail when anything is left."""
    rng = np.random.default_rng(0)
    with Engine(config) as engine:
        before = engine.ledger()
        params = SamplingParams(max_tokens=OUTPUT_TOKENS, ignore_eos=True)
        streams = [
            engine.submit(rng.integers(0, engine.loaded.spec.vocab, PROMPT_TOKENS).tolist(), params)
            for _ in range(requests)
        ]
        streams[0].next()
        during = engine.ledger()
        for stream in streams[::3]:
            engine.cancel(stream.request_id)
        for stream in streams:
            stream.result()
        after = engine.ledger()
    left = after.minus(before)
    return {
        "schema": 1,
        "kind": "ledger",
        "verdict": "fail" if left or not after.is_zero else "pass",
        "before": before.totals,
        "during": during.totals,
        "owners_during": during.held,
        "after": after.totals,
        "left": left,
        "unowned": after.unowned,
    }
