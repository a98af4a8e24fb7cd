"""Times in which nobody got a token, from records made up by hand."""

from array import array
from collections.abc import Sequence

from playbooks.checkup.pauses import Span, Stood
from playbooks.diagnosis import Tail
from playbooks.load.record import RequestRecord

MS = 1_000_000


def load(pauses: Sequence[tuple[int, int]] = (), users: int = 4, tokens: int = 30
         ) -> list[RequestRecord]:  # fmt: skip
    """Users with five answers each, a token every 20 ms; in a pause (when, how long) none comes."""

    def real(ms: int) -> int:
        """The server's own time stands still in pauses."""
        for begin, length in pauses:
            ms += length if ms >= begin else 0
        return ms * MS

    records = []
    for user in range(users):
        for turn in range(5):
            sent = 7 * user + turn * (60 + 20 * tokens)
            at = array("q", [real(sent + 50 + 20 * i) for i in range(tokens)])
            record = RequestRecord(len(records), real(sent), 10, tokens, real(sent), at, at[-1])
            record.finish_reason = "length"
            records.append(record)
    return records


def tail(records: list[RequestRecord], late: Sequence[Span] = ()) -> Tail | None:
    stood = Stood()
    stood.add(records, late)
    return stood.tail()


def test_a_steady_target_never_stands_still():
    assert tail(load()) is None


def test_one_long_pause_or_three_short_ones():
    found = tail(load([(1000, 1400)]))
    assert found is not None and found.pauses == 1 and found.slow == 4
    assert 1380 <= found.slow_ms <= 1460 and 0.2 < found.stood_share < 0.35
    assert tail(load([(1000, 500), (2000, 500)])) is None  # chance
    found = tail(load([(400, 500), (1000, 500), (2000, 500)]))
    assert found is not None and found.pauses == 3


def test_a_pause_that_this_machine_overslept_is_none():
    assert tail(load([(1000, 1400)]), late=[(1050 * MS, 2300 * MS)]) is None
    assert tail(load([(1000, 1400)]), late=[(1050 * MS, 1150 * MS)]) is not None


def test_time_without_requests_is_no_pause():
    """Two loads, with ten seconds of nothing between them."""
    later = load()
    for r in later:
        r.sent += 14_000 * MS
        r.events = array("q", [event + 14_000 * MS for event in r.events])
        r.ended = r.last
    assert tail([*load(), *later]) is None


def test_slow_prompts_are_no_pause():
    """Where a first token takes half a second, half a second without tokens is how it is."""
    records = load(users=1)
    for r in records * 3:
        r.sent -= 170 * MS
    assert tail(records * 3) is None
