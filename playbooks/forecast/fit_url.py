"""The fit of an engine at a URL, as one black box: a ladder of loads, seen from outside.

Where its events carry one token each, its steps are seen in its streams; else in what its metrics
page counts. How many pages it has and how many requests run at once its page says, or whoever asks.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.scheduling.plan import KvFacts, ModelFacts
from engine.simulated.fitted import CostCoefficients
from engine.simulated.work import StepWork
from engine.snapshot import Snapshot
from playbooks.forecast.fit_file import ANY_TOKEN, Fingerprint, Fit
from playbooks.forecast.fit_report import fit_report
from playbooks.forecast.fitting import predict, step_times
from playbooks.forecast.ladder import Rung, climb, rungs
from playbooks.forecast.step_log import StepLog
from playbooks.forecast.streamed_steps import lone_prompts, one_token_each, streamed_steps
from playbooks.load.record import RequestRecord
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.steps import Progress
from playbooks.steps.models import FitWork

PAGE_TOKENS = (16, 32)
TOKEN_BUDGET = 2048
"""Tokens of a step where nobody says."""


FIRST = Rung(number=0, round=0, users=1, lengths="fixed:24,4", seconds=0.5, seed=0)
"""Before the ladder: it pays for what is built on first use, and tells what a word is in tokens."""


@dataclass(frozen=True)
class Asked:
    """What the operator says of the engine; it wins over the engine's own page."""

    pages: int | None = None
    page_tokens: int | None = None
    max_batch: int | None = None
    token_budget: int | None = None
    max_model_len: int | None = None


def run_fit_url(
    site: UrlSite,
    asked: Asked,
    work: FitWork,
    progress: Progress = lambda *_: None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Fit, dict[str, Any]]:
    """Raises ConfigError for what neither the page nor the operator tells, before a request is
    sent; EngineError when one fails."""
    start, log = time.monotonic(), StepLog()
    arrivals: list[tuple[int, int]] = []
    with site.watched():
        seen = site.watch.look()
        engine = _Engine(seen, asked)
        for note in engine.notes:
            say(note)
        limit = _words(site, engine.max_model_len)
        for rung in climb(rungs(work, engine.config.max_batch), progress):
            with site.watch.kept() as kept:
                records = rung.run(_endpoint(site, limit)).records
            looks = [look for look in kept if look.source.state == "live"]
            for step in _steps(records, looks, engine.config.page_tokens):
                log.add(*step, rung.number, rung.round)
            arrivals += lone_prompts(records)
    times = step_times(log)
    fit = Fit(
        fingerprint=Fingerprint(
            engine=seen.source.engine, version=None, model=seen.engine.model,
            format=seen.kv.format, kernels=seen.engine.kernels, machine=None,
            url=site.spec.shown,
        ),
        settings=engine.config.to_dict(),
        facts=engine.facts,
        pages=engine.pages,
        max_model_len=engine.max_model_len,
        arrival_ns=_arrival_ns(arrivals, times.cost, engine.config.token_budget),
        when=time.time(),
        notes=tuple(engine.notes),
        **times._asdict(),
    )  # fmt: skip
    return fit, fit_report(fit, (), time.monotonic() - start)


def _endpoint(site: UrlSite, limit: int | None = None) -> GuardedEndpoint:
    """`limit`: prompt and output together, in words."""
    endpoint = GuardedEndpoint(site)
    endpoint.spec = replace(site.spec, limit=limit)
    return endpoint


def _words(site: UrlSite, longest: int) -> int:
    """How many of them fit into so many tokens."""
    records = FIRST.run(_endpoint(site)).records
    tokens = max(r.prompt_tokens / r.prompt_asked for r in records)
    return int(longest / max(1.2 * tokens, 1.2))


