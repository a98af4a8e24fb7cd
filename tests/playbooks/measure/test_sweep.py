"""The sweep: what the points say, where it abstains, and a real ladder on a tiny model."""

import math
from dataclasses import dataclass

import pytest

from builders import tiny_loaded
from checklists.tomlfile import checked
from engine.config import EngineConfig
from engine.errors import ConfigError
from kernels import dispatch
from playbooks.measure.sweep import between, judge, largest_under, run_sweep
from playbooks.steps.models import SweepStep
from report_schemas import violations

SPEC = SweepStep()
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass
class FakePoint:
    """A point with a throughput that is given instead of measured."""

    batch: int
    throughput: float
    p99: float | None = None
    doubts: str | None = None
    spread: float = 0.001
    lost: float = 0.0

    @property
    def rates(self):
        return [self.throughput * (1 + self.spread * k) for k in (-1, 0, 1)]

    def latency(self, metric):
        return {"p99": self.p99}


def points(throughput=lambda n: n / (10 + n), **changes):
    rows = [FakePoint(n, throughput(n), p99=100.0 + 10 * n) for n in SIZES]
    for row in rows:
        for name, value in changes.items():
            setattr(row, name, value)
    return rows


def test_the_knee_and_a_cap_a_little_before_it():
    found = judge(points(), SPEC)
    assert not found.abstained
    assert found.knee == pytest.approx(28, abs=8)  # exactly 0.85/0.3 × 10 on the smooth curve
    assert found.recommended_cap == math.floor(0.75 * found.knee)


def test_the_objective_lowers_the_cap():
    found = judge(points(), SweepStep(p99_objective_ms=200.0))
    assert found.recommended_cap == 10  # where 100 + 10·n is 200
    assert any("200 ms" in reason for reason in found.reasons)


def test_an_objective_that_nothing_meets_leaves_no_cap():
    found = judge(points(), SweepStep(p99_objective_ms=50.0))
    assert found.knee is not None
    assert found.recommended_cap is None
    few = judge(points(p99=None), SweepStep(p99_objective_ms=500.0))
    assert few.recommended_cap is None
    assert "n too small" in few.reasons[-1]
    assert largest_under(points(), 1e6, "e2e_ms")[0] == 128


def unevenly_disturbed():
    rows = points()
    rows[3].lost = 0.4
    return rows


def test_what_all_points_lost_alike_hides_no_knee():
    assert judge(points(lost=0.4), SPEC).knee == judge(points(), SPEC).knee


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (unevenly_disturbed(), "the machine took 40% more from some points"),
        (points(lambda n: float(n)), "no knee up to batch 128"),
        (points(spread=0.2), "too noisy"),
        (points(doubts="Little's law is off by 30%"), "0 points count"),
        (points(lambda n: 100 + 0.2 * n), "disagree"),
    ],
)
def test_it_abstains_with_the_reason(rows, why):
    found = judge(rows, SPEC)
    assert found.abstained
    assert found.recommended_cap is None
    assert why in found.reasons[0]


def test_points_that_do_not_count_are_left_out():
    rows = points()
    rows[3].throughput, rows[3].doubts = 1e6, "too short"
    assert judge(rows, SPEC).knee == pytest.approx(28, abs=8)


def test_refinement_lies_between_the_rungs():
    assert list(between(20, [1, 2, 4, 8, 16, 32, 64])) == [23, 46]
    assert list(between(3, [1, 2, 4, 8])) == [3, 6]
    assert list(between(3, [1, 2, 3, 4, 6, 8])) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"batches": ()}, "batches"),
        ({"batches": (0, 1)}, "batches"),
        ({"batches": (4, 2)}, "rise"),
        ({"repeats": 0}, "repeats"),
        ({"p99_of": "itl"}, "p99_of"),
        ({"p99_objective_ms": 0.0}, "p99_objective_ms"),
    ],
)
def test_bad_ladders_are_refused(changes, why):
    with pytest.raises(ConfigError, match=why):
        checked(SweepStep, changes)


@pytest.fixture(scope="module")
def report():
    loaded = tiny_loaded(dispatch.select("reference").ops)
    config = EngineConfig(kernels="reference", max_batch=8, token_budget=32, kv_memory=1 << 22)
    seen = []
    spec = SweepStep((1, 2, 4, 8), 2, "lognormal:12,24,0.2", 3, 6, seed=5)
    found = run_sweep(config, spec, lambda done, total: seen.append((done, total)), loaded)
    return found, seen


def test_a_real_ladder_gives_points_in_the_published_shape(report):
    found, seen = report
    assert violations(found, "sweep") == []
    assert [p["batch"] for p in found["points"]][:2] == [1, 2]
    assert {1, 2, 4, 8} <= {p["batch"] for p in found["points"]}
    assert seen[-1][0] == seen[-1][1] > 0
    assert found["abstained"] == (found["knee"] is None)
    assert found["reasons"]


def test_the_ladder_runs_that_many_at_once(report):
    for point in report[0]["points"]:
        assert point["mean_running"] <= point["batch"]
        assert point["mean_running"] > 0.5 * point["batch"]
        assert len(point["repeats"]) == 2
        assert point["bound_by"] in ("cap", "compute", "token_budget")
