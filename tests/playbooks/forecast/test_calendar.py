"""Days that are unlike others: what a file may say, and what it may not, in one line."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from engine.errors import ConfigError
from playbooks.forecast.calendar import read_calendar

BERLIN = ZoneInfo("Europe/Berlin")


def calendar(tmp_path, text):
    path = tmp_path / "calendar.toml"
    path.write_text(text)
    return read_calendar(path)


def moment(*when):
    return datetime(*when, tzinfo=BERLIN).timestamp()


def test_a_day_a_time_and_both(tmp_path):
    found = calendar(
        tmp_path,
        """
zone = "Europe/Berlin"
weekend = ["friday", "saturday"]
[[holiday]]
name = "Christmas"
date = 2026-12-25
like = "sunday"
factor = 0.5
[[campaign]]
name = "Offer"
begin = "2026-12-25 18:00"
end = 2026-12-25T22:00:00
factor = 3
lengths = "uniform:10-20,5-5"
""",
    )
    assert found.zone == BERLIN and found.weekend == {4, 5}
    assert [one.name for one in found.at(moment(2026, 12, 25, 12))] == ["Christmas"]
    assert {one.name for one in found.at(moment(2026, 12, 25, 18))} == {"Christmas", "Offer"}
    assert not found.at(moment(2026, 12, 24, 23, 59)) and not found.at(moment(2026, 12, 26))
    holiday, offer = found.specials
    assert holiday.like == 6 and holiday.factor == 0.5 and holiday.sizes is None
    assert offer.sizes is not None and offer.sizes.label == "uniform:10-20,5-5"


def test_a_day_is_as_long_as_its_clocks_say(tmp_path):
    found = calendar(
        tmp_path,
        """
zone = "Europe/Berlin"
[[holiday]]
name = "summer time begins"
date = 2026-03-29
factor = 1
""",
    )
    (day,) = found.specials
    assert day.end - day.begin == 23 * 3600


HOLIDAY = '[[holiday]]\nname = "A"\ndate = 2026-12-25\nfactor = 0.5\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            HOLIDAY + HOLIDAY.replace("A", "B"),
            "calendar.toml:6: holiday 'B' overlaps 'A' of line 2",
        ),
        ('zone = "Mars/Olympus"', "calendar.toml:1: zone: 'Mars/Olympus' is no time zone"),
        ('[[holiday]]\nname = "A"\nfactor = 1', "'A' has no date, and no begin and end"),
        (HOLIDAY + "end = 2026-12-26", "leave out begin and end"),
        (HOLIDAY.replace("2026-12-25", '"Christmas"'), ":3: date: 'Christmas' is no date of ISO"),
        (HOLIDAY.replace("2026-12-25", '"2026-12-25 10:00"'), ":3: date: '2026-12-25 10:00' is no"),
        (HOLIDAY.replace("0.5", "-1"), "calendar.toml:4: factor: expected above 0, got -1"),
        (HOLIDAY + 'lengths = "huge"', ":5: lengths: 'huge' is not known"),
        (HOLIDAY + 'like = "someday"', ":5: like: expected one of monday"),
        (HOLIDAY + 'colour = "red"', ":5: unknown key 'colour'"),
        (
            '[[campaign]]\nname = "C"\nbegin = 2026-12-25\nend = 2026-12-24\nfactor = 2',
            "calendar.toml:4: end: 2026-12-24 is not after 2026-12-25",
        ),
        (
            'zone = "Europe/Berlin"\n[[campaign]]\nname = "C"\nbegin = "2026-03-29 02:30"\n'
            "end = 2026-03-30\nfactor = 2",
            ":4: begin: 2026-03-29 02:30 is no time in Europe/Berlin",
        ),
        (
            'zone = "Australia/Lord_Howe"\n'
            + HOLIDAY.replace("date = 2026-12-25", 'begin = "2026-10-04 02:10"\nend = 2026-10-05'),
            ":4: begin: 2026-10-04 02:10 is no time in Australia/Lord_Howe",
        ),
        (HOLIDAY.replace("2026", "9999"), ":3: date: 9999-12-25 is not of the years 1970 to 2199"),
        (HOLIDAY.replace("0.5", "nan"), "calendar.toml:4: factor: expected a finite number"),
        (HOLIDAY.replace("0.5", "1e9"), "calendar.toml:4: factor: expected at most 1000"),
        (HOLIDAY.replace("2026-12-25", "08:00:00"), ":3: date: "),
        ("weekend = [7]", "calendar.toml:1: weekend"),
        ("zone = ", "not valid TOML"),
    ],
)
def test_refused_in_one_line(tmp_path, text, said):
    with pytest.raises(ConfigError) as caught:
        calendar(tmp_path, text)
    assert said in str(caught.value) and "\n" not in str(caught.value)
