"""Live control: what changes the running engine, asked for where it hurts, noted for the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from console.control.pending_changes import Changes, LiveChange
from console.screens.dialogs import ConfirmScreen, Entry, FormScreen, number, paragraph
from engine.errors import EngineError

if TYPE_CHECKING:
    from console.app import Console

BIG_STEP = 0.25
"""A cap moved by more than this share asks first."""
LEAST_BIG_STEP = 4
MAX_WAIT_LIMIT_MS = 600_000.0


class LiveControls:
    """The `action_…` methods of the app that work on the engine. They run in the UI's thread."""

    changes: Changes

    @property
    def _console(self) -> Console:
        return self  # type: ignore[return-value]

    def _apply(self, do: Callable[[], None], setting: str, before: object, after: object) -> None:
        """Change something and offer it for the log; what the engine refuses is said."""
        app = self._console
        try:
            do()
        except EngineError as error:
            app.notify(str(error), severity="error")
            return
        change = self.changes.note(setting, before, after, app.clock())
        app.clear_notifications()
        if change is not None:
            app.notify(f"{change.title} · L writes it into the log", timeout=4)
        app.draw(app.bridge.poll())

    # the cap

    def action_change_cap(self, step: int) -> None:
        cap = self._console.bridge.cap
        if cap is None:
            self._console.notify("this engine reports no cap", severity="warning")
        else:
            self._set_cap(max(1, min(self._console.bridge.highest_cap, cap + step)))

    def _set_cap(self, cap: int) -> None:
        bridge = self._console.bridge
        before, dynamic = bridge.cap, bridge.poll().batch.dynamic
        if dynamic:
            self.changes.note("dynamic", "on", "off", self._console.clock())
        self._apply(lambda: bridge.set_cap(cap), "cap", before, cap)

    def action_enter_cap(self) -> None:
        app = self._console
        cap, highest = app.bridge.cap, app.bridge.highest_cap
        entry = Entry("cap", "cap", str(cap or ""), check=number(1, highest, whole=True))
        above = paragraph(f"Most sequences that run at once, from 1 to {highest}.")
        app.push_screen(FormScreen("Batch cap", [entry], above), self._cap_entered)

    def _cap_entered(self, texts: dict[str, str] | None) -> None:
        if texts is None:
            return
        app, cap = self._console, int(texts["cap"])
        before = app.bridge.cap
        if before is None or abs(cap - before) <= max(LEAST_BIG_STEP, BIG_STEP * before):
            self._set_cap(cap)
            return
        running = app.bridge.poll().batch.running or 0
        if cap < before:
            what = (
                f"{running} run now; none is stopped, but new ones wait until fewer than {cap} do."
            )
        else:
            what = "Every step gets slower as the batch fills, and the KV pages fill up sooner."
        self._sure(f"Cap {before} → {cap}?", what, lambda: self._set_cap(cap))

    def _sure(self, question: str, consequence: str, do: Callable[[], None]) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                do()

        self._console.push_screen(ConfirmScreen(question, consequence), answered)

    # the rest

    def action_toggle_dynamic(self) -> None:
        bridge = self._console.bridge
        on = not bridge.poll().batch.dynamic
        words = ("off", "on") if on else ("on", "off")
        self._apply(lambda: bridge.engine.set_dynamic(on), "dynamic", *words)

    def action_enter_max_wait(self) -> None:
        now = self._console.bridge.poll().batch.max_wait_ms
        value = "" if now is None else f"{now:g}"
        entry = Entry("wait", "milliseconds", value, check=number(1, MAX_WAIT_LIMIT_MS))
        above = paragraph(
            "A static batch starts unfilled when its first request has waited so long; a moving "
            "cap opens wider for one that has."
        )
        form = FormScreen("Longest wait", [entry], above)
        self._console.push_screen(form, self._max_wait_entered)

    def _max_wait_entered(self, texts: dict[str, str] | None) -> None:
        if texts is None:
            return
        bridge, wait = self._console.bridge, float(texts["wait"])
        before = bridge.poll().batch.max_wait_ms
        self._apply(lambda: bridge.engine.set_max_wait(wait), "max_wait_ms", before, wait)

    def action_toggle_admission(self) -> None:
        bridge = self._console.bridge
        state = bridge.poll()
        if state.engine.paused:
            self._apply(lambda: bridge.engine.set_paused(False), "admission", "paused", "open")
            return
        self._sure(
            "Pause admission?",
            "What runs goes on; what waits and what comes stays in the queue until you resume, "
            "and callers feel it as time to first token.",
            lambda: self._apply(
                lambda: bridge.engine.set_paused(True), "admission", "open", "paused"
            ),
        )

    def action_toggle_draining(self) -> None:
        bridge = self._console.bridge
        state = bridge.poll()
        if state.engine.draining:
            self._apply(lambda: bridge.engine.set_draining(False), "draining", "on", "off")
            return
        left = (state.batch.running or 0) + (state.queue.waiting or 0)
        self._sure(
            "Drain the engine?",
            f"The {left} requests that it has are finished; everything that comes is rejected "
            "until you press D again.",
            lambda: self._apply(lambda: bridge.engine.set_draining(True), "draining", "off", "on"),
        )

    def cancel_request(self, request_id: str) -> None:
        app = self._console
        try:
            app.bridge.cancel(request_id)
        except EngineError as error:
            app.notify(str(error), severity="error")
        else:
            app.notify(f"{request_id} is cancelled", timeout=2)

    def action_log_change(self) -> None:
        change: LiveChange | None = self.changes.newest
        if change is None:
            self._console.notify("you have changed nothing that is not in the log", timeout=3)
            return
        from console.screens.log import offer

        offer(self._console, change)
