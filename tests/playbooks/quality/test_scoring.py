"""Which positions of a text are scored."""

import pytest

from playbooks.quality.scoring import SCORED_MOST, Text, apart, common


def text(*tokens, shared=0):
    return Text("t", "own", list(tokens), shared)


@pytest.mark.parametrize(
    ("a", "b", "count"),
    [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2], 2), ([1, 2], [1, 3], 1)],
)
def test_what_two_texts_begin_with(a, b, count):
    assert common(a, b) == common(b, a) == count


def test_a_beginning_that_several_texts_share_is_scored_in_the_first_of_them():
    """The head of a chat is in every case: a near-tie in it must not count for all of them."""
    texts = apart([text(1, 2, 3, 4, 5), text(1, 2, 9, 9), text(7, 2, 3), text(1, 2, 9, 8, 8)])
    assert [one.shared for one in texts] == [0, 2, 0, 3]
    scored = [
        tuple(one.tokens[: i + 1]) for one in texts for i in range(one.first, len(one.tokens) - 1)
    ]
    assert len(scored) == len(set(scored))
    distinct = {tuple(t.tokens[: i + 1]) for t in texts for i in range(len(t.tokens) - 1)}
    assert set(scored) == distinct


def test_every_text_has_a_position_and_long_ones_not_all():
    assert text(1, 2, 3, shared=3).first == 1
    assert text(1, 2).first == 0
    long = text(*range(SCORED_MOST + 100))
    assert len(long.tokens) - 1 - long.first == SCORED_MOST
    assert len(long.following) == SCORED_MOST
