"""A rectangular static batch: the padding is computed, and changes nothing but the time."""

import pytest

from engine.request import SamplingParams
from engines import answers, assert_nothing_held, tiny_engine

PROMPTS = [[5, 6, 7], list(range(20, 61)), [9] * 12]


def serve(fmt, **settings):
    engine = tiny_engine(
        policy="static", allocator="contiguous", max_batch=3, kv_format=fmt, **settings
    )
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    done = answers(engine, [engine.submit(prompt, params) for prompt in PROMPTS])
    assert_nothing_held(engine)
    return [d.token_ids for d in done], engine.telemetry.totals


@pytest.mark.parametrize("fmt", ["fp16", "int8_channel"])
def test_padding_is_computed_and_no_answer_changes(fmt):
    ragged, before = serve(fmt)
    padded, after = serve(fmt, pad_prompts=True)
    assert padded == ragged
    rectangle = 3 * 41 - sum(map(len, PROMPTS))
    assert after["padding_tokens"] - before["padding_tokens"] == rectangle
    assert after["output_tokens"] == before["output_tokens"] == 12


def test_cancelling_the_longest_row_leaves_the_others_their_answers():
    engine = tiny_engine(
        policy="static", allocator="contiguous", max_batch=3, kv_format="fp16", pad_prompts=True
    )
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    streams = [engine.submit(prompt, params) for prompt in PROMPTS]
    engine.step()  # some of the padding
    engine.cancel(streams[1].request_id)
    done = answers(engine, streams)
    assert [len(d.token_ids) for d in done] == [4, 0, 4]
    assert_nothing_held(engine)
