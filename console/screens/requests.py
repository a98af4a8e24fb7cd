"""Requests: all that run or wait as a table, and one of them on a page of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from console import actions
from console.locale.lang import _
from console.panels.listpane import ListPane
from console.renderables.lines import Line, Span, text_line
from console.renderables.request import request_page
from console.renderables.requests import COLUMNS, RequestColumn, in_order, request_head, request_row
from console.renderables.screen_state import ScreenState
from console.screens.lists import ListScreen, PageScreen
from engine.snapshot import RequestRow

NONE = "no request runs or waits"
NOT_TOLD = "single requests are not told by the engine that is watched, or none runs or waits"


class RequestsScreen(ListScreen[RequestRow]):
    PLACE = actions.REQUESTS
    TITLE_TEXT = "Requests"
    EMPTY = NONE

    def __init__(self) -> None:
        super().__init__()
        self._by: RequestColumn | None = None
        self._reverse = False

    def make_pane(self) -> ListPane[RequestRow]:
        return ListPane(lambda r: r.id, request_row, self._head, "screen.open_row")

    def _head(self, width: int) -> Line:
        return request_head(width, self._by, self._reverse)

    def items(self) -> Sequence[RequestRow]:
        return in_order(self._state.snapshot.requests, self._by, self._reverse)

    def words_of(self, item: RequestRow) -> str:
        return f"{item.id} {item.state} {item.source or ''}"

    def show_body(self, state: ScreenState) -> None:
        self.EMPTY = NOT_TOLD if state.watched else NONE
        super().show_body(state)

    def title_line(self) -> Line:
        s = self._state.snapshot
        title: Line = (Span("Requests", "title"),)
        there, shown = (s.batch.running or 0) + (s.queue.waiting or 0), len(s.requests)
        if shown < there:
            title = (*title, Span(f"  the first {shown} of {there:,}", "faint"))
        if self._by is not None:
            title = (*title, Span(f"  by {self._by.title}", "faint"))
        return title

    def action_sort_rows(self) -> None:
        """Through the columns, and then the engine's own order again."""
        order = (None, *COLUMNS)
        self._by = order[(order.index(self._by) + 1) % len(order)]
        self.show_body(self._state)

    def action_reverse_rows(self) -> None:
        self._reverse = not self._reverse
        self.show_body(self._state)

    def action_open_row(self) -> None:
        if self.pane.choice is not None:
            self.app.push_screen(RequestScreen(self.pane.choice))

    def action_cancel_request(self) -> None:
        if self.pane.choice is not None:
            self.console_app.cancel_request(self.pane.choice.id)


class RequestScreen(PageScreen):
    PLACE = actions.REQUEST

    def __init__(self, row: RequestRow) -> None:
        super().__init__()
        self.row = row
        self._gone = False

    def show_body(self, state: ScreenState) -> None:
        now = next((r for r in state.snapshot.requests if r.id == self.row.id), None)
        self._gone = now is None
        self.row = now or replace(self.row, state="ended")
        super().show_body(state)

    def page(self, state: ScreenState, width: int) -> tuple[Line, Sequence[Line]]:
        title: Line = (Span(f"Request {self.row.id}", "title"),)
        if width <= 0:
            return title, [text_line("")]
        usual = state.snapshot.latency.ttft_ms.p50
        return title, request_page(self.row, usual, self._gone, width)

    def action_cancel_request(self) -> None:
        self.console_app.cancel_request(self.row.id)

    def copied(self) -> str:
        return _(f"Request {self.row.id}") + f"\n{self.pane.text}"
