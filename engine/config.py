"""EngineConfig: every setting of the engine, checked once, frozen after. No torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import tomli

from engine.errors import ConfigError

EMBEDDED = "embedded"
TABLES = ("engine", "objectives", "alerts")
"""Of a file of settings."""
KV_FORMATS = (
    "fp16", "int8_channel", "k8v4", "k4v4", "int8_token", "int8_static", "int8_tensor",
)  # fmt: skip
_DYNAMIC = ("int8_channel", "k8v4", "k4v4", "int8_token")
"""Formats whose scales follow the values: only there a zero point has a place."""
_SWITCHES = (
    "require_triton", "cuda_graphs", "zero_point", "pad_prompts", "prefix_cache", "dynamic_batch",
)  # fmt: skip
COMPUTE = ("auto", "f32", "int16", "mixed", "int8")
POLICIES = ("continuous", "static")
ALLOCATORS = ("paged", "contiguous")
RESERVES = ("known", "predicted", "final", "max")
GROWING = ("known", "predicted")
"""Reserves that give a request its pages as it fills them."""
SPECULATE = ("off", "prompt", "draft")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True)
class EngineConfig:
    """Raises ConfigError naming the setting, its value and what it may be."""

    model: str = EMBEDDED
    """`embedded`, a Hugging Face folder, or a GGUF file."""
    device: str = "auto"
    kernels: str = "auto"
    """auto | reference | cpu | triton"""
    require_triton: bool = False
    """Refuse to start on any other kernels, instead of falling back to slow ones."""
    cuda_graphs: bool = False
    """Decode batches are recorded once per size and replayed (Triton on a CUDA device)."""
    compute: str = "auto"
    """Products: f32; or, of quantised weights, of integers, activations rounded to int16 or int8;
    mixed: int8, the MLP's int16; auto: mixed where a calibration names columns, else f32."""
    outlier_columns: int = 32
    """Most columns of a matrix that integer products keep in float; a calibration names them."""
    weights: str = "file"
    """file: as they are stored; q8_0: float matrices are quantised as they are loaded."""
    kv_format: str = "int8_channel"
    page_tokens: int = 16
    outlier_channels: int = 4
    """K channels per KV head that a page has room to keep in hp; a calibration names them."""
    zero_point: bool = False
    """An hp zero beside every scale: for channels with a constant offset."""
    calibration: str | None = None
    """File of outlier channels and static scales; None: the one kept for this model, if any."""
    kv_memory: int | None = None
    """Bytes for pages and slabs together; None: a share of the free memory."""
    max_batch: int = 48
    token_budget: int = 256
    """Tokens computed in one step, decode first: a long prompt stalls nobody longer."""
    max_model_len: int | None = None
    """Longest prompt + output; None: what the model was trained for."""
    max_waiting: int = 100_000
    policy: str = "continuous"
    """continuous, or static: the baseline that runs a batch until its last row has ended."""
    pad_prompts: bool = False
    """A static batch computes a rectangle, every prompt as long as its longest, as servers
    without ragged attention do."""
    allocator: str = "paged"
    """paged, or contiguous: the baseline that gives a request one run of pages."""
    reserve: str | None = None
    """Room given at admission: known (what it knows), predicted (the same, as long as lengths
    learnt from earlier outputs say that there will be room for all), final (to its end), max (the
    longest context). None: known where paging lets a request grow, else final."""
    speculate: str = "off"
    """prompt: compute tokens that followed the same ones before in prompt or output behind the
    newest one, where that gains time. draft: those that a small model, draft_model, finds
    likely. The tokens stay the same, to the bit."""
    draft_model: str | None = None
    """A Hugging Face folder or a GGUF file with the same vocabulary."""
    max_draft: int = 8
    """Most such tokens a request and step."""
    prefix_cache: bool = True
    """Keep sealed pages that nobody holds, for prompts that begin alike."""
    dynamic_batch: bool = False
    """The cap moves with the queue, between min_batch and max_batch."""
    min_batch: int = 1
    tpot_objective_ms: float | None = None
    """A moving cap is kept where steps take no longer."""
    rate_schedule: str | None = None
    """CSV file of time,rate: requests/s to come, for which a moving cap opens beforehand."""
    max_wait_ms: float = 1000.0
    """A static batch starts, full or not, when its first request has waited so long; a moving
    cap opens wider for one that has."""
    stall_s: float = 10.0
    """Work waits and nothing is computed for so long: the watchdog raises the alarm."""
    timeout_s: float | None = None
    """Default limit on a request's life."""
    threads: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _choice("device", self.device, ("auto", "cpu", "cuda"))
        _choice("kernels", self.kernels, ("auto", "reference", "cpu", "triton"))
        _choice("compute", self.compute, COMPUTE)
        _choice("weights", self.weights, ("file", "q8_0"))
        _choice("kv_format", self.kv_format, KV_FORMATS)
        _choice("policy", self.policy, POLICIES)
        _choice("allocator", self.allocator, ALLOCATORS)
        _choice("reserve", self.reserve, (None, *RESERVES))
        _choice("speculate", self.speculate, SPECULATE)
        _choice("page_tokens", self.page_tokens, (16, 32))
        _at_least("outlier_channels", self.outlier_channels, 0)
        _at_least("outlier_columns", self.outlier_columns, 0)
        _at_least("max_batch", self.max_batch, 1)
        _at_least("token_budget", self.token_budget, 1)
        _at_least("max_draft", self.max_draft, 1)
        _at_least("max_waiting", self.max_waiting, 1)
        for name in ("kv_memory", "max_model_len", "threads"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 1)
        _at_least("min_batch", self.min_batch, 1)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}: expected true or false, got {getattr(self, name)!r}")
        for name in ("max_wait_ms", "stall_s", "tpot_objective_ms", "timeout_s"):
            _positive(name, getattr(self, name))
        if self.min_batch > self.max_batch:
            raise ConfigError(
                f"min_batch: {self.min_batch} is above max_batch {self.max_batch}; lower it"
            )
        growing = self.reserve in GROWING
        if growing and (self.policy, self.allocator) != ("continuous", "paged"):
            raise ConfigError(
                f"reserve: {self.reserve} needs pages that a request can add to as it grows; "
                f"{self.policy} batches on {self.allocator} memory need final or max"
            )
        if (self.speculate == "draft") != (self.draft_model is not None):
            raise ConfigError(
                "draft_model: speculate = draft needs one, and nothing else takes one; give both"
            )
        if self.speculate != "off" and self.policy != "continuous":
            raise ConfigError(
                f"speculate: {self.policy} batches compute one row a request and step; use it "
                "with policy = continuous, or set it to off"
            )
        if self.zero_point and self.kv_format not in _DYNAMIC:
            raise ConfigError(
                f"zero_point: {self.kv_format} has no scales of its own to go with it; "
                f"use it with one of {', '.join(_DYNAMIC)}"
            )
        if self.token_budget < self.max_batch:
            raise ConfigError(
                f"token_budget: {self.token_budget} is below max_batch {self.max_batch}; "
                "every running request needs one token a step"
            )

    @classmethod
    def from_toml(
        cls, path: Path, defaults: Mapping[str, Any] | None = None, **overrides: Any
    ) -> EngineConfig:
        """Settings of the `[engine]` table over `defaults`; `overrides` win over both. The other
        tables of TABLES are read elsewhere."""
        try:
            data = tomli.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read ({error})") from error
        except tomli.TOMLDecodeError as error:
            raise ConfigError(f"{path}: not valid TOML: {error}") from error
        table = data.get("engine", {})
        for name in data:
            if name not in TABLES:
                known = ", ".join(f"[{one}]" for one in TABLES)
                raise ConfigError(f"{path}: unknown table [{name}]; known: {known}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: engine must be a table")
        return cls.from_dict({**(defaults or {}), **table}, where=str(path), **overrides)

    @classmethod
    def from_dict(
        cls, table: dict[str, Any], where: str = "settings", **overrides: Any
    ) -> EngineConfig:
        known = {f.name for f in fields(cls)}
        for key in table:
            if key not in known:
                raise ConfigError(
                    f"{where}: unknown key {key!r}; known: {', '.join(sorted(known))}"
                )
        values = table | {key: value for key, value in overrides.items() if value is not None}
        if isinstance(values.get("kv_memory"), str):
            values["kv_memory"] = parse_size(values["kv_memory"])
        return cls(**values)

    def with_(self, **changes: Any) -> EngineConfig:
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def changes_from(self, base: EngineConfig) -> list[tuple[str, Any, Any]]:
        """(setting, its value in `base`, its value here) of all in which the two differ."""
        pairs = [(f.name, getattr(base, f.name), getattr(self, f.name)) for f in fields(self)]
        return [(name, before, after) for name, before, after in pairs if before != after]


