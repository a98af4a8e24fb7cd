"""A forecast beside what came."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from engine.errors import ConfigError
from playbooks.forecast.expectation import make_outlook
from playbooks.forecast.history.history import History
from playbooks.forecast.score import forecast_in, newest_overlapping, past_scores, score
from playbooks.forecast.score_record import of_score
from playbooks.reports.documents import document
from report_schemas import violations

START = datetime(2026, 12, 24, tzinfo=UTC)


def forecast(expected, low=0.8, high=1.2, last_value=3.0, last_week=None):
    hours = [
        {"start": (START + timedelta(hours=i)).isoformat(), "expected": rate, "low": rate * low,
         "high": rate * high, "last_value": last_value,
         "last_week": rate if last_week is None else last_week[i], "special": []}
        for i, rate in enumerate(expected)
    ]  # fmt: skip
    return {"traffic": {"start": START.isoformat(), "level": 0.8, "hours": hours}}


def came(rates, start=START):
    counts = tuple(None if rate is None else rate * 3600 for rate in rates)
    return History("came.csv", start, 3600.0, counts)


def test_errors_by_hour_and_in_all():
    found = score(forecast([1.0, 2.0, 4.0, 9.0]), came([1.0, 2.5, 2.0, None]))
    assert found["hours_scored"] == 3 and found["hours_forecast"] == 4
    assert [hour["error"] for hour in found["hours"]] == pytest.approx([0, -0.2, 1.0])
    assert [hour["inside"] for hour in found["hours"]] == [True, False, False]
    assert found["coverage"] == pytest.approx(1 / 3)
    ours, last, week = found["methods"]
    assert ours["error"] == pytest.approx(2.5 / 5.5) and ours["bias"] == pytest.approx(1.5 / 5.5)
    assert ours["peak_error"] == pytest.approx(-0.2)
    assert last["error"] == pytest.approx((2 + 0.5 + 1) / 5.5)
    assert week["error"] == ours["error"]


def test_what_a_naive_forecast_did_better_is_said():
    rates = [2.0] * 24
    found = score(forecast([1.0] * 24, last_value=2.0, last_week=[None] * 24), came(rates))
    assert found["methods"][2] == {"name": "same hour last week", "hours": 0, "error": None,
                                   "bias": None, "peak_error": None}  # fmt: skip
    nearer, narrow = found["warnings"]
    assert "last value would have been nearer: off by 0.0%, the forecast by 50.0%" in nearer
    assert "too narrow: 0% of the hours" in narrow
    (record,) = of_score(found)
    assert record.problems == tuple(found["warnings"])
    assert [effect.verdict for effect in record.effect] == ["worse"]


def test_hours_without_requests_have_no_relative_error():
    found = score(forecast([1.0]), came([0.0, 1.0]))
    assert found["hours"][0]["error"] is None and found["methods"][0]["error"] is None
    assert of_score(found)[0].title == (
        "Forecast of 2026-12-24: nothing came, 0% of the hours in their 80% interval"
    )


def test_an_outlook_is_scored_as_it_stands_in_a_report():
    past = History("past", START - timedelta(days=21), 3600.0, (3600.0,) * 21 * 24)
    outlook = make_outlook(past, days=1)
    report = {"traffic": outlook.report()}
    found = score(report, came([1.0] * 24))
    assert found["methods"][0]["error"] == pytest.approx(0, abs=1e-6) and found["coverage"] == 1.0
    assert not violations(found, "forecast_score")
    shown = document(found)
    assert len(shown.tables[1].rows) == 24 and shown.charts


def test_hours_that_begin_at_half_past_are_scored_as_they_are():
    start = START + timedelta(minutes=30)
    said = forecast([1.0, 2.0, 4.0])
    for i, hour in enumerate(said["traffic"]["hours"]):
        hour["start"] = (start + timedelta(hours=i)).isoformat()
    found = score(said, came([1.0, 2.0, 4.0], start))
    assert [hour["error"] for hour in found["hours"]] == [0, 0, 0]
    assert newest_overlapping([said], came([1.0], start)) is said


def test_latencies_are_scored_where_both_know_them():
    said = forecast([1.0, 1.0])
    of_hours = [
        {"at": hour["start"], "ttft_ms": {"p50": {"value": 100.0, "low": 90.0, "high": high}}}
        for hour, high in zip(said["traffic"]["hours"], (110.0, 130.0), strict=True)
    ]
    said["scenarios"] = [{"hours": of_hours}]
    seen = came([1.0, 1.0])
    seen = replace(seen, latencies={"ttft_ms p50": (80.0, 125.0), "e2e_ms p99": (1.0, 1.0)})
    assert score(said, seen)["latencies"] == [
        {"metric": "ttft_ms p50", "hours": 2, "error": pytest.approx(0.225),
         "bias": pytest.approx(0.025), "inside": 0.5},
    ]  # fmt: skip
    assert not violations(score(said, seen), "forecast_score")


def test_another_time_is_refused_with_both():
    with pytest.raises(ConfigError) as caught:
        score(forecast([1.0]), came([1.0], START + timedelta(days=1)))
    assert str(caught.value) == (
        "came.csv: no hour of the forecast came in it: it holds 2026-12-25 00:00 to "
        "2026-12-25 01:00 UTC, the forecast is of 2026-12-24 00:00 to 2026-12-24 01:00 UTC"
    )


@pytest.mark.parametrize("report", [None, [], {}, {"traffic": None}, {"traffic": {"hours": [1]}}])
def test_what_is_no_forecast(report):
    with pytest.raises(ConfigError, match="is no report of"):
        forecast_in(report)


def test_the_newest_forecast_of_that_time_is_found():
    old, new = forecast([1.0]), forecast([2.0])
    later = forecast([3.0])
    for hour in later["traffic"]["hours"]:
        hour["start"] = (START + timedelta(days=9)).isoformat()
    kept = [later, {"x": 1}, new, old]
    assert newest_overlapping(kept, came([1.0])) == new
    assert newest_overlapping(kept[:2], came([1.0])) is None


def test_past_scores_say_how_right_forecasts_were():
    found = score(forecast([1.0, 1.0]), came([1.0, 2.0]))
    (row,) = past_scores([found])
    assert row["forecast"] == pytest.approx(1 / 3) and row["coverage"] == 0.5
    assert not math.isnan(row["last_value"])
