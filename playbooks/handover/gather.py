"""From where the page's parts are kept: the log, the watchkeeper's state, silences, forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.snapshot import Snapshot
from playbooks.alerts.silences import Silences
from playbooks.alerts.watchkeeper import kept_state
from playbooks.handover.page import handover
from playbooks.objectives.budget import Budget
from playbooks.optlog import OptLog
from playbooks.reports import results


def gathered(
    log: OptLog,
    since: float,
    now: float,
    budgets: Mapping[str, Sequence[Budget]],
    engines: Mapping[str, Snapshot] | None = None,
) -> dict[str, Any]:
    """The report. Raises ConfigError for a file that cannot be read."""
    return handover(
        log.read().records,
        since,
        now,
        watch=kept_state(),
        engines=engines,
        budgets=budgets,
        silences=Silences().read(),
        forecast=next(results.saved("forecast"), None),
    )
