"""Failures that production engines had, as whole kinds: each test is named after its case."""

import gc
import logging
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.request import FinishReason, SamplingParams
from engine.text.completion import completion
from engines import answers, assert_nothing_held, step_until_idle, tiny_engine
from kernels.layout import KvStep


def forced(tokens, **changes):
    return SamplingParams(max_tokens=tokens, ignore_eos=True, **changes)


def test_k2_five_hundred_aborted_streams_and_then_an_answer():
    engine = tiny_engine(pages=16)
    for i in range(500):
        stream = engine.submit([5 + i % 50] * 10, forced(50))
        for _ in range(i % 4):
            engine.step()
            stream.poll()
        engine.cancel(stream.request_id)
    step_until_idle(engine)
    assert_nothing_held(engine)
    (answer,) = answers(engine, [engine.submit([5] * 10, forced(3))])
    assert answer.finish_reason is FinishReason.LENGTH


def test_k5_what_completes_after_the_abort_is_dropped():
    """The tokenizer hands over a request that was cancelled meanwhile, and once more."""
    engine = tiny_engine()
    stream = engine.submit("the world", forced(5))
    engine._tokenizers.shutdown(wait=True)
    request = engine._open[stream.request_id]
    engine.cancel(stream.request_id)
    engine.step()
    engine.loop.admit(request)  # late, twice
    engine.loop.finish(request, FinishReason.STOP)
    step_until_idle(engine)
    assert completion(stream, 1).finish_reason is FinishReason.CANCELLED
    assert_nothing_held(engine)


def sizes(owner, depth=3, seen=None):
    """Lengths of every container that hangs on an object, by path."""
    seen = seen if seen is not None else set()
    found = {}
    for name, value in vars(owner).items():
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, list | dict | set | tuple) or type(value).__name__ == "deque":
            found[name] = len(value)
        elif hasattr(value, "__dict__") and depth:
            inner = sizes(value, depth - 1, seen)
            found |= {f"{name}.{key}": size for key, size in inner.items()}
    return found


def test_k10_no_long_lived_container_grows_with_steps():
    engine = tiny_engine(kernels="cpu", layers=1)
    samples = []
    for _ in range(3):
        for _ in range(300):
            answers(engine, [engine.submit([5, 6, 7], forced(3)) for _ in range(2)])
        step_until_idle(engine)
        found = sizes(engine) | sizes(engine.loop)
        samples.append({k: v for k, v in found.items() if "telemetry.events" not in k})
    assert samples[1] == samples[2]


def test_k11_no_object_is_kept_per_request():
    engine = tiny_engine(kernels="cpu", layers=1)

    def serve(count):
        for _ in range(count):
            answers(engine, [engine.submit([5, 6], forced(1)) for _ in range(4)])
        gc.collect()
        return len(gc.get_objects())

    serve(100)
    before, after = serve(100), serve(400)
    assert (after - before) / 1200 < 0.02, "objects kept per request"


@settings(max_examples=200, deadline=None)
@given(
    budget=st.integers(1, 80),
    rows=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 70)), min_size=1, max_size=12),
    page=st.sampled_from([16, 32]),
)
def test_k13_no_shape_of_a_step_needs_more_scratch_than_was_laid_out(budget, rows, page):
    """One long prompt, many short ones, the worst mix: the warm-up shape is not the limit."""
    from engine.execution.kv_cache import hp_blocks
    from kernels.layout import FORMATS, PageLayout

    taken, left = [], budget
    for count, context in rows:
        if left:
            taken.append((min(count, left), context))
            left -= taken[-1][0]
    layout = PageLayout(FORMATS["int8_channel"], 1, 16, page)
    _, scratch = hp_blocks(layout, len(taken), budget)
    counts, contexts = zip(*taken, strict=True)
    tables = [[0] * ((n + c) // page + 1) for n, c in taken]
    step = KvStep.build(page, list(counts), list(contexts), tables, [0] * len(taken))
    assert step.scratch_blocks <= scratch


@pytest.mark.parametrize("shape", ["one long", "many short", "mixed"])
def test_k13_the_worst_shapes_run(shape):
    engine = tiny_engine(pages=128, max_batch=8, token_budget=64, max_model_len=250)
    lengths = {"one long": [240], "many short": [1] * 40, "mixed": [240, 1, 17, 31, 33, 1, 200, 15]}
    got = answers(engine, [engine.submit([5] * n, forced(4)) for n in lengths[shape]])
    assert {a.finish_reason for a in got} == {FinishReason.LENGTH}


def test_k17_a_small_cap_is_called_cap_bound():
    engine = tiny_engine(max_batch=4)
    for i in range(12):
        engine.submit([5 + i], forced(30))
    for _ in range(5):
        engine.step()
    engine.loop.observer.publish()
    batch = engine.snapshot().batch
    assert (batch.running, batch.cap, batch.bound_by) == (4, 4, "cap")


@pytest.mark.parametrize("kv_format", ["fp16", "int8_channel", "k8v4", "k4v4", "int8_token"])
def test_k32_a_rows_logits_do_not_depend_on_its_batch(kv_format):
    """Bit for bit on the C kernels: alone, and among others of other lengths."""

    def logits_of(prompts):
        engine = tiny_engine(kernels="cpu", kv_format=kv_format, token_budget=256)
        seen = {}
        run = engine.runner.run

        def spy(batch):
            out = run(batch)
            for row, request in enumerate(batch.sampling):
                seen.setdefault(tuple(request.prompt_ids), []).append(out[row].clone())
            return out

        engine.runner.run = spy
        answers(engine, [engine.submit(p, forced(20)) for p in prompts])
        return seen

    rng = random.Random(4)
    prompts = [[rng.randrange(3, 270) for _ in range(n)] for n in (1, 7, 16, 17, 33, 40)]
    together = logits_of(prompts)
    for prompt in prompts:
        alone = logits_of([prompt])[tuple(prompt)]
        for a, b in zip(alone, together[tuple(prompt)], strict=True):
            assert torch.equal(a, b)


def test_k38_decoding_a_long_stream_costs_the_same_per_token_at_its_end():
    """Counted, not timed: bytes that the decoder handles per token."""
    tokenizer = tiny_engine().loaded.tokenizer
    decoder, handled = tokenizer.detokenizer(), []

    class Counting:
        def __init__(self, inner):
            self.inner = inner

        def decode(self, data, final=False):
            handled.append(len(data))
            return self.inner.decode(data, final)

        def getstate(self):
            return self.inner.getstate()

    decoder._decoder = Counting(decoder._decoder)
    rng = random.Random(0)
    for _ in range(8000):
        decoder.push([rng.randrange(3, tokenizer.vocab_size)])
    assert max(handled) <= 16


def test_k39_a_thousand_bad_requests_are_few_lines_and_no_prompt_is_logged(caplog):
    engine = tiny_engine()
    with caplog.at_level(logging.DEBUG):
        streams = [engine.submit([7] * 300, forced(1)) for _ in range(1000)]
        streams += [engine.submit("my secret is the world", forced(2)) for _ in range(3)]
        engine._tokenizers.shutdown(wait=True)
        step_until_idle(engine)
    assert all(s.closed for s in streams)
    assert len(engine.telemetry.events) == 1
    assert "secret" not in caplog.text
    assert len(caplog.records) <= 1
