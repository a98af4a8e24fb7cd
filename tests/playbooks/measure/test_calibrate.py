import pytest
import torch

from builders import tiny_spec, tiny_tensors, tiny_tokenizer
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.execution.calibration import OUTLIER_RATIO, Calibration, find
from engine.execution.load import load_model
from engine.models.surgery import Pair
from model_files import write_hf
from playbooks.measure.calibrate import built_in, measure, pieces, prompt_tokens, run_calibration
from playbooks.quality.controls import injected_model, plain_arm


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    spec = tiny_spec()
    folder = write_hf(tmp_path_factory.mktemp("hf") / "tiny", spec, tiny_tensors(spec))
    return EngineConfig(model=str(folder), kernels="reference")


@pytest.fixture(scope="module")
def loaded(config):
    return load_model(config)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_maxima_are_those_of_the_cached_keys(config, loaded):
    tokens = torch.randint(0, 272, (50,), generator=torch.Generator().manual_seed(0)).tolist()
    got = measure(config, loaded, [tokens[:20], tokens])
    arm = plain_arm(config, loaded, 60)
    with arm.feed(tokens) as held:
        layer = arm.cache.layers[1]
        k = layer.layout.view(layer.pages, "k")[held.pages].float()  # [pages, H, D, P]
        k = k.permute(1, 2, 0, 3).flatten(2)[..., :50]
    torch.testing.assert_close(got.k_max[1], k.abs().amax(-1), rtol=2e-3, atol=0)
    assert (got.k_max[1] >= k.abs().amax(-1)).all()
    assert (got.tokens, got.longest) == (70, 50)


def test_injected_outliers_are_found(config, loaded):
    pair = Pair(1, 0, 5)
    injected = injected_model(config, loaded, [pair], 32.0)
    found = measure(config, injected, [list(range(3, 200))]).outliers
    assert {(o.layer, o.head, o.channel) for o in found} >= {(1, 0, 5), (1, 0, 13)}
    assert max(o.ratio for o in found) > OUTLIER_RATIO


def test_a_run_writes_the_file_that_the_engine_then_uses(config, loaded, home):
    steps = []
    report = run_calibration(config, progress=lambda *at: steps.append(at))
    path = find(loaded.identity)
    assert str(path) == report["file"] and home in path.parents
    assert Calibration.read(path).digest == report["calibration"]
    assert steps[-1][0] == steps[-1][1] == report["tokens"]
    assert report["longest_context"] == 255
    assert len(report["layers"]) == 2 and report["channels"] == 64


def test_the_file_can_go_elsewhere(config, home, tmp_path):
    report = run_calibration(config, out=tmp_path / "mine.json", channels=0)
    assert report["outliers"] == [] and (tmp_path / "mine.json").is_file()
    assert not home.exists()


@pytest.mark.parametrize(
    ("name", "text", "lengths"),
    [
        ("a.txt", "x" * 300, [255, 45]),
        ("a.jsonl", '{"prompt": "Hello"}\n{"prompt": "Good morning"}', None),
    ],
)
def test_prompts_come_from_text_or_cases(loaded, tmp_path, name, text, lengths):
    path = tmp_path / name
    path.write_text(text)
    found = prompt_tokens(loaded, path)
    assert len(found) == 2 and all(found)
    assert lengths is None or [len(ids) for ids in found] == lengths


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [("a.txt", "", "holds no text"), ("b.txt", None, "cannot be read"), ("a.csv", "x", "expected")],
)
def test_prompts_that_are_none_are_refused(loaded, tmp_path, name, text, says):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        prompt_tokens(loaded, path)


def test_a_negative_number_of_channels_is_refused(config):
    with pytest.raises(ConfigError, match="channels"):
        run_calibration(config, channels=-1)


def test_the_built_in_texts_double_up_to_the_whole_context():
    texts = built_in(tiny_tokenizer(), 3000)
    assert [len(ids) for ids in texts] == [512, 1024, 2048, 3000]
    assert [len(ids) for ids in built_in(tiny_tokenizer(), 100)] == [100]
    assert texts[0] != texts[1][:512]
    assert len(pieces()) >= 15
