"""The fit: what a step of one engine costs and what its pool is, in a file of its own.

A fit belongs to what it was measured on. Whoever asks it about another model, KV format or
machine is refused: a forecast of the wrong engine is worse than none.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from checklists.tomlfile import STRICT, FieldError, checked
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.paths import replace_file
from engine.scheduling.plan import ModelFacts
from engine.simulated.clock import VirtualClock
from engine.simulated.fitted import CostCoefficients, FittedCost
from engine.simulated.replica import Replica
from playbooks.reports.text import json_values

SCHEMA = 1
KIND = "forecast_fit"
FIXED = ("model", "kv_format", "page_tokens", "outlier_channels", "zero_point", "kernels")
"""Settings that a fit is of: another value is another engine."""
ANY_TOKEN = 1 << 62
"""A vocabulary without end: made-up prompts number their tokens as they like."""


@dataclass(frozen=True)
class Fingerprint:
    """What a fit was measured on."""

    __pydantic_config__ = STRICT
    engine: str
    """evewatch, or what serves at the URL."""
    version: str | None
    model: str | None
    format: str | None
    """Of the KV cache."""
    kernels: str | None
    machine: str | None
    """Processor and cores; None: a URL's own machine, which is not known."""
    url: str | None = None


@dataclass(frozen=True)
class HeldOut:
    """How far the fit is off on steps that it has not seen: shares, 0.03 is 3 %."""

    __pydantic_config__ = STRICT
    steps: int
    p50: float
    """Median of |predicted / measured − 1| of single steps."""
    p90: float
    total: float
    """Of all steps together, with its sign: above 0 the fit is too slow."""
    worst_block: float
    """The same of the worst of the loads."""


@dataclass(frozen=True)
class Fit:
    """Measured once; frozen. `load` and `save` are its file."""

    __pydantic_config__ = STRICT
    fingerprint: Fingerprint
    settings: dict[str, Any]
    """Of EngineConfig, as it was measured; of a URL, what schedules as it does."""
    facts: ModelFacts
    pages: int
    max_model_len: int
    cost: CostCoefficients
    ratios: tuple[float, ...] = ()
    """Measured over fitted of single steps: equally likely values, in rising order."""
    drift: float = 0.0
    """Standard deviation of a run's speed around the fit's (a share)."""
    held_out: HeldOut | None = None
    when: float = 0.0
    """Unix seconds."""
    notes: tuple[str, ...] = field(default=())
    """Assumptions, in words."""

    @property
    def config(self) -> EngineConfig:
        """As it was measured."""
        return EngineConfig.from_dict(self.settings, "fit")

    def pages_of(self, config: EngineConfig) -> int:
        """Of a pool in the same memory: a larger batch needs more open slabs, and leaves fewer."""
        kv, before = self.facts.kv, self.config
        slabs = config.max_batch - before.max_batch
        memory = self.pages * kv.page_bytes - slabs * kv.slab_bytes
        if config.kv_memory is not None and before.kv_memory is not None:
            memory += config.kv_memory - before.kv_memory
        pages = memory // kv.page_bytes if kv.page_bytes else self.pages
        if pages < 1:
            raise ConfigError(
                f"max_batch: {config.max_batch} open pages leave no room in the fit's KV memory; "
                "lower it, or raise kv_memory"
            )
        return pages

    def refuse(self, config: EngineConfig) -> None:
        """Raises ConfigError for settings that another fit is needed for."""
        before = self.config
        for name in FIXED:
            mine, asked = getattr(before, name), getattr(config, name)
            if mine != asked:
                raise ConfigError(
                    f"{name}: the fit is of {mine!r} and {asked!r} is asked for; "
                    f"make one of that with `evewatch forecast fit --set {name}={asked}`"
                )

    def replica(
        self,
        config: EngineConfig | None = None,
        *,
        seed: int,
        speed: float = 1.0,
        clock: VirtualClock | None = None,
    ) -> Replica:
        """An engine in virtual time with these settings, or those that were measured.

        `seed` is of the chance in its steps; `speed` is drawn around 1 by whoever wants a run's
        own. Raises ConfigError for settings that the fit is not of.
        """
        config = config or self.config
        self.refuse(config)
        longest = min(config.max_model_len or self.max_model_len, self.max_model_len)
        cost = FittedCost(self.cost, config.page_tokens, self.ratios, speed=speed, seed=seed)
        facts = replace(self.facts, vocab=ANY_TOKEN)
        return Replica(
            config, facts, cost,
            pages=self.pages_of(config), max_model_len=longest, clock=clock,
        )  # fmt: skip

    def save(self, path: Path) -> None:
        """Raises ConfigError."""
        data = {"schema": SCHEMA, "kind": KIND, **asdict(self)}
        try:
            replace_file(path, (json.dumps(json_values(data), indent=1) + "\n").encode())
        except OSError as error:
            raise ConfigError(f"fit {path}: cannot be written ({error.strerror})") from error


def load(path: Path) -> Fit:
    """Raises ConfigError for what is no fit."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise _wrong(path, "is not JSON") from error
    if not isinstance(data, dict) or data.pop("kind", None) != KIND:
        raise _wrong(path, "is no fit")
    if data.pop("schema", None) != SCHEMA:
        raise _wrong(path, "is of another version of the format")
    try:
        return checked(Fit, data)
    except FieldError as error:
        raise _wrong(path, str(error)) from None


def _wrong(path: Path, why: str) -> ConfigError:
    return ConfigError(f"fit {path}: {why}; make one with `evewatch forecast fit`")
