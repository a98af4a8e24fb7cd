"""Causes that make answers or numbers wrong: versions, cross-talk, quantisation, leaks."""

from __future__ import annotations

from playbooks.diagnosis.evidence import Evidence, Growth
from playbooks.diagnosis.findings import RESTART, Finding, confidence

CLIPPED = 0.01
"""More clipped values than this and the calibration does not fit the work."""
SHOWN = 4
RANK = {"ledger": 0, "container": 1, "object": 2, "memory": 3}
"""What a leak is named by: the class of resource says more than bytes."""


def version_mismatch(e: Evidence) -> Finding | None:
    if not e.broken_versions:
        return None
    return Finding(
        "version_mismatch",
        0.95,
        e.broken_versions,
        "install the versions that the environment report names, and start again",
        RESTART,
        "`evewatch env` without a failed check",
    )


def cross_talk(e: Evidence) -> Finding | None:
    assert e.mixed_answers is not None
    if not e.mixed_answers:
        return None
    return Finding(
        "cross_talk",
        confidence(e.mixed_answers, 1, 3),
        (f"{e.mixed_answers} of the marked requests were answered otherwise together than alone",),
        "take the engine out of service; go back to the version or settings before",
        RESTART,
        "the same requests, served one at a time, differ from each other as well",
    )


def static_scale_clips(e: Evidence) -> Finding | None:
    assert e.clipped is not None
    if e.clipped <= CLIPPED:
        return None
    return Finding(
        "static_scale_clips",
        confidence(e.clipped, CLIPPED, 5 * CLIPPED),
        (f"static scales clipped {e.clipped:.1%} of K and V (limit {CLIPPED:.0%})",),
        "run `evewatch model calibrate` on prompts like the real ones, or use int8_channel",
        RESTART,
        "a calibration on this work that clips as much",
    )


def outlier_channel(e: Evidence) -> Finding | None:
    assert e.mean_kld is not None and e.suspects is not None
    if e.mean_kld <= e.kld_limit or not e.suspects:
        return None
    return Finding(
        "outlier_channel_quantised",
        confidence(e.mean_kld, e.kld_limit, 3 * e.kld_limit),
        (
            f"mean KL divergence from fp16 KV is {e.mean_kld:.3g} (limit {e.kld_limit:g})",
            *e.suspects[:SHOWN],
        ),
        "keep those channels in high precision: kv_format int8_channel, and "
        "`evewatch model calibrate` for the outlier plane; fp16 meanwhile",
        RESTART,
        "int8_channel with those channels in the outlier plane is no better",
    )


def leak(e: Evidence) -> Finding | None:
    assert e.growth is not None
    if not e.growth:
        return None
    grown = sorted(e.growth, key=lambda g: (RANK[g.kind], -abs(g.per_request)))
    return Finding(
        "leak",
        _certainty(grown[0]),
        tuple(f"grows: {one}" for one in grown[:SHOWN]),
        f"restart before {grown[0].what} runs out, and look at who releases it on every way out "
        "(finish, cancel, timeout, error)",
        RESTART,
        "the same number of requests once more and nothing grows: it was a cache filling up",
    )


def _certainty(growth: Growth) -> float:
    return {"ledger": 0.95, "container": 0.9, "object": 0.8}.get(growth.kind, 0.65)
