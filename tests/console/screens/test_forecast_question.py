"""A forecast that is made on the console: its question, what is wrong with it, its result."""

from dataclasses import replace
from threading import Event

import pytest

from console.control import forecast_maker
from console.control.forecast_maker import forecast_of
from console.screens.dialogs import FormScreen
from console.screens.forecast import ForecastScreen
from console.screens.forecast_question import LINES, MORE, question, step_of, texts_of
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.observing.watchable import Reach
from engine.remote import attach
from engine.snapshot import RequestRow
from forecast_console import Running
from forecasts import a_fit
from journeys import journey
from playbooks.forecast.fit_file import own_path, url_path
from playbooks.forecast.forecast import Forecast
from playbooks.outside.site import UrlSite
from playbooks.reports import results
from playbooks.steps.forecast import ForecastStep
from served import serving


@pytest.fixture
def home(tmp_path, monkeypatch):
    """With a history of 0.3 requests/s and a fit."""
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    hours = [f"2026-12-{d:02} {h:02}:00,{1080 + h % 3}" for d in range(1, 15) for h in range(24)]
    (tmp_path / "counts.csv").write_text("time,requests\n" + "\n".join(hours) + "\n")
    a_fit().save(tmp_path / "fit.json")
    return tmp_path


@pytest.fixture
def texts(home):
    """Of a forecast that takes no time."""
    return {
        "history": str(home / "counts.csv"), "fit": str(home / "fit.json"), "days": "0.04",
        "lengths": "fixed:20,10", "what_if": "max_batch=4", MORE: "plausible=1; smallest=false",
    }  # fmt: skip


async def fill(c, texts):
    """Write into the form's lines, and be done."""
    await c.until(lambda: hasattr(c.app.screen, "_inputs"))
    for line in c.app.screen._inputs:
        line.value = texts.get(line.id.removeprefix("entry-"), line.value)
    await c.press("ctrl+s")


@journey("screen.new_forecast")
async def test_it_is_made_kept_logged_and_shown(home, clock, texts):
    async with Running(clock, home) as c:
        await c.press("n")
        await fill(c, texts)
        await c.until(lambda: c.app.forecasts.view is not None)
        assert "as it is 1/2" in c.screen and "00:00" in c.screen
        report = next(results.saved("forecast"))
        assert report["scenarios"][1]["settings"]["max_batch"] == 4
        record = c.app.log_book.read().records[0]
        assert record.title.startswith("Forecast from 2026-12-15") and record.artifacts
        await c.press("n")
        assert [line.value for line in c.app.screen._inputs] == [
            texts.get(one.name, "") for one in LINES
        ]


async def test_what_is_wrong_is_said_in_the_form_and_nothing_is_lost(home, clock, texts):
    (home / "broken.csv").write_text("time,requests\n2026-12-01 00:00,-3\n")
    async with Running(clock, home) as c:
        await c.press("n")
        await fill(c, texts | {"days": "0"})
        await c.until(lambda: "days: expected above 0, got 0" in c.screen)
        await fill(c, {"days": "0.04", "history": str(home / "broken.csv")})
        await c.until(lambda: "-3" in c.screen and not c.app.forecasts.at_work)
        assert c.app.screen._inputs[3].value == "fixed:20,10" and c.app.forecasts.view is None
        await c.press("escape")
        assert isinstance(c.app.screen, ForecastScreen)


async def test_an_engine_without_a_fit_is_measured_after_a_yes(home, clock, texts, monkeypatch):
    measured = []

    def run_fit(config, work, progress, loaded):
        measured.append(loaded)
        return a_fit(), {}

    monkeypatch.setattr("playbooks.forecast.fit.run_fit", run_fit)
    async with Running(clock, home) as c:
        c.app.bridge.engine.config = a_fit().config
        c.app.bridge.engine.loaded = weights = object()
        await c.press("n")
        await fill(c, texts | {"fit": ""})
        await c.until(lambda: "▲ there is no fit of" in c.screen)
        await c.press("n")
        assert isinstance(c.app.screen, ForecastScreen) and not measured
        await c.press("n")
        await fill(c, {})
        await c.until(lambda: "▲ there is no fit of" in c.screen)
        await c.press("y")
        await c.until(lambda: c.app.runs.last.report is not None)
        assert measured == [weights]
        row = c.app.runs.last.report["steps"][0]
        assert row["verdict"] == "pass", row["reason"]
        assert own_path(c.app.bridge.engine.config).is_file()
        await c.press("escape")
        await c.until(lambda: c.app.forecasts.view is not None)


@pytest.mark.parametrize("what", ["api", "history"])
async def test_it_is_not_measured_beside_others_or_for_nothing(home, clock, texts, what):
    (home / "empty.csv").write_text("time,requests\n")
    more = {"history": str(home / "empty.csv")} if what == "history" else {}
    async with Running(clock, home) as c:
        engine = c.app.bridge.engine
        if what == "api":
            row = RequestRow("r", "decode", 1, 1, 1, 9, 1, source="api")
            seen = replace(engine.snapshot(), requests=(row,))
            engine.snapshot = lambda: seen
        await c.press("n")
        await fill(c, texts | {"fit": ""} | more)
        said = "evewatch forecast fit" if what == "api" else "is empty: it has no counts"
        await c.until(lambda: said in c.screen)
        assert isinstance(c.app.screen, FormScreen)


