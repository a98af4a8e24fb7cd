"""The fit: what a step of one engine costs and what its pool is, in a file of its own.

A fit belongs to what it was measured on. Whoever asks it about another model, way to
multiply, KV format or machine is refused: a forecast of the wrong engine is worse than none.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from checklists.tomlfile import STRICT, checked
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.paths import private_folder, replace_file, user_folder
from engine.scheduling.plan import ModelFacts
from engine.simulated.clock import VirtualClock
from engine.simulated.fitted import CostCoefficients, FittedCost
from engine.simulated.replica import Replica
from playbooks.optlog.provenance import config_hash, version_of
from playbooks.reports.text import json_values

SCHEMA = 2
KIND = "fit"
FIXED = (
    "model", "weights", "compute", "outlier_columns", "kv_format", "page_tokens",
    "outlier_channels", "zero_point", "kernels",
)  # fmt: skip
"""Settings that a fit is of: another value is another engine."""
ANY_TOKEN = 1 << 62
"""A vocabulary without end: made-up prompts number their tokens as they like."""


def own_path(config: EngineConfig) -> Path:
    """Where the fit of these settings is kept."""
    settings = {name: getattr(config, name) for name in FIXED}
    return user_folder() / "fits" / f"{config_hash(settings)}.json"


def url_path(url: str) -> Path:
    """Where the fit of what serves there is kept, whether the URL names its API or not."""
    base = re.sub(r"/v1(/(chat/)?completions)?$", "", url.rstrip("/"))
    return user_folder() / "fits" / f"{config_hash({'url': base})}.json"


def this_machine() -> str:
    """Processor and cores, in the words of a fingerprint."""
    from playbooks.environment.facts import cpu

    return f"{cpu().model}, {os.cpu_count()} cores"


def refuse_drafts(config: EngineConfig) -> None:
    """Raises ConfigError for speculation."""
    if config.speculate != "off":
        raise ConfigError(
            f"speculate: {config.speculate}: how many drafts are right depends on texts, which a "
            "forecast does not know; use off"
        )


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
    pages: Annotated[int, Ge(1)]
    max_model_len: Annotated[int, Ge(1)]
    cost: CostCoefficients
    slowness: tuple[Annotated[float, Ge(0)], ...] = ()
    """Measured over fitted time, in slots of SLOT_NS, in the order in which they were."""
    drift: Annotated[float, Ge(0), Le(10)] = 0.0
    """Standard deviation of a run's speed around the fit's (a share)."""
    held_out: HeldOut | None = None
    arrival_ns: int = 0
    """From sending a request until it is queued: network, HTTP, tokenizer."""
    when: float = 0.0
    """Unix seconds."""
    notes: tuple[str, ...] = field(default=())
    """Assumptions, in words."""

    @property
    def config(self) -> EngineConfig:
        """As it was measured."""
        return EngineConfig.from_dict(self.settings, "fit")

    def pages_of(self, config: EngineConfig) -> int:
        """Of a pool in the same memory, or in kv_memory if that is another: a larger batch needs
        more open slabs and leaves fewer. Raises ConfigError where none is left."""
        kv, before = self.facts.kv, self.config
        others = kv.pool_bytes - self.pages * kv.page_bytes
        others += (config.max_batch - before.max_batch) * kv.slab_bytes
        own = config.kv_memory if config.kv_memory != before.kv_memory else None
        pages = ((own or kv.pool_bytes) - others) // kv.page_bytes
        if pages < config.max_batch:
            raise ConfigError(
                f"max_batch: {config.max_batch} rows need a page each, and the KV memory has room "
                f"for {max(pages, 0)}; lower it, or raise kv_memory"
            )
        return pages

    def fits(self, config: EngineConfig) -> bool:
        """It is of the engine that has these settings."""
        before = self.config
        return all(getattr(before, name) == getattr(config, name) for name in FIXED)

    def refuse(self, config: EngineConfig) -> None:
        """Raises ConfigError for settings that another fit is needed for."""
        refuse_drafts(config)
        before = self.config
        for name in FIXED:
            mine, asked = getattr(before, name), getattr(config, name)
            if mine != asked:
                raise ConfigError(
                    f"{name}: the fit is of {mine!r} and {asked!r} is asked for; "
                    f"make one of that with `evewatch forecast fit --set {name}={asked}`"
                )

    def refuse_elsewhere(self) -> None:
        """Raises ConfigError where another machine, or another version, was measured."""
        mine = self.fingerprint
        if mine.url is not None:
            return
        here = (("machine", mine.machine, this_machine()),
                ("version", mine.version, version_of("evewatch")))  # fmt: skip
        for what, measured, now in here:
            if measured != now:
                raise ConfigError(
                    f"the fit was measured on another {what} ({measured}; here it is {now}); "
                    "make one here with `evewatch forecast fit`"
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
        cost = FittedCost(self.cost, self.slowness, speed=speed, seed=seed)
        facts = replace(self.facts, vocab=ANY_TOKEN)
        return Replica(
            config, facts, cost,
            pages=self.pages_of(config), max_model_len=longest, clock=clock,
        )  # fmt: skip

    def save(self, path: Path) -> None:
        """Raises ConfigError."""
        data = {"schema": SCHEMA, "kind": KIND, **asdict(self)}
        try:
            private_folder(path.parent)
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
        fit = checked(Fit, data)
        assert fit.config  # raises for settings that this version does not know
    except ConfigError as error:
        raise _wrong(path, str(error)) from None
    if not _can_be(fit.cost) or fit.facts.kv.page_bytes < 1:
        raise _wrong(path, "its costs, or the size of its pages, can be of no engine")
    return fit


def _can_be(cost: CostCoefficients) -> bool:
    """More work never takes less time."""
    linear = (cost.row, cost.context, cost.chunk_context, cost.sealed)
    risen = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(cost.tokens))
    return bool(cost.tokens) and cost.tokens[0][1] >= 0 and risen and min(linear) >= 0


def _wrong(path: Path, why: str) -> ConfigError:
    return ConfigError(f"fit {path}: {why}; make one with `evewatch forecast fit`")
