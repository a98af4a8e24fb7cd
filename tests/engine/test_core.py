"""The engine on a tiny model, stepped by hand: what comes out, and that nothing is kept."""

import random
import re
import threading

import pytest
import torch

from engine.config import EngineConfig, parse_size
from engine.core import Engine, completion
from engine.errors import ConfigError, EngineStopped, ModelError, RequestError
from engine.request import FinishReason, SamplingParams
from engines import answers, assert_nothing_held, step_until_idle, tiny_engine
from waiting import CEILING_S

FORMATS = ["fp16", "int8_channel", "k4v4"]
BACKENDS = ["reference", "cpu"]


def prompts(count, seed=0, longest=60):
    rng = random.Random(seed)
    return [[rng.randrange(3, 270) for _ in range(rng.randrange(1, longest))] for _ in range(count)]


def forced(tokens, **changes):
    return SamplingParams(max_tokens=tokens, ignore_eos=True, **changes)


def alone(prompt, params, **settings):
    engine = tiny_engine(**settings)
    (answer,) = answers(engine, [engine.submit(prompt, params)])
    return answer


@pytest.mark.parametrize("kernels", BACKENDS)
@pytest.mark.parametrize("kv_format", FORMATS)
def test_k31_sixteen_staggered_requests_equal_each_one_alone(kernels, kv_format):
    settings = {"kernels": kernels, "kv_format": kv_format}
    engine = tiny_engine(**settings)
    lengths = [1 + i for i in range(16)]
    streams = []
    for prompt, length in zip(prompts(16), lengths, strict=True):
        streams.append(engine.submit(prompt, forced(length)))
        engine.step()
    together = answers(engine, streams)
    assert_nothing_held(engine)
    for prompt, length, answer in zip(prompts(16), lengths, together, strict=True):
        assert answer.token_ids == alone(prompt, forced(length), **settings).token_ids


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize("budget", [8, 9, 15, 16, 17, 33, 200])
def test_the_chunk_size_changes_nothing(kv_format, budget):
    (prompt,) = prompts(1, seed=3, longest=120)
    whole = alone(prompt, forced(12), kv_format=kv_format, token_budget=256)
    split = alone(prompt, forced(12), kv_format=kv_format, token_budget=budget)
    assert split.token_ids == whole.token_ids


@pytest.mark.parametrize("kv_format", FORMATS)
def test_preemption_changes_nothing(kv_format):
    engine = tiny_engine(pages=8, kv_format=kv_format)
    streams = [engine.submit(p, forced(50)) for p in prompts(6, seed=1, longest=30)]
    got = answers(engine, streams)
    assert engine.telemetry.totals["preemptions"] > 0
    for prompt, answer in zip(prompts(6, seed=1, longest=30), got, strict=True):
        assert answer.token_ids == alone(prompt, forced(50), kv_format=kv_format).token_ids


def test_k30_neighbours_do_not_share_sampling_parameters():
    (prompt,) = prompts(1, seed=5)
    mix = [
        forced(12),
        forced(12, temperature=2.0, seed=1),
        forced(12, temperature=1.0, top_k=1, seed=2),
        forced(12, temperature=1.0, top_p=0.1, seed=3),
    ]
    engine = tiny_engine()
    together = answers(engine, [engine.submit(prompt, p) for p in mix])
    for params, answer in zip(mix, together, strict=True):
        assert answer.token_ids == alone(prompt, params).token_ids
    assert together[0].token_ids == together[2].token_ids  # greedy is top_k = 1
    assert together[0].token_ids != together[1].token_ids


