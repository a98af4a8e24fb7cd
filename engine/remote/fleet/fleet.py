"""Several engines together: grouped by model, one verdict line a group."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import tomli

from engine.errors import ConfigError
from engine.observing.objectives import Objective
from engine.remote import address
from engine.remote.adapters import NAMES
from engine.remote.address import read_token
from engine.remote.engine import INTERVAL_S, RemoteEngine, attach
from engine.remote.fleet.odd import Oddity, odd_ones
from engine.remote.metrics import view
from engine.remote.metrics.numbers import Numbers
from engine.snapshot import EngineInfo, Replica, Snapshot, Source, SourceState

UNKNOWN = "model not known yet"
MOST_TARGETS = 256


@dataclass(frozen=True)
class FleetTarget:
    url: str
    name: str | None = None
    group: str | None = None
    """Replicas of one service; None: by the model that they serve."""
    token_env: str | None = None
    """Environment variable with the bearer token."""
    engine: str | None = None
    """The one expected; None: any."""


@dataclass(frozen=True)
class Group:
    """Replicas of one model, at one moment."""

    name: str
    snapshots: Mapping[str, Snapshot]
    """By replica, in the fleet's order."""
    merged: Snapshot
    """All live ones together: counts added, histograms merged by bucket."""
    odd: Sequence[Oddity]
    """Of the replica that stands out most."""

    @property
    def live(self) -> list[str]:
        return [n for n, s in self.snapshots.items() if s.source.state is SourceState.LIVE]

    @property
    def verdict(self) -> str:
        """One line: who is not live, then who stands out."""
        total, live = len(self.snapshots), self.live
        parts = [f"{len(live)} of {total} live"]
        for name, snapshot in self.snapshots.items():
            if name not in live:
                parts.append(_lost(name, snapshot.source))
        if self.odd:
            parts.append(f"{self.odd[0].replica} stands out: {', '.join(o.text for o in self.odd)}")
        elif len(live) > 1:
            parts.append("no replica stands out")
        return "; ".join(parts)


def _lost(name: str, source: Source) -> str:
    """Of one that is not live."""
    match source.state:
        case SourceState.STALE:
            return f"{name} stale {source.age_s:.0f} s: {source.reason}"
        case SourceState.UNPARSABLE:
            return f"{name} unparsable {source.age_s:.0f} s: {source.reason}"
        case SourceState.WRONG_ENGINE:
            return f"{name} wrong engine {source.age_s:.0f} s: {source.reason}"
    return f"{name} unreachable {source.age_s:.0f} s: {source.reason}"


class Fleet:
    """Engines with names of their own; polls them at the same time."""

    def __init__(
        self, engines: Iterable[RemoteEngine], objectives: Sequence[Objective] = ()
    ) -> None:
        self.engines = {engine.name: engine for engine in engines}
        self.objectives = tuple(objectives)

    def start(self) -> None:
        self._each(RemoteEngine.start)

    def stop(self) -> None:
        _together(RemoteEngine.stop, self.engines.values())

    def poll(self) -> None:
        """Scrape all once, at the same time."""
        self._each(RemoteEngine.poll)

    def _each(self, work: Callable[[RemoteEngine], object]) -> None:
        """Of a page with several models each becomes an engine of its own."""
        _together(work, self.engines.values())
        parts = [(engine, *engine.divide()) for engine in self.engines.values()]
        _together(work, [new for _, *others in parts for new in others])
        self.engines = {engine.name: engine for several in parts for engine in several}

    def groups(self) -> list[Group]:
        """In the order of their first target."""
        return [self._group(name, several) for name, several in self._members().items()]

    def services(self) -> dict[str, tuple[str, ...]]:
        """The names of the targets of each group."""
        return {n: tuple(e.name for e in several) for n, several in self._members().items()}

    def _members(self) -> dict[str, list[RemoteEngine]]:
        members: dict[str, list[RemoteEngine]] = {}
        for engine in self.engines.values():
            members.setdefault(_group_of(engine), []).append(engine)
        return members

    def _group(self, name: str, engines: Sequence[RemoteEngine]) -> Group:
        snapshots = {engine.name: engine.snapshot() for engine in engines}
        live = {n: s for n, s in snapshots.items() if s.source.state is SourceState.LIVE}
        known = [n for e in engines if e.name in live and (n := e.numbers) is not None]
        merged = _merged(name, live, known, self.objectives)
        return Group(name, snapshots, merged, odd_ones(live))


