"""`evewatch forecast score`: what a forecast was worth, once the days have come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.options import command_options
from console.commands.output import Output
from engine.errors import ConfigError

if TYPE_CHECKING:
    from playbooks.forecast.history.history import History


@command_options(logs=True)
def forecast_score(
    output: Output,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="What came: a recording, a CSV of counts, Prometheus' query_range, or a trace.",
        ),
    ],
    forecast: Annotated[
        Path | None,
        typer.Option(help="Report of `forecast run`; the newest kept one of that time by default."),
    ] = None,
    zone: Annotated[
        str, typer.Option(help="Whose clocks FILE's times are by, where they have no offset.")
    ] = "UTC",
) -> None:
    """Hold a forecast against what came, and against two forecasts that cost nothing."""
    from console.recording.past import read_past
    from playbooks.forecast.clocks import zone_of
    from playbooks.forecast.score import score
    from playbooks.forecast.score_record import of_score

    came = read_past(file, zone_of(zone))
    said = _kept(came) if forecast is None else _read(forecast)
    try:
        report = score(said, came)
    except ConfigError as error:
        raise ConfigError(str(error) if forecast is None else f"{forecast}: {error}") from None
    output.finish(report, keep=True, log=lambda files: of_score(report, files))


def _kept(came: History) -> Any:
    from playbooks.forecast.score import newest_overlapping
    from playbooks.reports import results

    found = newest_overlapping(results.saved("forecast"), came)
    if found is None:
        raise ConfigError(
            f"{came.name}: no forecast of that time was kept here; name a report of `evewatch "
            "forecast run` with --forecast"
        )
    return found


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is no report of a forecast ({error})") from None
