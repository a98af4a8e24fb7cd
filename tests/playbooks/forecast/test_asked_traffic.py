"""What a command says of the coming traffic."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from engine.errors import ConfigError
from playbooks.forecast.asked_traffic import TrafficAsked, outlook_of

HOURS = "time,requests\n" + "".join(
    f"2026-12-{1 + h // 24:02} {h % 24:02}:00,360\n" for h in range(14 * 24)
)


@pytest.fixture
def history(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text(HOURS)
    return path


def test_all_that_can_be_said(history):
    asked = TrafficAsked(history, zone="Europe/Berlin", start="2026-12-20 12:00", days=0.5,
                         lengths="fixed:9,3", cv=3.0, scale=2.0)  # fmt: skip
    outlook = outlook_of(asked)
    assert outlook.start == datetime(2026, 12, 20, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    assert outlook.rates == pytest.approx([0.2] * 12)
    assert outlook.bursts.dispersion == 9 and outlook.sizes[0].label == "fixed:9,3"
    (day,) = outlook.plausible(1, seed=1)
    assert all(arrival[1:3] == (9, 3) for arrival in day.arrivals(0, 43_200))


def test_without_more_the_day_after_the_history(history):
    outlook = outlook_of(TrafficAsked(history))
    assert f"{outlook.start:%F %H:%M %Z}" == "2026-12-15 00:00 UTC" and len(outlook.rates) == 24


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"zone": "Nowhere"}, "zone: 'Nowhere' is no time zone"),
        ({"start": "soon"}, "start: 'soon' is no date"),
        ({"start": "2026-12-01"}, "is before the history's end"),
        ({"cv": 0.0}, "cv: expected 0.3 to 20"),
        ({"scale": 0.0}, "scale: expected a factor"),
        ({"lengths": "long"}, "lengths: 'long' is not known"),
        ({"days": 100}, "days: expected"),
    ],
)
def test_refused(history, given, said):
    with pytest.raises(ConfigError, match=said) as caught:
        outlook_of(TrafficAsked(history, **given))
    assert "\n" not in str(caught.value)


def test_a_calendar_brings_its_zone(history, tmp_path):
    calendar = tmp_path / "calendar.toml"
    calendar.write_text('zone = "Asia/Kolkata"\n[[holiday]]\nname="A"\ndate=2026-12-15\nfactor=0.5')
    outlook = outlook_of(TrafficAsked(history, calendar))
    assert f"{outlook.start:%F %H:%M}" == "2026-12-15 00:00"
    assert outlook.rates == pytest.approx([0.05] * 24)
    with pytest.raises(ConfigError, match=r"zone: .*calendar.toml says it"):
        outlook_of(TrafficAsked(history, calendar, zone="UTC"))
