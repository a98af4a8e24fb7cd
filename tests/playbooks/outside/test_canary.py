"""A canary of two live engines: a good candidate gets everybody, a bad one is rolled back, and how
long that took is told; with care for both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from playbooks.faults.proxy import FaultyProxy
from playbooks.faults.tampering import CutStreams, Refusals, SlowReplica, Tampering
from playbooks.outside.care import Care
from playbooks.outside.site import UrlSite
from playbooks.runs import spec
from playbooks.runs.options import CheckOptions
from playbooks.runs.runner import run_playbook
from served import Served, serving

BOOK = """
[[steps]]
kind = "canary"
[steps.with]
candidate_url = "{url}"
arrivals = "constant:16"
lengths = "fixed:4,3"
stages = "50"
least_s = {least_s}
hold_s = 60
min_samples = 29
tail_ratio = {ratio}
users = 100
waive = ["memory", {waive}]
[[steps.gates]]
metric = "reached_percent"
op = ">="
value = 50
[[steps.gates]]
metric = "rolled_back"
op = "=="
value = 0
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Served, Served]]:
    with serving() as one, serving() as other:
        yield one, other


def canary(
    pair: tuple[Served, Served], fault: Tampering | None, tmp_path: Path, waive: str = '"quality"',
    least_s: float = 0.6, ratio: float = 1.5, **care: Any,
) -> tuple[dict[str, Any], UrlSite, str]:  # fmt: skip
    """The report, the baseline's site, and the candidate's address."""
    one, other = pair
    with FaultyProxy(one.url) as baseline, FaultyProxy(other.url, fault) as candidate:
        text = BOOK.format(url=candidate.url, waive=waive, least_s=least_s, ratio=ratio)
        site = UrlSite(baseline.url, care=Care(**care))
        options = CheckOptions(folder=tmp_path / "report", log=False)
        return run_playbook(spec.read(text, Path("c.toml")), site, options), site, candidate.url


def test_a_sound_candidate_is_promoted(pair, tmp_path):
    report, site, url = canary(pair, None, tmp_path, ratio=1e3)  # a busy machine may slow it
    (step,) = report["steps"]
    assert step["verdict"] == "pass", step["reason"]
    assert step["metrics"]["rollback_ms"] is None
    sent = {phase.address: len(phase.records) for phase in site.journal.phases}
    assert sent[url] >= 29 and sent[site.spec.base] >= 29
    assert sum(sent.values()) <= report["announced"]["requests"] + report["announced"]["more"]
    assert step["report"]["probes"]["candidate"]["mixed"] == 0


@pytest.mark.parametrize(
    ("fault", "rule"), [(SlowReplica(wait=0.8), "tail"), (CutStreams(every=3), "faults")]
)
def test_a_bad_one_is_rolled_back_and_how_long_that_took_is_told(pair, tmp_path, fault, rule):
    report, site, url = canary(pair, fault, tmp_path, waive='"quality", "crosstalk"')
    (step,) = report["steps"]
    last, back = step["report"]["decisions"][-1], step["report"]["rollback"]
    assert (last["action"], last["rules"]) == ("roll_back", [rule])
    assert (step["verdict"], step["metrics"]["rolled_back"]) == ("fail", 1)
    assert back["routed_after"] == 0
    assert step["metrics"]["rollback_ms"] == back["last_request_ms"] == 0.0
    assert back["last_request_ms"] <= step["metrics"]["rollback_idle_ms"] == back["idle_ms"]
    assert "rolled back" in step["reason"]
    if rule == "faults":  # the finding says whose answers are cut
        (found,) = [f for f in report["findings"] if f["cause"] == "broken_streams"]
        assert url in found["evidence"][1] and site.spec.base not in found["evidence"][1]


def test_a_guard_ends_it_and_the_candidate_has_nobody_then(pair, tmp_path):
    report, _, url = canary(
        pair, Refusals(every=1), tmp_path, '"quality", "crosstalk"', 20.0,
        guards=(("error_rate", 0.5),),
    )  # fmt: skip
    (step,) = report["steps"]
    assert step["verdict"] == "inconclusive"
    assert f"{url}: stopped by the guard error_rate: 1 is above 0.5" in step["reason"]
    assert step["report"]["outcome"] == "undecided"
    assert step["report"]["rollback"]["routed_after"] == 0


def test_a_share_holds_for_the_marked_and_golden_prompts_too(pair, tmp_path, monkeypatch):
    monkeypatch.setattr("playbooks.outside.traffic.ROOM_WAIT_S", 0.3)
    report, site, _ = canary(pair, None, tmp_path, waive="", max_share=0.5)
    (step,) = report["steps"]
    assert step["verdict"] == "inconclusive"
    assert "runs too little else for a share of 50%" in step["reason"]
    assert not any(phase.records for phase in site.journal.phases)
