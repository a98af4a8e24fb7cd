"""What an outlook expects, as the file that a moving cap looks ahead in: `rate_schedule`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from engine.errors import ConfigError
from engine.paths import write_private
from playbooks.forecast.history.history import HOUR_S
from playbooks.forecast.outlook import Outlook


def write_rates(outlook: Outlook, replicas: int, path: Path) -> None:
    """Requests/s that one of `replicas` is to expect, hour by hour; none after the last. Raises
    ConfigError."""
    begin, zone = outlook.start.timestamp(), outlook.start.tzinfo
    lines = ["time,rate"]
    for hour, rate in enumerate([*(outlook.rates / replicas).tolist(), 0.0]):
        at = datetime.fromtimestamp(begin + hour * HOUR_S, zone)
        lines.append(f"{at.isoformat()},{rate:.6g}")
    try:
        write_private(path, "\n".join(lines) + "\n")
    except OSError as error:
        raise ConfigError(f"--rates: {path} cannot be written ({error})") from error
