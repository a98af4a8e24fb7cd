"""Curves and bars as lines of text."""

import pytest

from console.renderables.plot import DOTS, MARK, SHADES, curve, stacked

DOT = DOTS[0]


def whole(value):
    return f"{value:.0f}"


def dots(lines):
    return [(row, line.index(DOT)) for row, line in enumerate(lines) if DOT in line]


def test_a_curve_puts_every_point_where_it_belongs():
    labels = [(0, "1"), (1 / 3, "2"), (2 / 3, "4"), (1, "8")]
    lines = curve([0, 1 / 3, 2 / 3, 1], [[0.0, 100.0, 50.0, 100.0]], 40, 5, whole, labels)
    assert len(lines) == 5 + 2
    assert lines[0].startswith("100 │")
    assert lines[2].startswith(" 50 │")
    assert lines[4].startswith("  0 │")
    assert [line.count(DOT) for line in lines[:5]] == [2, 0, 1, 0, 1]
    assert lines[6].split() == ["1", "2", "4", "8"]
    assert all(len(line) <= 40 + 8 for line in lines)


def test_equal_steps_are_equally_far_apart():
    lines = curve([0, 0.5, 1], [[1.0, 2.0, 3.0]], 60, 7, whole, [])
    columns = sorted(column for _, column in dots(lines))
    assert columns[1] - columns[0] == pytest.approx(columns[2] - columns[1], abs=1)


def test_gaps_marks_and_single_points():
    lines = curve([0, 0.5, 1], [[1.0, None, 4.0]], 30, 4, whole, [], marks=[0.5])
    assert sum(line.count(DOT) for line in lines) == 2
    assert sum(line.count(MARK) for line in lines) >= 3
    assert curve([0, 1], [[None, None]], 30, 4, whole, []) == []
    assert sum(line.count(DOT) for line in curve([0], [[5.0]], 30, 4, whole, [])) == 1
    assert sum(line.count(DOT) for line in curve([0, 1], [[0.0, 0.0]], 30, 4, whole, [])) == 2


def test_several_curves_have_dots_of_their_own_and_one_scale():
    lines = curve([0, 1], [[100.0, 100.0], [0.0, 50.0]], 40, 5, whole, [])
    assert [line.count(DOTS[0]) for line in lines[:5]] == [2, 0, 0, 0, 0]
    assert [line.count(DOTS[1]) for line in lines[:5]] == [0, 0, 1, 0, 1]


def test_a_stacked_bar_is_as_wide_as_asked_and_names_what_can_be_seen():
    lines = stacked([("queue", 0.25), ("decode", 0.748), ("return", 0.002)], 40)
    assert len(lines[0]) == 40
    assert lines[0].count(SHADES[0]) == 10
    legend = "\n".join(lines[1:])
    assert "queue 25%" in legend and "decode 75%" in legend
    assert "return" not in legend
    assert all(len(line) <= 40 for line in stacked([(f"part {i}", 0.1) for i in range(10)], 40))