def test_what_a_seed_gives_does_not_depend_on_the_neighbours():
    params = forced(20, temperature=1.5, seed=42)
    (prompt, *others) = prompts(5, seed=2)
    engine = tiny_engine()
    stream = engine.submit(prompt, params)
    for other in others:
        engine.submit(other, forced(9, temperature=0.7, seed=9))
    (answer,) = answers(engine, [stream])
    assert answer.token_ids == alone(prompt, params).token_ids


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_k1_k3_k4_k9_a_cancelled_request_frees_everything_within_two_steps(steps):
    engine = tiny_engine()
    stream = engine.submit(prompts(1, longest=100)[0] * 3, forced(500))
    for _ in range(steps):
        engine.step()
    engine.cancel(stream.request_id)
    engine.cancel(stream.request_id)
    engine.cancel("r-unknown")
    computed = engine.telemetry.totals["output_tokens"]
    engine.step()
    assert_nothing_held(engine)
    assert engine.telemetry.totals["output_tokens"] == computed
    assert completion(stream, 1).finish_reason is FinishReason.CANCELLED


def test_k3_a_queued_request_that_is_cancelled_computes_nothing():
    engine = tiny_engine(max_batch=1)
    first = engine.submit([5] * 4, forced(3))
    second = engine.submit([6] * 90, forced(3))
    engine.step()
    engine.cancel(second.request_id)
    answers(engine, [first])
    assert engine.telemetry.totals["prefill_tokens"] == 4
    assert completion(second, 1).token_ids == ()


def test_a_timeout_ends_it():
    engine = tiny_engine()
    stream = engine.submit([5, 6], forced(200), timeout_s=0.0)
    step_until_idle(engine)
    assert completion(stream, 1).finish_reason is FinishReason.TIMEOUT
    assert_nothing_held(engine)


def test_the_models_longest_context_ends_it():
    engine = tiny_engine(max_model_len=20)
    (answer,) = answers(engine, [engine.submit([5] * 15, forced(100))])
    assert (answer.finish_reason, len(answer.token_ids)) == (FinishReason.LENGTH, 5)


@pytest.mark.parametrize(
    ("prompt", "why"),
    [([], "no tokens"), ("", "no tokens"), ([5] * 300, "limit"), ([9999], "vocabulary")],
)
def test_k35_k19_what_cannot_be_served_is_rejected_and_neighbours_finish(prompt, why):
    engine = tiny_engine()
    good = engine.submit([5, 6, 7], forced(4))
    bad = engine.submit(prompt, forced(4))
    engine._tokenizers.shutdown(wait=True)
    got = answers(engine, [good, bad])
    assert got[0].finish_reason is FinishReason.LENGTH
    assert got[1].finish_reason is FinishReason.REJECTED
    assert why in got[1].error
    assert_nothing_held(engine)


@pytest.mark.parametrize("prompt", [None, 5, [1.5], [-1], ["a"], [True], (1, 2), b"x"])
def test_prompts_of_a_wrong_type_are_refused(prompt):
    with pytest.raises(RequestError, match="prompt"):
        tiny_engine().submit(prompt)


def test_a_failing_step_ends_its_requests_and_nobody_elses(monkeypatch):
    engine = tiny_engine(max_batch=1)
    first = engine.submit([5, 6], forced(4))
    second = engine.submit([7, 8], forced(4))
    run = engine.runner.run
    monkeypatch.setattr(engine.runner, "run", lambda batch: 1 / 0)
    engine.step()
    monkeypatch.setattr(engine.runner, "run", run)
    got = answers(engine, [first, second])
    assert (got[0].finish_reason, got[1].finish_reason) == (FinishReason.ERROR, FinishReason.LENGTH)
    assert "division by zero" in got[0].error
    assert_nothing_held(engine)


def test_logits_that_are_not_finite_end_only_their_own_request(monkeypatch):
    engine = tiny_engine()
    streams = [engine.submit([5 + i, 6], forced(4)) for i in range(3)]
    run = engine.runner.run

    def poisoned(batch):
        logits = run(batch).clone()
        logits[1, 7] = torch.nan
        return logits

    monkeypatch.setattr(engine.runner, "run", poisoned)
    engine.step()
    monkeypatch.setattr(engine.runner, "run", run)
    reasons = [a.finish_reason.value for a in answers(engine, streams)]
    assert reasons == ["length", "error", "length"]
    assert_nothing_held(engine)


