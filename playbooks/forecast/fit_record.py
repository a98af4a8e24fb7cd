"""A fit as a record of the optimization log: what forecasts of that engine stand on."""

from __future__ import annotations

from typing import Any

from playbooks.optlog.record import LogEffect, Record

ERRORS = ("p50", "p90", "total", "worst_block")


def of_fit(report: dict[str, Any], artifacts: tuple[str, ...] = ()) -> list[Record]:
    named, held_out = report["fingerprint"], report["held_out"]
    where = named["url"] or named["machine"]
    doubt = report["host"] and report["host"]["doubt"]
    return [
        Record(
            title=f"Fit of {report['model']}, KV {named['format'] or 'unknown'}, {where}: steps "
            f"that it had not seen are off by {held_out['p50']:.1%} (median)",
            why="A forecast in virtual time is as right as the step times that it is made with.",
            how={
                "command": "forecast fit", "seconds": report["seconds"],
                "steps held out": held_out["steps"], "max_batch": report["max_batch"],
                "drift": report["drift"], "assumed": report["notes"],
            },
            effect=tuple(
                LogEffect(f"held_out_error_{name}", after=held_out[name], n=held_out["steps"])
                for name in ERRORS
            ),
            problems=(doubt,) if doubt else (),
            environment=report["environment"],
            artifacts=artifacts,
        )
    ]  # fmt: skip
