"""What a load's records say of the requests' time."""

from array import array

import pytest

from engine.request import Stamps
from playbooks.checkup.watched_load import stage_times, usual_share
from playbooks.load.record import RequestRecord


def record(tokenize_ms, decode_ms=60):
    """20 ms of queue, 20 of prefill, then the tokens."""
    ends = [5, tokenize_ms, 20, 20, decode_ms]
    arrival, tokenized, scheduled, first, last = [sum(ends[: i + 1]) * 10**6 for i in range(5)]
    stamps = Stamps(
        arrival=arrival,
        received=arrival,
        tokenize_end=tokenized,
        first_scheduled=scheduled,
        finished=last,
        tokens=array("q", [first, last]),
    )
    return RequestRecord(
        0, arrival, 4, 2, events=stamps.tokens, finish_reason="length", stamps=stamps
    )


def test_the_usual_share_is_that_of_the_middle_request():
    records = [record(100), record(25), record(1)]
    assert usual_share(records, "tokenize") == pytest.approx(25 / 125)
    assert usual_share(records, "decode") == pytest.approx(60 / 125)


def test_a_request_that_the_machine_held_up_says_nothing_of_the_others():
    records = [*(record(2) for _ in range(5)), record(500)]
    assert stage_times(records)["tokenize"] > 0.4
    assert usual_share(records, "tokenize") == pytest.approx(2 / 102)


def test_without_a_completed_request_there_is_no_share():
    assert usual_share([], "tokenize") is None
    assert usual_share([RequestRecord(0, 0, 4, 2)], "tokenize") is None
