"""Panel: one framed part of the overview."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from console.locale.lang import _
from console.panels.lineview import LineView
from console.panels.specs import PanelSpec
from console.renderables.header import suffix
from console.renderables.lines import Line, Span, boxed, ruled
from console.renderables.screen_state import ScreenState

WIDE = (116, 34)
"""Columns and rows of a window from which on panels have a box around them; in a smaller one
there is a rule above them."""
WHEEL = 3
"""Rows of a turn of the mouse's wheel."""
_RAISED = str.maketrans("123456789", "¹²³⁴⁵⁶⁷⁸⁹")


class Framed(LineView):
    """Lines under a title, in a box or under a rule, by the size of the window."""

    @property
    def is_boxed(self) -> bool:
        width, height = self.app.size
        return width >= WIDE[0] and height >= WIDE[1]

    @property
    def room(self) -> tuple[int, int]:
        """Width and height inside the frame."""
        width, height = self.size
        return (width - 4, height - 2) if self.is_boxed else (width - 2, height - 1)

    def set_body(self, title: Line, body: Sequence[Line]) -> None:
        self.set_lines([title, *body])

    def line_at(self, y: int, width: int, height: int) -> Line:
        draw = boxed if self.is_boxed else ruled
        return draw(super().line_at(y, width, height), y, width, height)

    @property
    def text(self) -> str:
        """Without the frame and the title."""
        return super().text.partition("\n")[2]


class Scrolled(Framed):
    """A pane of more lines than fit: it is drawn anew for its size, and moves with the wheel."""

    @property
    def page(self) -> int:
        """Rows of a page."""
        return max(1, self.room[1] - 1)

    def move(self, rows: int) -> None:
        raise NotImplementedError

    def redraw(self) -> None:
        raise NotImplementedError

    def on_resize(self, event: events.Resize) -> None:
        self.redraw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.move(-WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.move(WHEEL)


class Panel(Framed):
    """`show` a ScreenState; the spec's renderable decides what the lines are."""

    def __init__(self, spec: PanelSpec) -> None:
        super().__init__(id=spec.id)
        self.spec = spec
        self._state: ScreenState | None = None
        self._drawn: tuple[int, int, bool] | None = None
        """Width, height and kind of the last drawing; None when the state is not drawn yet."""

    @property
    def maximised(self) -> bool:
        return self.has_class("-maximised")

    def show(self, state: ScreenState) -> None:
        """A panel that comes into sight hears of it from its size and from the screen; the same
        state is drawn once."""
        if state is not self._state:
            self._state, self._drawn = state, None
        self.set_class(not state.trusted, "-old")
        width, height = self.room
        drawn = (width, height, self.maximised)
        if self.display and width > 0 and height > 0 and drawn != self._drawn:
            self._drawn = drawn
            draw = self.spec.view.detail if self.maximised else self.spec.view.overview
            self.set_body(self._title(state), draw(state, width, height))

    def _title(self, state: ScreenState) -> Line:
        name = Span(f"{self.spec.key.translate(_RAISED)} {_(self.spec.title)}", "title")
        note = suffix(state, self.spec.reported(state.snapshot))
        return (name, Span(note, "faint" if state.trusted else "trouble")) if note else (name,)

    def on_resize(self, event: events.Resize) -> None:
        if self._state is not None:
            self.show(self._state)

    async def _on_click(self, event: events.Click) -> None:
        if event.chain == 2:
            await self.run_action(f"screen.maximise_panel('{self.spec.id}')")
