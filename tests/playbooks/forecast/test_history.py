"""Files of the past: what is read, what is assumed and said, and what is refused in one line."""

import gzip
import json
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from engine.errors import ConfigError
from playbooks.forecast.bursts import GammaGaps, ResampledGaps
from playbooks.forecast.history.history import History, hours_of_week
from playbooks.forecast.history.read import read_history
from playbooks.forecast.history.requests import of_requests
from playbooks.forecast.sizes import Size

BERLIN = ZoneInfo("Europe/Berlin")


def written(tmp_path, text, name="counts.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def refusal(tmp_path, text, zone=UTC):
    with pytest.raises(ConfigError) as caught:
        read_history(written(tmp_path, text), zone)
    text = str(caught.value)
    assert "\n" not in text
    return text.replace(str(tmp_path), "")


def csv_of(times, counts):
    return "time,requests\n" + "".join(f"{t},{c}\n" for t, c in zip(times, counts, strict=True))


# --- counts ---------------------------------------------------------------------------------


def test_counts_by_the_hour(tmp_path):
    text = csv_of([f"2026-03-02 {h:02}:00" for h in range(24)], range(24))
    history = read_history(written(tmp_path, text), UTC)
    assert history.start == datetime(2026, 3, 2, tzinfo=UTC)
    assert history.slot_s == 3600 and history.counts == tuple(map(float, range(24)))
    assert history.hours().rates[3] == pytest.approx(3 / 3600)
    assert any("without an offset" in note for note in history.assumptions)


@pytest.mark.parametrize(
    ("head", "row", "count"),
    [
        ("Timestamp;rps", "2026-03-02T0{}:00:00Z;2.5", 9000),
        ("ts\tRate", "177240{}800\t0.25", 250),
        ("date,n", "2026-03-02 0{}:00 UTC,2.5", 2.5),
    ],
)
def test_other_columns_and_times(tmp_path, head, row, count):
    rows = [row.format(i) for i in range(4)]
    history = read_history(written(tmp_path, "\n".join([head, *rows])), UTC)
    assert history.counts == (count,) * 4


def test_gaps_are_left_out_and_said(tmp_path):
    hours = [h for h in range(48) if h not in (5, 6)]
    text = csv_of([f"2026-03-0{2 + h // 24}T{h % 24:02}:00Z" for h in hours], [7] * len(hours))
    history = read_history(written(tmp_path, text.replace("T09:00Z,7", "T09:00Z,", 1)), UTC)
    assert [i for i, count in enumerate(history.counts) if count is None] == [5, 6, 9]
    assert history.assumptions == ("3 of 48 slots of 1 h are missing; they are left out",)
    assert np.isnan(history.hours().rates[[5, 6, 9]]).all()


def test_clocks_that_change_make_no_gap_and_no_double(tmp_path):
    spring = [f"2026-03-29 {h:02}:00" for h in (0, 1, 3, 4)]
    history = read_history(written(tmp_path, csv_of(spring, [1, 2, 3, 4])), BERLIN)
    assert history.counts == (1, 2, 3, 4)
    autumn = [f"2026-10-25 {h:02}:00" for h in (1, 2, 2, 3)]
    history = read_history(written(tmp_path, csv_of(autumn, [1, 2, 3, 4])), BERLIN)
    assert history.counts == (1, 2, 3, 4)
    assert "02:00 is no time in Europe/Berlin" in refusal(
        tmp_path, csv_of(["2026-03-29 01:00", "2026-03-29 02:00"], [1, 2]), BERLIN
    )


def test_days_of_23_hours_are_on_the_grid(tmp_path):
    text = csv_of([f"2026-03-{d}" for d in range(26, 32)], [2400] * 6)
    history = read_history(written(tmp_path, text), BERLIN)
    assert history.slot_s == 86_400 and history.counts == (2400.0,) * 6
    assert history.hours().rates == pytest.approx([2400 / 86_400] * 144)


def test_what_a_spreadsheet_makes_of_a_file_is_read(tmp_path):
    text = "\ufeffDate;Requests;\r\n20260302;1.840;\r\n20260303;985;\r\n"
    history = read_history(written(tmp_path, text), UTC)
    assert history.start == datetime(2026, 3, 2, tzinfo=UTC) and history.slot_s == 86_400
    assert history.counts == (1.84, 985)
    assert "'1.840' is taken as 1.84 requests, not as thousands" in history.assumptions


HEAD = "time,requests\n"
HOUR = "2026-03-02 {:02}:00,5\n"


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "history /counts.csv: is empty"),
        (HEAD, "is empty"),
        (HEAD + HOUR.format(1), "has one count"),
        (HEAD + HOUR.format(1) + "2026-03-02 02:00,-3\n", "counts.csv:3: -3 requests: a count is"),
        (HEAD + HOUR.format(1) + "2026-03-02 02:00,many\n", "counts.csv:3: 'many' is no number"),
        (HEAD + HOUR.format(1) + "yesterday,3\n", "counts.csv:3: time 'yesterday' is no date"),
        (HEAD + HOUR.format(1) + HOUR.format(1), "counts.csv:3: has the same time as line 2"),
        (HEAD + HOUR.format(2) + HOUR.format(1), "a time before that of line 2"),
        (HEAD + "".join(map(HOUR.format, range(5))) + "2026-03-02 05:30,1\n", "whole number of"),
        (HEAD + "".join(map(HOUR.format, (0, 1, 9, 10))), "7 of 11 slots of 1 h are missing"),
        (HEAD + "2026-03-02,0\n2026-03-03,0\n", "all its counts are 0"),
        (HEAD + "2026-03-02,9\n2026-03-09,9\n", "its counts are 168 hours apart"),
        ("when,how many\n1,2\n", "format not known"),
        (HEAD + "2026-03-02,1,840\n", "counts.csv:2: has 3 fields, the first line 2"),
        (HEAD + '2026-03-02,"1,840"\n', "counts.csv:2: '1,840' is no number like 1840"),
        ("time;requests\n2026-03-02;1840,5\n", "counts.csv:2: '1840,5' is no number"),
        (HEAD + '"2026-03-02\n00:00",5\n', "counts.csv:2: has 1 fields"),
        (HEAD + HOUR.format(1).replace(",", "\r,"), "counts.csv:2: cannot be read"),
        (HEAD + "46083.04,5\n", "counts.csv:2: time '46083.04' is no date and no time in Unix"),
        (HEAD + "0,5\n3600,5\n", "counts.csv:2: time '0' is no date and no time in Unix seconds"),
        (HEAD + "1772400800000000,5\n", "is no date and no time in Unix seconds"),
        (HEAD + "2016-12-31 23:59:60,5\n", "time '2016-12-31 23:59:60' is no date of ISO 8601"),
        (HEAD + "0001-01-01,5\n", "time 0001-01-01 is not of the years 1970 to 2199"),
        (HEAD + HOUR.format(1) + "2026-03-02 02:00,1e300\n", "at most 100,000 requests/s are"),
        (
            HEAD + "2026-03-02 00:00,5\n2026-03-02 00:00:00.5,5\n2026-03-12 00:00,5\n",
            "1727998 of 1728001 slots of 0.5 s are missing",
        ),
    ],
)
def test_refused_in_one_line(tmp_path, text, said):
    assert said in refusal(tmp_path, text)


