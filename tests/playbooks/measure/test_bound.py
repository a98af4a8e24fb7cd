"""What held a run back: read from runs that are built to be held back by one thing."""

import numpy as np
import pytest

from builders import tiny_loaded
from engine.config import EngineConfig
from engine.core import Engine
from engine.execution.kv_cache import layout_for, memory_needed
from kernels import dispatch
from playbooks.load.arrivals import Closed
from playbooks.measure.bound import Cost, judge, step_cost
from playbooks.measure.trial import run_trial, warm_up
from playbooks.measure.work import EvenMix

LOADED = tiny_loaded(dispatch.select("reference").ops)


def trial(pages, users, requests=12, **settings):
    config = EngineConfig(**{"max_batch": 4, "token_budget": 32, "kv_format": "fp16"} | settings)
    layout = layout_for(config, LOADED.spec.kv_heads, LOADED.spec.head_dim)
    memory = memory_needed(layout, LOADED.spec.layers, pages, config.max_batch, 32)
    mix = EvenMix(requests, 20, 12, 0.3, 0.3, 60, 40)
    with Engine(config.with_(kv_memory=memory), LOADED) as engine:
        warm_up(engine)
        return run_trial(engine, Closed(users), mix, requests, seed=0)


def test_a_full_batch():
    assert trial(pages=64, users=12).bound.limited_by == "batch"


def test_a_full_cache():
    found = trial(pages=8, users=12, max_batch=8)
    assert found.bound.limited_by == "kv"
    assert found.bound.mean_running < 5
    assert "KV cache" in found.bound.why


def test_nobody_waits():
    found = trial(pages=64, users=2)
    assert (found.bound.limited_by, found.bound.by) == ("load", "load")
    assert found.bound.padding_share == 0


def test_a_static_batch_that_memory_ends_is_held_by_memory_and_pads():
    settings = {"policy": "static", "allocator": "contiguous", "reserve": "max",
                "max_model_len": 128, "max_wait_ms": 1.0}  # fmt: skip
    found = trial(pages=16, users=12, **settings)
    assert found.bound.limited_by == "kv"
    assert found.bound.mean_running == 2
    assert 0 < found.bound.padding_share < 0.5
    padded = trial(pages=16, users=12, pad_prompts=True, **settings)
    assert padded.bound.padding_share > found.bound.padding_share
    assert "was padding" in padded.bound.why
    roomy = trial(pages=64, users=12, **settings)
    assert roomy.bound.limited_by == "batch"


def test_a_trial_counts_what_was_served():
    found = trial(pages=64, users=12)
    assert [r.index for r in found.records] == list(range(12))
    assert found.output_tok_s * found.wall_s == pytest.approx(12 * 12, abs=6)
    assert 0 < found.kv["peak_bytes"] <= found.kv["pool_bytes"]
    assert found.kv["held_bytes_per_token"] >= found.kv["bytes_per_token"]
    assert len(found.samples("e2e_ms")) == 12


def test_the_cost_of_a_step_is_a_line_and_its_doubling_gains_less_and_less():
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 256, 400).astype(float)
    ms = 20 + 1.5 * tokens
    ms[::40] *= 5  # a disturbed machine
    found = step_cost(tokens, ms)
    assert (found.fixed, found.per_token) == pytest.approx((20, 1.5), rel=0.05)
    assert Cost(20, 1.5).doubling_gain(1) > 0.8
    assert Cost(20, 1.5).doubling_gain(200) < 0.05
    assert step_cost(np.full(50, 8.0), rng.normal(10, 1, 50)) is None
    assert step_cost(np.arange(5.0), np.arange(5.0)) is None


@pytest.mark.parametrize(
    ("limited_by", "gain", "by"),
    [
        ("kv", 0.5, "kv"), ("kv", 0.05, "compute"), ("batch", None, "batch"),
        ("batch", 0.14, "compute"), ("token_budget", 0.9, "compute"), ("load", 0.01, "load"),
    ],
)  # fmt: skip
def test_the_machine_is_the_limit_where_a_doubling_gains_little(limited_by, gain, by):
    assert judge(limited_by, gain) == by
