"""An experiment: arms that differ by one change each, and the load that all of them get.

Read from TOML (those that ship are in playbooks/experiments/) or made from a command's flags.
Two changes in one arm are an error, because an effect of two has no cause; where one mechanism
needs several settings the arm says so in `together`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import tomli

from engine.config import EngineConfig
from engine.errors import ConfigError
from playbooks.measure.work import EvenMix

FOLDER = Path(__file__).parent.parent / "experiments"
PROMPT_SHARE = 5 / 8
"""Of the longest context is the longest prompt; the rest is the longest output."""
REPEATS_LEAST = 2
METRICS = ("throughput", "p50_e2e", "p99_e2e", "kv_bytes_per_token", "memory")


@dataclass(frozen=True)
class ArmSpec:
    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings of EngineConfig, over the base or, in a chain, over the arm before."""
    together: str | None = None
    """Why several settings are one change."""
    why: str = ""
    """The hypothesis: what the change should do, and by what."""


@dataclass(frozen=True)
class Goal:
    """A change from the first arm to the last that was promised."""

    metric: str
    at_least: float | None = None
    """After ÷ before."""
    at_most: float | None = None


@dataclass(frozen=True)
class WorkSpec:
    """Lengths in tokens, before `scale`."""

    prompt_mean: float = 512
    output_mean: float = 256
    prompt_sigma: float = 0.985
    output_sigma: float = 0.86
    longest: int = 4096
    """Longest context that the engine must be ready for."""


@dataclass(frozen=True)
class Size:
    """How much of everything a run does."""

    scale: float = 1.0
    """Times every length and the longest context."""
    repeats: int = 3
    batch_requests: int = 32
    """Of the closed batch that throughput is measured with."""
    rate_requests: int = 34
    """Of each run at the fixed arrival rate; all repeats together should be 100, for a P99."""


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    arms: tuple[ArmSpec, ...]
    base: dict[str, Any] = field(default_factory=dict)
    regime: str = ""
    """What makes the numbers what they are: read it before believing them."""
    chain: bool = False
    """Each arm adds to the one before; else each is held against the first."""
    work: WorkSpec = field(default_factory=WorkSpec)
    size: Size = field(default_factory=Size)
    quick: Size = field(default_factory=Size)
    gpu_scale: float | None = None
    """Scale on a GPU, where it is not the CPU's."""
    kv_rows: float | None = None
    """KV memory of all arms: so many of the longest contexts in fp16. None: as configured."""
    rate: float | None = None
    """Requests/s of the open loop; None: no such run."""
    rate_of_first: float | None = None
    """Or this share of the requests/s that the first arm reached in its closed batches."""
    goals: tuple[Goal, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.arms) < 2:
            raise ConfigError(f"{self.name}: expected two arms at least; there is nothing to hold")
        names = [arm.name for arm in self.arms]
        if len(set(names)) != len(names):
            raise ConfigError(f"{self.name}: two arms have the same name")
        for size in (self.size, self.quick):
            if size.repeats < REPEATS_LEAST:
                raise ConfigError(
                    f"{self.name}: repeats: expected {REPEATS_LEAST} at least, "
                    f"got {size.repeats}; one run has no interval"
                )
            for name in ("batch_requests", "rate_requests"):
                if getattr(size, name) < 1:
                    raise ConfigError(f"{self.name}: {name}: expected 1 at least")
            if not 0 < size.scale <= 64:
                raise ConfigError(f"{self.name}: scale: expected above 0, got {size.scale:g}")
        for name in ("rate", "rate_of_first", "kv_rows"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e6:
                raise ConfigError(f"{self.name}: {name}: expected above 0, got {value:g}")
        if self.rate is not None and self.rate_of_first is not None:
            raise ConfigError(f"{self.name}: give rate or rate_of_first, not both")

    def check_single_changes(self) -> None:
        """ConfigError for the first arm with several changes and no reason for it."""
        for arm in self.arms:
            if len(arm.changes) > 1 and not arm.together:
                raise ConfigError(
                    f"{self.name}: arm {arm.name!r} changes {', '.join(sorted(arm.changes))} at "
                    "once, so its effect has no single cause; split it, say why in `together`, "
                    "or use --allow-many"
                )

    def settings(self, index: int) -> dict[str, Any]:
        """Of arm `index`: the base and its changes."""
        found = dict(self.base)
        for i, arm in enumerate(self.arms):
            if i == index or (self.chain and i < index):
                found |= arm.changes
        return found

    def rival(self, index: int) -> int:
        """The arm that arm `index` is held against."""
        return index - 1 if self.chain else 0

    def longest(self, size: Size) -> int:
        """Tokens, in whole pages of 32."""
        return max(round(self.work.longest * size.scale / 32), 2) * 32

    def mix(self, size: Size, count: int) -> EvenMix:
        work, longest = self.work, self.longest(size)
        most_prompt = int(longest * PROMPT_SHARE)
        return EvenMix(
            count,
            max(work.prompt_mean * size.scale, 1),
            max(work.output_mean * size.scale, 1),
            work.prompt_sigma,
            work.output_sigma,
            most_prompt,
            longest - most_prompt,
        )


def shipped() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_experiment(name: str) -> Experiment:
    """One that ships, by name, or a TOML file. Raises ConfigError."""
    path = FOLDER / f"{name}.toml"
    if not path.is_file():
        path = Path(name)
    if not path.is_file():
        raise ConfigError(
            f"experiment {name!r}: no such file, and none that ships; those that ship: "
            f"{', '.join(shipped())}"
        )
    return read_experiment(path)


def read_experiment(path: Path) -> Experiment:
    try:
        data = tomli.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"experiment {path}: cannot be read ({error})") from error
    except tomli.TOMLDecodeError as error:
        raise ConfigError(f"experiment {path}: not valid TOML: {error}") from error
    return _experiment(data, f"experiment {path}", path.stem)


