"""A widget that is a list of lines, and repaints only the lines that changed.

The console shares a machine with the engine: every millisecond spent drawing is taken from it.
So lines are compared before they become strips, strips are kept and handed to the compositor
whole (no border or padding of Textual's, which would render every line again), and nothing here
parses markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from console.renderables.format import clean
from console.renderables.lines import BLANK, ROLES, Line, localized, plain


class LineView(Widget):
    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"role--{role}" for role in ROLES}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}
        self._styles: dict[tuple[str, str], Style] = {}
        self._styled_by: tuple[object, frozenset[str]] = (None, frozenset())
        """The rules and the classes that the roles' styles come from."""
        self._drawn_size = (0, 0)

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Show `lines` from the top; what is below the widget's height is not drawn."""
        old, new = self._lines, list(map(localized, lines))
        self._lines = new
        size = max(len(old), len(new))
        self.repaint([y for y in range(size) if _at(old, y) != _at(new, y)])

    def fill(self, lines: Sequence[Line]) -> None:
        """Be as high as `lines`, and show them."""
        self.styles.height = len(lines)
        self.call_after_refresh(self.set_lines, lines)

    def repaint(self, rows: list[int]) -> None:
        """Draw these rows of the widget again."""
        width, height = self.size
        for y in rows:
            self._strips.pop(y, None)
        regions = [Region(0, y, width, 1) for y in rows if y < height]
        if regions:
            self.refresh(*regions)

    @property
    def text(self) -> str:
        """What is shown, as plain text."""
        return "\n".join(clean(plain(line)).rstrip() for line in self._lines)

    def render_lines(self, crop: Region) -> list[Strip]:
        width, height = self.size
        if (width, height) != self._drawn_size:
            self._drawn_size = (width, height)
            self._strips.clear()
        kept, strips = self._strips, []
        for y in range(crop.y, crop.bottom):
            strip = kept.get(y)
            if strip is None:
                strip = kept[y] = self._strip(self.line_at(y, width, height), width)
            strips.append(strip)
        if crop.width == width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def line_at(self, y: int, width: int, height: int) -> Line:
        """What row `y` of the widget shows; asked for again only after it changed."""
        return _at(self._lines, y)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if not self._is_styled:
            self._styles.clear()
            self._strips.clear()

    @property
    def _is_styled(self) -> bool:
        """Roles look by the style sheet and the widget's own classes, not by those around it."""
        rules, classes = self._styled_by
        return rules is self.app.stylesheet.rules and classes == self.classes

    def _get_component_classes(self) -> frozenset[str]:  # type: ignore[override]
        """Those whose styles are to be worked out again. Textual asks for all of them whenever a
        class of the screen changes: half of what a key to a panel would cost."""
        if self._is_styled:
            return frozenset()
        self._styled_by = (self.app.stylesheet.rules, self.classes)
        return super()._get_component_classes()

    def _strip(self, line: Line, width: int) -> Strip:
        segments = [Segment(clean(text), self._style(role, link)) for text, role, link in line]
        return Strip(segments).adjust_cell_length(width, self._style("text", ""))

    def _style(self, role: str, link: str) -> Style:
        style = self._styles.get((role, link))
        if style is None:
            style = self._filtered(self.get_component_rich_style(f"role--{role}"))
            if link:
                style += Style(meta={"@click": link})
            self._styles[role, link] = style
        return style

    def _filtered(self, style: Style) -> Style:
        """As the terminal can show it (NO_COLOR, say): once a style, not once a line."""
        strip = Strip([Segment("x", style)])
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        return next(iter(strip)).style or style


def _at(lines: list[Line], y: int) -> Line:
    return lines[y] if y < len(lines) else BLANK
