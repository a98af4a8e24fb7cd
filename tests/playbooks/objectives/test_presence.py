"""Time in which nobody answered: of seconds, told as such, and of a service only when all of it was
silent."""

from __future__ import annotations

import pytest

from engine.observing.objectives import Objective
from engine.snapshot import ObjectiveCount, Snapshot, Source, SourceState
from playbooks.alerts.burn import with_burn_rules
from playbooks.alerts.file import AlertsFile
from playbooks.alerts.watchkeeper import Watchkeeper
from playbooks.objectives.book import Book
from playbooks.objectives.file import Objectives

HOUR = 3600.0
PROMISED = Objectives((Objective("ttft", 0.99, 0.5), Objective("reachable", 0.99)), 10 * HOUR)
BEGAN = 1_798_070_400.0
LIVE, DOWN, STALE, WRONG = (
    SourceState.LIVE, SourceState.UNREACHABLE, SourceState.STALE, SourceState.UNPARSABLE,
)  # fmt: skip


def seen(at: float, state: SourceState = LIVE) -> Snapshot:
    count = ObjectiveCount("ttft", 500.0, int(at), int(at), since=BEGAN)
    return Snapshot(time=BEGAN + at, source=Source(state), objectives=(count,))


class Watched:
    """Engines looked at every ten seconds, each in a state."""

    def __init__(self, path, services=()) -> None:
        self.book, self.services, self.at = Book(PROMISED, path), services, 0.0

    def live(self, seconds: float, **states: SourceState) -> None:
        for _ in range(int(seconds / 10)):
            self.book.look(
                {name: seen(self.at, state) for name, state in states.items()},
                BEGAN + self.at, self.services,
            )  # fmt: skip
            self.at += 10

    def answers(self, *names: str):
        (budget,) = self.book.answers(names)
        return round(budget.tally.total), round(budget.tally.missed), budget.spent


@pytest.fixture
def path(tmp_path):
    return tmp_path / "objectives.json"


def test_a_tenth_of_the_window_of_which_two_percent_were_silent_has_spent_a_fifth(path):
    watched = Watched(path)
    watched.live(HOUR - 72 + 10, a=LIVE)
    watched.live(72, a=DOWN)  # 70 of 3,600 s
    total, missed, spent = watched.answers("a")
    assert (total, missed) == (3590, 70)
    assert spent == pytest.approx(70 / 3590 / 0.01 * 3590 / (10 * HOUR))


def test_a_service_answers_while_one_of_it_does(path):
    watched = Watched(path, services=[("a", "b")])
    watched.live(110, a=LIVE, b=LIVE)
    watched.live(100, a=DOWN, b=LIVE)
    watched.live(100, a=DOWN, b=DOWN)
    assert watched.answers("a", "b")[:2] == (300, 100)
    assert watched.answers("a")[:2] == (300, 200) and watched.answers("b")[:2] == (300, 100)


def test_what_is_not_known_is_in_no_count(path):
    """A first miss, pages that nobody can read, and half an hour in which nobody looked."""
    watched = Watched(path, services=[("a", "b")])
    watched.live(110, a=LIVE)
    for state in (STALE, WRONG):
        watched.live(100, a=state)
    watched.at += 1800
    watched.live(100, a=LIVE)
    assert watched.answers("a")[:2] == (190, 0)
    watched.live(100, a=DOWN, b=STALE)
    assert watched.answers("a", "b")[1] == 0


def test_one_that_never_answered_was_silent_all_along(path):
    watched = Watched(path)
    watched.live(210, a=DOWN)
    assert watched.answers("a")[:2] == (200, 200)
    requests, time = watched.book.budgets()
    assert requests.spent is None and time.spent == pytest.approx(200 / 360)


def test_it_is_kept_and_gone_on_with(path):
    watched = Watched(path)
    watched.live(210, a=DOWN)
    watched.book.save()
    after = Watched(path)
    after.at = watched.at + 5
    after.live(110, a=LIVE)
    assert after.answers("a")[:2] == (300, 200)
    *_, time = after.book.kept()["a"]
    assert time.tally.missed == 200


def test_an_engine_that_only_another_process_looks_at_is_not_written_over(path):
    ours = Watched(path)
    ours.live(110, a=LIVE)
    ours.book.save()
    other = Watched(path)  # has read what was kept of a, and looks at b
    ours.live(100, a=DOWN)
    ours.book.save()
    other.live(50, b=LIVE)
    other.book.save()
    assert Book(PROMISED, path).kept()["a"][-1].tally.missed == pytest.approx(100)


def test_all_spent_is_told_while_nobody_answers_and_its_pace_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    state = [LIVE]
    alerts = with_burn_rules(AlertsFile((), (), 15.0, 0.0, tmp_path), PROMISED)
    assert [r.name for r in alerts.rules if "reachable" in r.name] == ["reachable budget spent"]
    keeper = Watchkeeper(
        alerts, (), lambda: {"a": seen(now, state[0])}, book=Book(PROMISED, tmp_path / "kept.json")
    )
    told = []
    for now in range(0, 900, 5):
        state[0] = LIVE if now < 300 else DOWN
        told += [one.rule for one in keeper.look(BEGAN + now)]
    # 1 % of ten hours is six minutes
    assert told == ["source", "reachable budget spent"]