def _experiment(data: dict[str, Any], where: str, name: str) -> Experiment:
    schema = data.pop("schema", 1)
    if schema != 1:
        raise ConfigError(f"{where}: schema {schema!r} is not known; this version reads 1")
    arms = tuple(
        _table(ArmSpec, row, f"{where}, arm {i + 1}") for i, row in enumerate(_rows(data, "arm"))
    )
    goals = tuple(_goal(row, f"{where}, goal {i + 1}") for i, row in enumerate(_rows(data, "goal")))
    size = _table(Size, data.pop("size", {}), f"{where}, [size]")
    quick = _table(Size, data.pop("quick", {}), f"{where}, [quick]", size)
    work = _table(WorkSpec, data.pop("work", {}), f"{where}, [work]")
    data = {"name": name, "title": name} | data
    found: Experiment = _table(
        Experiment, data | {"arms": arms, "goals": goals, "size": size, "quick": quick,
                            "work": work}, where,
    )  # fmt: skip
    for index in range(len(found.arms)):
        EngineConfig.from_dict(found.settings(index), f"{where}, arm {found.arms[index].name!r}")
    return found


def _rows(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rows = data.pop(name, [])
    if not isinstance(rows, list):
        raise ConfigError(f"{name}: expected [[{name}]] tables")
    return rows


def _goal(row: Any, where: str) -> Goal:
    goal: Goal = _table(Goal, row, where)
    if goal.metric not in METRICS:
        raise ConfigError(f"{where}: metric {goal.metric!r} is not one of {', '.join(METRICS)}")
    if (goal.at_least is None) == (goal.at_most is None):
        raise ConfigError(f"{where}: give at_least or at_most, as after ÷ before")
    return goal


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "dict": (dict,),
}  # fmt: skip


def _table(kind: Any, row: Any, where: str, defaults: Any = None) -> Any:
    """A dataclass from a TOML table. Raises ConfigError for unknown keys and wrong types."""
    if not isinstance(row, Mapping):
        raise ConfigError(f"{where}: expected a table")
    known = {f.name: str(f.type) for f in fields(kind)}
    for key, value in row.items():
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; known: {', '.join(sorted(known))}")
        allowed = _KINDS.get(known[key].split("[")[0].split(" ")[0])
        is_switch = isinstance(value, bool) and bool not in (allowed or ())
        if allowed is not None and (is_switch or not isinstance(value, allowed)):
            raise ConfigError(f"{where}: {key}: expected {known[key]}, got {value!r}")
    try:
        return replace(defaults, **row) if defaults is not None else kind(**row)
    except TypeError as error:
        raise ConfigError(f"{where}: a key is missing ({error})") from error
