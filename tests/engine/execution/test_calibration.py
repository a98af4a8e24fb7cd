import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import tiny_spec
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.execution import calibration
from engine.execution.calibration import Calibration, Outlier, find_outliers, rounded_up
from engines import answers, tiny_engine
from kernels.layout import FORMATS, PageLayout

SPEC = tiny_spec()
SHAPE = (SPEC.layers, SPEC.kv_heads, SPEC.head_dim)
HALF = SPEC.head_dim // 2


def flat(value=1.0):
    return torch.full(SHAPE, value)


def make(k=None, v=None, channels=4, identity="tiny-llama-0"):
    k = flat() if k is None else k
    v = flat() if v is None else v
    return Calibration.from_ranges("tiny", identity, k, v, 100, 50, channels)


def layout(fmt, outliers=0):
    return PageLayout(FORMATS[fmt], SPEC.kv_heads, SPEC.head_dim, 16, outliers)


# --- outliers ---------------------------------------------------------------------------


def test_an_outlier_brings_its_rope_partner_along():
    k = flat()
    k[1, 0, 3] = 6.5
    assert find_outliers(k, 4) == [Outlier(1, 0, 3, 6.5), Outlier(1, 0, 3 + HALF, 1.0)]


def test_six_times_the_median_is_not_yet_an_outlier():
    k = flat()
    k[0, 0, 0] = 6.0
    assert find_outliers(k, 4) == []


def test_the_farthest_pairs_come_first_and_only_as_many_as_fit():
    k = flat()
    k[0, 1, 2], k[0, 1, HALF + 4], k[0, 1, 5] = 7.0, 30.0, 9.0
    channels = [o.channel for o in find_outliers(k, 4)]
    assert channels == [4, 4 + HALF, 5, 5 + HALF]
    assert [o.channel for o in find_outliers(k, 3)] == [4, 4 + HALF]


@pytest.mark.parametrize(("lanes", "used"), [(4, [2, 2 + HALF]), (2, [2, 2 + HALF]), (1, [])])
def test_lanes_hold_whole_pairs(lanes, used):
    k = flat()
    k[0, 1, 2] = 10.0
    got = make(k).lanes(0, layout("int8_channel", lanes))
    assert got.dtype == torch.int32
    assert got[0].tolist() == [-1] * lanes
    assert got[1].tolist() == used + [-1] * (lanes - len(used))


def test_four_bits_fill_all_lanes_with_what_reaches_farthest():
    k = flat()
    k[0, 1, 2], k[0, 1, HALF + 5] = 1.5, 1.2
    got = make(k).lanes(0, layout("k4v4", 4))
    assert got[1].tolist() == [2, 2 + HALF, 5, 5 + HALF]
    assert (got[0] >= 0).all()
    assert make(k).lanes(0, layout("k8v4", 4)).tolist() == [[-1] * 4] * SPEC.kv_heads


# --- static scales ----------------------------------------------------------------------


@given(st.floats(1e-20, 1e30))
def test_a_maximum_is_rounded_up_and_hardly(value):
    x = torch.tensor([value], dtype=torch.float32)
    up = rounded_up(x)
    assert x <= up * (1 + 1e-6) <= x * 1.0011


def test_static_scales_are_per_channel_and_tensor_scales_per_layer():
    k = flat()
    k[1, 0, 5] = 12.7
    per_channel, v = make(k).static_scales(1, FORMATS["int8_static"])
    assert per_channel[0, 5] == pytest.approx(0.1)
    assert per_channel[1, 5] == pytest.approx(1 / 127)
    assert v.shape == per_channel.shape == SHAPE[1:]
    whole, _ = make(k).static_scales(1, FORMATS["int8_tensor"])
    assert whole.unique().tolist() == pytest.approx([0.1])
    assert make(k).static_scales(0, FORMATS["int8_tensor"])[0].max() == pytest.approx(1 / 127)


def test_a_channel_that_was_always_zero_has_a_scale():
    scales, _ = make(torch.zeros(SHAPE)).static_scales(0, FORMATS["int8_static"])
    assert (scales > 0).all()


# --- file -------------------------------------------------------------------------------


