"""The file of rules and ways out. Whatever is wrong in it is one line with file and line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from checklists.tomlfile import STRICT, Location, TomlFile
from engine.errors import ConfigError
from playbooks.alerts.causes import TABLE as CAUSES
from playbooks.alerts.causes import causes_reading
from playbooks.alerts.fields import OBJECTIVES, STATES, budgets_reading, reading
from playbooks.steps.durations import seconds
from playbooks.steps.fields import Reads

Duration = Annotated[Any, Reads("playbooks.steps.durations:seconds")]
Severity = Literal["critical", "warning"]
STATE, SNAPSHOT = "state", "snapshot"
LASTS_S = {CAUSES: 10.0, "latency": 10.0, OBJECTIVES: 0.0}
"""Of rules that do not say it: less than the 30 s of what is of now, where it looks back."""
NOW_LASTS_S = 30.0
READERS: dict[str, Callable[[str], Callable[[Any], float | None]]] = {
    OBJECTIVES: budgets_reading,
    CAUSES: causes_reading,
}
"""Of fields that are not of a Snapshot."""
SOURCE = "source"
"""The rule that is always there: an engine that does not answer, or says what nobody can read."""


@dataclass(frozen=True)
class RuleToml:
    """`field` above or below a number for some time; one of the two."""

    __pydantic_config__ = STRICT
    name: str
    field: str
    above: float | None = None
    below: float | None = None
    clears: float | None = None
    """It is over when the field is back at this; without: at the limit itself."""
    lasts: Duration = None
    """So long, before it is told, and so long back before it is over. Without: 30 s,
    10 s for causes and latencies, none for growth and budgets: these look back themselves."""
    change: Duration = None
    """The field's growth in so long a time instead of the field: of what only ever grows."""
    severity: Severity = "warning"
    text: str = ""
    """What to do, for who is woken."""

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            raise ConfigError("above: a rule has above or below, one of them")
        if self.clears is None:
            return
        beyond = self.above is not None and self.clears > self.above
        beyond = beyond or (self.below is not None and self.clears < self.below)
        if beyond:
            raise ConfigError("clears: it lies beyond the limit; give one on its other side")


@dataclass(frozen=True)
class WayToml:
    """Where alerts go."""

    __pydantic_config__ = STRICT
    kind: Literal["bell", "command", "webhook", "alertmanager", "apprise"]
    argv: tuple[str, ...] = ()
    """Of a command: what to start; it reads the alert as JSON on its standard input."""
    url: str = ""
    secret_env: str | None = None
    """Variable with the secret that a webhook is signed with, Alertmanager's bearer token, or the
    address of apprise's that names a chat service."""
    limit: Duration = "10s"
    """For one try."""
    severity: Severity = "warning"
    """The least that is sent here."""

    def __post_init__(self) -> None:
        if self.kind == "command" and not self.argv:
            raise ConfigError('argv: a command is a list of texts, like ["notify-send", "Eve"]')
        if self.kind == "apprise" and self.secret_env is None:
            raise ConfigError("secret_env: apprise needs the variable that holds its address")
        to_url = self.kind in ("webhook", "alertmanager")
        if to_url and not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"url: {self.kind} needs one that begins with http:// or https://")


@dataclass(frozen=True)
class AlertsToml:
    """Rules on what engines show, and the ways on which alerts go out."""

    __pydantic_config__ = STRICT
    rules: tuple[RuleToml, ...] = ()
    ways: tuple[WayToml, ...] = ()
    source_lasts: Duration = "15s"
    """So long an engine must be silent or unreadable before that is told."""
    group: Duration = "5s"
    """Alerts of one rule that come within this time are one message."""


@dataclass(frozen=True)
class AlertsSettings:
    """The table [alerts] of a file of settings."""

    __pydantic_config__ = STRICT
    file: str
    """Beside the settings, where it is not a whole path."""