def parse_field(name: str, text: str) -> Any:
    """The value of setting `name` from text, as a flag or the environment gives it."""
    kinds = {f.name: str(f.type) for f in fields(EngineConfig)}
    if name not in kinds:
        close = get_close_matches(name, kinds, 1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(kinds))}"
        raise ConfigError(f"unknown setting {name!r}; {hint}")
    if name == "kv_memory":
        return parse_size(text)
    if kinds[name] == "bool":
        return _truth(name, text)
    try:
        if kinds[name].startswith("int"):
            return int(text)
        if kinds[name].startswith("float"):
            return float(text)
    except ValueError:
        raise ConfigError(f"{name}: {text!r} is not a number") from None
    return text


def _truth(name: str, text: str) -> bool:
    values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.strip().lower() not in values:
        raise ConfigError(f"{name}: {text!r} is not true or false")
    return values[text.strip().lower()]


def parse_size(text: str) -> int:
    """ "512M", "2 GiB", "1.5g", "1000000" -> bytes (powers of 1024)."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if match is None or float(match[1]) <= 0:
        raise ConfigError(f"size {text!r} is not a size; write it like 512M or 2G")
    return int(float(match[1]) * _UNITS[match[2]])


def _choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}: {value!r} is not one of {', '.join(map(str, allowed))}")


def _positive(name: str, value: object) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if value is not None and not 0 < number < math.inf:
        raise ConfigError(f"{name}: expected a number above 0, got {value!r}")


def _at_least(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigError(f"{name}: expected a whole number of at least {low}, got {value!r}")
