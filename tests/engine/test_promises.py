"""What the engine promises whatever happens: same tokens, nothing lost, always an answer."""

import random

import pytest
import torch

from engine.core import Engine
from engine.observing.ledger import UNOWNED
from engine.observing.telemetry import STEP_PARTS
from engine.request import FinishReason, SamplingParams
from engine.simulated.clock import VirtualClock
from engine.text.completion import completion
from engines import answers, assert_nothing_held, step_until_idle, tiny_engine
from waiting import CEILING_S

LIFE = {FinishReason.STOP, FinishReason.LENGTH, FinishReason.KV_CAPACITY}


def forced(tokens, **changes):
    return SamplingParams(max_tokens=tokens, ignore_eos=True, **changes)


def prompts(count, seed=0, longest=50, shared=0):
    """Random prompts; the first `shared` tokens are the same for all."""
    rng = random.Random(seed)
    head = [rng.randrange(3, 270) for _ in range(shared)]
    return [
        head + [rng.randrange(3, 270) for _ in range(rng.randrange(1, longest))]
        for _ in range(count)
    ]


def alone(prompt, params, **settings):
    engine = tiny_engine(**settings)
    return answers(engine, [engine.submit(prompt, params)])[0].token_ids


# --- determinism --------------------------------------------------------------------------