def test_a_stream_that_raises_harms_only_its_own_request():
    def raises():
        raise OSError("the reader is gone")

    engine = tiny_engine()
    bad = engine.submit([5, 6], forced(4), on_event=raises)
    good = engine.submit([5, 6], forced(4))
    step_until_idle(engine)
    assert completion(good, 1).finish_reason is FinishReason.LENGTH
    assert completion(bad, 1).finish_reason is FinishReason.ERROR
    assert_nothing_held(engine)


def eos_engine(eos, tokens):
    """An engine whose greedy output for [9, 9] is `tokens`, all sampled ids 0…4 being `eos`."""
    engine = tiny_engine()
    engine.sampler.eos_ids = frozenset(eos)
    script = iter(tokens)

    def run(batch):
        logits = torch.zeros(len(batch.sampling), 100)
        wanted = next(script)
        for rank, token in enumerate(wanted):
            logits[:, token] = 10.0 - rank
        return logits

    engine.runner.run = run
    return engine


@pytest.mark.parametrize(
    ("params", "output", "reason"),
    [
        ({}, (3,), "stop"),
        ({"ignore_eos": True, "max_tokens": 3}, (3, 4, 50), "length"),
        ({"ignore_eos": True, "stop_token_ids": (50,)}, (3, 4, 50), "stop"),
        ({"min_tokens": 2}, (51, 51, 50, 50, 3), "stop"),
        ({"min_tokens": 1, "stop_token_ids": (50,)}, (51, 4), "stop"),
    ],
)
def test_k34_eos_is_a_set_and_user_stop_ids_are_another(params, output, reason):
    wanted = [[3, 4, 51], [4, 3, 51], [50, 51], [50, 51], [3, 4, 51]]
    engine = eos_engine({3, 4}, wanted)
    (answer,) = answers(engine, [engine.submit([9, 9], SamplingParams(**params))])
    assert (answer.token_ids, answer.finish_reason.value) == (output, reason)


def test_the_token_that_stops_is_counted_and_not_shown():
    engine = eos_engine({3}, [[50], [51], [60]])
    params = SamplingParams(stop_token_ids=(60,))
    (answer,) = answers(engine, [engine.submit([9, 9], params)])
    assert answer.token_ids == (50, 51, 60)
    assert answer.text == engine.loaded.tokenizer.decode([50, 51])


def test_stop_strings_end_the_request_and_are_cut_off():
    engine = tiny_engine()
    (free,) = answers(engine, [engine.submit([9, 9], forced(20))])
    stop = free.text[4:6]
    (cut,) = answers(engine, [engine.submit([9, 9], forced(20, stop=(stop,)))])
    assert cut.text == free.text[: free.text.find(stop)]
    assert cut.finish_reason is FinishReason.STOP
    assert_nothing_held(engine)


def test_streamed_pieces_joined_are_the_text():
    engine = tiny_engine()
    stream = engine.submit("the world and", forced(30, temperature=1.0, seed=3))
    engine._tokenizers.shutdown(wait=True)
    pieces = []
    while not stream.finished:
        engine.step()
        if (event := stream.poll()) is not None:
            pieces.append(event)
    tokens = [t for e in pieces for t in e.token_ids]
    assert "".join(e.text for e in pieces) == engine.loaded.tokenizer.decode(tokens)
    assert len(pieces) > 5


def test_a_thousand_random_lives_leave_nothing_behind():
    """Submit, cancel and finish in any order on 12 pages, on the real step."""
    rng = random.Random(0)
    engine = tiny_engine(pages=12, kernels="cpu", max_batch=4)
    streams, lives = [], 0
    while lives < 1000:
        move = rng.random()
        if move < 0.5:
            prompt = [rng.randrange(3, 270) for _ in range(rng.randrange(1, 60))]
            streams.append(engine.submit(prompt, forced(rng.randrange(1, 12))))
            lives += 1
        elif move < 0.7 and streams:
            engine.cancel(rng.choice(streams).request_id)
        else:
            engine.step()
            engine.scheduler.check_integrity()
    step_until_idle(engine)
    assert_nothing_held(engine)
    assert all(stream.poll().finish_reason is not None for stream in streams)


