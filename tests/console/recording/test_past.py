"""A recording as a history."""

import pytest

from console.recording.past import history_of
from console.recording.recorder import About, Recorder
from engine.errors import ConfigError
from engine.snapshot import QueueState, Snapshot, Source, SourceState
from recordings import START, Clock, record


def written(path, looks):
    """Seconds and requests counted until then; None: nothing was seen."""
    clock = Clock()
    recorder = Recorder(path, About("made", 1.0), clock)
    for seq, (passed, total) in enumerate(looks):
        clock.now = START + passed
        state = SourceState.LIVE if total is not None else SourceState.STALE
        recorder.add(
            Snapshot(seq, clock.now, Source(state), queue=QueueState(requests_total=total or 7))
        )
    recorder.close()
    return path


def test_requests_are_counted_and_measured(tmp_path):
    path = tmp_path / "demo.everec"
    seen = record(path, 120.0, hz=1.0)
    history = history_of(path)
    assert history.start.timestamp() == START and history.slot_s == 1.0
    first, last = seen[0], seen[-1]
    assert sum(history.counts) == last.queue.requests_total - first.queue.requests_total > 100
    assert history.hours().rates[0] == pytest.approx(sum(history.counts) / 119)
    mean = (last.batch.prompt_tokens_total - first.batch.prompt_tokens_total) / sum(history.counts)
    assert f"{mean:.0f} prompt" in history.assumptions[0]


def test_gaps_and_restarts(tmp_path):
    totals = [10, 12, 15, None, 20, 24, 3, 5]
    looks = [(i, total) for i, total in enumerate(totals)] + [(11, 9), (12, 9)]
    history = history_of(written(tmp_path / "made.everec", looks))
    assert history.counts == (2, 3, None, None, 4, 3, 2, None, None, None, None, 0)
    assert history.sizes is None


def test_an_engine_that_counts_nothing_is_refused(tmp_path):
    path = written(tmp_path / "made.everec", [(0, None), (1, None)])
    with pytest.raises(ConfigError, match="did not tell how many requests came"):
        history_of(path)
