"""A score as a record of the optimization log: what a forecast was worth."""

from __future__ import annotations

from typing import Any

from playbooks.optlog.provenance import provenance_of
from playbooks.optlog.record import LogEffect, Record


def of_score(report: dict[str, Any], artifacts: tuple[str, ...] = ()) -> list[Record]:
    ours, *naive = report["methods"]
    error = "nothing came" if ours["error"] is None else f"off by {ours['error']:.1%}"
    return [
        Record(
            title=f"Forecast of {report['start'][:10]}: {error}, {report['coverage']:.0%} of the "
            f"hours in their {report['level']:.0%} interval",
            why="The next forecast is to be believed as far as this one was right.",
            how={
                "command": "forecast score", "file": report["file"], "start": report["start"],
                "hours": report["hours_scored"],
            },
            effect=tuple(_effect(ours, other) for other in naive if other["error"] is not None),
            problems=tuple(report["warnings"]),
            environment=provenance_of(),
            artifacts=artifacts,
        )
    ]  # fmt: skip


def _effect(ours: dict[str, Any], naive: dict[str, Any]) -> LogEffect:
    """Before: the error of a forecast that costs nothing; after: that of ours."""
    before, after = naive["error"], ours["error"]
    verdict = "better" if after < before else "worse" if after > before else "no difference"
    return LogEffect(f"error beside the {naive['name']}", before, after, ours["hours"],
                     verdict=verdict)  # fmt: skip