def test_the_thread_serves_and_stops():
    with tiny_engine() as engine:
        first = engine.generate(["the world", [5, 6, 7]], forced(5))
        assert [len(a.token_ids) for a in first] == [5, 5]
        assert first[0].prompt_tokens > 0
    with pytest.raises(EngineStopped):
        engine.submit([5])


def test_stopping_ends_open_streams():
    engine = tiny_engine()
    engine.start()
    stream = engine.submit([5] * 10, forced(200))
    assert stream.next(10) is not None
    engine.stop()
    last = stream.result(CEILING_S)
    assert last.finish_reason is FinishReason.CANCELLED
    assert_nothing_held(engine)


def test_draining_finishes_what_was_accepted():
    engine = tiny_engine()
    engine.start()
    streams = [engine.submit([5 + i] * 10, forced(20)) for i in range(5)]
    engine.stop(drain=True)
    assert all(completion(s, 1).finish_reason is FinishReason.LENGTH for s in streams)


def test_live_settings():
    engine = tiny_engine()
    engine.set_cap(2)
    engine.set_paused(True)
    engine.submit([5, 6], forced(3))
    assert engine.step() is False
    snapshot = engine.snapshot()
    assert (snapshot.batch.cap, snapshot.engine.paused) == (2, True)
    assert [e.kind for e in snapshot.events] == ["cap", "pause"]
    engine.set_paused(False)
    step_until_idle(engine)
    with pytest.raises(ConfigError, match="cap"):
        engine.set_cap(9)


def test_snapshot_tells_what_the_engine_holds():
    engine = tiny_engine(pages=20, max_batch=2, token_budget=64)
    for _ in range(3):
        engine.submit([5] * 20, forced(30))
    engine.step()
    engine.loop.observer.publish()
    kv, batch, queue = engine.snapshot().kv, engine.snapshot().batch, engine.snapshot().queue
    assert (queue.waiting, batch.running, batch.bound_by) == (1, 2, "cap")
    assert (kv.total, kv.free, kv.open, kv.sealed, kv.cached) == (20, 16, 2, 2, 0)
    assert sorted(kv.page_map) == sorted("f" * 16 + "oo" + "ss")
    assert kv.tail_waste_tokens == 4 * 16 - 40
    assert [r.state for r in engine.snapshot().requests] == ["running", "running", "waiting"]


def test_snapshot_json_round_trip_of_a_real_one():
    engine = tiny_engine()
    answers(engine, [engine.submit([5] * 20, forced(12)) for _ in range(12)])
    engine.loop.observer.publish()
    snapshot = engine.snapshot()
    assert type(snapshot).from_json(snapshot.to_json()) == snapshot
    assert snapshot.latency.ttft_ms.n == 12
    assert snapshot.finished == {"length": 12}


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="give at least"):
        Engine(EngineConfig(kv_memory=1000), tiny_engine().loaded).load()
    with pytest.raises(ModelError, match="does not exist"):
        Engine(EngineConfig(model="/no/such/model")).load()


def test_an_encoded_prompt_serves_several_requests():
    engine = tiny_engine()
    encoded = engine.encode("the world").result(CEILING_S)
    assert encoded.ids == engine.loaded.tokenizer.encode("the world")
    streams = [engine.submit(encoded, forced(6)) for _ in range(3)]
    found = {answer.token_ids for answer in answers(engine, streams)}
    assert found == {alone(encoded.ids, forced(6)).token_ids}
    assert streams[0].stamps.tokenize_end >= streams[0].stamps.tokenize_start > 0
    with pytest.raises(RequestError, match="surrogate"):
        engine.encode("\ud800").result(CEILING_S)
    with pytest.raises(RequestError, match="message"):
        engine.encode([{"role": "user"}]).result(CEILING_S)
    assert engine.encode([5, 6]).result(CEILING_S).ids == [5, 6]
    engine.stop()
    with pytest.raises(EngineStopped):
        engine.encode("late")


