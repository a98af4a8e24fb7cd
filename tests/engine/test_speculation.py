"""Speculation: what comes is what would have come without it, to the bit, whatever is drafted."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from engine.core import Engine
from engine.request import FinishReason, Request, SamplingParams
from engine.scheduling.plan import Plan
from engine.scheduling.speculation import Speculation
from engine.stream import Stream
from engines import assert_nothing_held, tiny_engine

VOCAB = 270


class Guesses:
    """A drafter that knows what comes, by prompt, and is wrong in part."""

    def __init__(self, outputs: dict[tuple[int, ...], list[int]], seed: int) -> None:
        self.outputs, self.random = outputs, random.Random(seed)

    def draft(self, request: Request, most: int) -> tuple[Sequence[int], Sequence[float]]:
        known = self.outputs.get((request.number,), [])
        at = len(request.output_ids)
        tokens = known[at : at + self.random.randint(0, most)]
        wrong = [
            t if self.random.random() < 0.7 else self.random.randrange(3, VOCAB) for t in tokens
        ]
        return wrong, [1.0] * len(wrong)

    def forget(self, request: Request) -> None:
        pass


class Always(Speculation):
    """Drafts whatever it is given: time is not asked."""

    def _lengths(self, odds: Sequence[Sequence[float]], plan: Plan, budget: int) -> list[int]:
        lengths = []
        for chain in odds:
            lengths.append(min(len(chain), max(budget, 0)))
            budget -= lengths[-1]
        return lengths


def params(rng: random.Random) -> SamplingParams:
    wild = rng.random() < 0.5
    return SamplingParams(
        max_tokens=rng.randint(1, 60),
        min_tokens=rng.choice([0, 0, 5]) if wild else 0,
        temperature=rng.choice([0.0, 0.7, 1.0, 1.5]),
        seed=rng.choice([None, rng.randrange(2**40)]),
        top_p=rng.choice([1.0, 0.9]),
        top_k=rng.choice([0, 5]),
        logprobs=rng.choice([None, 0, 3]),
        repetition_penalty=rng.choice([1.0, 1.2]) if wild else 1.0,
        frequency_penalty=rng.choice([0.0, 0.5]) if wild else 0.0,
        bad_words=((5, 6),) if wild else (),
        stop=("a", "th") if rng.random() < 0.2 else (),
        ignore_eos=rng.random() < 0.5,
    )


def world(seed: int, count: int) -> list[tuple[int, list[int], SamplingParams]]:
    """(step of arrival, prompt, parameters)."""
    rng = random.Random(seed)
    shared = [rng.randrange(3, VOCAB) for _ in range(40)]
    found = []
    for _ in range(count):
        prompt = [rng.randrange(3, VOCAB) for _ in range(rng.randint(1, 50))]
        if rng.random() < 0.3:
            prompt = shared + prompt
        found.append((rng.randrange(count), prompt, params(rng)))
    return sorted(found, key=lambda one: one[0])


def serve(engine: Engine, requests: Sequence[tuple[int, list[int], SamplingParams]]) -> list[tuple]:
    """What each request got; the books are looked at after every step."""
    streams: list[Stream] = []
    step = 0
    coming = list(requests)
    while coming or any(not stream.closed for stream in streams):
        while coming and coming[0][0] <= step:
            _, prompt, one = coming.pop(0)
            streams.append(engine.submit(prompt, one))
        engine.step()
        engine.loop.scheduler.check_integrity()
        step += 1
        assert step < 20_000
    assert_nothing_held(engine)
    events = [stream.poll() for stream in streams]
    return [(e.token_ids, e.text, e.finish_reason, e.logprobs) for e in events]


def drafting(engine: Engine, drafter: Guesses) -> Engine:
    engine.load()
    scheduler = engine.loop.scheduler
    scheduler.speculation = Always(drafter, 8, scheduler.pool.page_tokens)
    return engine


@pytest.mark.parametrize("kv_format", ["fp16", "int8_channel", "int8_token"])
@pytest.mark.parametrize("seed", [0, 1])
def test_tokens_and_log_probabilities_are_the_same_to_the_bit(kv_format, seed):
    settings = {"kernels": "cpu", "kv_format": kv_format, "max_batch": 8, "token_budget": 32}
    requests = world(seed, 40)
    plain = serve(tiny_engine(**settings), requests)
    known = {(n,): list(one[0]) for n, one in enumerate(plain, 1)}
    engine = drafting(tiny_engine(**settings), Guesses(known, seed))
    assert serve(engine, requests) == plain
    speculation = engine.loop.scheduler.speculation
    assert speculation.accepted > 100 and speculation.drafted > speculation.accepted + 20


def test_so_it_is_while_requests_lose_their_pages():
    settings = {"kernels": "cpu", "max_batch": 8, "token_budget": 64, "pages": 12}
    requests = world(5, 30)
    plain = serve(tiny_engine(**settings), requests)
    known = {(n,): list(one[0]) for n, one in enumerate(plain, 1)}
    engine = drafting(tiny_engine(**settings), Guesses(known, 3))
    assert serve(engine, requests) == plain
    assert engine.loop.telemetry.totals["preemptions"] > 3
    assert FinishReason.KV_CAPACITY not in {one[2] for one in plain}


def test_prompt_lookup_drafts_what_is_repeated():
    """A model whose output repeats itself: the second time round it comes in fewer steps."""
    engine = tiny_engine(kernels="cpu", speculate="prompt", max_batch=4)
    plain = tiny_engine(kernels="cpu", max_batch=4)
    requests = [(0, [7, 8, 9, 10] * 6, SamplingParams(max_tokens=120, ignore_eos=True))]
    assert serve(engine, requests) == serve(plain, requests)
    speculation = engine.loop.scheduler.speculation
    assert len(speculation.drafter) == 0
    print(speculation.drafted, speculation.accepted, engine.loop.telemetry.totals["steps"], plain.loop.telemetry.totals["steps"])
