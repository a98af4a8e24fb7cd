"""The two views: what a URL cannot tell is named, and what it should have told counts."""

from pathlib import Path

import pytest

from playbooks.outside.load import DUE
from playbooks.outside.site import UrlSite
from playbooks.runs import spec
from playbooks.runs.options import CheckOptions
from playbooks.runs.outcome import StepOutcome
from playbooks.runs.runner import run_playbook
from playbooks.steps.metrics import LOAD_FACTS
from playbooks.steps.registry import StepType

TEXT = """
[[steps]]
kind = "load"
[[steps.gates]]
metric = "error_rate"
op = "<="
value = 0
[[steps.gates]]
metric = "kv_usage"
op = "<="
value = 1
[[steps]]
kind = "faults"
"""
TOLD = {"error_rate": 0.0, "refused_share": 0.0, "generator_late_ms": 0.0}
NOT_TOLD = frozenset(LOAD_FACTS).difference(DUE)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))


@pytest.fixture
def check(monkeypatch):
    def run(outcome, **options):
        monkeypatch.setattr(StepType, "procedure", lambda step, at_url: lambda *a: outcome)
        book = spec.read(TEXT, Path("mine.toml"))
        return run_playbook(book, UrlSite("http://h"), CheckOptions(log=False, **options))

    return run


def test_blind_spots_are_named_and_do_not_count(check):
    report = check(StepOutcome(TOLD, not_told=NOT_TOLD))
    assert (report["verdict"], report["view"]) == ("pass", "outside")
    steps, gates, causes = report["blind_spots"]
    assert (steps, gates) == ("steps faults", "gates load.kv_usage")
    assert "logging_overhead" in causes and "generator_bound" not in causes
    text = Path(report["files"][1]).read_text("utf-8")
    assert "pass (outside view)" in text
    assert "not seen from outside: steps faults; gates load.kv_usage" in text


@pytest.mark.parametrize(
    ("outcome", "options"),
    [
        (StepOutcome(TOLD, not_told=NOT_TOLD), {"require": "inside"}),  # what is blind counts
        # a metric that is taken away is never excused, nor is one that is no blind spot
        (StepOutcome(TOLD, not_told=NOT_TOLD), {"withheld": ("kv_usage",)}),
        (StepOutcome(TOLD, not_told=NOT_TOLD), {"withheld": ("generator_late_ms",)}),
        (StepOutcome(TOLD | {"error_rate": None}, not_told=NOT_TOLD), {}),
        (StepOutcome(TOLD, not_told=NOT_TOLD, doubts=("no metrics page",)), {}),
    ],
)
def test_what_should_be_there_and_is_not_is_inconclusive(check, outcome, options):
    report = check(outcome, **options)
    assert report["verdict"] == "inconclusive"


def test_what_is_told_all_the_same_is_judged(check):
    report = check(StepOutcome(TOLD | {"kv_usage": 2.0}, not_told=NOT_TOLD - {"kv_usage"}))
    assert report["steps"][0]["gates"][1]["verdict"] == "fail"
    assert report["verdict"] == "fail"


def test_a_step_with_nothing_but_blind_gates_counts_neither_way(check):
    report = check(StepOutcome({}, not_told=NOT_TOLD | {"error_rate"}))
    assert report["steps"][0]["verdict"] == "not told"
    assert report["verdict"] != "pass"
