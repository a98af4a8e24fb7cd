"""A load on a fit: the same arrivals, lengths and prompts as on the engine, in virtual time."""

from __future__ import annotations

from array import array

import numpy as np

from engine.config import EngineConfig
from engine.request import FinishReason, Request, SamplingParams
from playbooks.forecast.fit_file import Fit
from playbooks.load.arrivals import Closed
from playbooks.load.client import LoadResult
from playbooks.load.prompts import TokenPrompts
from playbooks.load.record import RequestRecord
from playbooks.load.workload import LoadSpec, Planned, Workload

FAILED = (FinishReason.REJECTED, FinishReason.TIMEOUT, FinishReason.ERROR)
VOCAB = 32_000
"""Of the made-up prompts: which tokens are equal matters, and not which they are."""


def run_virtual_load(
    fit: Fit, config: EngineConfig, spec: LoadSpec, *, seed: int = 0, speed: float = 1.0
) -> LoadResult:
    """An open loop; its result can be summarized as one that was measured.

    Request 17 has the lengths and the moment that it has on any target with this spec. Raises
    ConfigError for settings that the fit is not of.
    """
    assert not isinstance(spec.arrivals, Closed), "users who wait are not simulated"
    replica = fit.replica(config, seed=seed, speed=speed)
    pool = replica.loop.scheduler.pool
    limit = min(replica.loop.scheduler.max_model_len, pool.total * pool.page_tokens)
    prompts = TokenPrompts(np.arange(VOCAB), spec.words_seed, spec.shared_prefix)
    start, workload = replica.clock.ns(), Workload(spec, limit)
    sent: list[tuple[Planned, Request]] = []
    for planned in workload:
        due = start + (planned.at_ns or 0)
        replica.run_until(due)
        params = SamplingParams(max_tokens=planned.output, ignore_eos=True)
        prompt = prompts.make(planned.number, planned.prompt)
        sent.append((planned, replica.submit(prompt, params, at=due, tokenize_ns=fit.arrival_ns)))
    replica.run()
    result = LoadResult(spec, {"kind": "fit", "model": fit.facts.model}, start=start)
    result.records = [_record(planned, request) for planned, request in sent]
    until = start + int((spec.seconds or 0.0) * 1e9)
    result.issued_until = max([until, *(r.scheduled for r in result.records)])
    result.end, result.shortened = replica.clock.ns(), workload.shortened
    return result


def _record(planned: Planned, request: Request) -> RequestRecord:
    stamps, reason = request.stamps, request.finish_reason
    assert reason is not None
    return RequestRecord(
        planned.number, stamps.arrival, planned.prompt, planned.output,
        sent=stamps.arrival, events=array("q", stamps.tokens), ended=stamps.finished,
        prompt_tokens=len(request.prompt_ids), output_tokens=len(stamps.tokens),
        finish_reason=reason.value, error=reason.value if reason in FAILED else None,
        stamps=stamps,
    )  # fmt: skip
