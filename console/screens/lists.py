"""The two shapes of a screen beside the overview: a list with a filter, and a page of lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from console import actions
from console.locale.lang import _
from console.panels.listpane import ListPane, PagePane
from console.panels.panel import Scrolled
from console.renderables.lines import Line, Span
from console.renderables.screen_state import ScreenState
from console.screens.base_screen import BaseScreen

T = TypeVar("T")


class PaneScreen(BaseScreen):
    """What moves in the pane."""

    pane: Scrolled

    def action_move_row(self, rows: int) -> None:
        self.pane.move(rows)

    def action_move_page(self, pages: int) -> None:
        self.pane.move(pages * self.pane.page)

    def action_move_end(self, end: int) -> None:
        self.pane.move(end * 10**9)


class ListScreen(PaneScreen, Generic[T]):
    """`items` are all there is; the filter and the pane are the same everywhere."""

    INPUT_PLACE = actions.FILTER
    TITLE_TEXT = ""
    EMPTY = "nothing here"
    HAS_DETAIL = False
    """Under the list there is more of the chosen row: `detail_lines`."""

    def __init__(self) -> None:
        super().__init__()
        self.pane: ListPane[T] = self.make_pane()
        self.detail = PagePane(id="detail")
        self.filter = Input(placeholder=_("words to look for"), compact=True, id="filter")

    def make_pane(self) -> ListPane[T]:
        raise NotImplementedError

    def items(self) -> Sequence[T]:
        raise NotImplementedError

    def words_of(self, item: T) -> str:
        """What the filter looks in."""
        raise NotImplementedError

    def detail_lines(self, item: T, width: int) -> tuple[Line, Sequence[Line]]:
        raise NotImplementedError

    def title_line(self) -> Line:
        return (Span(self.TITLE_TEXT, "title"),)

    def body(self) -> Iterable[Widget]:
        yield self.pane
        if self.HAS_DETAIL:
            yield self.detail
        yield self.filter

    def on_mount(self) -> None:
        self.filter.cursor_blink = False

    @property
    def where(self) -> str:
        return actions.FILTER if self.filter.has_focus else self.PLACE

    def show_body(self, state: ScreenState) -> None:
        items, title, empty = self.items(), self.title_line(), self.EMPTY
        if words := self.filter.value.lower().split():
            texts = ((item, self.words_of(item).lower()) for item in items)
            items = [item for item, text in texts if all(word in text for word in words)]
            title = (*title, Span(f"  with “{' '.join(words)}”", "operator"))
            empty = "no row has these words; escape shows all"
        self.pane.show(title, items, empty)
        self.show_detail()

    def show_detail(self) -> None:
        if self.HAS_DETAIL and self.detail.is_mounted:
            choice, width = self.pane.choice, self.detail.room[0]
            self.detail.show(
                *(self.detail_lines(choice, width) if choice is not None else ((), ()))
            )

    @on(Input.Changed, "#filter")
    def _filter_changed(self) -> None:
        self.show_body(self._state)

    @on(Input.Submitted, "#filter")
    def _filter_kept(self) -> None:
        self.set_focus(None)
        self.set_class(bool(self.filter.value), "-filtering")

    def action_filter_rows(self) -> None:
        self.add_class("-filtering")
        self.set_focus(self.filter)

    def action_leave(self) -> None:
        if self.filter.has_focus or self.filter.value:
            self.set_focus(None)
            self.filter.value = ""
            self.remove_class("-filtering")
        else:
            self.dismiss()

    def copied(self) -> str:
        return f"{_(self.TITLE_TEXT)}\n{self.pane.text}"


class PageScreen(PaneScreen):
    """`page` gives the title and all lines for a width."""

    def __init__(self) -> None:
        super().__init__()
        self.pane: PagePane = PagePane()

    def page(self, state: ScreenState, width: int) -> tuple[Line, Sequence[Line]]:
        raise NotImplementedError

    def body(self) -> Iterable[Widget]:
        yield self.pane

    def show_body(self, state: ScreenState) -> None:
        self.pane.show(*self.page(state, self.pane.room[0]))

    def copied(self) -> str:
        return self.pane.text
