"""An experiment: arms that differ by one change each, and the load that all of them get.

Read from TOML (those that ship are in playbooks/experiments/) or made from a command's flags.
Two changes in one arm are an error, because an effect of two has no cause; where one mechanism
needs several settings the arm says so in `together`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import Field

from checklists.tomlfile import STRICT, TomlFile
from engine.config import EngineConfig
from engine.errors import ConfigError
from playbooks.measure.work import EvenMix

FOLDER = Path(__file__).parent.parent / "experiments"
PROMPT_SHARE = 5 / 8
"""Of the longest context is the longest prompt; the rest is the longest output."""
REPEATS_LEAST = 2


@dataclass(frozen=True)
class ArmSpec:
    __pydantic_config__ = STRICT
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

    __pydantic_config__ = STRICT
    metric: Literal["throughput", "p50_e2e", "p99_e2e", "kv_bytes_per_token", "memory"]
    at_least: float | None = None
    """After ÷ before."""
    at_most: float | None = None

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ConfigError("give at_least or at_most, as after ÷ before")


@dataclass(frozen=True)
class WorkSpec:
    """Lengths in tokens, before `scale`."""

    __pydantic_config__ = STRICT
    prompt_mean: float = 512
    output_mean: float = 256
    prompt_sigma: float = 0.985
    output_sigma: float = 0.86
    longest: int = 4096
    """Longest context that the engine must be ready for."""


@dataclass(frozen=True)
class ExperimentSize:
    """How much of everything a run does."""

    __pydantic_config__ = STRICT
    scale: Annotated[float, Gt(0), Le(64)] = 1.0
    """Times every length and the longest context."""
    repeats: int = 3
    batch_requests: Annotated[int, Ge(1)] = 32
    """Of the closed batch that throughput is measured with."""
    rate_requests: Annotated[int, Ge(1)] = 34
    """Of each run at the fixed arrival rate; all repeats together should be 100, for a P99."""

    def __post_init__(self) -> None:
        if self.repeats < REPEATS_LEAST:
            raise ConfigError(
                f"repeats: expected {REPEATS_LEAST} at least, got {self.repeats}; one run has no "
                "interval"
            )


@dataclass(frozen=True)
class Experiment:
    __pydantic_config__ = STRICT
    name: str
    title: str
    arms: Annotated[tuple[ArmSpec, ...], Field(alias="arm")] = ()
    base: dict[str, Any] = field(default_factory=dict)
    regime: str = ""
    """What makes the numbers what they are: read it before believing them."""
    chain: bool = False
    """Each arm adds to the one before; else each is held against the first."""
    work: WorkSpec = field(default_factory=WorkSpec)
    size: ExperimentSize = field(default_factory=ExperimentSize)
    quick: ExperimentSize = field(default_factory=ExperimentSize)
    gpu_scale: float | None = None
    """Scale on a GPU, where it is not the CPU's."""
    kv_rows: Annotated[float | None, Gt(0), Lt(1e6)] = None
    """KV memory of all arms: so many of the longest contexts in fp16. None: as configured."""
    rate: Annotated[float | None, Gt(0), Lt(1e6)] = None
    """Requests/s of the open loop; None: no such run."""
    rate_of_first: Annotated[float | None, Gt(0), Lt(1e6)] = None
    """Or this share of the requests/s that the first arm reached in its closed batches."""
    goals: Annotated[tuple[Goal, ...], Field(alias="goal")] = ()
    seed: int = 0
    schema: Literal[1] = 1

    def __post_init__(self) -> None:
        if len(self.arms) < 2:
            raise ConfigError("arm: expected two arms at least; there is nothing to hold")
        names = [arm.name for arm in self.arms]
        if len(set(names)) != len(names):
            raise ConfigError("arm: two arms have the same name")
        if self.rate is not None and self.rate_of_first is not None:
            raise ConfigError("rate: give rate or rate_of_first, not both")

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

    def longest(self, size: ExperimentSize) -> int:
        """Tokens, in whole pages of 32."""
        return max(round(self.work.longest * size.scale / 32), 2) * 32

    def mix(self, size: ExperimentSize, count: int) -> EvenMix:
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
    """Raises ConfigError with the line."""
    file = TomlFile(path, "experiment")
    data = file.data
    data |= {"name": path.stem, "title": data.get("title", path.stem)}
    if isinstance(data.get("size", {}), dict) and isinstance(data.get("quick", {}), dict):
        data["quick"] = data.get("size", {}) | data.get("quick", {})
    found = file.read(Experiment)
    for index, arm in enumerate(found.arms):
        try:
            EngineConfig.from_dict(found.settings(index), f"arm {arm.name!r}")
        except ConfigError as error:
            raise file.wrong(("arm", index, "changes"), str(error)) from None
    return found