@dataclass(frozen=True)
class Rule:
    name: str
    field: str
    read: Callable[[Any], float | None]
    """Of what `of` says."""
    limit: float
    over: bool
    """Beyond the limit is above it."""
    clears: float
    lasts_s: float
    """So long before it is told."""
    change_s: float | None
    severity: str
    text: str
    about: str = ""
    """What it is, where the field alone does not say it."""
    relapse_s: float = 0.0
    """What comes back so soon after its end is over only when it has been back for so long."""

    @property
    def calm_s(self) -> float:
        """So much of what came last says whether growth goes on."""
        change = self.change_s or 0.0
        return min(change, max(self.lasts_s, change / 2))

    @property
    def back_s(self) -> float:
        """So long it is back, before its end is told."""
        return max(0.0, self.lasts_s - self.calm_s)

    @property
    def of(self) -> str:
        """An engine's STATE or SNAPSHOT, the CAUSES found in several, a service's OBJECTIVES."""
        table = self.field.partition(".")[0]
        if table in READERS:
            return table
        return STATE if self.field in STATES else SNAPSHOT

    def breached(self, value: float) -> bool:
        return value > self.limit if self.over else value < self.limit

    def cleared(self, value: float) -> bool:
        return value <= self.clears if self.over else value >= self.clears

    @property
    def words(self) -> str:
        """queue.waiting above 50"""
        what, limit, change_s = self.about or self.field, self.limit, self.change_s
        if change_s is None:
            return f"{what} above {limit:g}" if self.over else f"{what} below {limit:g}"
        if self.over:
            return f"{what} in {change_s:g} s above {limit:g}"
        return f"{what} in {change_s:g} s below {limit:g}"


@dataclass(frozen=True)
class AlertsFile:
    rules: tuple[Rule, ...]
    ways: tuple[WayToml, ...]
    source_s: float
    group_s: float
    path: Path


def configured(settings: Path) -> Path | None:
    """The file of alerts that a file of settings names. Raises ConfigError."""
    file = TomlFile(settings, "settings")
    if "alerts" not in file.data:
        return None
    return settings.parent / file.read(AlertsSettings, ("alerts",)).file


def load(path: Path, environment: Mapping[str, str] | None) -> AlertsFile:
    """`environment` has the secrets; None: no way is to be used. Raises ConfigError: the file, the
    line, what is wrong and what would be right."""
    return _alerts(TomlFile(path, "alerts"), environment)


def _alerts(file: TomlFile, environment: Mapping[str, str] | None) -> AlertsFile:
    table = file.read(AlertsToml)
    rules: list[Rule] = []
    for i, row in enumerate(table.rules):
        at: Location = ("rules", i)
        if row.name == SOURCE or row.name in (rule.name for rule in rules):
            raise file.wrong((*at, "name"), f"name {row.name!r} is taken; each rule has its own")
        try:
            rules.append(_rule(row))
        except ConfigError as error:
            raise file.wrong((*at, "field"), str(error)) from None
    for i, way in enumerate(table.ways):
        secret = way.secret_env
        if secret is not None and environment is not None and not environment.get(secret):
            raise file.wrong(("ways", i, "secret_env"), f"secret_env: {secret} is not set")
    source, group = seconds(table.source_lasts), seconds(table.group)
    return AlertsFile(tuple(rules), table.ways, source, group, file.path)


def _rule(row: RuleToml) -> Rule:
    over = row.above is not None
    limit = row.above if row.above is not None else row.below
    assert limit is not None
    table = row.field.partition(".")[0]
    lasts = seconds(row.lasts) if row.lasts is not None else _lasts(row, table)
    return Rule(
        row.name, row.field, READERS.get(table, reading)(row.field), limit, over,
        limit if row.clears is None else row.clears, lasts,
        None if row.change is None else seconds(row.change), row.severity, row.text,
    )  # fmt: skip


def _lasts(row: RuleToml, table: str) -> float:
    return 0.0 if row.change is not None else LASTS_S.get(table, NOW_LASTS_S)
