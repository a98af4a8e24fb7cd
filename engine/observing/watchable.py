"""What a console may ask of an engine beyond Snapshots and requests, and the answers of an engine
that has nothing of its own to say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.snapshot import Snapshot, SourceState

MEASURE = "measure"
"""The control that playbooks need: an engine with a model in this process, or one at a URL."""
STALE_AFTER_S = 5.0
"""A live engine publishes after every step, and once a second when idle."""
STALE_AFTER_STEPS = 3.0
"""A slow step is no hang: so many of the usual length must have passed as well."""
CONTROLS = frozenset((
    "submit", "cancel", "set_cap", "set_dynamic", "set_paused", "set_max_wait", "set_draining",
))  # fmt: skip


@dataclass(frozen=True)
class Reach:
    """Where an engine that is not in this process answers."""

    url: str = field(repr=False)
    """As it was given; a key in its query is not to be shown."""
    token: str | None = field(default=None, repr=False)


class Watchable:
    @property
    def reach(self) -> Reach | None:
        """Where playbooks can measure it; None for an engine of this process."""
        return None

    @property
    def stale_after_s(self) -> float:
        """Age at which a live Snapshot would be an old one, in s."""
        return STALE_AFTER_S

    @property
    def loading(self) -> str:
        """What is awaited until the first Snapshot; "" for the model of its configuration."""
        return ""

    def watch_pages(self) -> None:
        """Have the next Snapshots say whose each KV page is, where that is known."""

    def why_not(self, control: str) -> str:
        """Why that control is not to be had, "" if it is."""
        if control == MEASURE:
            return "it needs an engine with a model in this process"
        return "" if control in CONTROLS else "this engine has no such control"


def aged(snapshot: Snapshot, now: float, patience_s: float = STALE_AFTER_S) -> Snapshot:
    """`snapshot` with its age at `now`, Unix s; a live one that is too old becomes stale."""
    source = snapshot.source
    age = max(source.age_s, now - snapshot.time, 0.0)
    step_s = (snapshot.batch.step_ms or 0.0) / 1e3
    patience = max(patience_s, STALE_AFTER_STEPS * step_s)
    if source.state is SourceState.LIVE and age > patience:
        reason = source.reason or "the engine publishes nothing: its thread is busy or hung"
        source = replace(source, state=SourceState.STALE, reason=reason)
    return replace(snapshot, source=replace(source, age_s=age))
