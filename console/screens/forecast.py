"""Forecast: the coming days as curves, the words first, and what could be, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.widget import Widget

from console import actions
from console.control.forecast_view import ForecastView, HourView
from console.control.forecasts import FORECAST, HOUR
from console.panels.listpane import ListPane, PagePane
from console.renderables import forecast as drawn
from console.renderables.lines import ALARM, Line, Span
from console.renderables.pages import words
from console.screens.dialogs import FormField, FormScreen, ask, ask_first
from console.screens.files import ask_file, is_file
from console.screens.forecast_question import MeasureQuestion, question, step_of, texts_of
from console.screens.lists import ListScreen
from console.screens.run import RunScreen
from engine.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from console.control.forecast_maker import NotMeasured
    from playbooks.steps.forecast import ForecastStep

FORMATS = ("md", "html", "csv", "json")  # not shown
Shape = tuple[int, int, int, int, bool, int]


class ForecastScreen(ListScreen[HourView]):
    PLACE = actions.FORECAST
    TITLE_TEXT = "Forecast"
    EMPTY = ""

    def __init__(self) -> None:
        super().__init__()
        self.curves = PagePane(id="curves")
        self._place = 0
        """Of the scenario whose hours are shown."""
        self._compares = False
        """The what-ifs are shown in the curves' place."""
        self._drawn: tuple[ForecastView | None, Shape, Sequence[Line]] | None = None

    def make_pane(self) -> ListPane[HourView]:
        return ListPane(
            lambda hour: str(hour.at),
            drawn.hour_row,
            drawn.hour_head,
            "screen.replay_hour",
            on_choice=self._draw_curves,
        )

    def body(self) -> Iterable[Widget]:
        yield self.curves
        yield from super().body()

    def on_screen_resume(self) -> None:
        """After a playbook, too, that was watched from here."""
        self.console_app.forecasts.read()

    @property
    def view(self) -> ForecastView | None:
        return self.console_app.forecasts.view

    def items(self) -> Sequence[HourView]:
        if self.view is None:
            return ()
        self._place = min(self._place, len(self.view.scenarios) - 1)
        return self.view.scenarios[self._place].hours

    def words_of(self, item: HourView) -> str:
        return f"{item.label} {item.words}"

    def title_line(self) -> Line:
        return (Span("Hours", "title"), *self._at_work) if self.view is not None else ()

    @property
    def _at_work(self) -> Line:
        words = self.console_app.forecasts.at_work
        return (Span(f"  {words}", "operator"),) if words else ()

    def show_detail(self) -> None:
        self._draw_curves()

    def _draw_curves(self) -> None:
        """Once for what it depends on: a tick brings nothing new."""
        width, height = self.curves.room
        if width <= 0 or height <= 0:
            return
        state = self.console_app.forecasts
        if self.view is None:
            text = "reading the newest forecast …" if state.is_reading else state.error
            lines = words(f"{ALARM} {text}", width, role="trouble") if state.error else []
            self.curves.show(
                (Span("Forecast", "title"), *self._at_work), [*lines, *drawn.how_to(width)]
            )
            return
        choice = self.pane.choice
        hours = self.view.scenarios[self._place].hours
        chosen = next((i for i, h in enumerate(hours) if choice and h.at == choice.at), 0)
        shape = (width, height, self._place, chosen, self._compares, len(hours))
        if self._drawn is None or self._drawn[0] is not self.view or self._drawn[1] != shape:
            lines = (
                drawn.what_ifs(self.view, width)
                if self._compares
                else drawn.curves(self.view, self._place, chosen, width, height)
            )
            self._drawn = (self.view, shape, lines)
        self.curves.show((*drawn.title(self.view, self._place),), self._drawn[2])

    def on_unmount(self) -> None:
        self.console_app.forecasts.stop(HOUR)

    # actions

    def action_replay_hour(self) -> None:
        choice, app = self.pane.choice, self.console_app
        if choice is None:
            return
        if app.runs.current is not None:
            text = f"{app.runs.current.playbook.name} runs; wait for its end"
            self.notify(text, severity="warning", timeout=3)
            return
        app.forecasts.replay(self._place, choice)
        self.show_body(self._state)

    def action_move_page(self, pages: int) -> None:
        """Of the what-ifs, where they are more than fit; else of the hours."""
        pane = self.curves if self._compares else self.pane
        pane.move(pages * pane.page)

    def action_compare_what_ifs(self) -> None:
        self._compares = not self._compares
        self._draw_curves()

    def action_next_scenario(self) -> None:
        if self.view is None or len(self.view.scenarios) < 2:
            self.notify("this forecast has no what-if", severity="warning", timeout=3)
            return
        self._place = (self._place + 1) % len(self.view.scenarios)
        self.show_body(self._state)

    def action_new_forecast(self) -> None:
        forecasts = self.console_app.forecasts
        if forecasts.makes(FORECAST):
            self.notify("a forecast is being made; x cancels it", severity="warning", timeout=3)
            return
        shown = texts_of(self.view.report) if self.view is not None else {}
        self._ask(forecasts.asked or shown)

    def _ask(self, texts: Mapping[str, str], wrong: str = "") -> None:
        ask(self.app, question(texts, wrong), self._asked)

    def _asked(self, texts: dict[str, str]) -> None:
        app = self.console_app
        app.forecasts.asked = texts

        def failed(why: EngineError) -> None:
            """The question is asked again, unless the operator is somewhere else."""
            from console.control.forecast_maker import NotMeasured

            if not isinstance(app.screen, ForecastScreen):
                app.notify(f"forecast: {why}", severity="error")
            elif isinstance(why, NotMeasured) and app.screen._is_free():
                app.screen._measure_first(step_of(texts), why)
            else:
                app.screen._ask(texts, str(why))

        try:
            app.forecasts.make(step_of(texts), failed)
        except ConfigError as error:
            failed(error)
        self.show_body(self._state)

    def _is_free(self) -> bool:
        """The engine, to be measured: no playbook runs, and nobody but our own load uses it."""
        app = self.console_app
        users = {row.source for row in app.bridge.poll().requests}
        return app.runs.current is None and users <= {"load"}

    def _measure_first(self, step: ForecastStep, why: NotMeasured) -> None:
        from console.control.forecast_maker import measured_first

        app, book = self.console_app, measured_first(step)

        def run() -> None:
            app.push_screen(RunScreen(app.runs.start(book, app.runs.terms)))

        ask_first(app, MeasureQuestion(str(why)), run)

    def action_cancel_forecast(self) -> None:
        forecasts = self.console_app.forecasts
        made = [kind for kind in (FORECAST, HOUR) if forecasts.makes(kind)]
        for kind in made:
            forecasts.stop(kind)
        text = "cancelled; n has what was asked" if made else "nothing is being made"
        self.notify(text, timeout=3)
        self.show_body(self._state)

    def action_open_forecast(self) -> None:
        def entered(texts: dict[str, str]) -> None:
            self.console_app.forecasts.open(Path(texts["file"]).expanduser())

        entry = FormField("file", "file", hint="report.json of `forecast run`", check=is_file)
        ask(self.app, FormScreen("Open a forecast", [entry]), entered)

    def action_export_shown(self) -> None:
        view = self.view
        if view is None:
            self.notify("there is no forecast", severity="warning", timeout=3)
            return

        def made(path: Path, fmt: str) -> str:
            from playbooks.reports.formats import WRITERS

            return str(WRITERS[f".{fmt}"](view.report))

        ask_file(self.console_app, "Export the forecast", "forecast.md", FORMATS, made)

    def copied(self) -> str:
        return f"{self.curves.text}\n\n{self.pane.text}"
