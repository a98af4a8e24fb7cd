import random

from hypothesis import given
from hypothesis import strategies as st

from console.renderables.lines import plain, width_of
from console.renderables.pagemap import merge, page_map

PAGES = st.text("socf", min_size=1, max_size=400)


def test_one_glyph_a_page():
    drawn = page_map("ssocf", 5, 1)
    assert [plain(line) for line in drawn.lines] == ["■■▣▒·"]
    assert drawn.pages_per_cell == 1


def test_few_pages_get_room_to_breathe():
    assert [plain(line) for line in page_map("soc", 20, 1).lines] == ["■ ▣ ▒ "]


def test_lines_break_at_multiples_of_eight():
    lines = page_map("s" * 120, 61, 3).lines
    assert [width_of(line) for line in lines] == [56, 56, 8]


def test_several_pages_a_cell_by_majority():
    drawn = page_map("ssfffo" * 4, 8, 1)
    assert drawn.pages_per_cell == 3
    assert plain(drawn.lines[0]) == "■·■·■·■·"


def test_a_tie_goes_to_the_more_used_state():
    assert merge("sf" + "fo" + "cf" + "oc", 2) == "soco"


def test_an_unknown_state_is_shown_as_such():
    assert plain(page_map("sx", 2, 1).lines[0]) == "■?"


def test_no_room_no_map():
    assert page_map("sss", 10, 0).lines == []
    assert page_map("", 10, 5).lines == []


@given(PAGES, st.integers(1, 80), st.integers(1, 6))
def test_the_map_fits_and_stands_for_every_page(pages, width, rows):
    drawn = page_map(pages, width, rows)
    cells = sum(len(plain(line).replace(" ", "")) for line in drawn.lines)
    assert len(drawn.lines) <= rows
    assert all(width_of(line) <= width for line in drawn.lines)
    assert cells == -(-len(pages) // drawn.pages_per_cell)


def test_large_pools_are_quick_enough_to_draw_twice_a_second():
    pages = "".join(random.Random(0).choices("socf", k=100_000))
    assert page_map(pages, 112, 8).pages_per_cell == 112
