"""A forecast as a step of a playbook."""

from pathlib import Path

import pytest

from engine.config import EngineConfig
from forecasts import a_fit
from playbooks.checkup.site import Site
from playbooks.forecast.fit_file import own_path, url_path
from playbooks.outside.forecast import run_forecast as run_at_url
from playbooks.outside.site import UrlSite
from playbooks.reports import results
from playbooks.reports.documents.checks import check_document
from playbooks.runs import spec
from playbooks.runs.options import CheckOptions
from playbooks.runs.outcome import StepClock
from playbooks.runs.procedures import run_forecast
from playbooks.runs.runner import run_playbook
from playbooks.steps.forecast import ForecastStep
from playbooks.steps.registry import STEP_TYPES

BOOK = """
diagnose = false
[[steps]]
kind = "forecast"
[steps.with]
{given}
[[steps.gates]]
metric = "saturated_share"
op = "=="
value = 0
[[steps.gates]]
metric = "holds_share"
op = ">="
value = 0.9
"""


@pytest.fixture
def asked(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    hours = [(day, hour) for day in range(1, 9) for hour in range(24)]
    counts = "\n".join(f"2026-12-{day:02} {hour:02}:00,90" for day, hour in hours)
    (tmp_path / "counts.csv").write_text(f"time,requests\n{counts}\n")
    fit = a_fit()
    fit.save(tmp_path / "fit.json")
    return ForecastStep(
        history=str(tmp_path / "counts.csv"), fit=str(tmp_path / "fit.json"), days=0.05,
        lengths="fixed:20,10", plausible=2, slo="ttft=500",
    )  # fmt: skip


def test_its_metrics_are_those_of_its_type_and_gates_judge_them(asked, tmp_path):
    site = Site(a_fit().config, None)
    outcome = run_forecast(site, asked, StepClock())
    assert set(outcome.metrics) == set(STEP_TYPES["forecast"].metrics)
    assert outcome.metrics["holds_share"] == 1 and outcome.metrics["replicas_missing"] == 0
    assert outcome.note.startswith("holds: 99% of the requests within TTFT 500 ms")
    assert next(results.saved("forecast"))["sentences"] == outcome.report["sentences"]
    given = f'history = "{asked.history}"\nfit = "{asked.fit}"\ndays = 0.05\nplausible = 1\n'
    more = 'lengths = "fixed:20,10"\nsmallest = false\n'
    for limit, verdict in ((500, "pass"), (1, "fail")):
        text = BOOK.format(given=given + more + f'slo = "ttft={limit}"')
        report = run_playbook(
            spec.read(text, Path("mine.toml")), site, CheckOptions(folder=tmp_path / verdict)
        )
        assert (report["verdict"], report["steps"][0]["verdict"]) == (verdict, verdict)
        titles = [table.title for table in check_document(report).tables]
        assert "forecast: in all" in titles and "forecast: by the hour" in titles


def test_without_a_history_there_is_nothing_to_do(asked, tmp_path):
    book = spec.read(BOOK.format(given='router = "round_robin"'), Path("mine.toml"))
    report = run_playbook(book, Site(a_fit().config, None), CheckOptions(folder=tmp_path / "r"))
    assert report["steps"][0]["verdict"] == "skipped"
    assert report["steps"][0]["reason"] == "nothing to do without --with forecast.history=…"


def test_the_holiday_check_asks_it(asked):
    step = next(step for step in spec.load("pre_holiday").steps if step.kind == "forecast")
    assert {gate.metric for gate in step.gates} == {"saturated_share", "holds_share"}


def test_at_a_url_its_own_fit_is_needed(asked):
    site = UrlSite("http://127.0.0.1:9")
    plain = ForecastStep(history=asked.history, lengths="fixed:20,10", days=0.05, plausible=1)
    without = run_at_url(site, plain, StepClock())
    assert without.metrics["holds_share"] is None
    assert "`evewatch forecast fit --target http://127.0.0.1:9/" in without.doubts[0]
    a_fit().save(url_path(site.spec.shown))
    assert run_at_url(site, plain, StepClock()).metrics["holds_share"] == 1


def test_an_engine_without_a_fit_is_measured_first_and_the_fit_is_kept(asked, monkeypatch):
    measured = []

    def run_fit(config, work, progress, loaded):
        measured.append(work.duration_s)
        return a_fit(), {}

    monkeypatch.setattr("playbooks.forecast.fit.run_fit", run_fit)
    plain = ForecastStep(history=asked.history, lengths="fixed:20,10", days=0.05, plausible=1)
    site = Site(a_fit().config, object())
    run_forecast(site, plain, StepClock(left_s=30.0))
    assert measured == [10.0] and own_path(EngineConfig()).is_file()
