"""The forecast on the screen: curves, words, hours and what-ifs of a report."""

import json

import pytest

from console.control.forecast_view import newest_view, read_view, view_of
from console.renderables import forecast as drawn
from console.renderables.lines import plain, width_of
from console.screens.forecast import ForecastScreen
from engine.errors import ConfigError
from forecast_console import Running
from forecast_reports import forecast_report
from journeys import journey
from playbooks.reports import results
from screens import check, settle, text_of


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    return tmp_path


@journey("app.show_forecast")
async def test_the_newest_kept_forecast_is_shown_words_first(clock, home):
    results.save(forecast_report() | {"start": "2026-12-01T00:00:00+00:00"})
    results.save(forecast_report())
    async with Running(clock, home) as c:
        assert isinstance(c.app.screen, ForecastScreen)
        lines = c.screen.splitlines()
        assert "Forecast Thu 24 Dec 00:00, 24 h" in lines[1] and "✗ fails" in lines[1]
        assert "saturates at 19:40, recovers 22:10" in lines[2]
        for name in ("requests/s", "TTFT P99", "objective 2.0 s", "replicas needed", "saturated"):
            assert name in c.screen


async def test_one_that_was_kept_meanwhile_is_shown_when_it_is_opened_again(clock, home):
    results.save(forecast_report())
    async with Running(clock, home) as c:
        shown = c.app.forecasts.view
        await c.press("escape", "F")
        await c.until(lambda: not c.app.forecasts.is_reading)
        assert c.app.forecasts.view is shown
        results.save(forecast_report() | {"start": "2026-12-27T00:00:00+00:00"})
        await c.press("escape", "F")
        await c.until(lambda: "Forecast Sun 27 Dec 00:00" in c.screen)


async def test_without_one_it_says_how_to_make_one(clock, home):
    async with Running(clock, home) as c:
        assert "There is no forecast yet" in c.screen and "forecast fit" in c.screen
        await c.press("e")
        await c.until(lambda: "there is no forecast" in c.screen)
        await c.press("s", "w", "down")
        assert "There is no forecast yet" in c.screen


@journey("screen.compare_what_ifs", "screen.next_scenario")
async def test_what_ifs_side_by_side_and_one_after_the_other(clock, home):
    results.save(forecast_report())
    async with Running(clock, home) as c:
        assert "as it is 1/2" in c.screen and "saturated" in c.screen
        await c.press("w")
        table = c.screen.splitlines()[2:16]
        assert "as it is" in table[0] and "replicas=2" in table[0]
        assert "✗ fails" in table[1] and "✓ holds" in table[1]
        assert "assumed, or to be doubted" in c.screen
        await c.press("s", "w")
        assert "replicas=2 2/2" in c.screen and "✓ holds" in c.screen.splitlines()[1]
        assert "misses the objective" not in c.screen


@journey("screen.open_forecast")
async def test_a_file_is_opened_and_one_that_is_none_says_why(clock, home):
    good, bad = home / "good.json", home / "bad.json"
    good.write_text(json.dumps(forecast_report(hours=48)), "utf-8")
    bad.write_text('{"kind": "bench"}', "utf-8")
    async with Running(clock, home) as c:
        await c.press("o")
        await c.replace(str(home / "none.json"))
        await c.until(lambda: "there is no such file" in c.screen)
        await c.replace(str(good))
        await c.until(lambda: "1/48" in c.screen)
        await c.press("escape", "F")
        assert "1/48" in c.screen  # it stays open while the console does
        await c.press("o")
        await c.replace(str(bad))
        await c.until(lambda: "is no report of a forecast" in c.screen.replace("\n", ""))
        assert "1/48" in c.screen


async def test_the_chosen_hour_stands_out_and_is_kept(clock, home):
    results.save(forecast_report())
    async with Running(clock, home) as c:
        before = c.screen
        await c.press("end")
        assert "› 23:00" in c.screen and "24/24" in c.screen
        axis = [line.index("━") for line in (before.split("└")[1], c.screen.split("└")[1])]
        assert axis[0] < axis[1]
        await c.press("s")
        assert "› 23:00" in c.screen


