"""What the operator changed on the running engine, with the figures of before, for the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from console.history import History

BEFORE_S = 60.0
"""Figures of before are means over so many seconds."""
LEAST_AFTER_S = 10.0
"""Sooner after a change its effect is not to be seen."""
SAME_CHANGE_S = 60.0
"""Moving the same setting again so soon is the same change."""
METRICS = {
    "output": "output_tok_s",
    "step": "step_ms",
    "running": "running",
    "waiting": "waiting",
    "usage": "kv_usage",
    "ttft_p50": "ttft_p50_ms",
    "ttft_p99": "ttft_p99_ms",
    "tpot_p50": "tpot_p50_ms",
    "tpot_p99": "tpot_p99_ms",
}
"""Series of the history and what they are called in the log."""


@dataclass(frozen=True)
class LiveChange:
    setting: str
    before: Any
    after: Any
    first: float
    """When it was first moved, Unix seconds."""
    last: float
    """When it was last moved: figures of after begin here."""

    @property
    def title(self) -> str:
        before, after = _shown(self.before), _shown(self.after)
        match self.setting:
            case "cap":
                return f"cap {before} → {after}"
            case "dynamic":
                return f"dynamic {before} → {after}"
            case "admission":
                return f"admission {before} → {after}"
            case "draining":
                return f"draining {before} → {after}"
        return f"{self.setting} {before} → {after}"


@dataclass(frozen=True)
class Figure:
    """A metric's mean before and after; None where nothing was measured."""

    metric: str
    before: float | None
    after: float | None


def _shown(value: Any) -> str:
    return "?" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


class PendingChanges:
    """The changes that are not in the log yet, the newest last."""

    def __init__(self) -> None:
        self.pending: list[LiveChange] = []

    def note(self, setting: str, before: Any, after: Any, now: float) -> LiveChange | None:
        """Add a change. Moved on within a minute it is one change; moved back it is none."""
        change = LiveChange(setting, before, after, now, now)
        last = next((c for c in reversed(self.pending) if c.setting == setting), None)
        if last is not None and last.after == change.before and now - last.last < SAME_CHANGE_S:
            self.pending.remove(last)
            change = replace(change, before=last.before, first=last.first)
        if change.before == change.after:
            return None
        self.pending.append(change)
        return change

    @property
    def newest(self) -> LiveChange | None:
        return self.pending[-1] if self.pending else None

    def written(self, change: LiveChange) -> None:
        if change in self.pending:
            self.pending.remove(change)


def figures(change: LiveChange, history: History, now: float) -> list[Figure]:
    """Means over the minute before the change and the time since; what is in neither is left
    out. A mean of window percentiles is an indication, not a measurement."""
    found = []
    for name, metric in METRICS.items():
        series = history[name]
        before = series.mean(change.first - BEFORE_S, change.first)
        late_enough = now - change.last >= LEAST_AFTER_S
        after = series.mean(change.last, now) if late_enough else None
        if before is not None or after is not None:
            found.append(Figure(metric, before, after))
    return found
