"""From what a command says to a report: verdicts, intervals, what-ifs, the smallest fleet."""

import json
import math
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest
from typer.testing import CliRunner

from console import cli
from engine.errors import ConfigError
from engine.scheduling.rates import RatesAhead
from engine.simulated.scaling import Loss, Scaling
from forecasts import MONDAY, a_fit, a_scenario, traffic
from playbooks.forecast import answers
from playbooks.forecast.asked import own_fit, parse_loss, parse_scaling, scenarios_of
from playbooks.forecast.figures import CourseFigures, HourFigures, Saturation
from playbooks.forecast.pace import Pace
from playbooks.forecast.record import of_forecast
from playbooks.forecast.report import report_of
from playbooks.forecast.run import Question, run_forecast, sampling_of
from playbooks.forecast.typical import Sampling
from playbooks.load.slo import Slo
from playbooks.reports.documents import document
from playbooks.reports.formats import as_csv, as_html
from playbooks.steps.forecast import ForecastStep
from report_schemas import violations

ABLE = 5.2


class Told:
    """An outlook that is not asked for more."""

    assumptions = ("told",)

    def report(self):
        return {"hours": []}


def forecast(rates=(2.0, 3.0), days=(0.9, 1.0, 1.1), scenarios=None, slot_s=300.0, **more):
    courses = [traffic([r * k for r in rates], slot_s, i) for i, k in enumerate(days)]
    question = Question(courses, scenarios or [a_scenario()], **{"slo": Slo(ttft=500)} | more)
    found = run_forecast(question, workers=1)
    return report_of(question, found, Told())


@pytest.fixture(scope="module")
def report():
    fit = a_fit(drift=0.03)
    arms = [
        a_scenario(1, fit=fit, losses=(Loss(1, 400.0, 60.0),)),
        a_scenario(2, "replicas=2", fit=fit),
    ]
    return forecast(scenarios=arms)


def test_the_report_is_as_published_and_says_the_worst_first(report):
    assert violations(report, "forecast") == []
    first, second = report["scenarios"]
    assert first["verdict"] == "fails" and second["verdict"] == "holds"
    (span,) = first["saturations"]
    assert span["from"].endswith("00:06:00+00:00") and span["days"] == 3
    assert report["sentences"][0].startswith("as it is: saturates at 00:06, recovers 00:0")
    assert any(text.startswith("replicas=2: holds: 99% of") for text in report["sentences"])
    assert "a lost replica does not come back by itself" not in report["assumptions"]
    assert report["assumptions"][0] == "told"


def test_intervals_hold_their_values(report):
    def blocks(node):
        if isinstance(node, dict) and {"value", "low", "high"} == node.keys():
            yield node
        elif isinstance(node, dict | list):
            for inner in node.values() if isinstance(node, dict) else node:
                yield from blocks(inner)

    known = [b for b in blocks(report["scenarios"]) if b["low"] is not None]
    assert len(known) > 50
    assert all(b["low"] <= b["value"] <= b["high"] for b in known)
    offered = report["scenarios"][0]["totals"]["offered"]
    assert offered["low"] < offered["value"] < offered["high"]


def test_every_format_has_it(report):
    page = as_html(report)
    assert "saturates at 00:06" in page and "replicas=2" in page
    rows = as_csv(report).splitlines()
    assert len(rows) == 1 + 2 and rows[0].startswith("scenario,at,requests,requests low")
    assert document(report).rows[0]["scenario"] == "as it is"


def test_one_record_goes_to_the_log(report):
    (record,) = of_forecast(report, ("a.json",))
    assert record.claim == "simulated" and "saturates at 00:06" in record.title
    assert {e.verdict for e in record.effect if e.metric.startswith("good")} == {"pass"}


def test_the_same_seed_gives_the_same_bytes_on_one_process_and_on_two():
    courses = [traffic([2.0], 60.0, i) for i in range(2)]
    question = Question(courses, [a_scenario(fit=a_fit(drift=0.1))], Slo(ttft=500))
    found = [run_forecast(question, workers=n) for n in (1, 1, 2)]
    first, again, elsewhere = (json.dumps(report_of(question, f, Told())) for f in found)
    assert first == again == elsewhere