WAYS = {
    "small chunks": {"token_budget": 9},
    "big chunks": {"token_budget": 300},
    "starved pool": {"pages": 14},
    "predicted lengths": {"pages": 14, "reserve": "predicted"},
    "no prefix cache": {"prefix_cache": False},
    "static": {"policy": "static", "max_wait_ms": 0.001},
    "contiguous": {"allocator": "contiguous"},
    "static, contiguous": {
        "policy": "static", "allocator": "contiguous", "max_wait_ms": 0.001, "reserve": "max",
        "max_model_len": 120,
    },
    "dynamic cap": {"dynamic_batch": True},
    "wide pages": {"page_tokens": 32, "kv_format": "fp16"},
    "four bits": {"kv_format": "k8v4", "pages": 14, "token_budget": 9},
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kernels", ["reference", "cpu"])
def test_how_it_is_scheduled_changes_no_token(way, kernels):
    settings = {"kernels": kernels, **WAYS[way]}
    kv = {"kv_format": settings.get("kv_format", "int8_channel")}
    work = [
        (p, forced(5 + 7 * (i % 3), temperature=[0.0, 1.3][i % 2], seed=i))
        for i, p in enumerate(prompts(9, seed=1, shared=20))
    ]
    engine = tiny_engine(**settings)
    streams = []
    for prompt, params in work:
        streams.append(engine.submit(prompt, params))
        engine.step()
    got = answers(engine, streams)
    assert_nothing_held(engine)
    page = settings.get("page_tokens", 16)
    for (prompt, params), answer in zip(work, got, strict=True):
        assert answer.token_ids == alone(prompt, params, kernels=kernels, page_tokens=page, **kv)


def test_the_starved_pool_above_really_preempts_and_the_shared_prefix_really_hits():
    engine = tiny_engine(pages=14)
    streams = [engine.submit(p, forced(25)) for p in prompts(9, seed=1, shared=20)]
    answers(engine, streams)
    assert engine.telemetry.totals["preemptions"] > 0
    engine = tiny_engine()
    for prompt in prompts(9, seed=1, shared=20):
        answers(engine, [engine.submit(prompt, forced(5))])
    assert engine.pool.index.hit_tokens >= 8 * 16


STOPS = tuple(range(3, 40))
"""Tokens that end an output, so that a random model ends its outputs by itself."""


@pytest.mark.parametrize("fallen", [False, True], ids=["holding", "fallen back"])
def test_learnt_lengths_decide_when_and_never_what(fallen):
    """The same requests, admitted by what is known, by what is predicted, and alone."""
    made = {}
    work = [
        (prompt, SamplingParams(60, temperature=1.3, seed=i, stop_token_ids=STOPS))
        for i, prompt in enumerate(prompts(60, seed=5, shared=9))
    ]
    for reserve in ("known", "predicted"):
        engine = tiny_engine(pages=14, kernels="cpu", layers=1, reserve=reserve)
        if engine.scheduler.lengths is not None:
            engine.scheduler.lengths.hold = not fallen
        made[reserve] = answers(engine, [engine.submit(p, q, client=f"{i % 3}")
                                         for i, (p, q) in enumerate(work)])  # fmt: skip
        assert_nothing_held(engine)
    tokens = {reserve: [a.token_ids for a in done] for reserve, done in made.items()}
    assert tokens["predicted"] == tokens["known"]
    assert tokens["known"] == [alone(p, q, kernels="cpu", layers=1) for p, q in work]
    assert len({len(ids) for ids in tokens["known"]}) > 10
    assert engine.scheduler.lengths.coverage is not None


@pytest.mark.parametrize("seed", range(6))
def test_in_any_world_predictions_change_no_token(seed):
    """Pages, cap, budget, sharing, drafts and clients at random; some outputs are cut, some end."""
    rng = random.Random(seed)
    world = {
        "pages": rng.randint(10, 30), "max_batch": rng.randint(3, 12),
        "token_budget": rng.choice((12, 32, 90)), "prefix_cache": rng.random() < 0.7,
        "dynamic_batch": rng.random() < 0.5, "speculate": rng.choice(("off", "prompt")),
        "kernels": "cpu", "layers": 1,
    }  # fmt: skip
    work = [
        (prompt, SamplingParams(rng.randint(1, 70), temperature=1.3, seed=i,
                                ignore_eos=rng.random() < 0.3, stop_token_ids=STOPS[i % 2 :: 2]),
         f"{rng.randrange(4)}")
        for i, prompt in enumerate(prompts(50, seed=seed, shared=seed * 4))
    ]  # fmt: skip
    made = {}
    for reserve in ("known", "predicted"):
        engine, streams = tiny_engine(reserve=reserve, **world), []
        steps = random.Random(seed)
        for prompt, params, client in work:
            streams.append(engine.submit(prompt, params, client=client))
            if steps.random() < 0.5:
                engine.step()
        made[reserve] = [done.token_ids for done in answers(engine, streams)]
        assert_nothing_held(engine)
    assert made["predicted"] == made["known"]


# --- the ledger ---------------------------------------------------------------------------


def test_the_ledger_names_owners_and_two_can_be_subtracted():
    engine = tiny_engine()
    before = engine.ledger()
    assert before.is_zero
    stream = engine.submit([5] * 40, forced(50))
    step_until = [engine.step() for _ in range(3)]
    assert all(step_until)
    during = engine.ledger()
    assert during.held["pages"] == {stream.request_id: 3}
    assert during.minus(before) == {"requests": 1, "streams": 1, "texts": 1, "pages": 3, "slabs": 1}
    engine.cancel(stream.request_id)
    engine.step()
    assert engine.ledger().minus(before) == {}


def test_a_page_that_nobody_owns_shows_up():
    engine = tiny_engine()
    engine.pool.allocate(2)
    assert engine.ledger().unowned == {"pages": 2}
    assert engine.ledger().held["pages"] == {UNOWNED: 2}


def test_the_ledger_of_a_running_engine_is_taken_between_steps():
    with tiny_engine() as engine:
        stream = engine.submit([5] * 20, forced(100))
        assert stream.next(10) is not None
        assert engine.ledger().totals["requests"] == 1
        engine.cancel(stream.request_id)
        stream.result(CEILING_S)
        assert engine.ledger().is_zero


# --- cancelled while the tokenizer has it -----------------------------------------------------


def test_k4_cancelled_before_it_was_tokenized_it_computes_nothing():
    engine = tiny_engine()
    engine._tokenizers.submit(lambda: None)
    stream = engine.submit("the world", forced(50))
    engine.cancel(stream.request_id)
    engine._tokenizers.shutdown(wait=True)
    step_until_idle(engine)
    assert completion(stream, 1).finish_reason is FinishReason.CANCELLED
    assert engine.telemetry.totals["prefill_tokens"] == 0
    assert_nothing_held(engine)


# --- the watchdog -------------------------------------------------------------------------


def test_k21_the_watchdog_names_lost_pages_and_recovers():
    clock = VirtualClock()
    engine = tiny_engine(pages=8, stall_s=5.0, max_batch=4, clock=clock)
    answers(engine, [engine.submit([5], forced(1))])
    lost = engine.pool.allocate(8)
    stream = engine.submit([5] * 20, forced(2))
    engine.step()
    clock.advance(6 * 10**9)
    engine.step()
    engine.loop.observer.publish()
    alarm = engine.snapshot().engine.alarm
    assert "needs 2 pages, 0 of 8 are available and nobody runs" in alarm
    assert [e.kind for e in engine.snapshot().events] == ["watchdog"]
    engine.pool.release(lost)
    assert answers(engine, [stream])[0].finish_reason is FinishReason.LENGTH
    engine.step()
    engine.loop.observer.publish()
    assert engine.snapshot().engine.alarm is None


def test_idle_and_paused_are_no_alarm():
    clock = VirtualClock()
    engine = tiny_engine(stall_s=1.0, clock=clock)
    answers(engine, [engine.submit([5], forced(1))])
    clock.advance(10**11)
    engine.step()
    engine.set_paused(True)
    engine.submit([5], forced(1))
    engine.step()
    clock.advance(10**11)
    engine.step()
    assert engine.loop.observer.watchdog.reason is None


# --- long prompts -------------------------------------------------------------------------


def test_k18_a_long_prompt_delays_decoders_by_at_most_one_budget():
    engine = tiny_engine(pages=64, token_budget=32, max_batch=9, max_model_len=250)
    decoders = [engine.submit([5 + i], forced(40)) for i in range(8)]
    engine.step()
    long = engine.submit([7] * 200, forced(1))
    gaps = dict.fromkeys(range(8), 0)
    tokens = slice(1 + len(STEP_PARTS), 3 + len(STEP_PARTS))
    """Of a step's row: those of prompts, and those of outputs."""
    for _ in range(60):
        engine.step()
        assert engine.telemetry.steps.since(0)[-1][tokens].sum() <= 32
        for i, stream in enumerate(decoders):
            event = stream.poll()
            gaps[i] = 0 if event else gaps[i] + 1
            assert stream.finished or gaps[i] <= 0, "a decoder missed a step"
    assert long.finished or long.poll().finish_reason is FinishReason.LENGTH


# --- ten thousand requests with everything going wrong -------------------------------------------


class Faults:
    """Breaks model, sampler, tokenizer and stream at random, and knows whom it may have hit."""

    def __init__(self, engine: Engine, rng: random.Random) -> None:
        self.rng, self.on = rng, True
        self._run, self._sample = engine.runner.run, engine.sampler.sample
        engine.runner.run = self.run
        engine.sampler.sample = self.sample
        encode = engine.loaded.tokenizer.encode
        engine.loaded.tokenizer.encode = lambda text: self._maybe(0.05) or encode(text)

    def _maybe(self, chance):
        if self.on and self.rng.random() < chance:
            raise RuntimeError("injected")

    def run(self, batch):
        self._maybe(0.01)
        logits = self._run(batch)
        if self.on and len(logits) and self.rng.random() < 0.02:
            logits = logits.clone()
            logits[self.rng.randrange(len(logits)), 0] = torch.nan
        return logits

    def sample(self, logits, requests):
        self._maybe(0.01)
        return self._sample(logits, requests)

    def listener(self):
        def listen():
            self._maybe(0.02)

        return listen


@pytest.mark.parametrize("part", range(4))
def test_ten_thousand_requests_with_faults_leave_the_engine_whole(part):
    """2,500 a part; 30 % are cancelled or time out, and every part of the engine breaks."""
    rng = random.Random(part)
    engine = tiny_engine(pages=40, kernels="cpu", max_batch=16, token_budget=64, layers=1)
    known = prompts(12, seed=7, longest=20, shared=part * 8)
    truth = {i: alone(p, forced(6), kernels="cpu", layers=1) for i, p in enumerate(known)}
    faults = Faults(engine, rng)
    open_streams, mixed, ended = [], 0, 0
    for _ in range(2500):
        which = rng.randrange(len(known))
        text = rng.random() < 0.1
        stream = engine.submit(
            "the world and" if text else known[which],
            forced(6),
            timeout_s=0.0001 if rng.random() < 0.1 else None,
            on_event=faults.listener() if rng.random() < 0.1 else None,
        )
        open_streams.append((None if text else which, stream))
        if rng.random() < 0.2:
            engine.cancel(rng.choice(open_streams)[1].request_id)
        if len(open_streams) > 24 or rng.random() < 0.3:
            engine.step()
            engine.scheduler.check_integrity()
            still = []
            for index, one in open_streams:
                if not one.closed:
                    still.append((index, one))
                    continue
                event, ended = one.poll(), ended + 1
                if index is not None:
                    mixed += event.token_ids != truth[index][: len(event.token_ids)]
                    whole = event.finish_reason in LIFE
                    assert not whole or event.token_ids == truth[index]
            open_streams = still
    faults.on = False
    engine._tokenizers.shutdown(wait=True)
    step_until_idle(engine)
    assert mixed == 0
    assert ended + len(open_streams) == 2500
    assert all(stream.closed for _, stream in open_streams)
    assert_nothing_held(engine)
    engine.stop()
    assert engine.telemetry.finished["error"] > 0
    assert engine.telemetry.finished["cancelled"] > 100
    assert engine.telemetry.finished["timeout"] > 10


def test_what_a_request_asks_of_its_logits_is_nobody_elses_business():
    """Penalties, bias and masks depend on the request alone: not on neighbours, nor preemption."""
    asked = [
        {"repetition_penalty": 1.3}, {"presence_penalty": 1.5, "frequency_penalty": -1.0},
        {"logit_bias": ((7, 5.0),), "min_p": 0.1}, {"allowed_token_ids": tuple(range(3, 100))},
        {"bad_words": ((9,), (10, 11)), "logprobs": 2}, {"min_tokens": 3, "top_k": 5},
    ]  # fmt: skip
    pairs = [
        (prompt, forced(25, temperature=0.9, seed=number, **asked[number % len(asked)]))
        for number, prompt in enumerate(prompts(9, seed=1, shared=20))
    ]
    crowd = tiny_engine(pages=14)
    together = answers(crowd, [crowd.submit(prompt, one) for prompt, one in pairs])
    assert [a.token_ids for a in together] == [alone(prompt, one) for prompt, one in pairs]
    assert crowd.telemetry.totals["preemptions"] > 0