def test_clocks_that_move_by_half_an_hour_leave_the_grid(tmp_path):
    times = [f"2026-04-05 {hour:02}:00" for hour in range(5)]
    clocks = ZoneInfo("Australia/Lord_Howe")
    said = refusal(tmp_path, csv_of(times, range(5)), clocks)
    assert "2026-04-04 15:30:00 UTC is not a whole number of slots of 1 h" in said
    halves = [f"2026-04-05 {h}" for h in ("01:00", "01:30", "01:30", "02:00", "02:30")]
    history = read_history(written(tmp_path, csv_of(halves, range(5))), clocks)
    assert history.slot_s == 1800 and history.counts == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEAD.encode("utf-16"), "is UTF-16; save it as UTF-8"),
        (gzip.compress(HEAD.encode(), mtime=0), "is compressed; unpack it first"),
        (HEAD.encode() + b"2026-03-02,\xff5\n", "counts.csv:2: cannot be read"),
    ],
)
def test_files_that_are_no_text(tmp_path, content, said):
    path = tmp_path / "counts.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        read_history(path, UTC)


def test_counts_by_the_minute_show_bursts(tmp_path):
    rng = np.random.default_rng(0)
    times = [f"2026-03-02T{m // 60:02}:{m % 60:02}Z" for m in range(1440)]
    calm = read_history(written(tmp_path, csv_of(times, rng.poisson(30, 1440))), UTC)
    wild = read_history(
        written(tmp_path, csv_of(times, rng.negative_binomial(30 / 8, 1 / 9, 1440))), UTC
    )
    assert isinstance(calm.bursts, GammaGaps) and calm.bursts.cv == pytest.approx(1, abs=0.1)
    assert isinstance(wild.bursts, GammaGaps) and wild.bursts.cv == pytest.approx(3, abs=0.4)