def test_near_capacity_some_days_hold_and_others_do_not():
    found = forecast((ABLE * 0.86,), days=(0.5, 0.6, 0.7, 1.4), slot_s=240.0, smallest=False)
    assert found["verdict"] == "uncertain" and found["smallest"] is None
    assert 2 <= found["holds_on"] < 4
    assert forecast((1.5 * ABLE,), slot_s=240.0, smallest=False)["verdict"] == "fails"


def test_the_smallest_fleet_holds_where_one_replica_less_does_not():
    found = forecast((2.4 * ABLE,), days=(1.0,), slot_s=300.0, target=0.95)
    (count,) = found["smallest"]["hours"]
    assert found["smallest"]["whole"] == count and found["smallest"]["replica_hours"] == count
    verdicts = [
        forecast(
            (2.4 * ABLE,), (1.0,), [a_scenario(n)], target=0.95, smallest=False
        )["verdict"]
        for n in (count - 1, count)
    ]  # fmt: skip
    assert verdicts == ["fails", "holds"]


def test_an_objective_that_no_fleet_holds_is_said():
    found = forecast((1.0,), days=(1.0,), slo=Slo(ttft=1.0))
    assert found["smallest"]["hours"] == [None] and found["smallest"]["whole"] is None
    assert found["sentences"][-1] == "no number of replicas holds the objective at 00:00"


def test_a_large_fleet_for_long_is_simulated_in_windows():
    courses = [traffic([10.0, 30.0], seed=i) for i in range(2)]
    question = Question(courses, [a_scenario(20)], Slo(ttft=500), smallest=False, window_s=80.0)
    found = run_forecast(question, workers=1)
    report = report_of(question, found, Told())
    sampling = report["scenarios"][0]["sampling"]
    assert sampling["replicas"] == 4 and sampling["windows"] * sampling["window_s"] == 80
    assert violations(report, "forecast") == []
    assert any("s are simulated, of up to 4 replicas" in text for text in report["assumptions"])
    assert report["verdict"] == "holds"
    assert report["scenarios"][0]["totals"]["offered"]["value"] == pytest.approx(
        40 * 3600, rel=0.01
    )


def test_a_period_is_simulated_whole_up_to_a_number_of_requests(monkeypatch):
    pace = Pace(5.0, 8.0, 1.0)
    question = Question([traffic([2.0, 4.0])] * 2, [a_scenario(8)])
    assert sampling_of(question, question.scenarios[0], pace) is None
    monkeypatch.setattr(
        "playbooks.forecast.run.REQUESTS", 7_200
    )  # of 43,200, and 4 of 8 replicas have half of them
    found = sampling_of(question, question.scenarios[0], pace)
    assert found == Sampling(4, pytest.approx(800 / 20), 20.0, 20)
    whole = replace(question.scenarios[0], router="prefix_affinity")
    assert sampling_of(question, whole, pace) == Sampling(4, pytest.approx(40), 20.0, 10)
    for window_s, times in ((30.0, 1), (90.0, 2), (3599.0, 60)):
        found = sampling_of(replace(question, window_s=window_s), whole, pace)
        assert found.windows == times
        assert found.windows * (found.window_s + found.warm_s) <= 3600
    assert sampling_of(replace(question, window_s=3600.0), whole, pace) is None


def test_what_earlier_forecasts_were_worth_is_said():
    row = {"start": "2026-12-20", "hours_scored": 24, "coverage": 0.75, "level": 0.8,
           "forecast": 0.08, "last_value": 0.4, "same_hour_last_week": None}  # fmt: skip
    question = Question([traffic([1.0], 60.0)], [a_scenario()], smallest=False)
    found = run_forecast(question, workers=1)
    report = report_of(question, found, Told(), [row, row | {"forecast": 0.1, "coverage": 0.25}])
    assert report["sentences"][-1] == (
        "earlier forecasts of traffic made here (2 scored) were off by: forecast 9.0%, last value "
        "40.0%; 50% of the hours lay in their 80% intervals"
    )
    assert len(report["past_scores"]) == 2 and violations(report, "forecast") == []


# --- answers ------------------------------------------------------------------------------


def hour(good=1.0, offered=100.0, latency=(10.0,) * 200):
    samples = dict.fromkeys(("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"), np.array(latency))
    return HourFigures(offered, samples, good, good, 10.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.1)


