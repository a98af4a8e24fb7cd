"""What is expected of the days that come, and how far off it says that it may be."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from engine.errors import ConfigError
from playbooks.forecast.bursts import GammaGaps
from playbooks.forecast.calendar import Calendar, read_calendar
from playbooks.forecast.expectation import make_outlook
from playbooks.forecast.history.history import History, hours_of_week

BERLIN = ZoneInfo("Europe/Berlin")
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
SHAPE = np.concatenate([np.full(6, 0.3), np.full(14, 1.5), np.full(4, 0.6)])


def usual(label):
    """Requests/s: less at night and on weekends."""
    return 5.0 * SHAPE[label % 24] * (0.5 if label // 24 >= 5 else 1.0)


def history(days, seed=None, start=MONDAY, zone=UTC, level=lambda hour: 1.0):
    """Counts by the hour; without a seed exactly as many as usual."""
    rng = np.random.default_rng(seed)
    labels = hours_of_week(start, days * 24, zone)
    means = [3600 * usual(label) * level(hour) for hour, label in enumerate(labels)]
    counts = means if seed is None else rng.poisson(means).tolist()
    return History("made", start, 3600.0, tuple(map(float, counts)))


def with_noise(days, seed, daily=0.1, hourly=0.05):
    rng = np.random.default_rng([seed, 1])
    offs = np.repeat(rng.normal(0, daily, days), 24) + rng.normal(0, hourly, days * 24)
    return history(days, seed, level=lambda hour: np.exp(offs[hour]))


@pytest.mark.parametrize("days", [7, 21])
def test_a_week_repeats_itself(days):
    outlook = make_outlook(history(days), days=7)
    assert outlook.start == MONDAY + timedelta(days=days)
    labels = hours_of_week(outlook.start, 168, UTC)
    assert outlook.rates == pytest.approx([usual(label) for label in labels], rel=0.01)
    assert outlook.last_week == pytest.approx(outlook.rates, rel=0.01)
    assert outlook.last_value == pytest.approx(usual(167))


@pytest.mark.parametrize(
    ("zone", "slot_s"),
    [("Asia/Kolkata", 3600), ("Asia/Kolkata", 600), ("Asia/Kathmandu", 3600), ("Asia/Tehran", 900)],
)
def test_hours_are_those_of_clocks_that_are_not_whole_hours_off(zone, slot_s):
    clocks = ZoneInfo(zone)
    start = MONDAY.replace(tzinfo=clocks)
    labels = np.repeat(hours_of_week(start, 14 * 24, clocks), 3600 // slot_s)
    past = History("made", start, float(slot_s), tuple(slot_s * usual(one) for one in labels))
    outlook = make_outlook(past, Calendar(clocks))
    assert outlook.start == start + timedelta(days=14)
    assert outlook.rates == pytest.approx([usual(hour) for hour in range(24)])
    assert outlook.last_week == pytest.approx(outlook.rates)


def test_one_noisy_week_is_less_noisy_learnt_than_repeated():
    ours, naive = [], []
    for seed in range(8):
        outlook = make_outlook(with_noise(7, seed, daily=0.0, hourly=0.2), days=7)
        truth = np.array([usual(label) for label in hours_of_week(outlook.start, 168, UTC)])
        ours.append(np.abs(np.log(outlook.rates / truth)).mean())
        naive.append(np.abs(np.log(outlook.last_week / truth)).mean())
    assert np.mean(ours) < 0.8 * np.mean(naive)


def test_days_are_those_of_the_clocks():
    before = datetime(2026, 3, 8, 23, tzinfo=UTC)  # a Monday's midnight in Berlin
    past = history(20, start=before, zone=BERLIN)
    outlook = make_outlook(past, Calendar(zone=BERLIN), days=2)
    assert outlook.start == datetime(2026, 3, 29, tzinfo=BERLIN)
    assert len(outlook.rates) == 47  # the clocks are put forward
    labels = hours_of_week(outlook.start, 47, BERLIN)
    assert outlook.rates == pytest.approx([usual(label) for label in labels], rel=0.01)
    starts = [hour["start"][11:16] for hour in outlook.report()["hours"]]
    assert starts[:3] == ["00:00", "01:00", "03:00"] and starts[-1] == "23:00"
    assert outlook.last_week[30] == pytest.approx(usual(labels[30]))


def test_growth_goes_on_when_it_is_proven():
    growing = history(42, level=lambda hour: 1.1 ** (hour / 168))
    outlook = make_outlook(growing, days=7)
    truth = [
        usual(label) * 1.1 ** (6 + hour / 168)
        for hour, label in enumerate(hours_of_week(outlook.start, 168, UTC))
    ]
    assert outlook.rates.mean() == pytest.approx(np.mean(truth), rel=0.03)
    assert any("+10" in note and "a week" in note for note in outlook.assumptions)


def test_an_outage_is_left_out_and_said():
    past = history(28)
    counts = list(past.counts)
    counts[500:506] = [0.0] * 6
    outlook = make_outlook(History("made", MONDAY, 3600.0, tuple(counts)), days=7)
    labels = hours_of_week(outlook.start, 168, UTC)
    assert outlook.rates == pytest.approx([usual(label) for label in labels], rel=0.01)
    assert any("6 hours of the history were unlike" in note for note in outlook.assumptions)


# --- the calendar -----------------------------------------------------------------------------

CALENDAR = """
[[holiday]]
name = "Fair"
date = 2026-03-11
[[holiday]]
name = "Fair"
date = 2026-03-25
[[holiday]]
name = "Rest"
date = 2026-03-26
like = "sunday"
[[campaign]]
name = "Offer"
begin = 2026-03-26T10:00:00
end = 2026-03-26T12:00:00
factor = 4
lengths = "fixed:100,7"
"""


def special(tmp_path, text=CALENDAR, days=21, level=lambda hour: 1.0):
    path = tmp_path / "calendar.toml"
    path.write_text(text)
    return make_outlook(history(days, level=level), read_calendar(path), days=7)


def test_factors_are_learnt_from_earlier_days_which_spoil_nothing(tmp_path):
    outlook = special(tmp_path, level=lambda hour: 3.0 if 9 * 24 <= hour < 10 * 24 else 1.0)
    labels = hours_of_week(outlook.start, 168, UTC)
    factor = np.ones(168)
    factor[48:72] = 3.0  # the fair
    truth = factor * [usual(label) for label in labels]
    truth[72:96] = [usual(144 + hour) for hour in range(24)]  # like a Sunday
    truth[82:84] *= 4  # the offer on top
    assert outlook.rates == pytest.approx(truth, rel=0.01)
    assert outlook.specials[50] == ("Fair",) and set(outlook.specials[82]) == {"Rest", "Offer"}
    assert outlook.sizes[82].label == "fixed:100,7" and outlook.sizes[81].label == "chat"


def test_hours_are_whole_and_a_campaigns_lengths_come_first(tmp_path):
    outlook = special(
        tmp_path,
        """