def _together(work: Callable[[RemoteEngine], object], engines: Collection[RemoteEngine]) -> None:
    with ThreadPoolExecutor(max(1, len(engines))) as pool:
        list(pool.map(work, engines))


def _group_of(engine: RemoteEngine) -> str:
    return engine.group or engine.snapshot().engine.model or UNKNOWN


def _merged(
    name: str,
    live: Mapping[str, Snapshot],
    several: Sequence[Numbers],
    objectives: Sequence[Objective],
) -> Snapshot:
    source = Source(SourceState.LIVE, "fleet", name)
    if not several:
        return Snapshot(
            source=replace(source, state=SourceState.UNREACHABLE, reason="none is live")
        )
    total = reduce(Numbers.merge, several)
    models = sorted(total.models)
    info = EngineInfo(model=models[0] if len(models) == 1 else None)
    newest = max(snapshot.time for snapshot in live.values())
    merged = view.snapshot(total, {}, info, sum(one.seq for one in live.values()), newest)
    rows = (Replica(n, s.batch.running, s.queue.waiting, s.kv.usage) for n, s in live.items())
    return replace(
        merged,
        source=source,
        replicas=tuple(rows) if len(live) > 1 else (),
        objectives=view.objectives(total, objectives),
    )


def attach_all(
    targets: Sequence[FleetTarget],
    interval_s: float = INTERVAL_S,
    environment: Mapping[str, str] = os.environ,
    objectives: Sequence[Objective] = (),
) -> Fleet:
    """Raises ConfigError for two of one name and for a token that is not there."""
    engines: dict[str, RemoteEngine] = {}
    for target in targets:
        engine = attach(
            target.url,
            read_token(
                target.token_env, environment, f"target {target.name or address.shown(target.url)}"
            ),
            name=target.name,
            group=target.group,
            engine=target.engine,
            interval_s=interval_s,
            objectives=objectives,
        )
        if engine.name in engines:
            raise ConfigError(f"two targets are called {engine.name}; give one another name")
        engines[engine.name] = engine
    return Fleet(engines.values(), objectives)


def read_fleet(path: Path) -> tuple[list[FleetTarget], float | None]:
    """Targets and interval of a fleet file. Raises ConfigError naming what is wrong where."""
    try:
        data = tomli.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from error
    except tomli.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    _only(data, ("interval", "target", "objectives"), str(path))
    tables = data.get("target", [])
    if not isinstance(tables, list) or not tables:
        raise ConfigError(f"{path}: no [[target]]; each needs at least a url")
    if len(tables) > MOST_TARGETS:
        raise ConfigError(f"{path}: {len(tables)} targets; at most {MOST_TARGETS}")
    interval = data.get("interval")
    if interval is not None and not (type(interval) in (int, float) and 0 < interval <= 3600):
        raise ConfigError(f"{path}: interval: expected seconds from 0 to 3600, got {interval!r}")
    return [_target(table, f"{path}: target {i}") for i, table in enumerate(tables, 1)], interval


def _target(table: Any, where: str) -> FleetTarget:
    keys = ("url", "name", "group", "token_env", "engine")
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: expected a table [[target]]")
    _only(table, keys, where)
    for key, value in table.items():
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{where}: {key}: expected a text, got {value!r}")
    if "url" not in table:
        raise ConfigError(f"{where}: no url")
    if table.get("engine", NAMES[0]) not in NAMES:
        raise ConfigError(f"{where}: engine: expected one of {', '.join(NAMES)}")
    try:
        address.parse(table["url"])
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return FleetTarget(**table)


def _only(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; known: {', '.join(known)}")
