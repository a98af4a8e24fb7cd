import json
import math
from dataclasses import fields, is_dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.snapshot import (
    SCHEMA,
    BatchState,
    Event,
    LatencyState,
    Percentiles,
    RequestRow,
    Snapshot,
    Source,
    SourceState,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ANY_FLOAT = st.none() | st.floats()
COUNT = st.integers(0, 2**53)
PERCENTILES = st.builds(Percentiles, ANY_FLOAT, ANY_FLOAT, ANY_FLOAT, ANY_FLOAT, COUNT)
SNAPSHOTS = st.builds(
    Snapshot,
    seq=COUNT,
    time=FINITE,
    source=st.builds(
        Source, st.sampled_from(SourceState), age_s=FINITE, reason=st.none() | st.text()
    ),
    batch=st.builds(
        BatchState,
        running=st.none() | COUNT,
        dynamic=st.none() | st.booleans(),
        step_ms=ANY_FLOAT,
        bound_by=st.none() | st.text(),
    ),
    latency=st.builds(LatencyState, PERCENTILES, PERCENTILES),
    finished=st.dictionaries(st.text(), COUNT, max_size=4),
    events=st.lists(st.builds(Event, FINITE, st.text(), st.text(), COUNT), max_size=3).map(tuple),
    requests=st.lists(
        st.builds(
            RequestRow,
            st.text(),
            st.sampled_from(["running", "waiting"]),
            *[COUNT] * 5,
            wait_ms=ANY_FLOAT,
            source=st.none() | st.text(),
        ),
        max_size=3,
    ).map(tuple),
)


def finite(value):
    """`value` with every NaN and infinity None, as JSON must carry it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple):
        return tuple(finite(item) for item in value)
    if is_dataclass(value):
        return replace(value, **{f.name: finite(getattr(value, f.name)) for f in fields(value)})
    return value


@settings(max_examples=200, deadline=None)
@given(SNAPSHOTS)
def test_round_trip(snapshot):
    assert Snapshot.from_json(snapshot.to_json()) == finite(snapshot)


@settings(max_examples=50, deadline=None)
@given(SNAPSHOTS)
def test_the_text_is_strict_json_on_one_line(snapshot):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    text = snapshot.to_json()
    assert "\n" not in text
    json.loads(text, parse_constant=refuse)


def test_nan_becomes_null():
    snapshot = Snapshot(batch=BatchState(step_ms=math.nan, output_tok_s=math.inf))
    data = json.loads(snapshot.to_json())["batch"]
    assert data["step_ms"] is None and data["output_tok_s"] is None


def test_what_is_not_reported_stays_none():
    data = json.loads(Snapshot().to_json())
    for section in ("queue", "batch", "kv", "memory", "stages", "steps"):
        plain = {key: value for key, value in data[section].items() if key != "wait_ms"}
        assert set(plain.values()) == {None}


def test_unknown_keys_of_a_newer_schema_are_ignored():
    data = json.loads(Snapshot(seq=7).to_json())
    data |= {"novelty": 1, "schema": SCHEMA + 1}
    data["kv"]["colour"] = "blue"
    assert Snapshot.from_json(json.dumps(data)).seq == 7


def test_missing_keys_are_none():
    assert Snapshot.from_json('{"schema": 1, "kv": {"total": 8}}').kv.free is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "3",
        "{}",
        "<html>404</html>",
        '{"schema": "1"}',
        '{"schema": 1, "seq": "two"}',
        '{"schema": 1, "kv": 3}',
        '{"schema": 1, "kv": {"total": "many"}}',
        '{"schema": 1, "source": {"state": "fine"}}',
        '{"schema": 1, "events": 3}',
        '{"schema": 1, "events": [{"time": 1.0}]}',
        '{"schema": 1, "events": ["boom"]}',
        '{"schema": 1, "finished": [1]}',
        '{"schema": 1, "finished": 7}',
        '{"schema": 1, "time": null}',
    ],
)
def test_what_is_no_snapshot_is_a_value_error(text):
    with pytest.raises(ValueError):
        Snapshot.from_json(text)
