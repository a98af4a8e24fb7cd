"""A list with a chosen row, and a page of lines that scrolls. Only what is seen is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from textual import events

from console.panels.panel import Scrolled
from console.renderables.lines import Line, Role, Span, fit, localized, plain, text_line

T = TypeVar("T")
CHOSEN, OTHER = Span("› ", "key"), Span("  ")
_BRIGHT: dict[Role, Role] = {"text": "value", "label": "value", "faint": "text"}
COPIED_WIDTH = 200
"""Cells of a row that is copied."""


def chosen(line: Line) -> Line:
    """A row as it looks while it is chosen: a sign before it, and brighter."""
    return (CHOSEN, *(span._replace(role=_BRIGHT.get(span.role, span.role)) for span in line))


class ListPane(Scrolled, Generic[T]):
    """Rows keep their choice by `key` while they move about.

    `line` draws an item in a width, `head` the line above them; `opens` is the action of a
    double click.
    """

    def __init__(
        self,
        key: Callable[[T], str],
        line: Callable[[T, int], Line],
        head: Callable[[int], Line] | None = None,
        opens: str = "",
        id: str = "list",
        on_choice: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(id=id)
        self._on_choice = on_choice
        self._key, self._line, self._head, self._opens = key, line, head, opens
        self._title: Line = ()
        self._items: Sequence[T] = ()
        self._empty: Line = ()
        self._at = 0
        self._top = 0

    def show(self, title: Line, items: Sequence[T], empty: str = "") -> None:
        before = self.choice
        self._title, self._items, self._empty = title, items, text_line(empty, "faint")
        if before is not None:
            self._find(self._key(before))
        self.redraw()

    def _find(self, name: str) -> None:
        """Choose the row with that key; where it has gone, the place it had stays chosen."""
        if self._at < len(self._items) and self._key(self._items[self._at]) == name:
            return
        for at, item in enumerate(self._items):
            if self._key(item) == name:
                self._at = at
                return

    @property
    def items(self) -> Sequence[T]:
        """All that are shown, the filter applied."""
        return self._items

    @property
    def choice(self) -> T | None:
        return self._items[self._at] if self._at < len(self._items) else None

    def choose(self, at: int) -> None:
        before = self.choice
        self._at = at
        self.redraw()
        if self.choice is not before:
            self._on_choice()

    def move(self, rows: int) -> None:
        self.choose(self._at + rows)

    @property
    def page(self) -> int:
        return max(1, self.room[1] - self._above)

    @property
    def _above(self) -> int:
        return 1 if self._head is not None else 0

    def redraw(self) -> None:
        width, height = self.room
        count = len(self._items)
        self._at = max(0, min(self._at, count - 1))
        if width <= 0 or height <= 0:
            return
        self._top = max(0, min(self._top, count - self.page, self._at))
        self._top = max(self._top, self._at - self.page + 1)
        title = self._title
        if count:
            title = (*title, Span(f"  {self._at + 1:,}/{count:,}", "faint"))
        self.set_body(title, self._body(width) if count else [self._empty])

    def _body(self, width: int) -> list[Line]:
        head = [(OTHER, *fit(self._head(width - 2), width - 2))] if self._head is not None else []
        rows = []
        for at in range(self._top, min(self._top + self.page, len(self._items))):
            line = fit(self._line(self._items[at], width - 2), width - 2)
            rows.append(chosen(line) if at == self._at else (OTHER, *line))
        return [*head, *rows]

    @property
    def text(self) -> str:
        """All rows, seen or not."""
        lines = [self._head(COPIED_WIDTH)] if self._head is not None else []
        lines += [self._line(item, COPIED_WIDTH) for item in self._items]
        return "\n".join(plain(localized(line)).rstrip() for line in lines)

    async def _on_click(self, event: events.Click) -> None:
        row = event.y - 1 - self._above
        if 0 <= row < self.page and self._top + row < len(self._items):
            self.choose(self._top + row)
            if event.chain == 2 and self._opens:
                await self.app.run_action(self._opens)


class PagePane(Scrolled):
    """Lines that may be more than fit; the title says which of them are seen."""

    def __init__(self, id: str = "page") -> None:
        super().__init__(id=id)
        self._title: Line = ()
        self._all: Sequence[Line] = ()
        self._top = 0

    def show(self, title: Line, lines: Sequence[Line]) -> None:
        self._title, self._all = title, lines
        self.redraw()

    def move(self, rows: int) -> None:
        self._top += rows
        self.redraw()

    def redraw(self) -> None:
        width, height = self.room
        if width <= 0 or height <= 0:
            return
        count = len(self._all)
        self._top = max(0, min(self._top, count - height))
        title = self._title
        if count > height:
            last = min(self._top + height, count)
            title = (*title, Span(f"  lines {self._top + 1}-{last} of {count}", "faint"))
        seen = [fit(line, width) for line in self._all[self._top : self._top + height]]
        self.set_body(title, seen)

    @property
    def text(self) -> str:
        return "\n".join(plain(localized(line)).rstrip() for line in self._all)