def days(goods, spans=()):
    return [CourseFigures([hour(good)], list(spans), 0) for good in goods]


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (days([0.999] * 10), "holds"),
        (days([0.999] * 9 + [0.5]), "holds"),
        (days([0.999] * 8 + [0.5] * 2), "uncertain"),
        (days([0.999] * 4 + [0.5] * 6), "fails"),
        (days([0.999] * 9) + days([1.0], [Saturation(0.0, 60.0, 40.0)]), "uncertain"),
        (days([1.0] * 10, [Saturation(0.0, 60.0, 40.0)]), "fails"),
        (days([None] * 3), "fails"),
    ],
)
def test_it_never_holds_where_it_saturates(found, verdict):
    assert answers.verdict(found, 0.99)[0] == verdict


def test_what_days_do_not_say_is_no_zero():
    assert answers.interval([None, None]) == {"value": None, "low": None, "high": None}
    assert answers.interval([None, 2.0, 4.0])["value"] == 3.0
    few = [np.array([1.0] * 60), np.array([3.0] * 60)]
    told = answers.latency(few)
    assert told["p99"] == {"value": 3.0, "low": None, "high": None}
    assert told["p50"]["value"] == 2.0


def test_requests_of_windows_stand_for_those_of_their_hour():
    quiet, busy = hour(1.0, 100, [1.0] * 300), hour(0.5, 900, [9.0] * 100)
    whole = answers.totals([CourseFigures([quiet, busy], [], 0)], 0.9)
    assert whole["ttft_ms"]["p50"]["value"] == 9.0
    assert whole["good"]["value"] == pytest.approx(0.55)
    assert whole["budget_spent"]["value"] == pytest.approx(4.5)


def test_saturations_of_days_are_one_span_with_how_many_of_them():
    spans = [[Saturation(600.0 + 60 * i, 1800.0 + 60 * i, 30.0 + i)] for i in range(3)]
    found = answers.saturation_answers(
        [CourseFigures([hour()], span, 0) for span in [*spans, []]], MONDAY, 7200.0
    )
    (one,) = found
    assert (one["from"][11:16], one["until"][11:16], one["days"]) == ("00:11", "00:31", 3)
    assert one["worst_delay_s"] == 31.0
    open_end = answers.saturation_answers(
        [CourseFigures([hour()], [Saturation(7000.0, None, None)], 0)], MONDAY, 7200.0
    )
    assert open_end[0]["until"] is None and open_end[0]["worst_delay_s"] is None


# --- what is asked --------------------------------------------------------------------------


def test_scenarios_from_words(tmp_path, monkeypatch):
    step = ForecastStep(
        replicas=3, autoscale="2-6:5,90s", lose=("1@20:00+30m",),
        what_if=("replicas=6,max_batch=4", "router=round_robin,autoscale=off"),
    )  # fmt: skip
    first, second, third = scenarios_of(step, a_fit(), a_fit().config, MONDAY, 86_400.0)
    assert first.scaling == Scaling(2, 6, 5.0, 90.0)
    assert first.losses == (Loss(1, 72_000.0, 1800.0),)
    assert (second.replicas, second.config.max_batch) == (6, 4)
    assert third.router == "round_robin" and third.scaling is None
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="no fit of embedded with fp16 pages: make one with"):
        scenarios_of(
            replace(step, what_if=("kv_format=fp16",)), a_fit(), a_fit().config, MONDAY, 9e4
        )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1@25:00", "--lose '1@25:00': hour must be in"),
        ("x@20:00", "expected COUNT@TIME"),
        ("0@20:00", "expected COUNT@TIME"),
        ("1@20:00+soon", "is not a time"),
        ("1@2026-12-24", "lies outside the period, 2026-12-21 00:00 to 2026-12-22 00:00"),
    ],
)
def test_losses_that_are_none(text, said):
    with pytest.raises(ConfigError, match=said):
        parse_loss(text, MONDAY, 86_400.0)


@pytest.mark.parametrize("text", ["2-20", "20-2:5", "2-20:0", "0-3:5", "2-3:5,soon"])
def test_rules_that_are_none(text):
    with pytest.raises(ConfigError):
        parse_scaling(text)


