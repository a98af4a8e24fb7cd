import itertools

import pytest

from playbooks.quality.passkey import (
    DEPTHS,
    LENGTHS,
    QUESTION,
    TASK,
    cell,
    filler,
    grid,
    sentences,
)


def words(text):
    return len(text.split())


def test_the_full_grid_has_twenty_cells_of_their_own():
    cells = grid(words, 10_000)
    assert [(c.length, c.depth) for c in cells] == list(itertools.product(LENGTHS, DEPTHS))
    assert len({c.key for c in cells}) == len(cells)
    assert len(grid(words, 10_000, quick=True)) == 6


def test_lengths_beyond_the_context_are_left_out():
    assert {c.length for c in grid(words, 600)} == {256, 512}
    assert grid(words, 100) == []


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("depth", DEPTHS)
def test_the_passkey_stands_where_it_should(length, depth):
    made = cell(words, length, depth, seed=3)
    assert made.prompt.count(made.key) == 1
    assert length - 40 <= words(made.prompt) <= length
    assert made.prompt.startswith(TASK) and made.prompt.endswith(QUESTION)
    before = words(made.prompt[: made.prompt.index(made.key)]) / words(made.prompt)
    assert before == pytest.approx(depth, abs=0.12)


def test_an_answer_counts_if_it_has_the_key():
    made = cell(words, 256, 0.5, seed=1)
    assert made.found_in(f"It is {made.key}.")
    assert not made.found_in("It is 1.")


def test_filler_is_seeded_and_does_not_repeat():
    lines = filler(words, 400, seed=5)
    assert lines == filler(words, 400, seed=5) != filler(words, 400, seed=6)
    assert len(set(lines)) == len(lines)
    assert all("{" not in line for line in itertools.islice(sentences(0), 500))
