"""`compute` and `weights`: which products are of integers, and what engines on them promise."""

from __future__ import annotations

import pytest
import torch

from builders import make_kv, make_layout, tiny_spec, tiny_tensors
from engine import models
from engine.config import COMPUTE, EngineConfig
from engine.core import Engine
from engine.errors import ConfigError
from engine.execution import load
from engine.execution.calibration import Calibration
from engine.execution.columns import LISTED, ColumnEnergy
from engine.execution.load import load_model
from engine.execution.products import products_for, weights_of
from engine.models.products import IN_FLOAT
from engine.request import SamplingParams
from kernels import decoder, dispatch
from kernels.layout import KvStep
from kernels.weights import Rounding
from kv_builders import backend
from model_files import write_gguf, write_hf
from weight_builders import random_weight

SPEC = tiny_spec()
COLUMNS = {name: tuple(range(40)) for i in range(2)
           for name in (f"{i}.qkv", f"{i}.out", f"{i}.gate_up", f"{i}.down")}  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """In Q4_1."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return write_gguf(path, SPEC, tiny_tensors(SPEC), "Q4_1")


@pytest.fixture
def config(file):
    return EngineConfig(model=str(file), kernels="reference", kv_memory=1 << 22)


@pytest.fixture
def calibrated(config, file, tmp_path):
    mark = models.identity([file])
    flat = torch.ones(SPEC.layers, SPEC.kv_heads, SPEC.head_dim)
    path = tmp_path / "c.json"
    Calibration.from_ranges("tiny", mark, flat, flat, 9, 9, columns=COLUMNS).save(path)
    return config.with_(calibration=str(path))


def chosen(config, kernels="reference"):
    checkpoint = models.open_checkpoint(models.resolve(config.model))
    return products_for(config, checkpoint, dispatch.select(kernels))


def rounding(products, name):
    """Of a product whose matrix is quantised."""
    return products.of(name, random_weight("q4_1", 16, 64))


# --- what is chosen ----------------------------------------------------------------------------


def test_floats_and_16_bits_need_no_calibration(config, calibrated):
    assert list(COMPUTE) == ["auto", *decoder.COMPUTE]
    assert chosen(config) == IN_FLOAT
    for one in (config, calibrated):
        products = chosen(one.with_(compute="int16"))
        assert {rounding(products, name) for name in (*COLUMNS, "head")} == {Rounding(16)}


def test_8_bits_keep_the_calibrations_columns_as_many_as_are_asked_for(calibrated):
    products = chosen(calibrated.with_(compute="int8", outlier_columns=5))
    assert {rounding(products, name) for name in COLUMNS} == {Rounding(8, (0, 1, 2, 3, 4))}
    assert rounding(products, "head") == Rounding(8)  # this calibration has no columns of it


def test_mixed_takes_the_mlp_in_16_bits(calibrated):
    products = chosen(calibrated.with_(compute="mixed", outlier_columns=3))
    wide = {name for name in COLUMNS if rounding(products, name) == Rounding(16)}
    assert wide == {f"{i}.{name}" for i in range(2) for name in ("gate_up", "down")}
    assert rounding(products, "1.qkv") == Rounding(8, (0, 1, 2))


def test_floats_are_multiplied_as_floats(calibrated):
    products = chosen(calibrated.with_(compute="int8"))
    assert products.of("0.qkv", random_weight("bf16", 16, 64)) is None


def test_auto_is_mixed_where_a_calibration_names_columns_and_c_takes_them(config, calibrated):
    backend("cpu")
    assert chosen(config.with_(compute="auto"), "cpu").compute == "f32"
    assert chosen(calibrated.with_(compute="auto"), "cpu").compute == "mixed"
    assert chosen(calibrated.with_(compute="auto"), "reference").compute == "f32"
    loaded = load_model(calibrated.with_(compute="auto", kernels="cpu"))
    assert loaded.products.compute == "mixed"
    assert not [note for note in loaded.notes if note.startswith("compute")]  # as it should be


def test_a_snapshot_says_how_weights_are_multiplied(config):
    with Engine(config.with_(compute="int16")) as engine:
        assert engine.snapshot().engine.compute == "int16"


def test_what_is_odd_is_said(config, tmp_path):
    (note,) = load_model(config.with_(compute="int8")).notes[1:]
    assert "no calibration names outlier columns" in note and config.model in note
    folder = str(write_hf(tmp_path / "hf", SPEC, tiny_tensors(SPEC)))
    floats = load_model(config.with_(model=folder, compute="int16"))
    assert "9 matrices are not quantised" in floats.notes[1]
    assert floats.model.in_float == 9
    smaller = load_model(config.with_(model=folder, compute="int16", weights="q8_0"))
    assert smaller.model.in_float == 0
    assert any("16 float matrices were quantised" in note for note in smaller.notes)


def test_a_profile_multiplies_as_its_engine_does(calibrated):
    from playbooks.measure.profile import load_timed

    _, loaded = load_timed(calibrated.with_(compute="int8", weights="q8_0"))
    assert loaded.products.compute == "int8" and loaded.model.in_float == 0


def test_a_gpu_has_no_such_products(config, monkeypatch):
    monkeypatch.setattr(load, "_device", lambda _: "cuda")
    with pytest.raises(ConfigError, match="are the CPU's, not cuda's"):
        load.select_kernels(config.with_(compute="int8"), SPEC)


def test_engines_share_weights_only_where_they_multiply_alike(config):
    floats, int8 = config.with_(compute="f32"), config.with_(compute="int8")
    assert weights_of(floats) == weights_of(floats.with_(kv_format="fp16", outlier_columns=3))
    others = (int8, int8.with_(outlier_columns=3), floats.with_(weights="q8_0"))
    assert len({weights_of(one) for one in (floats, *others)}) == 4


@pytest.mark.parametrize(("name", "value"), [("compute", "int4"), ("weights", "q4_0")])
def test_a_value_that_is_none_is_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name}: '{value}' is not one of"):
        EngineConfig(**{name: value})


# --- columns -----------------------------------------------------------------------------------


def test_columns_that_stand_out_in_most_rows_come_first():
    energy = ColumnEnergy()
    x = torch.randn(50, 96, generator=torch.Generator().manual_seed(0))
    x[:, 70] *= 9
    x[:, 7] *= 5
    x[0, 90] = 1e4  # one row: the first token of a text
    energy.see("0.qkv", x[:20])
    energy.see("0.qkv", x[20:])
    energy.see("head", torch.zeros(3, 8))
    found = energy.columns()
    assert found["0.qkv"][:2] == (70, 7) and len(found["0.qkv"]) == LISTED
    assert len(found["head"]) == 8


def test_a_calibration_measures_the_rows_of_every_product(config):
    from playbooks.measure.calibrate import measure

    loaded = load_model(config)
    found = measure(config, loaded, [list(range(3, 120))]).columns
    assert set(found) == {*COLUMNS, "head"}
    assert {len(row) for row in found.values()} == {64}


# --- what comes of it ----------------------------------------------------------------------------


def logits_of(loaded, tokens):
    caches = make_kv(make_layout(SPEC), SPEC.layers, pages=8)
    step = KvStep.build(16, [len(tokens)], [0], [list(range(8))], [-1])
    every = torch.arange(len(tokens))
    return loaded.model.forward(torch.tensor(tokens), step, caches, every)


@pytest.mark.parametrize("compute", ["int8", "mixed", "int16"])
def test_c_and_the_definition_agree_and_are_near_the_floats(calibrated, compute):
    backend("cpu")
    tokens = list(range(5, 70))
    config = calibrated.with_(compute=compute, outlier_columns=4)
    ours = logits_of(load_model(config), tokens)
    c = logits_of(load_model(config.with_(kernels="cpu")), tokens)
    floats = logits_of(load_model(calibrated), tokens)

    def error(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a - b).square().mean().sqrt() / floats.square().mean().sqrt())

    assert 0 < error(c, floats) < (1e-3 if compute == "int16" else 3e-2)
    assert error(c, ours) < error(c, floats)  # attention rounds otherwise, and then a step of x


@pytest.mark.parametrize("compute", ["int8", "int16"])
def test_a_request_has_the_same_tokens_alone_and_in_any_batch(calibrated, compute):
    backend("cpu")
    config = calibrated.with_(
        kernels="cpu", compute=compute, max_batch=8, token_budget=32, prefix_cache=False
    )
    prompts = [list(range(3 + i, 20 + 3 * i)) for i in range(8)]
    params = SamplingParams(12, temperature=1.0, seed=7, ignore_eos=True)
    with Engine(config) as engine:
        together = [one.token_ids for one in engine.generate(prompts, params)]
        alone = [engine.generate([prompt], params)[0].token_ids for prompt in prompts]
    assert together == alone
