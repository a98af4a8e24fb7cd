"""What `forecast fit` shows and writes of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from engine.observing.host import HostEvidence
from playbooks.forecast.fit_file import Fit
from playbooks.measure.witnessed import host_report
from playbooks.optlog.provenance import provenance_of

SCHEMA = 1


def fit_report(fit: Fit, hosts: Sequence[HostEvidence], seconds: float) -> dict[str, Any]:
    cost, settings = fit.cost, fit.config
    assert fit.held_out is not None
    return {
        "schema": SCHEMA,
        "kind": "forecast_fit",
        "fingerprint": asdict(fit.fingerprint),
        "model": fit.facts.model,
        "pages": fit.pages,
        "page_tokens": settings.page_tokens,
        "max_batch": settings.max_batch,
        "max_model_len": fit.max_model_len,
        "curve_ms": [[tokens, ns / 1e6] for tokens, ns in cost.tokens],
        "row_us": cost.row / 1e3,
        "context_token_ns": cost.context,
        "chunk_context_token_ns": cost.chunk_context,
        "sealed_page_us": cost.sealed / 1e3,
        "arrival_ms": fit.arrival_ns / 1e6,
        "spread": float(np.std(fit.slowness)),
        "drift": fit.drift,
        "held_out": asdict(fit.held_out),
        "notes": list(fit.notes),
        "host": host_report(hosts) if hosts else None,
        "environment": provenance_of(settings),
        "seconds": round(seconds, 1),
    }