# --- Prometheus -----------------------------------------------------------------------------


def answer(tmp_path, *series, kind="matrix"):
    result = [{"metric": metric, "values": values} for metric, values in series]
    data = {"status": "success", "data": {"resultType": kind, "result": result}}
    return written(tmp_path, json.dumps(data), "range.json")


def test_rates_of_several_series_are_added_up(tmp_path):
    first = [[1_772_400_000 + 60 * i, "1.5"] for i in range(6)]
    other = [[1_772_400_000 + 60 * i, "0.5" if i != 2 else "NaN"] for i in range(6)]
    history = read_history(answer(tmp_path, ({"pod": "a"}, first), ({"pod": "b"}, other)), UTC)
    assert history.slot_s == 60 and history.counts == (120, 120, 90, 120, 120, 120)
    assert history.start.timestamp() == 1_772_400_000 - 60  # a value is of the time before it
    assert "its 2 series are added up" in history.assumptions
    assert history.bursts is None  # a rate is smoothed already


def test_a_counter_gives_differences_and_begins_again(tmp_path):
    values = [5, 9, 9, 2, 6]
    rows = [[1_772_400_000 + 60 * i, str(v)] for i, v in enumerate(values)]
    rows += [[1_772_400_000 + 60 * i, str(i)] for i in (7, 8, 9)]
    metric = {"__name__": "vllm:request_success_total"}
    history = read_history(answer(tmp_path, (metric, rows)), UTC)
    assert history.counts == (4, 0, 2, 4, None, None, None, 1, 1)


