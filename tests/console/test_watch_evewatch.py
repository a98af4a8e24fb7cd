"""EveWatch watched by EveWatch: its own server, a tiny engine, real requests."""

import pytest

from engine.remote import attach
from engine.remote.fleet.fleet import Fleet
from engine.request import FinishReason, SamplingParams
from engine.snapshot import SourceState
from served import serving
from waiting import CEILING_S, until


@pytest.fixture(scope="module")
def served():
    with serving() as running:
        yield running


def test_its_own_snapshot_comes_whole(served):
    watched = attach(served.url)
    own = served.engine.snapshot()
    seen = watched.poll()
    assert (seen.source.state, seen.source.engine) == (SourceState.LIVE, "evewatch")
    assert seen.source.target == served.url
    assert seen.kv.total == own.kv.total and seen.kv.page_map is not None
    assert seen.kv.format == "int8_channel" and seen.batch.cap == 8
    assert watched.cannot_know == ()
    watched.stop()


def test_it_can_be_asked_and_the_rates_are_right(served):
    watched = attach(served.url)
    watched.poll()
    before = watched.counted.totals["output_tokens"]
    stream = watched.submit("hello", SamplingParams(max_tokens=7, ignore_eos=True))
    assert stream.result(CEILING_S).finish_reason is FinishReason.LENGTH
    served.until_idle()
    until(
        lambda: (
            watched.poll().batch.output_tokens_total
            == served.engine.snapshot().batch.output_tokens_total
        )
    )
    assert watched.counted.totals["output_tokens"] == before + 7
    assert watched.counted.observed["ttft"].count >= 1
    watched.stop()


def test_two_of_it_merge_into_one_group(served):
    fleet = Fleet([attach(served.url, name=name) for name in ("a", "b")])
    fleet.poll()
    (group,) = fleet.groups()
    one = served.engine.snapshot()
    assert group.merged.kv.total == 2 * one.kv.total
    assert group.merged.batch.cap == 16
    assert 0 <= group.merged.kv.usage <= 1
    assert group.verdict == "2 of 2 live; no replica stands out"
    fleet.stop()
