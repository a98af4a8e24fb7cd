"""Tails and broken streams, from records made up by hand."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from playbooks.checkup.client_view import broken_of, find_tail, refused_share
from playbooks.load.record import RequestRecord

MS = 1_000_000


def record(index: int, sent_ms: float, ttft_ms: float, **more: object) -> RequestRecord:
    sent = int(sent_ms * MS)
    first = sent + int(ttft_ms * MS)
    made = RequestRecord(
        index, sent, 20, 3, sent, array("q", [first + i * 10 * MS for i in (0, 1, 2)])
    )
    made.ended, made.prompt_tokens, made.output_tokens = made.last, 20, 3
    made.finish_reason = "length"
    for name, value in more.items():
        setattr(made, name, value)
    return made


def closed(ttft: Callable[[int], float], count: int = 60, users: int = 3) -> list[RequestRecord]:
    """Users who send the next one when the last is answered."""
    free, records = [0.0] * users, []
    for i in range(count):
        user = free.index(min(free))
        records.append(record(i, free[user], ttft(i)))
        free[user] += ttft(i) + 25
    return records


def test_every_twentieth_is_found_with_its_rhythm():
    tail = find_tail(closed(lambda i: 3100 if i % 20 == 19 else 100 + i % 7))
    assert tail is not None
    assert (tail.slow, tail.every, tail.every_s) == (3, 20, None)
    assert 2900 < tail.slow_ms < 3100 and tail.where == "the first token"


def test_without_a_rhythm_it_is_a_share():
    tail = find_tail(closed(lambda i: 2000 if i in (5, 6, 30, 55) else 90))
    assert tail is not None and tail.slow == 4 and tail.every is None and tail.every_s is None


def test_a_pause_between_tokens_is_found():
    records = closed(lambda i: 100)
    for r in records[7::20]:
        r.events = array("q", [r.first, r.first + 2500 * MS])
    tail = find_tail(records)
    assert tail is not None and tail.slow == 3 and tail.where == "the next token"


def test_a_pause_of_everybody_is_the_machines():
    """All six that were open waited 900 ms for their next token at the same time."""
    records = closed(lambda i: 100, users=6)
    middle = records[30].first
    for r in records:
        late = 900 * MS if r.first >= middle else 0
        r.events = array("q", [r.first, r.first + 10 * MS + late, r.first + 20 * MS + late])
        if r.first > middle + 5 * MS:
            r.events = array("q", [e + 900 * MS for e in (r.first, r.first + 10 * MS)])
            r.sent += 900 * MS
        r.ended = r.last
    tail = find_tail(records)
    assert tail is not None and tail.slow == 0, tail


def test_noise_load_and_long_prompts_are_no_tail():
    for records in (
        closed(lambda i: 100 + 40 * (i % 9)),  # scatter
        closed(lambda i: 900 if i % 3 else 100),  # how the engine is
        [record(i, 10.0 * i if i < 20 else 190 + i, 40 if i < 30 else 900) for i in range(40)],
        closed(lambda i: 5.0 if i % 20 else 300),  # short in itself
    ):
        tail = find_tail(records)
        assert tail is not None and tail.slow == 0, tail
    long = closed(lambda i: 2000 if i == 30 else 90)
    long[30].prompt_tokens = 400
    assert find_tail(long).slow == 0  # type: ignore[union-attr]
    assert find_tail(long[:5]) is None


def test_broken_streams_are_counted_by_kind():
    records = closed(lambda i: 50, 20)
    records[3].error, records[3].detail = "dropped", "closed early"
    records[4].error = "http_503"
    broken = broken_of(records)
    assert broken is not None and (broken.requests, broken.streams) == (20, 1)
    assert broken.how == ("1 × dropped: closed early",)
    assert broken_of([]) is None
    assert refused_share(records) == 0.05 and refused_share([]) is None


def test_a_whole_answer_without_text_is_neither_broken_nor_refused():
    records = closed(lambda i: 50, 20)
    records[3].error = "no_output"
    broken = broken_of(records)
    assert broken is not None and broken.streams == 0
    assert refused_share(records) == 0.0
