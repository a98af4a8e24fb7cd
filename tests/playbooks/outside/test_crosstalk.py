"""Cross-talk from outside: marks, and answers that are another's, word for word."""

import numpy as np
import pytest

from playbooks.outside.asking import Answer
from playbooks.outside.crosstalk import CLIENTS, _clients, judge

ROUNDS = 4


@pytest.fixture
def clients():
    return _clients(np.random.default_rng(3))


def of(rows):
    return [[Answer(text) for text in row] for row in rows]


def follows(client, round=0):
    return f" {client.number}, {client.word} {client.number} and so on {round}"


def strange(number, round=0):
    """Of a model that does not follow its prompt: nonsense, of its own for every client."""
    rng = np.random.default_rng(number)
    return "".join(chr(97 + c) for c in rng.integers(0, 26, 40))


def test_marks_are_unlike(clients):
    assert len({c.number for c in clients}) == len({c.word for c in clients}) == CLIENTS


def test_a_sound_target_may_say_it_otherwise_each_time(clients):
    found = judge(clients, of([[follows(c, n) for n in range(ROUNDS)] for c in clients]))
    assert found.mixed == () and found.told_apart
    assert found.repeats == 0.0


def test_another_ones_mark_is_cross_talk(clients):
    rows = [[follows(c)] * ROUNDS for c in clients]
    rows[2][1] = follows(clients[4])
    found = judge(clients, of(rows))
    assert found.mixed == ("client 3 was told the mark of client 5",)


def test_a_mark_within_a_longer_number_is_none(clients):
    rows = [[follows(c)] * ROUNDS for c in clients]
    rows[2][1] = f" 9{clients[4].number}1"
    assert judge(clients, of(rows)).mixed == ()


def test_without_marks_the_answers_tell(clients):
    rows = [[strange(i)] * ROUNDS for i in range(CLIENTS)]
    sound = judge(clients, of(rows))
    assert sound.mixed == () and sound.told_apart
    rows[0][2] = strange(1)
    assert judge(clients, of(rows)).mixed == ("client 1 was told what client 2 is told",)


def test_each_answered_with_the_one_before_in_every_round(clients):
    """Alone too: only the order differs from round to round."""
    rng, rows, last = np.random.default_rng(0), [[] for _ in clients], 0
    for _ in range(ROUNDS):
        for i in rng.permutation(CLIENTS):
            rows[i].append(strange(last))
            last = i
    assert len(judge(clients, of(rows)).mixed) >= CLIENTS - 1


def test_a_common_beginning_is_no_cross_talk(clients):
    rows = [["Sure! Here is the list: " + strange(i)] * ROUNDS for i in range(CLIENTS)]
    rows[0][1] = "Sure! Here is the list, my friend: " + strange(99)
    assert judge(clients, of(rows)).mixed == ()


def test_answers_that_are_all_alike_tell_nobody_apart(clients):
    assert not judge(clients, of([[" x" * 20] * ROUNDS for _ in clients])).told_apart


def test_what_failed_is_no_answer(clients):
    rows = of([[follows(c)] * ROUNDS for c in clients])
    rows[0] = [Answer("", "dropped")] * ROUNDS
    found = judge(clients, rows)
    assert (found.answered, found.asked) == (ROUNDS * (CLIENTS - 1), ROUNDS * CLIENTS)
    assert found.mixed == ()
