from hypothesis import given
from hypothesis import strategies as st

from console.renderables.lines import (
    Field,
    Span,
    boxed,
    cell,
    fit,
    flow,
    grid,
    pad,
    plain,
    ruled,
    spread,
    text_line,
    width_of,
)

WORDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), max_size=30)
LINES = st.lists(st.builds(Span, WORDS), max_size=5).map(tuple)


@given(LINES, st.integers(0, 60))
def test_fit_never_exceeds(line, width):
    fitted = fit(line, width)
    assert width_of(fitted) <= width
    if width_of(line) <= width:
        assert fitted == line


@given(LINES, st.integers(1, 60))
def test_pad_is_exact(line, width):
    assert width_of(pad(line, width)) == width


@given(LINES, st.integers(10, 60), st.integers(3, 9), st.integers(0, 8))
def test_frames_are_exact(line, width, height, row):
    assert width_of(boxed(line, min(row, height - 1), width, height)) == width
    assert width_of(ruled(line, row, width, height)) <= width


def test_fit_marks_the_cut():
    assert plain(fit(text_line("abcdef"), 4)) == "abc…"
    assert plain(fit(text_line("模型模型"), 4)) == "模 …"


def test_spread_gives_way_at_the_left():
    assert plain(spread(text_line("left"), text_line("right"), 12)) == "left   right"
    assert plain(spread(text_line("left side"), text_line("right"), 11)) == "left… right"
    assert plain(spread(text_line("left"), text_line("right"), 3)) == "ri…"


FIELDS = [Field("waiting", "14"), Field("oldest", "1.8 s"), Field("done", "4.9/s")]


def test_flow_keeps_fields_whole():
    assert [plain(line) for line in flow(FIELDS, 26, 3)] == [
        "waiting 14  oldest 1.8 s",
        "done 4.9/s",
    ]


def test_flow_says_what_did_not_fit():
    assert [plain(line) for line in flow(FIELDS, 26, 1)] == ["waiting 14  oldest 1.8 s …"]


def test_grid_fills_downwards_and_aligns():
    assert [plain(line) for line in grid(FIELDS, 35, columns=2)] == [
        "waiting       14   done       4.9/s",
        "oldest     1.8 s",
    ]


def test_cell_lets_the_name_give_way():
    assert plain(cell(Field("bound by", "token budget"), 16)) == "bo… token budget"


def test_trouble_has_a_sign_as_well_as_a_colour():
    line = Field("used", "97 %", trouble=True).line()
    assert plain(line) == "used ▲ 97 %"
    assert line[1].role == "trouble"


def test_box():
    rows = [
        boxed(line, y, 16, 3) for y, line in enumerate([text_line("Queue"), text_line("14"), ()])
    ]
    assert [plain(row) for row in rows] == [
        "╭─ Queue ──────╮",
        "│ 14           │",
        "╰──────────────╯",
    ]
