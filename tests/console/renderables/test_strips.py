"""Curves over the same hours, as plain functions."""

from console.renderables import format as fmt
from console.renderables.lines import plain
from console.renderables.strips import LEAD, Axis, Band, Strip, strips


def drawn(bands, hours=None, width=LEAD + 24, rows=2, limit=None, marked=(), chosen=0):
    labels = [f"{i:02}:00" for i in range(hours or len(bands))]
    strip = Strip("load", bands, fmt.count, limit, "limit")
    lines = strips([strip], labels, marked or [False] * len(labels), chosen, width, rows)
    return lines, [plain(line)[LEAD:] for line in lines]


def test_a_value_is_a_column_and_a_missing_one_a_gap():
    _, ink = drawn([Band(8), Band(None), Band(16)], width=LEAD + 3, chosen=2)
    assert ink[0] == "  █" and ink[1] == "█ █"


def test_an_interval_is_a_shade_on_both_sides_of_its_value():
    _, ink = drawn([Band(4, 2, 8)], width=LEAD + 1, rows=4)
    assert [row[0] for row in ink[:4]] == ["░", "░", "▒", "█"]


def test_what_is_above_its_limit_is_trouble_and_the_limit_a_line():
    lines, ink = drawn([Band(1), Band(1), Band(9)], width=LEAD + 3, rows=3, limit=5)
    assert ink[1] == "╌╌█"
    roles = {span.role for line in lines[:3] for span in line if "█" in span.text}
    assert "trouble" in roles and "spark" in {s.role for s in lines[2]}


def test_a_curve_far_above_its_limit_is_cut_off_and_says_so():
    lines, _ = drawn([Band(1), Band(500)], rows=2, limit=5)
    assert "> 15│" in plain(lines[0])
    assert "> " not in plain(drawn([Band(1), Band(12)], rows=2, limit=5)[0][0])


def test_a_limit_that_is_never_near_is_named_and_squeezes_nothing():
    lines, ink = drawn([Band(1), Band(2)], rows=2, limit=500)
    assert "2│" in plain(lines[0]) and "limit" in plain(lines[0]) + plain(lines[1])
    assert "╌" not in "".join(ink)


def test_hours_that_are_marked_have_a_row_of_their_own():
    lines, ink = drawn([Band(1), Band(2)], width=LEAD + 2, marked=[False, True])
    assert plain(lines[2]).startswith("saturated") and ink[2] == " ▲"
    assert len(drawn([Band(1), Band(2)])[0]) == 4


def test_the_chosen_hour_stands_out_on_the_axis():
    _, ink = drawn([Band(1)] * 3, width=LEAD + 3, chosen=1)
    assert ink[2] == "─━─"


def test_a_week_in_a_narrow_window_keeps_its_highest_hours():
    bands = [Band(100 if i == 77 else 1) for i in range(168)]
    axis = Axis(168, 56)
    assert (axis.each, axis.columns, axis.cell) == (3, 56, 1)
    _, ink = drawn(bands, width=LEAD + 56, rows=2, chosen=0)
    assert ink[0].index("█") == 77 // 3 and len(ink[1]) == 56


def test_nothing_known_is_drawn_without_a_fault():
    _, ink = drawn([Band(None)] * 4, limit=3)
    assert set("".join(ink[:2])) <= {" ", "┊"}
