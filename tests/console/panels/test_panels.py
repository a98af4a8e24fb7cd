"""Each panel, mounted alone in a small app, in every state."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.cells import cell_len
from textual.app import App
from textual.geometry import Region

from console.panels.lineview import LineView
from console.panels.panel import Panel
from console.panels.specs import PANELS
from console.renderables.lines import Span, text_line
from console.themes import INKS
from repository import ROOT

STATES = ["empty", "idle", "typical", "full", "preempting", "stale", "dead", "broken"]
MARKS = {
    "empty": "no data",
    "stale": " s old",
    "dead": " s old",
}


class OnePanel(App):
    CSS_PATH = ROOT / "console" / "theme.tcss"

    def __init__(self, spec):
        super().__init__()
        self.panel = Panel(spec)

    def get_theme_variable_defaults(self):
        return INKS

    def compose(self):
        yield self.panel


def rows(widget):
    width, height = widget.size
    return [strip.text for strip in widget.render_lines(Region(0, 0, width, height))]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("spec", PANELS, ids=lambda spec: spec.id)
async def test_draws_every_state(spec, size, shown_of):
    app = OnePanel(spec)
    async with app.run_test(size=size) as pilot:
        for state in STATES:
            app.panel.show(shown_of(state))
            await pilot.pause()
            drawn = rows(app.panel)
            assert len(drawn) == size[1], state
            assert all(cell_len(row) == size[0] for row in drawn), state
            assert all(row.isprintable() for row in drawn), state
            assert spec.title in drawn[0], state
            if spec.id != "events" or state != "empty":
                assert MARKS.get(state, "") in drawn[0], state
            assert any(row.strip(" │─╭╮╰╯") for row in drawn[1:]), state


async def test_a_frame_is_drawn_once_and_again_when_the_room_changes(shown_of):
    drawn = []

    def draw(frame, width, height):
        drawn.append((frame, width, height))
        return []

    app = OnePanel(replace(PANELS[0], view=SimpleNamespace(overview=draw, detail=draw)))
    first = shown_of("typical")
    second = replace(first)
    async with app.run_test(size=(80, 24)) as pilot:
        app.panel.show(first)
        app.panel.show(first)
        assert [frame for frame, *_ in drawn] == [first]
        app.panel.display = False
        app.panel.show(second)
        assert len(drawn) == 1
        app.panel.display = True
        app.panel.show(second)
        assert drawn[-1][0] is second
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
    assert drawn[-1][1:] == (98, 29)


async def test_old_numbers_are_dimmed_and_come_back(shown_of):
    app = OnePanel(PANELS[0])
    async with app.run_test(size=(80, 24)) as pilot:
        app.panel.show(shown_of("dead"))
        await pilot.pause()
        dim = style_after(app.panel, "requests")
        app.panel.show(shown_of("typical"))
        await pilot.pause()
        bright = style_after(app.panel, "requests")
    assert dim.color != bright.color
    assert bright.bold and not dim.bold


async def test_roles_are_styled_anew_when_their_look_changes_and_only_then(shown_of):
    app = OnePanel(PANELS[0])
    async with app.run_test(size=(80, 24)) as pilot:
        app.panel.show(shown_of("typical"))
        await pilot.pause()
        whole = Region(0, 0, 80, 24)
        styles = app.panel._component_styles["role--value"]
        strips = app.panel.render_lines(whole)
        app.screen.add_class("-another")
        await pilot.pause()
        assert app.panel._component_styles["role--value"] is styles
        after = app.panel.render_lines(whole)
        assert all(a is b for a, b in zip(strips, after, strict=True))
        dark = style_after(app.panel, "requests")
        app.theme = "textual-light"
        await pilot.pause()
        assert style_after(app.panel, "requests").color != dark.color


def style_after(widget, text):
    """Style of the segment that follows the one with `text`."""
    width, height = widget.size
    for strip in widget.render_lines(Region(0, 0, width, height)):
        segments = list(strip)
        for at, segment in enumerate(segments):
            if text in segment.text:
                return segments[at + 1].style
    raise AssertionError(f"{text!r} is not shown")


class OneView(App):
    def __init__(self):
        super().__init__()
        self.view = LineView()
        self.view.styles.height = 4

    def compose(self):
        yield self.view


@pytest.fixture
async def view():
    app = OneView()
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        yield app.view


async def test_only_changed_lines_are_painted_again(view, monkeypatch):
    painted = []
    monkeypatch.setattr(view, "refresh", lambda *regions: painted.extend(r.y for r in regions))
    view.set_lines([text_line("a"), text_line("b"), text_line("c")])
    assert painted == [0, 1, 2]
    painted.clear()
    view.set_lines([text_line("a"), text_line("B"), text_line("c")])
    assert painted == [1]
    painted.clear()
    view.set_lines([text_line("a")])
    assert painted == [1, 2]
    painted.clear()
    view.set_lines([text_line("a")])
    assert painted == []


async def test_strips_are_kept_until_their_line_changes(view):
    view.set_lines([text_line("a"), text_line("b")])
    first = view.render_lines(Region(0, 0, 40, 4))
    view.set_lines([text_line("a"), text_line("B")])
    second = view.render_lines(Region(0, 0, 40, 4))
    assert second[0] is first[0]
    assert second[1].text.rstrip() == "B"


async def test_a_part_can_be_asked_for(view):
    view.set_lines([text_line("abcdef"), text_line("ghijkl")])
    assert [strip.text for strip in view.render_lines(Region(2, 1, 3, 1))] == ["ijk"]


async def test_text_that_steers_the_terminal_never_reaches_it(view):
    view.set_lines([(Span("\x1b]0;owned\x07 模型"),)])
    strip = view.render_lines(Region(0, 0, 40, 1))[0]
    assert "\x1b" not in strip.text and "\x07" not in strip.text
    assert strip.cell_length == 40