@journey("screen.cancel_forecast")
async def test_cancelled_it_leaves_nothing(home, clock, texts, monkeypatch):
    goes_on = Event()
    real = Forecast.report

    def slowly(self, progress, beside):
        goes_on.wait()
        return real(self, progress, beside)

    monkeypatch.setattr(Forecast, "report", slowly)
    kept = []
    monkeypatch.setattr(forecast_maker, "keep", lambda *given: kept.append(given))
    async with Running(clock, home) as c:
        await c.press("x")
        await c.until(lambda: "nothing is being made" in c.screen)
        await c.press("n")
        await fill(c, texts)
        await c.until(lambda: "forecasting … 0%" in c.screen)
        await c.press("n")
        await c.until(lambda: "is being made; x cancels it" in c.screen)
        await c.press("x")
        await c.until(lambda: "cancelled; n has what was asked" in c.screen)
        goes_on.set()
        await c.until(lambda: "forecasting" not in c.screen)
        assert not kept and c.app.forecasts.view is None
        await c.press("n")
        assert c.app.screen._inputs[0].value == texts["history"]


# --- texts and steps ---------------------------------------------------------------------------


def test_texts_are_the_options_of_the_command(home):
    step = step_of(
        {
            "history": "~/counts.csv", "days": "7", "replicas": "3", "lose": "1@20:00; 1@21:00",
            "what_if": "replicas=6; max_batch=32,kv_format=fp16", "slo": "ttft=2s",
            "calendar": " ", MORE: "share=0.95; window_s=10m; zone=Europe/Berlin; start=2026-12-24",
        }
    )  # fmt: skip
    assert step.history is not None and not step.history.startswith("~")
    assert (step.days, step.replicas, step.share, step.window_s) == (7.0, 3, 0.95, 600.0)
    assert step.lose == ("1@20:00", "1@21:00") and step.what_if[1] == "max_batch=32,kv_format=fp16"
    assert (step.calendar, step.zone, step.start) == (None, "Europe/Berlin", "2026-12-24")


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("history", "", "a file must stand here"),
        ("history", "/none.csv", "there is no such file"),
        ("calendar", "/none.toml", "there is no such file"),
        ("days", "many", "expected a number"),
        ("replicas", "1.5", "expected a whole number"),
        ("autoscale", "2-3", "expected LEAST-MOST:AIM"),
        ("slo", "ttft", "ttft"),
        (MORE, "share", "expected option=value"),
        (MORE, "sahre=0.9", "did you mean 'share'"),
        (MORE, "share=2", "share: expected at most 1, got 2"),
    ],
)
def test_a_line_that_does_not_do_says_why_in_one_line(home, name, text, wrong):
    check = next(field.check for field in question({})._entries if field.name == name)
    assert wrong in check(text) and "\n" not in check(text)


def test_a_report_gives_back_the_texts_it_was_asked_with(home, texts):
    report = forecast_of(step_of(texts), EngineConfig(), None).report()
    again = texts_of(report)
    assert step_of(again) == step_of(texts)
    assert {k: v for k, v in again.items() if v} == texts
    assert not any(texts_of({}).values())


def test_at_a_url_its_own_fit_is_taken(home):
    step, reach = ForecastStep(history=str(home / "counts.csv")), Reach("http://there:8000/")
    with pytest.raises(ConfigError, match=r"no fit of http://there:8000: .* --target http://there"):
        forecast_of(step, EngineConfig(), reach)
    a_fit(max_batch=3).save(url_path("http://there:8000"))
    assert forecast_of(step, EngineConfig(), reach).config.max_batch == 3


async def test_all_lines_and_what_is_wrong_are_seen_on_24_rows(home, clock, texts):
    running = Running(clock, home)
    running.context = running.app.run_test(size=(80, 24), notifications=True)
    async with running as c:
        await c.press("n")
        await fill(c, texts | {"days": "0"})
        await c.until(lambda: "days: expected above 0, got 0" in c.screen)
        assert all(f"│ {one.label} " in c.screen for one in LINES)


async def test_an_engine_at_a_url_is_forecast_with_its_own_fit(home, clock, texts):
    with serving(kernels="reference", max_batch=4, token_budget=64) as served:
        a_fit(max_batch=4).save(url_path(UrlSite(served.url).spec.shown))
        async with Running(clock, home, engine=attach(served.url)) as c:
            await c.press("n")
            await fill(c, texts | {"fit": "", "what_if": "replicas=2"})
            await c.until(lambda: c.app.forecasts.view is not None)
            asked = c.app.forecasts.view.report["asked"]
            assert asked["settings"]["max_batch"] == 4 and "as it is 1/2" in c.screen
