"""Figures of healthy runs, kept; the next run held against them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import ConfigError
from playbooks.optlog import Record
from playbooks.usual import KeptRun, KeptRuns, beside, better, changes_since, figures_of, path_in

FAST = {"load.output_tok_s": 100.0, "load.tpot_p50_ms": 20.0, "load.e2e_p50_ms": 400.0,
        "load.error_rate": 0.0}  # fmt: skip


def at_speed(share: float, **more: float) -> dict[str, float]:
    speeds = {name: value * share if name.endswith("_s") else value / share
              for name, value in FAST.items() if not name.endswith("rate")}  # fmt: skip
    return speeds | {"load.error_rate": 0.0} | more


def run(figures: dict[str, float] | None = None, **more: object) -> KeptRun:
    kind = {"playbook": "quick_check", "engine": "evewatch"}
    return replace(KeptRun(1.7e9, kind, figures or FAST), **more)  # type: ignore[arg-type]


def test_half_speed_is_slower_and_a_little_is_not():
    assert beside(FAST, []) is None
    half = beside(at_speed(0.5), [FAST])
    assert half is not None and {d.name for d in half.slower} == set(FAST) - {"load.error_rate"}
    assert all(d.worse == pytest.approx(0.5) for d in half.slower)
    for speed in (0.76, 0.9, 1.0, 1.5):
        seen = beside(at_speed(speed), [FAST])
        assert seen is not None and not seen.slower, speed


def test_one_figure_alone_does_not_decide():
    seen = beside({**FAST, "load.e2e_p50_ms": 4000.0}, [FAST])
    assert seen is not None and not seen.slower


def test_with_three_runs_their_own_spread_decides():
    steady = [at_speed(s) for s in (1.0, 0.99, 1.01)]
    restless = [at_speed(s) for s in (1.0, 0.7, 1.2)]
    assert beside(at_speed(0.85), steady).slower  # type: ignore[union-attr]
    assert not beside(at_speed(0.95), steady).slower  # type: ignore[union-attr]
    assert not beside(at_speed(0.7), restless).slower  # type: ignore[union-attr]


def test_what_the_machine_gave_to_others_is_not_the_engines():
    assert beside(at_speed(0.7), [FAST], lost=0.0).slower  # type: ignore[union-attr]
    assert not beside(at_speed(0.7), [FAST], lost=0.2).slower  # type: ignore[union-attr]


def test_errors_and_answers_are_judged_each():
    seen = beside({**FAST, "load.error_rate": 0.1}, [FAST])
    assert seen is not None and [d.name for d in seen.worse] == ["load.error_rate"]
    assert not beside({**FAST, "load.error_rate": 0.004}, [FAST]).worse  # type: ignore[union-attr]


def test_figures_are_taken_from_steps_and_the_better_of_two_counts():
    steps = [{"id": "load", "metrics": {"output_tok_s": 50, "tpot_p50_ms": None, "requests": 9}}]
    assert figures_of(steps) == {"load.output_tok_s": 50.0}
    assert better({"load.output_tok_s": 50.0, "load.e2e_p50_ms": 9.0},
                  {"load.output_tok_s": 70.0, "load.e2e_p50_ms": 12.0}) == {
        "load.output_tok_s": 70.0, "load.e2e_p50_ms": 9.0}  # fmt: skip


# --- on the disk --------------------------------------------------------------------------------


def test_runs_are_kept_by_kind_and_the_oldest_go(tmp_path: Path):
    kept = KeptRuns(path_in(tmp_path, run().kind))
    other = path_in(tmp_path, run().kind | {"engine": "vllm"})
    assert kept.read() == () and kept.path != other
    for i in range(12):
        kept.add(run(when=float(i)))
    assert [one.when for one in kept.read()] == [float(i) for i in range(2, 12)]
    kept.add(run(at_speed(0.5), accepted=True))
    assert [one.figures for one in kept.read()] == [at_speed(0.5)]
    assert path_in(tmp_path / "mine.json", run().kind) == tmp_path / "mine.json"


RUNLESS = '{"kind": "usual", "schema": 1, "runs": [{"when": "x"}]}'


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "check", "schema": 1}', RUNLESS])
def test_another_file_is_refused_by_name(tmp_path: Path, text: str):
    path = tmp_path / "usual.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"usual\.json: no file of usual figures"):
        KeptRuns(path).read()
    assert path.read_text() == text


# --- what changed -------------------------------------------------------------------------------


def test_settings_environment_and_log_entries_are_named():
    before = run(settings={"threads": 2, "max_batch": 8}, environment={"torch": "2.8"})
    now = replace(before, settings={"threads": 1, "max_batch": 8}, environment={"torch": "2.9"})
    log = [Record("Old change", time="2023-01-01T00:00:00.000Z"),
           Record("Check quick_check: pass", time="2026-01-01T00:00:00.000Z"),
           Record("New driver", time="2026-01-02T00:00:00.000Z")]  # fmt: skip
    assert changes_since(before, now, log) == (
        "threads 2 → 1",
        "torch 2.8 → 2.9",
        "log: New driver",
    )
    assert changes_since(before, before) == ()