def test_log_probabilities_reach_the_stream_one_for_each_token():
    engine = tiny_engine()
    plain, noted = answers(
        engine,
        [engine.submit([5, 6], forced(9)), engine.submit([5, 6], forced(9, logprobs=2))],
    )
    assert plain.token_ids == noted.token_ids
    stream = engine.submit([5, 6], forced(9, logprobs=2))
    step_until_idle(engine)
    event = stream.result(CEILING_S)
    assert [note.token for note in event.logprobs] == list(event.token_ids)
    assert all(note.logprob == note.top[0][1] for note in event.logprobs)  # greedy


def test_an_alarm_says_why_nobody_can_be_served():
    engine = tiny_engine()
    assert engine.alarm() is None
    engine.loop.observer.watchdog.reason = "nothing computed for 10 s"
    assert "nothing computed" in engine.alarm()
    engine.stop()
    assert "stopped" in engine.alarm()
    assert "not loaded" in Engine(EngineConfig()).alarm()


def test_who_may_come_again_is_told_so():
    engine = tiny_engine(max_waiting=1)
    engine.set_paused(True)
    streams = [engine.submit(prompt, forced(1)) for prompt in ([], [5], [5])]
    engine.step()
    found = [(s.closed, s.try_later) for s in streams]
    assert found == [(True, False), (False, False), (True, True)]


def test_a_request_without_a_seed_draws_the_numbers_of_no_seed():
    prompt, params = [5, 6, 7], forced(30, temperature=5.0)
    for number in range(1, 4):
        engine = tiny_engine()
        *_, unseeded = answers(engine, [engine.submit(prompt, params) for _ in range(number)])
        seeded = alone(prompt, forced(30, temperature=5.0, seed=number))
        assert unseeded.token_ids != seeded.token_ids
    engine = tiny_engine()
    one, other = answers(engine, [engine.submit(prompt, params) for _ in range(2)])
    assert one.token_ids != other.token_ids


def test_texts_beyond_the_queues_limit_are_refused_before_they_are_tokenized(monkeypatch):
    engine = tiny_engine(max_waiting=4, max_batch=2)
    gate, tokenized = threading.Event(), []
    ids = engine.loaded.tokenizer.ids

    def counted(text):
        gate.wait(10)
        tokenized.append(text)
        return ids(text)

    monkeypatch.setattr(engine.loaded.tokenizer, "ids", counted)
    streams = [engine.submit("the world", forced(1)) for _ in range(500)]
    late = streams[6:]
    assert all(s.closed and s.try_later for s in late)
    assert "queue is full (4" in late[0].poll().error
    assert len(engine._open) == 6
    gate.set()
    engine._tokenizers.shutdown(wait=True)
    step_until_idle(engine)
    assert len(tokenized) == 6
    assert engine.telemetry.totals["requests"] == 500
    assert engine.telemetry.finished["rejected"] + engine.telemetry.finished["length"] == 500
    assert_nothing_held(engine)


@pytest.mark.parametrize("memory", [1, 1000, 1 << 14])
def test_the_least_memory_that_a_refusal_names_is_more_than_was_given_and_enough(memory):
    loaded = tiny_engine().loaded
    with pytest.raises(ConfigError) as refused:
        Engine(EngineConfig(kv_memory=memory), loaded).load()
    given, least = re.search(r"kv_memory: (\w+) is .* at least (\w+)", str(refused.value)).groups()
    assert parse_size(given) <= memory < parse_size(least)
    Engine(EngineConfig(kv_memory=parse_size(least)), loaded).load()
