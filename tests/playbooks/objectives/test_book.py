"""The book goes on where another process ended, and says what nobody saw."""

from __future__ import annotations

import json

import pytest

from engine.errors import ConfigError
from engine.observing.objectives import Objective
from engine.snapshot import ObjectiveCount, Snapshot, Source, SourceState
from playbooks.objectives.book import Book
from playbooks.objectives.file import Objectives

PROMISED = Objectives((Objective("ttft", 0.9, 0.5), Objective("availability", 0.99)), 86_400.0)
BEGAN = 1_798_070_400.0


def seen(at: float, good: int, total: int, since: float | None = BEGAN, state="live") -> Snapshot:
    counts = (
        ObjectiveCount("ttft", 500.0, good, total, since=since),
        ObjectiveCount("availability", None, total, total, since=since),
    )
    return Snapshot(time=BEGAN + at, source=Source(SourceState(state)), objectives=counts)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "home" / "objectives.json"


def test_budgets_survive_a_restart_of_the_console(path):
    before = Book(PROMISED, path)
    for n in range(61):
        before.look({"a": seen(n * 10.0, n * 8, n * 10)})
    before.save()
    after = Book(PROMISED, path)
    after.look({"a": seen(900.0, 720, 900)})  # the engine has counted on, 300 s without a console
    ttft, served = after.budgets()
    assert (ttft.tally.total, ttft.tally.missed) == (900, 180)
    assert ttft.unseen_s == 0 and served.spent == 0.0
    assert ttft.spent == pytest.approx(2.0 * 900 / 86_400)


def test_after_a_restart_of_both_the_time_between_is_not_seen(path):
    before = Book(PROMISED, path)
    for n in range(61):
        before.look({"a": seen(n * 10.0, n * 8, n * 10)})
    before.save()
    after = Book(PROMISED, path)
    for n in range(31):
        after.look({"a": seen(900.0 + n * 10, 50 + n * 10, 60 + n * 10, since=BEGAN + 800)})
    ttft, _ = after.budgets()
    assert (ttft.tally.total, ttft.tally.missed) == (900, 120) and ttft.unseen_s == 300


def test_another_limit_is_another_question(path):
    before = Book(PROMISED, path)
    before.look({"a": seen(0.0, 0, 0)})
    before.look({"a": seen(10.0, 5, 10)})
    before.save()
    stricter = Objectives((Objective("ttft", 0.9, 0.2), PROMISED.each[1]), 86_400.0)
    after = Book(stricter, path)
    counts = (ObjectiveCount("ttft", 200.0, 4, 20, since=BEGAN), *seen(20.0, 0, 20).objectives[1:])
    after.look({"a": Snapshot(time=BEGAN + 20, objectives=counts)})
    ttft, served = after.budgets()
    assert ttft.tally.total == 0 and served.tally.total == 20


def test_what_another_process_keeps_stays(path):
    one, other = Book(PROMISED, path), Book(PROMISED, path)
    now = __import__("time").time() - BEGAN
    one.look({"a": seen(now, 1, 1)})
    other.look({"b": seen(now, 1, 1)})
    one.save()
    other.save()
    assert set(json.loads(path.read_text())["courses"]) == {"a", "b"}
    assert path.stat().st_mode & 0o077 == 0


def test_numbers_that_are_not_of_now_are_not_counted(path):
    book = Book(PROMISED, path)
    book.look({"a": seen(0.0, 0, 0)})
    book.look({"a": seen(10.0, 9, 9, state="stale")})
    assert book.budgets()[0].tally.total == 0


def test_several_engines_are_one_service_or_each_its_own(path):
    book = Book(PROMISED, path)
    for n in range(3):
        book.look({"a": seen(n * 10.0, n * 10, n * 10), "b": seen(n * 10.0, 0, n * 10)})
    assert book.budgets()[0].tally.missed == 20
    assert book.budgets(["a"])[0].tally.missed == 0
    assert book.budgets(["b", "not there"])[0].tally.missed == 20


@pytest.mark.parametrize(
    "text", ["", "[]", '{"kind": "alerts"}', '{"kind": "objectives", "courses": {"a": 1}}']
)
def test_a_file_of_something_else_is_named(path, text):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"objectives.json: no kept budgets \(.*remove it"):
        Book(PROMISED, path)