async def test_the_filter_finds_the_hours_that_saturate(clock, home):
    results.save(forecast_report())
    async with Running(clock, home) as c:
        await c.press("slash")
        await c.type("saturated")
        assert "1/3" in c.screen


async def test_it_is_exported_as_reports_are(clock, home):
    results.save(forecast_report())
    async with Running(clock, home) as c:
        await c.press("e")
        await c.replace(str(home / "out.json"))
        await c.until(lambda: (home / "out.json").exists())
        assert json.loads((home / "out.json").read_text("utf-8"))["kind"] == "forecast"


async def test_a_tick_draws_the_curves_no_second_time(clock, home, monkeypatch):
    results.save(forecast_report())
    async with Running(clock, home) as c:
        drawings = []
        monkeypatch.setattr(drawn, "curves", lambda *given: drawings.append(given) or [])
        await c.pass_time()
        assert not drawings
        await c.press("down")
        assert len(drawings) == 1


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_looks(size, clock, home):
    results.save(forecast_report())
    async with Running(clock, home, size) as c:
        await c.press("end", "up", "up", "up")
        await settle(c.pilot, c.app)
        check(f"forecast-{size[0]}x{size[1]}", text_of(c.app))


# --- the report --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "bench"}, "is no report of a forecast"),
        ({"schema": 2}, "of another version"),
        ({"scenarios": []}, "is damaged"),
        ({"objective": None}, "is damaged"),
        ({"traffic": {"hours": []}}, "is damaged"),
    ],
)
def test_what_is_no_forecast_is_refused_in_a_line(change, why):
    with pytest.raises(ConfigError, match=why) as caught:
        view_of(forecast_report() | change, "f.json")
    assert str(caught.value).startswith("f.json") and "\n" not in str(caught.value)


def test_what_cannot_be_read_is_refused_in_a_line(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_view(tmp_path / "none.json")
    (tmp_path / "x.json").write_text("{", "utf-8")
    with pytest.raises(ConfigError, match="is not JSON"):
        read_view(tmp_path / "x.json")


def test_nothing_kept_is_no_view(home):
    assert newest_view() is None


def test_hours_know_whether_they_saturate_or_miss():
    hours = view_of(forecast_report(), "").scenarios[0].hours
    assert [h.label for h in hours if h.saturated] == ["19:00", "20:00", "21:00"]
    assert [h.label for h in hours if h.missed] == ["19:00", "20:00"]


@pytest.mark.parametrize("width", [58, 76, 116, 196])
@pytest.mark.parametrize("height", [9, 15, 25, 60])
@pytest.mark.parametrize("hours", [1, 24, 168])
def test_curves_fit_every_window(width, height, hours):
    view = view_of(forecast_report(hours=hours), "")
    lines = drawn.curves(view, 0, hours - 1, width, height)
    assert all(width_of(line) <= width for line in lines)
    assert len(lines) <= max(height, 12)
    assert plain(lines[0]).startswith("• as it is: saturates")


def test_what_is_not_known_is_no_zero():
    report = forecast_report()
    nothing = {"value": None, "low": None, "high": None}
    report["scenarios"][0]["hours"][0] |= {"kv": nothing, "good": nothing}
    report["smallest"] = None
    row = plain(drawn.hour_row(view_of(report, "").scenarios[0].hours[0], 100))
    assert row.count("–") >= 3 and "0 %" not in row


def test_what_ifs_have_intervals_where_they_fit_and_whole_figures_where_not():
    view = view_of(forecast_report(), "")
    wide, narrow = (plain_text(drawn.what_ifs(view, width)) for width in (116, 50))
    assert "(" in wide.split("\n\n")[0] and "(" not in narrow.split("\n\n")[0]
    assert "on 6 of 8 days" in wide
    assert [line.split()[:2] for line in narrow.splitlines()[1:3]] == [
        ["verdict", "✗"], ["replicas", "1"],
    ]  # fmt: skip


def plain_text(lines):
    return "\n".join(plain(line).rstrip() for line in lines)
