"""What cannot run says so before it starts.

The kind: a model whose shape the picked kernels do not take (a head size that is no whole number
of vectors). It runs on the reference and says why; where the kernels were named it is refused in
one line before a weight is read. Nothing fails in the middle of a request.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import tiny_spec, tiny_tensors
from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import ConfigError
from engine.request import SamplingParams
from kernels.cpu.build import find_compiler
from kernels.errors import BuildError
from model_files import write_gguf, write_hf


def config(path: Path, kernels: str, kv_format: str = "int8_channel") -> EngineConfig:
    return EngineConfig(model=str(path), kernels=kernels, kv_format=kv_format, kv_memory=4 << 20)


def folder(tmp_path: Path, head_dim: int, family: str = "llama") -> Path:
    spec = tiny_spec(family, head_dim=head_dim)
    return write_hf(tmp_path / "m", spec, tiny_tensors(spec))


@pytest.fixture
def compiler() -> None:
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("head_dim", [4, 12, 20, 36, 42, 100])
@pytest.mark.parametrize("kv_format", ["fp16", "int8_channel"])
def test_an_odd_head_size_runs_on_the_reference_with_a_word(
    tmp_path: Path, head_dim: int, kv_format: str
) -> None:
    with Engine(config(folder(tmp_path, head_dim), "auto", kv_format)) as engine:
        assert engine.backend.name == "reference"
        (note,) = engine.compute.notes
        assert f"head size {head_dim}" in note and "multiples of 8" in note
        assert engine.snapshot().engine.note == note
        (done,) = engine.generate(["the"], SamplingParams(max_tokens=3, ignore_eos=True))
    assert len(done.token_ids) == 3


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_named_kernels_that_cannot_are_refused_before_a_weight_is_read(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder(tmp_path, 36, family)
    monkeypatch.setattr("engine.models.hf_folder.HfCheckpoint.read", lambda *_: pytest.fail("read"))
    with pytest.raises(ConfigError, match=r"kernels = cpu: .*head size 36.*use auto") as caught:
        Engine(config(path, "cpu")).start()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("compiler")
def test_a_gguf_file_of_an_odd_head_size_is_the_same(tmp_path: Path) -> None:
    spec = tiny_spec(head_dim=20)
    path = write_gguf(tmp_path / "m.gguf", spec, tiny_tensors(spec))
    with Engine(config(path, "auto")) as engine:
        assert engine.backend.name == "reference"
    with pytest.raises(ConfigError, match="head size 20"):
        Engine(config(path, "cpu")).start()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("head_dim", [8, 24, 72, 80, 96])
def test_multiples_of_eight_keep_the_fast_kernels(tmp_path: Path, head_dim: int) -> None:
    with Engine(config(folder(tmp_path, head_dim), "auto")) as engine:
        assert engine.backend.name == "cpu"
        assert engine.compute.notes == []
        (done,) = engine.generate(["the"], SamplingParams(max_tokens=3, ignore_eos=True))
    assert len(done.token_ids) == 3