class _Engine:
    """What schedules as the engine at the URL does, from its page and from what is asked.

    Raises ConfigError for what nobody tells.
    """

    def __init__(self, seen: Snapshot, asked: Asked) -> None:
        self.notes: list[str] = []
        size = asked.page_tokens or seen.kv.page_tokens or PAGE_TOKENS[0]
        pages = asked.pages or seen.kv.total
        cap = asked.max_batch or seen.batch.cap_max or seen.batch.cap
        longest = asked.max_model_len or seen.engine.max_model_len
        if not pages:
            raise ConfigError("how many blocks its KV cache has is not on its page: give --pages")
        if not cap:
            raise ConfigError(
                "how many requests it runs at once is not on its page: give --max-batch"
            )
        if size not in PAGE_TOKENS:
            self.notes.append(f"its blocks of {size} tokens are taken as pages of 16")
            pages, size = max(pages * size // PAGE_TOKENS[0], 1), PAGE_TOKENS[0]
        if longest is None:
            longest = pages * size
            self.notes.append("its longest context is not known: taken as its whole KV cache")
        budget = asked.token_budget
        if budget is None:
            budget = max(TOKEN_BUDGET, cap)
            self.notes.append(
                f"tokens of a step at most are not known: taken as {budget}; --set token_budget=N"
            )
        self.pages, self.max_model_len = pages, longest
        self.config = EngineConfig(
            model=seen.engine.model or "unknown", page_tokens=size, max_batch=cap,
            token_budget=max(budget, cap), max_model_len=longest,
        )  # fmt: skip
        weighs = seen.kv.bytes_per_token or 1.0
        page = max(round(weighs * size), 1)
        kv = KvFacts(seen.kv.format or "unknown", page, 0, pages * page, weighs, weighs)
        self.facts = ModelFacts(
            seen.engine.model or "unknown",
            "url",
            seen.engine.kernels or "unknown",
            ANY_TOKEN,
            0,
            kv,
        )


def _steps(
    records: Sequence[RequestRecord], looks: Sequence[Snapshot], page_tokens: int
) -> Iterator[tuple[StepWork, float]]:
    done = [r for r in records if r.completed]
    if one_token_each(done):
        yield from streamed_steps(records, page_tokens)
    else:
        yield from counted_steps(looks, page_tokens)


def counted_steps(looks: Sequence[Snapshot], page_tokens: int) -> Iterator[tuple[StepWork, float]]:
    """The mean step between two looks at a busy engine's counters."""
    for one, two in itertools.pairwise(looks):
        steps = _gained(one.batch.steps_total, two.batch.steps_total)
        prompt = _gained(one.batch.prompt_tokens_total, two.batch.prompt_tokens_total)
        output = _gained(one.batch.output_tokens_total, two.batch.output_tokens_total)
        busy = one.batch.running or two.batch.running
        if not steps or prompt is None or output is None or not busy:
            continue
        decodes = output / steps
        pages = [s.kv.usage * s.kv.total if s.kv.usage and s.kv.total else 0 for s in (one, two)]
        held = sum(pages) / 2 * page_tokens
        chunk = prompt / steps
        yield (
            StepWork(
                tokens=round(decodes + chunk), rows=round(decodes), decodes=round(decodes),
                held=round(held), context=round(held), chunk_context=round(chunk * chunk / 2),
                sealed=round((decodes + chunk) / page_tokens),
            ),
            (two.time - one.time) * 1e9 / steps,
        )  # fmt: skip


def _gained(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before


def _arrival_ns(lone: Sequence[tuple[int, int]], cost: CostCoefficients, budget: int) -> int:
    """What a first token on an idle engine takes beside its steps; the median."""
    if not lone:
        return 0
    rest = []
    for tokens, ns in lone:
        whole, left = divmod(tokens, budget)
        chunks = [*([budget] * whole), *([left] if left else [])]
        works = np.array([_alone(sum(chunks[:i]), n) for i, n in enumerate(chunks)], dtype=float)
        rest.append(ns - predict(cost, works).sum())
    return max(0, int(np.median(rest)))


def _alone(start: int, count: int) -> StepWork:
    """A chunk of a prompt that nobody else shares the step with."""
    end = start + count
    return StepWork(count, 1, 0, end, 0, count * start + count * (count + 1) // 2, 0)