@pytest.mark.parametrize("text", ["replicas", "replicas=0", "router=best", "max_batsh=3"])
def test_what_ifs_that_are_none(text):
    with pytest.raises(ConfigError):
        scenarios_of(ForecastStep(what_if=(text,)), a_fit(), a_fit().config, MONDAY, 86_400.0)


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    rows = [
        f"2026-12-{d:02} {h:02}:00,{90 + 10 * math.sin(h)}" for d in range(1, 15) for h in range(24)
    ]
    (tmp_path / "counts.csv").write_text("time,requests\n" + "\n".join(rows) + "\n")
    a_fit(drift=0.02).save(tmp_path / "fit.json")
    return tmp_path


def run(*args):
    return CliRunner().invoke(cli.app, ["forecast", "run", "--quiet", *args])


SMALL = ("--fit", "fit.json", "--history", "counts.csv", "--lengths", "fixed:20,10",
         "--days", "0.05", "--plausible", "2", "--slo", "ttft=500")  # fmt: skip


def test_the_command_ends_with_its_verdict_and_keeps_report_and_record(files):
    done = run(*SMALL, "--json", "--out", "day.html", "--no-smallest")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert violations(report, "forecast") == [] and report["verdict"] == "holds"
    assert report["traffic"]["hours"][0]["expected"] == pytest.approx(90 / 3600, rel=0.2)
    assert (files / "day.html").read_text().count("<svg") == 0  # one hour is no curve
    assert len(list((files / "home" / "results").glob("forecast-*.json"))) == 1
    again = run(*SMALL, "--json", "--no-log", "--no-smallest")
    assert again.stdout == done.stdout
    missed = run(*SMALL, "--no-log", "--no-smallest", "--slo", "ttft=1")
    assert missed.exit_code == 1 and "does not hold: 99% of the requests within" in missed.stdout


def test_what_is_expected_is_a_file_that_a_moving_cap_looks_ahead_in(files):
    done = run(*SMALL, "--replicas", "3", "--rates", "rates.csv", "--json", "--no-log",
               "--no-smallest")  # fmt: skip
    (hour,) = json.loads(done.stdout)["traffic"]["hours"]
    rates, begin = RatesAhead.load(files / "rates.csv"), datetime.fromisoformat(hour["start"])
    at = begin.timestamp()
    assert rates.highest(at, at + 60) == pytest.approx(hour["expected"] / 3, rel=1e-4)
    assert rates.highest(at - 60, at - 1) == rates.highest(at + 3601, at + 9999) == 0
    nowhere = run(*SMALL, "--rates", "none/rates.csv", "--no-log")
    assert isinstance(nowhere.exception, ConfigError)
    assert "--rates: none/rates.csv cannot be written" in str(nowhere.exception)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--fit", "fit.json"), "--history: expected a file of the past"),
        (("--history", "counts.csv"), "there is no fit of embedded with int8_channel pages"),
        (("--history", "counts.csv", "--fit", "none.json"), "cannot be read"),
        (("--history", "none.csv", "--fit", "fit.json"), "none.csv"),
        ((*SMALL, "--kv-format", "fp16"), "the fit is of 'int8_channel' and 'fp16' is asked for"),
        ((*SMALL, "--lose", "1@2026-01-01"), "lies outside the period"),
        ((*SMALL, "--autoscale", "many"), "expected LEAST-MOST:AIM"),
        ((*SMALL, "--share", "1.5"), "--share"),
        (("--history", "counts.csv", "--target", "http://there:1"), "make one with"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(files, args, said):
    done = run(*args)
    assert isinstance(done.exception, ConfigError) and said in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_fit_of_another_machine_is_refused(files):
    fit = a_fit()
    from playbooks.forecast.fit_file import own_path

    fit.save(own_path(fit.config))
    with pytest.raises(ConfigError, match="measured on another machine"):
        own_fit(fit.config)


@pytest.mark.parametrize(("cores", "others"), [(1, 1), (2, 1), (8, 7)])
def test_beside_an_engine_all_is_simulated_on_other_processes_that_give_way(
    cores, others, monkeypatch
):
    asked = []

    def results(shared, jobs, progress, processes, nice):
        asked.append((processes, nice > 0))
        return [job(shared) for job in jobs]

    monkeypatch.setattr("playbooks.forecast.run.cores", lambda: cores)
    monkeypatch.setattr("playbooks.forecast.run.results", results)
    question = Question([traffic([0.5], 60.0)], [a_scenario()], smallest=False)
    run_forecast(question, beside=True)
    run_forecast(question)
    assert asked == [(others, True), (0, False)]
