"""What all screens share: the lines around, the keys of their place, copying, going back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from console.actions import Scope, bindings
from console.control.surface import ConsoleSurface
from console.locale.lang import _
from console.panels.bars import BannerLine, FooterLine, HeaderLine
from console.renderables.screen_state import ScreenState

SMALLEST = (62, 20)


class BaseScreen(Screen[None]):
    """A screen with a place in the registry, whose keys it has."""

    AUTO_FOCUS = ""
    PLACE: ClassVar[str]
    INPUT_PLACE: ClassVar[str] = ""
    """Where the keyboard is in its line of input."""

    def __init_subclass__(cls, **options: bool) -> None:
        if "PLACE" in cls.__dict__:
            cls.BINDINGS = [*bindings(cls.PLACE, cls.INPUT_PLACE)]
        super().__init_subclass__(**options)

    def __init__(self) -> None:
        super().__init__()
        self._state = ScreenState()
        # Made here and kept: a look-up in the DOM at every tick would cost more than a panel.
        self.header = HeaderLine(id="header")
        self.banner = BannerLine(id="banner")
        self.footer = FooterLine(id="footer")

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.banner
        yield from self.body()
        yield self.footer
        yield Static(
            _(f"This window is too small: at least {SMALLEST[0]}×{SMALLEST[1]}"), id="small"
        )

    def body(self) -> Iterable[Widget]:
        """What is between banner and footer."""
        raise NotImplementedError

    @property
    def console_app(self) -> ConsoleSurface:
        return cast(ConsoleSurface, self.app)

    @property
    def where(self) -> str:
        return self.PLACE

    @property
    def scope(self) -> Scope:
        return self.console_app.scope(self.where)

    # drawing

    def show(self, state: ScreenState) -> None:
        """Draw all; `show_header` alone is for a display that is held still."""
        self._state = state
        self.show_header(state)
        self.show_body(state)

    def show_header(self, state: ScreenState) -> None:
        self.header.show(state)
        self.banner.show(state)

    def show_body(self, state: ScreenState) -> None:
        raise NotImplementedError

    def show_footer(self) -> None:
        self.footer.show(self.scope)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.redraw)

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self.redraw)

    def redraw(self) -> None:
        """All of it, from the state that the display stands at."""
        if self.is_attached:
            self.show_footer()
            self.show(self.console_app.shown)

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _keyboard_moved(self) -> None:
        self.call_after_refresh(self.show_footer)

    # actions

    def action_leave(self) -> None:
        self.dismiss()

    def copied(self) -> str:
        """What a copy of what is shown says."""
        raise NotImplementedError

    def action_copy_text(self) -> None:
        text = self.copied()
        self.app.copy_to_clipboard(text)
        self.notify(f"copied: {len(text.splitlines())} lines", timeout=2)
