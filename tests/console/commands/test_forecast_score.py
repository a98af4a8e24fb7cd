"""`evewatch forecast score`: a report of a forecast, what came, and what is said of the two."""

import json
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from console import cli
from console.exits import Exit
from engine.errors import ConfigError
from playbooks.forecast.expectation import make_outlook
from playbooks.forecast.history.history import History
from playbooks.optlog import OptLog
from playbooks.reports import results
from recordings import START, record
from report_schemas import violations


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    return CliRunner().invoke(cli.app, ["forecast", "score", *map(str, arguments)])


def forecast(rate=1.0, until=START):
    """A report as far as a score reads it: of the day that begins with `until`."""
    begin = datetime.fromtimestamp(until - 21 * 86_400, UTC)
    past = History("past", begin, 3600.0, (rate * 3600,) * 21 * 24)
    return {"schema": 1, "kind": "forecast", "traffic": make_outlook(past, days=1).report()}


def counts(tmp_path, per_hour=3600, hours=24):
    path = tmp_path / "came.csv"
    rows = "".join(f"2026-12-24 {h:02}:00,{per_hour}\n" for h in range(hours))
    path.write_text(f"time,requests\n{rows}")
    return path


def test_the_kept_forecast_of_that_time_is_scored_kept_and_logged(tmp_path):
    results.save(forecast(rate=2.0, until=START + 9 * 86_400))
    results.save(forecast())
    done = run(counts(tmp_path), "--json")
    assert done.exit_code == Exit.PASSED, done.output
    report = json.loads(done.stdout)
    assert violations(report, "forecast_score") == []
    assert report["hours_scored"] == 24 and report["methods"][0]["error"] < 1e-6
    assert next(results.saved("forecast_score"))["coverage"] == 1.0
    assert "off by 0.0%" in OptLog().read().records[0].title


def test_a_report_and_a_recording(tmp_path):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(forecast(rate=3.0)))
    recording = tmp_path / "demo.everec"
    record(recording, 120.0, hz=1.0)
    done = run(recording, "--forecast", path, "--no-log")
    assert done.exit_code == Exit.PASSED, done.output
    assert "1 of 24 hours" in done.stdout and "same hour last week" in done.stdout


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (None, "no forecast of that time was kept here"),
        ("{}", "report.json: is no report of `evewatch forecast run"),
        ("{", "report.json: is no report of a forecast"),
        (json.dumps(forecast(until=START + 86_400)), "no hour of the forecast came in it"),
    ],
)
def test_refused_in_one_line(tmp_path, written, said):
    more = []
    if written is not None:
        (tmp_path / "report.json").write_text(written)
        more = ["--forecast", tmp_path / "report.json"]
    done = run(counts(tmp_path), *more)
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception) and "\n" not in str(done.exception)


def test_a_file_of_the_past_that_is_not_there(tmp_path):
    done = run(tmp_path / "none.csv")
    assert isinstance(done.exception, ConfigError) and "cannot be read" in str(done.exception)
