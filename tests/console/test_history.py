import math

from console.history import History, Series
from engine.snapshot import BatchState, QueueState, Snapshot, Source, SourceState


def series(*samples, capacity=100):
    result = Series(capacity)
    for time, value in samples:
        result.push(time, value)
    return result


def test_bins_hold_the_highest_value_and_keep_gaps():
    s = series((10.0, 1.0), (10.5, 3.0), (12.1, 2.0), (16.0, 4.0))
    assert s.bins(now=17.0, count=4, bin_s=2.0) == [3.0, 2.0, None, 4.0]


def test_bins_move_by_whole_cells():
    s = series((10.0, 1.0), (12.0, 2.0))
    assert s.bins(12.0, 2, 2.0) == s.bins(13.9, 2, 2.0) == [1.0, 2.0]
    assert s.bins(14.0, 2, 2.0) == [2.0, None]


def test_samples_after_now_are_not_drawn():
    assert series((10.0, 1.0), (30.0, 9.0)).bins(11.0, 1, 2.0) == [1.0]


def test_missing_and_broken_numbers_are_gaps():
    s = series((0.0, None), (2.0, math.nan), (4.0, math.inf), (6.0, 0.0))
    assert s.bins(6.0, 4, 2.0) == [None, None, None, 0.0]


def test_ring_forgets_the_oldest():
    s = series((0.0, 1.0), (2.0, 2.0), (4.0, 3.0), capacity=2)
    assert len(s) == 2
    assert s.bins(4.0, 3, 2.0) == [None, 2.0, 3.0]


def test_change_of_a_counter():
    s = series((0.0, 5), (50.0, 7), (100.0, 9))
    assert s.change(100.0, 60.0) == 2
    assert series().change(0.0, 60.0) == 0


def snapshot(seq, waiting, state=SourceState.LIVE):
    return Snapshot(seq=seq, time=float(seq), source=Source(state), queue=QueueState(waiting))


def test_history_takes_live_snapshots_once():
    history = History()
    history.push(snapshot(1, 4))
    history.push(snapshot(1, 4))
    history.push(snapshot(2, 5, SourceState.STALE))
    assert len(history["waiting"]) == 1
    assert history.newest_time == 1.0
    history.push(snapshot(3, 6))
    assert history["waiting"].newest == 6


def test_every_series_reads_its_field():
    history = History()
    history.push(Snapshot(seq=1, time=1.0, batch=BatchState(running=3, cap=8, step_ms=40.0)))
    assert history["running"].newest == 3
    assert history["cap"].newest == 8
    assert history["step"].newest == 40.0
    assert history["usage"].newest is None
