"""Care with production: what stops a step, and the share of a target."""

from contextlib import suppress
from dataclasses import replace

import pytest

from engine.errors import ConfigError
from engine.snapshot import BatchState, QueueState, Snapshot
from load_stub import DONE, ScriptedTransport, token
from playbooks.load.record import RequestRecord
from playbooks.outside.care import LEAST, Care, Guard, GuardTripped, parse_guards, parse_share
from playbooks.outside.load import mostly_empty
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint, Question, ask


def test_guards_and_shares_as_people_write_them():
    assert parse_guards(["ttft_p99=2000", "error_rate = 0.1"]) == (
        ("ttft_p99", 2000.0), ("error_rate", 0.1),
    )  # fmt: skip
    assert parse_share("20%") == parse_share("0.2") == 0.2


@pytest.mark.parametrize(
    "text", ["ttft=3", "ttft_p99", "ttft_p99=fast", "waiting=-1", "waiting=nan"]
)
def test_a_guard_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="--guard"):
        parse_guards([text])


@pytest.mark.parametrize("text", ["0", "120%", "much", ""])
def test_a_share_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="--max-share"):
        parse_share(text)


def test_a_guard_trips_on_enough_answers_only():
    guard = Guard((("ttft_p99", 100.0), ("error_rate", 0.2)))
    for _ in range(LEAST - 1):
        guard.take(500.0, failed=False)
    assert guard.exceeded(None) is None
    guard.take(500.0, failed=False)
    assert guard.exceeded(None) == "stopped by the guard ttft_p99: 500 is above 100"
    failing = Guard((("error_rate", 0.2),))
    for i in range(LEAST):
        failing.take(None, failed=i % 2 == 0)
    assert "error_rate" in failing.exceeded(None)


def test_a_queue_in_the_target_trips_it():
    seen = Snapshot(queue=QueueState(waiting=9))
    assert "waiting" in Guard((("waiting", 8.0),)).exceeded(seen)
    assert Guard((("waiting", 9.0),)).exceeded(seen) is None


@pytest.mark.parametrize(("running", "own", "fits"), [(4, 0, True), (3, 0, False), (9, 1, True),
                                                      (8, 1, False), (None, 0, False)])  # fmt: skip
def test_a_share_counts_the_requests_of_others(running, own, fits):
    site = UrlSite("http://h", care=Care(max_share=0.2))
    site.watch.series.append(replace(Snapshot(), batch=BatchState(running=running)))
    endpoint = GuardedEndpoint(site)
    endpoint._open = own
    assert endpoint._fits() is fits


@pytest.mark.parametrize(("answer", "trips"), [(token("", "stop") + DONE, False), (token(), True)])
def test_empty_answers_trip_no_guard_and_cut_ones_do(answer, trips):
    site = UrlSite("http://h", care=Care((("error_rate", 0.0),)))
    endpoint = GuardedEndpoint(site, ScriptedTransport(lambda body: [answer]))
    endpoint.model = "m"
    with suppress(GuardTripped):
        ask(endpoint, [Question("hello", 4)] * 2 * LEAST, 1)
    assert bool(endpoint.tripped) is trips


def test_most_answers_without_text_measure_nothing():
    records = [RequestRecord(i, 0, 1, 1, error="no_output" if i < 3 else None) for i in range(6)]
    assert mostly_empty(records) is None and mostly_empty([]) is None
    records[3].error = "no_output"
    assert mostly_empty(records) == "4 of 6 answers have no text"