[[campaign]]
name = "Offer"
begin = 2026-03-24T22:40:00
end = 2026-03-25T02:00:00
factor = 2
lengths = "fixed:1,1"
[[holiday]]
name = "Rest"
date = 2026-03-25
factor = 0.5
lengths = "fixed:2,2"
""",
    )
    labels = hours_of_week(outlook.start, 168, UTC)
    factor = outlook.rates / [usual(label) for label in labels]
    assert factor[45:51] == pytest.approx([1, 1, 2, 1, 1, 0.5], rel=0.01)
    assert [sizes.label for sizes in outlook.sizes[46:51]] == [
        "chat", "fixed:1,1", "fixed:1,1", "fixed:1,1", "fixed:2,2",
    ]  # fmt: skip
    assert any("'Offer' does not begin and end on the hour" in n for n in outlook.assumptions)


def test_a_factor_that_nobody_knows_is_asked_for(tmp_path):
    text = '[[holiday]]\nname = "New"\ndate = 2026-03-25\n'
    with pytest.raises(
        ConfigError, match=r"calendar.toml:2: holiday 'New' has no factor"
    ) as caught:
        special(tmp_path, text)
    assert "\n" not in str(caught.value)


# --- how far off ------------------------------------------------------------------------------


def covered(outlook, truth):
    low, high = outlook.interval()
    return np.mean((low <= truth) & (truth <= high))


@pytest.mark.parametrize("weeks", [1, 4])
def test_intervals_hold_what_they_say(weeks):
    shares = []
    for seed in range(12):
        counts = with_noise(7 * weeks + 7, seed).counts
        outlook = make_outlook(History("made", MONDAY, 3600.0, counts[: -7 * 24]), days=7)
        shares.append(covered(outlook, np.array(counts[-7 * 24 :]) / 3600))
    assert 0.7 <= np.mean(shares) <= 0.92
    assert any("days left out" in note for note in outlook.assumptions) == (weeks == 1)


@pytest.mark.parametrize("days", [7, 8, 9, 13])
def test_plausible_days_of_short_histories_are_known_in_every_hour(days):
    outlook = make_outlook(with_noise(days, seed=days))
    assert np.isfinite(outlook.errors).all()


def test_plausible_days_differ_as_much_as_the_past_did():
    outlook = make_outlook(with_noise(28, 1), days=1)
    levels = np.log([np.mean(one.rates) for one in outlook.plausible(40, seed=3)])
    assert 0.06 < np.std(levels) < 0.16
    assert np.mean(levels) == pytest.approx(np.log(outlook.rates.mean()), abs=0.03)
    assert outlook.plausible(3, seed=3) == outlook.plausible(3, seed=3)
    assert outlook.plausible(3, seed=3) != outlook.plausible(3, seed=4)
    assert len({one.seed for one in outlook.plausible(40, seed=3)}) == 40


def test_the_chance_of_few_arrivals_is_counted_once():
    calm = history(28, seed=5, level=lambda hour: 0.002)  # a few requests an hour, nothing else
    outlook = make_outlook(calm, days=1)
    assert np.std(outlook.errors) < 0.25
    assert make_outlook(calm, days=1, bursts=GammaGaps(3.0)).interval()[1].sum() > (
        outlook.interval()[1].sum()
    )


def test_what_a_short_history_cannot_tell_is_said():
    outlook = make_outlook(history(3), days=2)
    notes = "; ".join(outlook.assumptions)
    assert "too short to show" in notes and "no usual Thursday, Friday, Saturday, Sunday" in notes
    assert "Poisson" in notes and "those of `chat`" in notes
    assert 0.15 < np.std(np.concatenate([outlook.errors, -outlook.errors])) < 0.25
    minute = History("x", MONDAY, 60.0, (60.0,) * 30)
    flat = make_outlook(minute, days=1)
    assert flat.rates == pytest.approx([1.0] * 24)
    assert any("23 of 24 hours of the day are not in" in note for note in flat.assumptions)


@pytest.mark.parametrize(
    ("start", "days", "said"),
    [
        (MONDAY, 1, "is before the history's end"),
        (None, 0, "days: expected above 0"),
        (None, 99, "up to 62"),
    ],
)
def test_refused(start, days, said):
    with pytest.raises(ConfigError, match=said):
        make_outlook(history(7), start=start, days=days)


LITTLE = {
    "eight days alike": [50.0] * 192,
    "one hour": [50.0],
    "25 hours": [50.0] * 25,
    "nothing but one hour": [0.0] * 100 + [50.0] + [0.0] * 91,
    "nothing after the first hour": [50.0] + [0.0] * 191,
    "nothing but one hour in four weeks": [0.0] * 300 + [9.0] + [0.0] * 371,
    "weekends alone": [0.0] * 120 + [50.0] * 48,
    "a week alike": [50.0] * 168,
    "a week of nothing, and one of much": [0.0] * 168 + [50_000.0] * 168,
    "a week of much, and one of nothing": [50_000.0] * 168 + [0.0] * 168,
    "every other hour": [50.0, None] * 96,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("days", [1, 9])
@pytest.mark.parametrize("counts", LITTLE.values(), ids=LITTLE)
def test_of_a_history_with_little_in_it_comes_an_answer(counts, days):
    outlook = make_outlook(History("little", MONDAY, 3600.0, tuple(counts)), days=days)
    low, high = outlook.interval()
    assert (low <= outlook.rates).all() and (outlook.rates <= high).all()
    most = 50 * max(count or 0 for count in counts) / 3600
    assert all(0 <= rate <= most for day in outlook.plausible(8) for rate in day.rates)
