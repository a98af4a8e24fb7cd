"""Changes to one running engine, each undone on every way out. Faults put them in.

An engine is given before anybody uses it. Attributes of its own parts are covered by others of
the same name; classes and other engines are never touched.
"""

from __future__ import annotations

import copy
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from engine.core import Engine
from engine.execution.runner import Batch
from engine.request import FinishReason, Request, SamplingParams
from engine.scheduling.plan import Draft, Plan
from engine.scheduling.scheduler import Scheduler
from playbooks.checkup.site import Touch
from playbooks.load.record import RequestRecord
from playbooks.load.targets import EmbeddedTarget
from playbooks.measure.profile import TextTarget
from playbooks.measure.replaced import replaced

LOG_SHARE = 0.2
"""Of a row's time is written into the verbose log."""
LOG_TRIES = 50
SWAP_EVERY = 3


@contextmanager
def leak_on_cancel(engine: Engine) -> Iterator[None]:
    """The last page of a cancelled request is never released."""
    scheduler, plain = engine.scheduler, engine.scheduler.release

    def release(request: Request) -> None:
        if request.finish_reason is FinishReason.CANCELLED and request.pages:
            request.pages.pop()
        plain(request)

    with replaced(scheduler, "release", release):
        yield


@contextmanager
def keep_ended_requests(engine: Engine) -> Iterator[None]:
    """A list of every request that has ended, as for a trace that nobody reads."""
    loop, plain = engine.loop, engine.loop.finish
    kept: list[Request] = []

    def finish(request: Request, *arguments: Any, **named: Any) -> None:
        kept.append(request)
        plain(request, *arguments, **named)

    with replaced(loop, "kept_requests", kept), replaced(loop, "finish", finish):
        yield


@contextmanager
def no_protection(engine: Engine) -> Iterator[None]:
    """Admit whoever fits now, throw out the youngest, and again, however often that was."""
    scheduler, policy = engine.scheduler, engine.scheduler.policy

    def may_grow(scheduler: Scheduler, request: Request, tokens: int, plan: Plan) -> bool:
        return scheduler.grow(request, tokens)

    def victim(scheduler: Scheduler) -> Request:
        return next(reversed(scheduler.running.values()))

    with ExitStack() as stack:
        for owner, name, value in (
            (scheduler, "is_protected", lambda request: False),
            (scheduler, "claim", lambda request: 0),
            (policy, "_may_grow", may_grow),
            (policy, "_victim", victim),
        ):
            stack.enter_context(replaced(owner, name, value))
        yield


@contextmanager
def no_prefix_hits(engine: Engine) -> Iterator[None]:
    index = engine.pool.index
    if index is None:
        yield
        return
    with replaced(index, "find", lambda tokens, page_tokens: []):
        yield


@contextmanager
def swap_rows(engine: Engine) -> Iterator[None]:
    """In every third step the first two rows get each other's token."""
    sampler, plain, steps = engine.sampler, engine.sampler.sample, 0

    def sample(logits: torch.Tensor, requests: list[Request], *ahead: Any) -> list[int | None]:
        nonlocal steps
        tokens, steps = plain(logits, requests, *ahead), steps + 1
        if steps % SWAP_EVERY == 0 and len(tokens) > 1:
            tokens[0], tokens[1] = tokens[1], tokens[0]
        return tokens

    with replaced(sampler, "sample", sample):
        yield


def slow_rows(fixed_ms: float, row_ms: float) -> Touch:
    """A step takes so long and so much more a row, as on a slower machine: never less."""

    @contextmanager
    def touch(engine: Engine) -> Iterator[None]:
        runner, plain = engine.runner, engine.runner.run

        def run(batch: Batch) -> torch.Tensor:
            end = time.monotonic() + (fixed_ms + row_ms * len(batch.sampling)) / 1e3
            logits = plain(batch)
            time.sleep(max(end - time.monotonic(), 0.0))
            return logits

        with replaced(runner, "run", run):
            yield

    return touch


@contextmanager
def wrong_drafts(engine: Engine) -> Iterator[None]:
    """The drafter, if there is one, gives a token that is hardly ever next, and is sure of it."""
    speculation, vocab = engine.loop.speculation, engine.loaded.spec.vocab
    if speculation is None:
        yield
        return

    def draft(asked: Sequence[tuple[Request, int]]) -> list[Draft]:
        return [Draft([(r.output_ids[-1] + 1) % vocab] * n, [0.95] * n) for r, n in asked]

    with replaced(speculation.drafter, "draft", draft):
        yield


def both(one: Touch, other: Touch) -> Touch:
    @contextmanager
    def touch(engine: Engine) -> Iterator[None]:
        with one(engine), other(engine):
            yield

    return touch


def slow_tokenizer(ms: float) -> Touch:
    """A copy of the tokenizer that takes so long for each text."""

    @contextmanager
    def touch(engine: Engine) -> Iterator[None]:
        slow = copy.copy(engine.loaded.tokenizer)
        plain = slow.encode

        def encode(text: str, add_special: bool = True) -> list[int]:
            time.sleep(ms / 1e3)
            return plain(text, add_special)

        other = replace(engine.loaded, tokenizer=slow)
        with replaced(slow, "encode", encode), replaced(engine.compute, "loaded", other):
            yield

    return touch


def verbose_log(row_ms: float) -> Touch:
    """As many lines for every row of a step as take a fifth of the row's time."""

    @contextmanager
    def touch(engine: Engine) -> Iterator[None]:
        sampler, plain = engine.sampler, engine.sampler.sample
        with _log_file() as log:
            lines = _lines_in(log, LOG_SHARE * row_ms)

            def sample(
                logits: torch.Tensor, requests: list[Request], *ahead: Any
            ) -> list[int | None]:
                for request in requests:
                    for i in range(lines):
                        log.info("%s: layer %d of prompt %s", request.id, i, request.prompt_ids)
                return plain(logits, requests, *ahead)

            with replaced(sampler, "sample", sample):
                yield

    return touch


@contextmanager
def _log_file() -> Iterator[logging.Logger]:
    log = logging.Logger("evewatch.verbose", logging.DEBUG)  # of nobody else
    with tempfile.TemporaryFile("w", encoding="utf-8") as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))  # not shown
        log.addHandler(handler)
        try:
            yield log
        finally:
            log.removeHandler(handler)


def _lines_in(log: logging.Logger, ms: float) -> int:
    start = time.monotonic()
    for i in range(LOG_TRIES):
        log.info("%s: layer %d of prompt %s", "r-0", i, list(range(64)))
    a_line = (time.monotonic() - start) * 1e3 / LOG_TRIES
    return max(round(ms / a_line), 1)


def slow_target(ms: float) -> type[EmbeddedTarget]:
    """A client whose loop stands still while it sends."""

    class SlowTarget(TextTarget):
        async def send(
            self, prepared: tuple[str | list[int], SamplingParams], record: RequestRecord
        ) -> None:
            time.sleep(ms / 1e3)
            await super().send(prepared, record)

    return SlowTarget
