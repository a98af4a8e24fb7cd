import pytest

from playbooks.quality.answers import ModelAnswer, broken, divergence, ends_early, form, kept, loops


def answer(ids, text="", stopped=True):
    return ModelAnswer(tuple(ids), text, stopped)


@pytest.mark.parametrize(
    ("a", "b", "at"),
    [
        ([1, 2], [1, 2], None),
        ([1, 2], [1, 3], 1),
        ([1, 2], [1], 1),
        ([1], [1, 2], 1),
        ([9], [8], 0),
    ],
)
def test_where_two_answers_part(a, b, at):
    assert divergence(a, b) == at


def test_what_is_kept_is_the_mean_share_before_that():
    base = [answer([1, 2, 3, 4]), answer([5, 6])]
    assert kept(base, [answer([1, 2, 9, 4]), answer([5, 6])]) == pytest.approx(0.75)
    assert kept([], []) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no no no no", True),
        ("and so on and so on and so on and so on", True),
        ("It is late. and so on and so on and so on and so on", True),
        ("no no no", False),
        ("no no no no, said the cat", False),
        ("", False),
    ],
)
def test_a_loop_is_a_phrase_four_times_at_the_end(text, expected):
    assert loops(text) is expected


def test_only_a_character_in_the_middle_is_broken():
    assert broken(answer([1], "a\ufffdb", stopped=False))
    assert not broken(answer([1], "ab\ufffd", stopped=False))
    assert broken(answer([1], "ab\ufffd", stopped=True))


def test_an_early_end_is_less_than_half_and_of_its_own_accord():
    long = answer(range(10))
    assert ends_early(answer(range(4)), long)
    assert not ends_early(answer(range(5)), long)
    assert not ends_early(answer(range(4), stopped=False), long)


def test_one_more_short_answer_may_be_chance_and_five_are_not():
    base = [answer(range(10)) for _ in range(12)]

    def after(short):
        return form(base, [answer(range(3))] * short + base[short:])

    assert after(0)["early_end_p"] == 1.0
    assert after(1)["early_end_p"] == 0.5
    assert after(5)["early_end_p"] == pytest.approx(1 / 32)
    assert after(5)["early_end_up"] == 5


def test_short_answers_on_both_sides_balance():
    base = [answer(range(10)), answer(range(3))]
    got = form(base, [answer(range(3)), answer(range(10))])
    assert got["early_end_up"] == 0 and got["early_end_p"] > 0.5


def test_form_counts_loops_broken_text_and_length():
    base = [answer(range(10), "fine")] * 10
    worse = [answer(range(12), "la la la la")] * 6 + [answer(range(12), "\ufffd!")] * 4
    got = form(base, worse)
    assert got["length_change"] == pytest.approx(0.2)
    assert got["repetition_up"] == 6 and got["repetition_p"] == pytest.approx(1 / 64)
    assert got["replacement_up"] == 4


def test_a_handful_of_answers_says_nothing_about_length():
    assert form([answer([1])] * 9, [answer([1, 2])] * 9)["length_change"] is None
