"""A playbook's runs beside each other: the runner keeps the healthy ones and judges the next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkups import tiny_site
from engine.errors import ConfigError
from playbooks.diagnosis import Evidence
from playbooks.runs import procedures, spec
from playbooks.runs.history import History, run_of
from playbooks.runs.options import CheckOptions
from playbooks.runs.outcome import StepOutcome
from playbooks.runs.runner import run_playbook
from playbooks.usual import KeptRuns, changes_since

BOOK = """
[[steps]]
kind = "profile"
[[steps]]
kind = "soak"
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    return tmp_path / "usual"


@pytest.fixture
def speeds(monkeypatch):
    """What the profile measures, run by run."""
    speeds: list[float] = []

    def profile(site: Any, params: Any, clock: Any) -> StepOutcome:
        speed = speeds.pop(0)
        return StepOutcome({"output_tok_s": speed, "step_ms": 1e3 / speed})

    monkeypatch.setattr(procedures, "run_profile", profile)
    monkeypatch.setattr(procedures, "run_soak", lambda *_: StepOutcome({"growth": ()}))
    return speeds


def check(place: Path, accept: bool = False, **settings: Any) -> dict[str, Any]:
    site = tiny_site(Path("tiny"), **settings)
    options = CheckOptions(usual=History(place, accept), log=False)
    return run_playbook(spec.read(BOOK, Path("mine.toml")), site, options)


def first(report: dict[str, Any]) -> dict[str, Any]:
    return report["findings"][0]


def test_half_speed_is_named_with_what_changed(place, speeds):
    speeds += [100.0, 50.0, 52.0]
    assert check(place)["verdict"] == "pass"
    slow = check(place, max_batch=4)
    assert slow["verdict"] == "fail" and first(slow)["cause"] == "slower_than_usual"
    assert "max_batch 16 → 4" in first(slow)["evidence"][1]
    assert not speeds  # measured twice


def test_what_is_the_same_on_the_disk_has_not_changed(place):
    """Steps with lists among their parameters come back from JSON as what they were."""
    book = spec.read(BOOK + "[[steps]]\nkind = 'quality'\n", Path("mine.toml"))
    now = run_of(book, tiny_site(Path("tiny")), [], Evidence())
    kept = KeptRuns(place / "mine.json")
    kept.add(now)
    assert changes_since(kept.read()[0], now) == ()
    longer = replace(now, kind=now.kind | {"steps": now.kind["steps"] | {"soak": {"waves": 9}}})
    assert "steps.soak.waves 8 → 9" in changes_since(kept.read()[0], longer)


def test_a_disturbance_passes_with_the_second_look(place, speeds):
    speeds += [100.0, 50.0, 97.0]
    check(place)
    assert first(check(place))["cause"] == "healthy"


def test_a_slow_run_is_not_kept_unless_it_is_accepted(place, speeds):
    speeds += [100.0, 50.0, 50.0, 50.0, 50.0, 55.0]
    check(place)
    assert check(place)["verdict"] == "fail"
    assert check(place)["verdict"] == "fail"
    speeds[:] = [50.0, 55.0]
    assert check(place, accept=True)["verdict"] == "pass"
    assert check(place)["verdict"] == "pass"


def test_a_file_of_another_kind_is_refused_before_anything_runs(place, speeds):
    path = place.with_suffix(".json")
    path.write_text("{}")
    with pytest.raises(ConfigError, match="no file of usual figures"):
        check(path)
    path.unlink()
    speeds += [100.0]
    check(path)
    assert path.is_file()
