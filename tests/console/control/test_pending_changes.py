from console.control.pending_changes import PendingChanges, figures
from console.history import History
from engine.snapshot import BatchState, Snapshot


def history(values, start=1000.0):
    """One sample a second of the batch's output rate; None for a gap."""
    made = History()
    for at, value in enumerate(values):
        batch = BatchState(output_tok_s=value, running=4)
        made.push(Snapshot(seq=at + 1, time=start + at, batch=batch))
    return made


def test_steps_of_one_setting_are_one_change():
    changes = PendingChanges()
    changes.note("cap", 32, 31, 0.0)
    changes.note("cap", 31, 30, 1.0)
    assert [(c.before, c.after, c.first, c.last) for c in changes.pending] == [(32, 30, 0.0, 1.0)]
    assert changes.newest.title == "cap 32 → 30"


def test_there_and_back_is_no_change():
    changes = PendingChanges()
    changes.note("dynamic", "on", "off", 0.0)
    assert changes.note("dynamic", "off", "on", 5.0) is None
    assert changes.newest is None


def test_much_later_it_is_another_change():
    changes = PendingChanges()
    changes.note("cap", 32, 31, 0.0)
    changes.note("cap", 31, 30, 100.0)
    assert len(changes.pending) == 2


def test_another_setting_in_between_does_not_part_them():
    changes = PendingChanges()
    changes.note("cap", 32, 31, 0.0)
    changes.note("dynamic", "on", "off", 1.0)
    changes.note("cap", 31, 30, 2.0)
    assert [c.title for c in changes.pending] == ["dynamic on → off", "cap 32 → 30"]


def test_a_written_change_is_not_offered_again():
    changes = PendingChanges()
    change = changes.note("max_wait_ms", 1000.0, 250.0, 0.0)
    assert change.title == "max_wait_ms 1000 → 250"
    changes.written(change)
    assert changes.newest is None


def test_figures_are_means_of_the_minute_before_and_of_the_time_since():
    past = history([5.0] * 40 + [100.0] * 60 + [200.0] * 30)
    change = PendingChanges().note("cap", 32, 48, 1099.0)
    found = {f.metric: f for f in figures(change, past, 1129.0)}
    assert (found["output_tok_s"].before, found["output_tok_s"].after) == (100.0, 200.0)
    assert "ttft_p50_ms" not in found  # was never reported


def test_gaps_do_not_count_and_too_soon_there_is_no_after():
    past = history([10.0, None, 20.0, None])
    change = PendingChanges().note("cap", 32, 48, 1003.0)
    (found, *_) = figures(change, past, 1008.0)
    assert (found.before, found.after) == (15.0, None)
