"""A playbook's run from its events, and how it is drawn."""

from pathlib import Path

import pytest

from console.control.run_state import PlaybookRun
from console.renderables.lines import plain, width_of
from console.renderables.run import run_page
from playbooks.runs.events import GateJudged, PlaybookEnded, StepEnded, StepProgress, StepStarted
from playbooks.runs.spec import read

TEXT = """
title = "Two steps"
time_budget = "2m"
[[steps]]
id = "first"
kind = "environment"
budget = "20s"
[[steps]]
id = "second"
kind = "load"
budget = "60s"
title = "模型 🎄 under load"
"""


@pytest.fixture
def run():
    return PlaybookRun(read(TEXT, Path("two.toml")), 100.0)


def lines(run, now, width=80):
    drawn = run_page(run, now, width)
    assert all(width_of(line) <= width for line in drawn)
    return [plain(line) for line in drawn]


def test_it_begins_with_all_steps_waiting(run):
    assert run.running and run.verdict == "running" and run.headline == "two 0/2"
    assert run.left(100.0) == 80.0
    text = "\n".join(lines(run, 101.0))
    assert "▶ running" in text and "about 79 s left" not in text and "· 1. first" in text


def test_progress_says_what_is_left_at_the_pace_so_far(run):
    run.take(StepStarted("first", "environment", "", 1, 2), 100.0)
    run.take(StepEnded("first", "pass", 2.0, "12 checks"), 102.0)
    run.take(StepStarted("second", "load", "", 2, 2), 102.0)
    run.take(StepProgress("second", 30, 120, "requests"), 112.0)
    assert run.headline == "two 1/2"
    assert run.left(112.0) == pytest.approx(30.0)
    text = "\n".join(lines(run, 112.0))
    assert "25 %" in text and "about 30 s left" in text and "✓ 1. first" in text
    assert "12 checks" in text


def test_gates_show_their_verdict_and_their_evidence(run):
    run.take(StepStarted("first", "environment", "", 1, 2), 100.0)
    for verdict in ("pass", "warn", "fail", "inconclusive"):
        run.take(GateJudged("first", "failures", verdict, f"evidence of {verdict}"), 101.0)
    text = "\n".join(lines(run, 101.0))
    for mark, verdict in (("✓", "pass"), ("▲", "warn"), ("✗", "fail"), ("?", "inconclusive")):
        assert f"{mark} {verdict}  evidence of {verdict}" in text


def test_the_end_has_the_findings(run):
    finding = {"cause": "kv_full", "confidence": 0.9, "applies": "restart",
               "evidence": ["pages 97 %"], "remedy": "give more --kv-memory"}  # fmt: skip
    run.take(PlaybookEnded({"verdict": "fail", "findings": [finding]}), 150.0)
    run.finished(run.report, "", 150.0)
    assert not run.running and run.verdict == "fail" and run.left(160.0) == 0.0
    text = "\n".join(lines(run, 160.0))
    assert "✗ fail" in text and "took 50 s" in text
    assert (
        "▲ kv_full, 90% sure, needs a restart" in text
        and "pages 97 %" in text
        and "→ give more --kv-memory" in text
    )


def test_a_healthy_engine_is_no_trouble(run):
    finding = {"cause": "healthy", "confidence": 0.9, "applies": None,
               "evidence": ["18 causes looked for"], "remedy": None}  # fmt: skip
    run.finished({"verdict": "pass", "findings": [finding]}, "", 150.0)
    text = "\n".join(lines(run, 160.0))
    assert "✓ healthy, 90% sure" in text and "None" not in text and "▲" not in text


def test_an_error_is_said_and_never_looks_like_a_pass(run):
    run.finished(None, "the engine stopped", 110.0)
    assert run.verdict == "error"
    assert "▲ the engine stopped" in "\n".join(lines(run, 111.0))


def test_cancelling_is_seen_before_it_has_ended(run):
    run.stop.set()
    assert run.verdict == "cancelling"


@pytest.mark.parametrize("width", [20, 58, 116, 196])
def test_it_fits_every_width(run, width):
    run.take(StepStarted("second", "load", "", 2, 2), 100.0)
    run.take(StepProgress("second", 1, 0, "长长的文字 " * 30), 101.0)
    lines(run, 103.0, width)
