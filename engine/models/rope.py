"""How a configuration stretches RoPE: the numbers that the inverse frequencies are divided by."""

from __future__ import annotations

import math

from engine.errors import ModelError
from engine.models.keys import Keys

KINDS = ("linear", "llama3")

Scaling = tuple[str, tuple[float, ...] | None]
"""none | linear | llama3, and D/2 divisors; None without scaling."""


def scaling_of(table: Keys, theta: float, head_dim: int) -> Scaling:
    """From a Hugging Face table (`rope_scaling`, `rope_parameters`). ModelError for what is not
    applied: a kind, a key, a factor that is no positive number."""
    kind = _kind(table)
    half = head_dim // 2
    found: Scaling
    if kind == "default":
        found = "none", None
    elif kind == "linear":
        found = "linear", (positive(table, "factor"),) * half
    elif kind == "llama3":
        waves = [2 * math.pi * theta ** (i / half) for i in range(half)]
        found = "llama3", _llama3(table, waves)
    else:
        raise ModelError(
            f"{table.where}: RoPE scaling {kind!r} is not supported; supported: {', '.join(KINDS)}"
        )
    table.refuse_rest()
    return found


def positive(table: Keys, key: str) -> float:
    """A finite number above 0."""
    value = table.get(key, float)
    if not 0 < value < math.inf:
        raise ModelError(f"{table.name(key)} is {value:g}; a RoPE factor must be a positive number")
    return value


def _kind(table: Keys) -> str:
    """In the new spelling, the old one, or both alike."""
    new, old = table.optional("rope_type", str), table.optional("type", str)
    if new is not None and old is not None and new != old:
        raise ModelError(f"{table.where}: rope_type is {new!r} and type {old!r}; which one?")
    return new or old or ("linear" if table.value("factor") is not None else "default")


def _llama3(table: Keys, waves: list[float]) -> tuple[float, ...]:
    """Short waves stay, long ones stretch by `factor`, those between blend the two."""
    factor, trained = positive(table, "factor"), positive(table, "original_max_position_embeddings")
    low, high = positive(table, "low_freq_factor"), positive(table, "high_freq_factor")
    if low >= high:
        raise ModelError(
            f"{table.where}: low_freq_factor {low:g} is not below high_freq_factor {high:g}"
        )
    keeps = (min(max((trained / wave - low) / (high - low), 0.0), 1.0) for wave in waves)
    return tuple(1 / (keep + (1 - keep) / factor) for keep in keeps)