@pytest.mark.parametrize(
    "data, said",
    [
        ({"status": "error", "error": "bad query", "resultType": ""}, "answered error: bad query"),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, "found no series"),
        ({"status": "success", "data": {"resultType": "vector", "result": [1]}}, "holds a vector"),
        ({"status": "success", "data": {"resultType": "matrix", "result": [7]}}, "has no values"),
        (
            {"status": "success", "data": {"resultType": "matrix", "result": [
                {"metric": {}, "values": [[0, "1"], [60, "-2"]]}]}},
            "-2 at 60: requests are 0 or more",
        ),
        (
            {"status": "success", "data": {"resultType": "matrix", "result": [
                {"metric": {}, "values": [[1772400000000, "1"], [1772400060000, "2"]]}]}},
            "1772399940000 is no time in Unix seconds",
        ),
        (
            {"status": "success", "data": {"resultType": "matrix", "result": [
                {"metric": {}, "values": [[1772400000, "NaN"], [1772400060, "NaN"]]}]}},
            "is empty: it has no counts",
        ),
        (
            {"status": "success", "data": {"resultType": "matrix", "result": [
                {"metric": {}, "histograms": [[1772400000, {"count": "3"}]]}]}},
            "a series has no values",
        ),
        ({"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}, "a scalar"),
    ],
)  # fmt: skip
def test_answers_that_are_refused(tmp_path, data, said):
    assert said in refusal(tmp_path, json.dumps(data))


# --- requests -------------------------------------------------------------------------------


def test_a_trace_gives_counts_bursts_and_sizes(tmp_path):
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.gamma(1 / 9, 9, 2400)) * 3
    rows = [
        json.dumps({"timestamp": int(at * 1000), "input_length": 900 + i, "output_length": 9,
                    "hash_ids": [1, 2 + i]})
        for i, at in enumerate(times)
    ]  # fmt: skip
    history = read_history(written(tmp_path, "\n".join(rows), "trace.jsonl"), UTC)
    assert history.block_tokens == 512
    assert history.sizes.draw(rng, 1)[0].prefix[0] == 1
    assert isinstance(history.bursts, ResampledGaps)
    assert history.bursts.dispersion > 4
    assert sum(history.counts) / history.seconds == pytest.approx(1 / 3, rel=0.15)
    assert "begin on a Monday" in history.assumptions[0]


def test_of_a_long_history_parts_from_all_over_it_are_kept():
    rng = np.random.default_rng(0)
    count = 300_000
    times = np.cumsum(rng.gamma(1 / 4, 4, count)) + 1.7e9
    sizes = (Size(i + 1, 1) for i in range(count))
    history = of_requests("x", zip(times.tolist(), sizes, strict=True))
    rows = [row.prompt_tokens for row in history.sizes.rows]
    assert rows == sorted(rows) and 30_000 < len(rows) <= 64_000
    assert np.allclose(np.quantile(rows, [0, 0.25, 0.5, 0.75, 1]) / count,
                       [0, 0.25, 0.5, 0.75, 1], atol=0.02)  # fmt: skip
    assert {after - before for before, after in pairwise(rows)} == {1, 7 * 500 + 1}
    assert len(history.bursts.moments) == pytest.approx(50_000, rel=0.03)
    assert history.bursts.moments[-1] < len(history.bursts.moments)
    assert history.bursts.dispersion == pytest.approx(4, rel=0.25)


def test_a_short_trace_is_one_slot(tmp_path):
    rows = "arrival_time,input_tokens,output_tokens\n" + "".join(f"{i},10,5\n" for i in range(61))
    history = read_history(written(tmp_path, rows), UTC)
    assert history.seconds == 60 and history.counts == (60.0,)
    assert history.hours().rates == pytest.approx([1.0])


def test_a_trace_without_times_is_no_history(tmp_path):
    item = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]}
    assert "has lengths and no times" in refusal(tmp_path, json.dumps([item]))


# --- hours ----------------------------------------------------------------------------------


def test_hours_of_the_week_follow_the_clocks():
    night = hours_of_week(datetime(2026, 3, 28, 23, tzinfo=UTC), 5, BERLIN)
    assert (night % 24).tolist() == [0, 1, 3, 4, 5]
    night = hours_of_week(datetime(2026, 10, 24, 22, tzinfo=UTC), 5, BERLIN)
    assert (night % 24).tolist() == [0, 1, 2, 2, 3]
    assert hours_of_week(datetime(2026, 3, 2, tzinfo=UTC), 1, UTC).tolist() == [0]


def test_fine_slots_become_hours_and_coarse_ones_are_even():
    start = datetime(2026, 3, 2, 0, 30, tzinfo=UTC)
    fine = History("x", start, 600.0, (6.0,) * 3 + (12.0,) * 6 + (60.0,))
    assert fine.hours().rates.tolist()[:2] == [0.01, 0.02]
    assert np.isnan(fine.hours().rates[2])  # ten minutes of an hour say nothing about it
    coarse = History("x", start, 7200.0, (72.0,))
    assert coarse.hours().rates.tolist() == [0.01, 0.01]