def test_a_file_gives_back_what_was_saved(tmp_path):
    k = torch.rand(SHAPE, generator=torch.Generator().manual_seed(0)) + 0.1
    k[0, 0, 1] = 20.0
    saved = make(k)
    saved.save(tmp_path / "deep" / "c.json")
    read = Calibration.read(tmp_path / "deep" / "c.json")
    assert torch.equal(read.k_max, saved.k_max)
    assert torch.equal(read.v_max, saved.v_max)
    assert read.outliers == saved.outliers != ()
    assert read.digest == saved.digest != make().digest


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "bench"}, "not a calibration"),
        ({"shape": [1, 2, 3]}, "damaged"),
        ({"outliers": [[9, 0, 0, 7.0]]}, "damaged"),
        ({"k_max": [1.0] * 63 + [-1.0]}, "damaged"),
        ({"tokens": None}, "damaged"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, change, says):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(make().to_dict() | change))
    with pytest.raises(ConfigError, match=says) as error:
        Calibration.read(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize("text", ["", "[1]", '{"kind": 1'])
def test_what_is_no_calibration_is_refused(tmp_path, text):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="calibration"):
        Calibration.read(path)


# --- which one the engine takes -----------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    return tmp_path


def test_the_users_calibration_is_found_by_the_models_identity(home):
    assert calibration.find("tiny-llama-0") is None
    make().save(calibration.user_file("tiny-llama-0"))
    found = calibration.for_engine(EngineConfig(), SPEC, "tiny-llama-0")
    assert found is not None and found.digest == make().digest
    assert calibration.for_engine(EngineConfig(), SPEC, "another") is None


@pytest.mark.parametrize("fmt", ["int8_static", "int8_tensor"])
def test_a_static_format_without_calibration_says_what_to_run(home, fmt):
    with pytest.raises(ConfigError, match="evewatch model calibrate --model embedded"):
        calibration.for_engine(EngineConfig(kv_format=fmt), SPEC, "tiny-llama-0")


def test_a_calibration_of_another_model_is_refused(tmp_path):
    path = tmp_path / "c.json"
    make(identity="0123").save(path)
    config = EngineConfig(kv_format="int8_static", calibration=str(path))
    with pytest.raises(ConfigError, match=r"0123.*not of tiny-llama"):
        calibration.for_engine(config, SPEC, "tiny-llama-0")


def test_a_calibration_of_another_shape_is_refused(tmp_path):
    path = tmp_path / "c.json"
    make().save(path)
    config = EngineConfig(calibration=str(path))
    with pytest.raises(ConfigError, match="run `evewatch model calibrate` again"):
        calibration.for_engine(config, tiny_spec(layers=3), "tiny-llama-0")


# --- in the cache -------------------------------------------------------------------------


def test_the_cache_keeps_the_calibrated_channels_in_hp(tmp_path):
    k = flat()
    k[1, 0, 3] = 10.0
    make(k).save(tmp_path / "c.json")
    engine = tiny_engine(kv_format="int8_channel", calibration=str(tmp_path / "c.json"))
    assert engine.cache.layers[0].outliers.tolist() == [[-1] * 4] * 2
    assert engine.cache.layers[1].outliers.tolist() == [[3, 3 + HALF, -1, -1], [-1] * 4]


def test_four_bits_of_k_say_what_they_cost_without_a_calibration(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    (note,) = tiny_engine(kv_format="k4v4").cache.notes
    assert "evewatch model calibrate" in note and "\n" not in note
    engine = tiny_engine(kv_format="k4v4")
    assert note in engine.compute.notes and note in (engine.compute.facts.note or "")
    assert tiny_engine(kv_format="k8v4").cache.notes == []
    make().save(tmp_path / "c.json")
    calibrated = tiny_engine(kv_format="k4v4", calibration=str(tmp_path / "c.json"))
    assert calibrated.cache.notes == []


def test_clipped_values_are_counted_and_raise_an_alarm(tmp_path):
    make(flat(1e-3)).save(tmp_path / "c.json")  # far too small for what the model writes
    engine = tiny_engine(kv_format="int8_static", calibration=str(tmp_path / "c.json"))
    assert engine.snapshot().kv.saturation_ratio is None
    answers(engine, [engine.submit([5, 6, 7, 8])])
    engine.stop()
    snapshot = engine.snapshot()
    assert snapshot.kv.saturation_ratio is not None and snapshot.kv.saturation_ratio > 0.01
    assert [e.kind for e in snapshot.events].count("saturation") == 1


def test_a_calibration_that_fits_clips_nothing(tmp_path):
    make(flat(50.0), flat(50.0)).save(tmp_path / "c.json")
    engine = tiny_engine(kv_format="int8_static", calibration=str(tmp_path / "c.json"))
    answers(engine, [engine.submit([5, 6, 7, 8])])
    engine.stop()
    assert engine.snapshot().kv.saturation_ratio == 0.0
    assert not [e for e in engine.snapshot().events if e.kind == "saturation"]


def test_dynamic_formats_count_nothing():
    engine = tiny_engine(kv_format="int8_channel")
    answers(engine, [engine.submit([5, 6, 7, 8])])
    engine.stop()
    assert engine.snapshot().kv.saturation_ratio is None
