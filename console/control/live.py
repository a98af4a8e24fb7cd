"""Live control: what changes the running engine, asked for where it hurts, noted for the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from console.control.surface import ConsoleSurface
from console.screens.dialogs import (
    ConfirmScreen,
    FormField,
    FormScreen,
    ask,
    ask_first,
    number,
    paragraph,
)
from engine.errors import EngineError

BIG_STEP = 0.25
"""A cap moved by more than this share asks first."""
LEAST_BIG_STEP = 4
MAX_WAIT_LIMIT_MS = 600_000.0


class LiveControls(ConsoleSurface):
    """The `action_…` methods of the app that work on the engine. They run in the UI's thread."""

    def _apply(self, do: Callable[[], None], setting: str, before: object, after: object) -> None:
        """Change something and offer it for the log; what the engine refuses is said."""
        try:
            do()
        except EngineError as error:
            self.notify(str(error), severity="error")
            return
        change = self.changes.note(setting, before, after, self.clock())
        self.clear_notifications()
        if change is not None:
            self.notify(f"{change.title} · L writes it into the log", timeout=4)
        self.draw(self.bridge.poll())

    # the cap

    def action_change_cap(self, step: int) -> None:
        cap = self.bridge.cap
        if cap is None:
            self.notify("this engine reports no cap", severity="warning")
        else:
            self._set_cap(max(1, min(self.bridge.highest_cap, cap + step)))

    def _set_cap(self, cap: int) -> None:
        bridge = self.bridge
        before, dynamic = bridge.cap, bridge.poll().batch.dynamic
        if dynamic:
            self.changes.note("dynamic", "on", "off", self.clock())
        self._apply(lambda: bridge.set_cap(cap), "cap", before, cap)

    def action_enter_cap(self) -> None:
        cap, highest = self.bridge.cap, self.bridge.highest_cap
        entry = FormField("cap", "cap", str(cap or ""), check=number(1, highest, whole=True))
        above = paragraph(f"Most sequences that run at once, from 1 to {highest}.")
        ask(self, FormScreen("Batch cap", [entry], above), self._cap_entered)

    def _cap_entered(self, texts: dict[str, str]) -> None:
        cap = int(texts["cap"])
        before = self.bridge.cap
        if before is None or abs(cap - before) <= max(LEAST_BIG_STEP, BIG_STEP * before):
            self._set_cap(cap)
            return
        running = self.bridge.poll().batch.running or 0
        if cap < before:
            what = (
                f"{running} run now; none is stopped, but new ones wait until fewer than {cap} do."
            )
        else:
            what = "Every step gets slower as the batch fills, and the KV pages fill up sooner."
        question = ConfirmScreen(f"Cap {before} → {cap}?", what)
        ask_first(self, question, lambda: self._set_cap(cap))

    # the rest

    def action_toggle_dynamic(self) -> None:
        bridge = self.bridge
        on = not bridge.poll().batch.dynamic
        words = ("off", "on") if on else ("on", "off")
        self._apply(lambda: bridge.engine.set_dynamic(on), "dynamic", *words)

    def action_enter_max_wait(self) -> None:
        now = self.bridge.poll().batch.max_wait_ms
        value = "" if now is None else f"{now:g}"
        entry = FormField("wait", "milliseconds", value, check=number(1, MAX_WAIT_LIMIT_MS))
        above = paragraph(
            "A static batch starts unfilled when its first request has waited so long; a moving "
            "cap opens wider for one that has."
        )
        ask(self, FormScreen("Longest wait", [entry], above), self._max_wait_entered)

    def _max_wait_entered(self, texts: dict[str, str]) -> None:
        bridge, wait = self.bridge, float(texts["wait"])
        before = bridge.poll().batch.max_wait_ms
        self._apply(lambda: bridge.engine.set_max_wait(wait), "max_wait_ms", before, wait)

    def action_toggle_admission(self) -> None:
        bridge = self.bridge
        state = bridge.poll()
        if state.engine.paused:
            self._apply(lambda: bridge.engine.set_paused(False), "admission", "paused", "open")
            return
        question = ConfirmScreen(
            "Pause admission?",
            "What runs goes on; what waits and what comes stays in the queue until you resume, "
            "and callers feel it as time to first token.",
        )
        pause = partial(bridge.engine.set_paused, True)
        ask_first(self, question, lambda: self._apply(pause, "admission", "open", "paused"))

    def action_toggle_draining(self) -> None:
        bridge = self.bridge
        state = bridge.poll()
        if state.engine.draining:
            self._apply(lambda: bridge.engine.set_draining(False), "draining", "on", "off")
            return
        left = (state.batch.running or 0) + (state.queue.waiting or 0)
        question = ConfirmScreen(
            "Drain the engine?",
            f"The {left} requests that it has are finished; everything that comes is rejected "
            "until you press D again.",
        )
        drain = partial(bridge.engine.set_draining, True)
        ask_first(self, question, lambda: self._apply(drain, "draining", "off", "on"))

    def cancel_request(self, request_id: str) -> None:
        try:
            self.bridge.cancel(request_id)
        except EngineError as error:
            self.notify(str(error), severity="error")
        else:
            self.notify(f"{request_id} is cancelled", timeout=2)

    def action_log_change(self) -> None:
        change = self.changes.newest
        if change is None:
            self.notify("you have changed nothing that is not in the log", timeout=3)
            return
        from console.screens.log import offer

        offer(self, change)
