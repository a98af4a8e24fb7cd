"""Whole steps on the product's own server, behind a proxy that tampers and one that does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from playbooks.faults.proxy import FaultyProxy
from playbooks.faults.tampering import (
    CutStreams,
    DrawnAnswers,
    IgnoredLimits,
    LeakedRequests,
    RestartingCounters,
    Stalls,
    SwappedAnswers,
    Tampering,
)
from playbooks.outside import soak
from playbooks.outside.care import Care
from playbooks.outside.site import UrlSite
from playbooks.runs import spec
from playbooks.runs.options import CheckOptions
from playbooks.runs.runner import run_playbook
from served import Served, serving

ALL = """
[[steps]]
kind = "environment"
[[steps.gates]]
metric = "failures"
op = "=="
value = 0
[[steps]]
kind = "load"
with = { lengths = "fixed:8,6", requests = 40, arrivals = "closed:4", seed = 1 }
[[steps.gates]]
metric = "error_rate"
op = "<="
value = 0
[[steps]]
kind = "quality"
with = { size = "probe" }
[[steps.gates]]
metric = "mixed_answers"
op = "=="
value = 0
[[steps.gates]]
metric = "mean_kld"
op = "<="
value = 0.01
[[steps]]
kind = "soak"
with = { requests = 32, waves = 4 }
[[steps.gates]]
metric = "left"
op = "=="
value = 0
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(max_positions=1024) as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "QUIET_S", 0.5)
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))


def check(served, tampering, text=ALL, watch_s=0.0, **care):
    return looked_at(served, tampering, text, watch_s, **care)[0]


def looked_at(served, tampering, text=ALL, watch_s=0.0, **care):
    """The report, and the site with its journal."""
    book = spec.read(text, Path("mine.toml"))
    with FaultyProxy(served.url, tampering) as proxy:
        site = UrlSite(proxy.url, care=Care(**care), least_watch_s=watch_s)
        return run_playbook(book, site, CheckOptions(log=False)), site


def test_a_sound_target_passes_in_the_outside_view(served):
    report, site = looked_at(served, Tampering())
    assert [f["cause"] for f in report["findings"]] == ["healthy"]
    assert (report["verdict"], report["view"]) == ("pass", "outside")
    assert [row["verdict"] for row in report["steps"]] == ["pass"] * 4
    assert "gates quality.mean_kld" in report["blind_spots"]
    sent = sum(len(phase.records) for phase in site.journal.phases)
    assert 0 < sent <= report["announced"]["requests"]


def test_storms_run_only_where_they_were_allowed(served):
    report = check(served, Tampering(), disruptive=True)
    last = report["steps"][-1]
    assert report["verdict"] == "pass", report["findings"]
    assert (
        last["report"]["storms"] and last["report"]["refused"] == last["report"]["to_refuse"] == 8
    )


@pytest.mark.parametrize(
    ("tampering", "cause", "watch_s"),
    [
        (SwappedAnswers(), "cross_talk", 0.0),
        (CutStreams(), "broken_streams", 0.0),
        (Stalls(every=20, hold_s=2.5), "stalls", 0.0),
        (IgnoredLimits(), "wrong_lengths", 0.0),
        (DrawnAnswers(), "unstable_answers", 0.0),
        (LeakedRequests(every=6), "leak", 0.0),
        (RestartingCounters(every_s=2.0), "restarted_while_watched", 5.0),
    ],
)
def test_a_target_with_a_fault_fails_by_its_name(served, tampering, cause, watch_s):
    report = check(served, tampering, watch_s=watch_s)
    assert report["findings"][0]["cause"] == cause
    assert report["verdict"] == "fail"


def test_a_guard_ends_the_step_and_says_so(served):
    report = check(served, Stalls(every=2, hold_s=0.3), guards=(("ttft_p99", 100.0),))
    load = report["steps"][1]
    assert load["verdict"] == "inconclusive"
    assert load["reason"].startswith("stopped by the guard ttft_p99")
    assert load["metrics"]["requests"] < 40
