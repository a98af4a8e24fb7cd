"""A unit is known or asked: times of a trace that say no unit are judged by the traffic that they
would make, with a warning where it is not the documented one, and an error where it is doubtful.
"""

import json

import pytest

from engine.errors import ConfigError
from playbooks.load.traces import Trace
from playbooks.load.units import SECONDS, judge
from playbooks.load.workload import make_spec

RATES = [0.0, 1.517, 4.25, 6.0, 9.9]
"""Seconds: half a request a second."""


def mooncake(times, **more):
    rows = ({"timestamp": t, "input_length": 40, "output_length": 8, **more} for t in times)
    return "".join(json.dumps(row) + "\n" for row in rows)


def bailian(times):
    return mooncake(times, chat_id=1, parent_chat_id=-1, type="text", turn=1)


def burst(times):
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    return head + "".join(f"{t},x,40,8,48,Conversation log\n" for t in times)


DOCUMENTED = {mooncake: "ms", bailian: "s", burst: "s"}


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "trace"
        path.write_text(text)
        return path

    return write


def last(spec):
    return list(spec.arrivals.times(0))[-1] / 1e9


@pytest.mark.parametrize("form", DOCUMENTED)
@pytest.mark.parametrize("unit", SECONDS)
def test_whatever_the_unit_the_traffic_is_the_same_and_another_unit_is_said(write, form, unit):
    path = write(form([round(t / SECONDS[unit], 6) for t in RATES]))
    spec = make_spec(trace=path)
    assert last(spec) == pytest.approx(9.9)
    assert spec.traces[0].describe()["time_unit"] == unit
    said = [note for note in spec.warnings if "--time-unit" in note]
    assert bool(said) == (unit != DOCUMENTED[form])


@pytest.mark.parametrize("form", DOCUMENTED)
@pytest.mark.parametrize("unit", SECONDS)
def test_a_file_that_begins_at_a_date_shows_its_unit_by_the_size(write, form, unit):
    path = write(form([round((1.7e9 + t) / SECONDS[unit]) for t in (0, 2, 4)]))
    spec = make_spec(trace=path)
    assert last(spec) == pytest.approx(4.0, abs=1e-3) and spec.warnings == []


@pytest.mark.parametrize("unit", SECONDS)
def test_the_unit_can_be_said(write, unit):
    spec = make_spec(trace=write(mooncake([0, 1000, 2000])), time_unit=unit)
    assert last(spec) == pytest.approx(2000 * SECONDS[unit]) and spec.warnings == []


@pytest.mark.parametrize(
    ("times", "documented", "unit"),
    [
        ([0, 27482], "ms", "ms"),
        ([5, 45.5, 118], "s", "s"),
        ([0, 1517, 4250], "s", "ms"),
        ([0, 10, 20], "ms", "s"),
        ([7, 7, 7], "ms", "ms"),
        ([7], "s", "s"),
        ([], "s", "s"),
        (range(1000), "s", "s"),
        ([i * 1000 / 100 for i in range(1000)], "ms", "ms"),
        # a pause of eleven days says nothing of the unit
        ([0, 1000, 2000, 1_000_000_000, 1_000_001_000], "ms", "ms"),
        # bursts: most gaps are short
        ([second + i / 100 for second in range(0, 200, 10) for i in range(20)], "s", "s"),
    ],
)
def test_judged(times, documented, unit):
    assert judge(list(times), documented).name == unit


def test_several_units_that_would_do_are_asked_for(write):
    times = [i * 20_000 for i in range(2_000)]  # as s one in 5 h; as ms 0.05/s, as us 50/s
    path = write(burst(times))
    with pytest.raises(
        ConfigError, match=r"doubtful: .* one of ms, us would do; say it with --time-unit"
    ):
        make_spec(trace=path)
    assert make_spec(trace=path, time_unit="ms").warnings == []
    assert make_spec("poisson:1", trace=path).warnings == []  # its lengths need no times
    assert len(list(Trace(path).rows())) == 2_000


def test_a_pause_that_makes_another_unit_likely_is_asked_for(write):
    path = write(mooncake([*range(0, 30_000, 1000), 40_000_000]))  # in ms it waits for 11 hours
    with pytest.raises(ConfigError, match=r"doubtful: as ms .* one of us, ms would do"):
        make_spec(trace=path)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"time_unit": "min"}, "time_unit: expected s, ms, us, ns, got 'min'"),
        ({"time_unit": "s", "arrivals": "poisson:1"}, "time_unit: is of the times of a trace"),
    ],
)
def test_a_unit_that_cannot_be_gets_one_line(write, options, why):
    with pytest.raises(ConfigError, match=why):
        make_spec(trace=write(mooncake([0, 1000])), **options)


def test_times_that_say_their_unit_take_no_other(write):
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n"
    with pytest.raises(ConfigError, match="they say their unit"):
        make_spec(trace=write(azure), time_unit="ms")


def test_columns_of_azure_with_plain_numbers_are_judged_too(write):
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    spec = make_spec(trace=write(head + "0,374,44\n1517,396,109\n4250,91,16\n"))
    assert last(spec) == 4.25 and "read as ms" in spec.warnings[0]
