"""The comparison with another engine: turns, ratios, its table, and what goes wrong."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.peers import Contender, openvino, ratios, table, take_turns, write

GENAI = """
__version__ = "1"
class SchedulerConfig: pass
class GenerationConfig: pass
class Answer:
    def __init__(self, n): self.m_generation_ids = [[0] * n]
class ContinuousBatchingPipeline:
    def __init__(self, folder, scheduler, device, hints): assert device == "CPU", device
    def generate(self, prompts, wanted):
        assert all(one.ignore_eos and not one.do_sample for one in wanted)
        return [Answer(one.max_new_tokens) for one in wanted]
"""


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "two.json"
    path.write_text(json.dumps([{"prompt": [1, 2, 3], "out": 4}, {"prompt": [5], "out": 7}]))
    return str(path)


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An environment with a stand-in for openvino-genai."""
    (tmp_path / "openvino_genai.py").write_text(GENAI)
    (tmp_path / "openvino.py").write_text("Tensor = list")
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def contender(name: str, ours: bool, *rates: float) -> Contender:
    """Each run takes the next of `rates`."""
    left = iter(rates)
    return Contender(name, ours, lambda _: ["true"], lambda _: next(left))


@pytest.mark.skipif(os.name != "posix", reason="a shell script stands for an environment")
def test_the_batch_of_the_other_engine_counts_all_tokens(workload: str, python: str) -> None:
    one = openvino(python, "int8", "folder")
    assert one.run(workload) > 0
    assert one.rates[workload][0] > 0 and not one.ours


@pytest.mark.skipif(os.name != "posix", reason="`true` is a command there")
def test_a_ratio_is_over_the_best_of_the_others_in_the_same_turn() -> None:
    ours, slow, fast = (contender("a", True, 300, 100), contender("b", False, 100, 50),
                        contender("c", False, 150, 40))  # fmt: skip
    take_turns([ours, slow, fast], ["w.json"], 2)
    assert ratios(ours, [ours, slow, fast], "w.json") == [2.0, 2.0]
    text = table([ours, slow, fast], ["w.json"])
    assert "| a | 200 (100–300) | 2.00 (2.00–2.00) |" in text
    assert "| b | 75 (50–100) | – |" in text
    assert "medians of 2 turns" in text


def test_who_fails_is_named_in_one_line(workload: str, tmp_path: Path) -> None:
    missing = openvino(sys.executable, "int8", "folder")
    with pytest.raises(SystemExit, match=r"peers: OpenVINO GenAI, int8 on .*No module named"):
        missing.run(workload)
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(SystemExit, match="has no line <!-- peers"):
        write(page, "text")


def test_the_page_has_a_place_for_the_table(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text((peers.ROOT / "docs" / "performance.md").read_text("utf-8"), "utf-8")
    write(page, "| new |")
    once = page.read_text("utf-8")
    write(page, "| new |")
    assert page.read_text("utf-8") == once and once.count("| new |") == 1
