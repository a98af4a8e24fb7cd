"""Care with production: what stops a step, and the share of a target."""

from contextlib import suppress
from dataclasses import replace

import pytest

from engine.errors import ConfigError
from engine.snapshot import BatchState, QueueState, Snapshot
from load_stub import DONE, ScriptedTransport, token
from playbooks.load.record import RequestRecord
from playbooks.outside import asking, traffic
from playbooks.outside.asking import Question, ask, ask_whole
from playbooks.outside.care import LEAST, Care, Guard, GuardTripped, parse_guards, parse_share
from playbooks.outside.load import mostly_empty
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint


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
    site.watch.take(replace(Snapshot(), batch=BatchState(running=running)))
    endpoint = GuardedEndpoint(site)
    endpoint._open = dict.fromkeys(range(own))
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


def test_requests_that_hang_trip_it_although_nothing_is_answered():
    guard = Guard((("ttft_p99", 100.0),))
    assert guard.exceeded(None, [90.0] * 2 * LEAST) is None  # they may come in time yet
    assert guard.exceeded(None, [500.0] * (LEAST - 1)) is None
    assert "500 is above 100" in guard.exceeded(None, [500.0] * LEAST)


def test_one_that_is_out_of_time_has_failed_and_one_whose_client_left_has_not(monkeypatch):
    monkeypatch.setattr(asking, "TIMEOUT_S", 0.01)
    site = UrlSite("http://h", care=Care((("error_rate", 0.0),)))

    def tripped(answer, leave_after=None):
        endpoint = GuardedEndpoint(site, ScriptedTransport(lambda body: answer))
        endpoint.model = "m"
        with suppress(GuardTripped):
            ask(endpoint, [Question("hello", 4, leave_after)] * 2 * LEAST, LEAST)
        assert endpoint.records == []
        return bool(endpoint.tripped)

    assert tripped([5.0, token("a")])
    assert not tripped([token("a"), token("b"), 5.0], leave_after=1)


@pytest.mark.parametrize(("status", "trips"), [(400, False), (404, False), (429, True)])
def test_what_is_asked_in_one_piece_may_be_refused(status, trips):
    site = UrlSite("http://h", care=Care((("error_rate", 0.0),)))
    endpoint = GuardedEndpoint(site, ScriptedTransport(lambda body: [b"{}"], status))
    endpoint.model = "m"
    asked = [{"prompt": "hello", "max_tokens": 4, "tools": []}] * 2 * LEAST
    with suppress(GuardTripped):
        found = ask_whole(endpoint, asked, 1)
        assert all(one.refused for one in found) is not trips
    assert bool(endpoint.tripped) is trips


def test_a_share_that_cannot_be_kept_says_why(monkeypatch):
    monkeypatch.setattr(traffic, "ROOM_WAIT_S", 0.0)
    site = UrlSite("http://h", care=Care(max_share=0.2))

    def why():
        endpoint = GuardedEndpoint(site, ScriptedTransport(lambda body: []))
        endpoint.model = "m"
        with pytest.raises(GuardTripped) as stopped:
            ask(endpoint, [Question("hello", 4)], 1)
        return str(stopped.value)

    assert why().startswith("stopped: http://h does not tell how many requests it runs")
    site.watch.take(replace(Snapshot(), batch=BatchState(running=2)))
    assert why() == "stopped: http://h runs too little else for a share of 20%"
