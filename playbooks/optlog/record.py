"""One record of the optimization log: what was changed, why, what it did, what went wrong.

A record is stored as one JSON object. It carries `prev`, the hash of the record before it, and
an `id` that is made from its own content: neither can be changed without it being seen.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.errors import ConfigError
from playbooks.reports.text import json_values

SCHEMA = 1
DECISIONS = ("adopt", "reject", "hold", "rolled_back")
CLAIMS = ("measured", "inferred", "simulated")
ID_LENGTH = 16
Value = str | int | float | bool | None


@dataclass(frozen=True)
class Change:
    """A setting before and after. `before` None: it was not there, or nobody knows."""

    key: str
    before: Any = None
    after: Any = None


@dataclass(frozen=True)
class LogEffect:
    """What became of one metric.

    `low` and `high` are the interval of the relative change, after ÷ before − 1 (0.1 is 10 %
    more), from `n` repeats or samples. None: there is no such number.
    """

    metric: str
    before: Value = None
    after: Value = None
    n: int | None = None
    low: float | None = None
    high: float | None = None
    verdict: str | None = None
    """better | worse | no difference | inconclusive, or a gate's pass | warn | fail."""

    def to_dict(self) -> dict[str, Any]:
        known = self.low is not None and self.high is not None
        return {
            "metric": self.metric,
            "before": self.before,
            "after": self.after,
            "n": self.n,
            "interval": [self.low, self.high] if known else None,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Record:
    """Raises ConfigError for a decision or a claim that there is not, and for no title."""

    title: str
    what: tuple[Change, ...] = ()
    why: str = ""
    """The hypothesis, before anything was measured."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """Workload, seed, repeats: enough to do it again."""
    effect: tuple[LogEffect, ...] = ()
    problems: tuple[str, ...] = ()
    decision: str = "hold"
    rollback: str = ""
    """How to undo it."""
    claim: str = "measured"
    operator: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    artifacts: tuple[str, ...] = ()
    schema: int = SCHEMA
    id: str = ""
    """Set by the log, as are `time` and `prev`."""
    time: str = ""
    """UTC, ISO 8601."""
    prev: str | None = None
    """SHA-256 of the record before; None for the first."""
    seal: str | None = None
    """HMAC of the content with the log's key; None: written without one."""
    rest: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a newer schema: not understood here, and not lost."""

    def __post_init__(self) -> None:
        if self.id or self.schema != SCHEMA:
            return  # written already, and perhaps by a version with other words
        if not self.title.strip():
            raise ConfigError("log record: a title is needed; say in a few words what was done")
        for name, value, known in (
            ("decision", self.decision, DECISIONS), ("claim", self.claim, CLAIMS),
        ):  # fmt: skip
            if value not in known:
                raise ConfigError(f"log record: {name} {value!r} is not one of {', '.join(known)}")

    def stamped(self, time: str, prev: str | None, key: bytes | None = None) -> Record:
        """As it goes into the log: its time, its place in the chain, its seal, and its id."""
        placed = replace(self, time=time, prev=prev, schema=SCHEMA, id="", seal=None)
        if key is not None:
            placed = replace(placed, seal=seal_of(json_values(placed.to_dict()), key))
        return replace(placed, id=content_id(json_values(placed.to_dict())))

    def to_dict(self) -> dict[str, Any]:
        """The stored fields, in the order that people read them."""
        return {
            "schema": self.schema,
            "id": self.id,
            "time": self.time,
            "operator": self.operator,
            "title": self.title,
            "what": [{"key": c.key, "before": c.before, "after": c.after} for c in self.what],
            "why": self.why,
            "how": dict(self.how),
            "effect": [effect.to_dict() for effect in self.effect],
            "problems": list(self.problems),
            "decision": self.decision,
            "rollback": self.rollback,
            "claim": self.claim,
            "environment": dict(self.environment),
            "artifacts": list(self.artifacts),
            "prev": self.prev,
            "seal": self.seal,
            **self.rest,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """Inverse of `to_dict`. Fields that an old schema lacks have their defaults.

        Raises ValueError when a field is of the wrong kind.
        """
        if not isinstance(data.get("schema"), int) or isinstance(data.get("schema"), bool):
            raise ValueError("no record: it has no schema number")
        known = {"title": "(no title)"} | {name: data[name] for name in _KINDS if name in data}
        for name, value in known.items():
            if not isinstance(value, _KINDS[name]):
                raise ValueError(f"{name}: {value!r} is of the wrong kind")
        known["what"] = tuple(_change(row) for row in known.get("what", ()))
        known["effect"] = tuple(_effect(row) for row in known.get("effect", ()))
        for name in ("problems", "artifacts"):
            known[name] = tuple(str(item) for item in known.get(name, ()))
        rest = {name: value for name, value in data.items() if name not in _KINDS}
        try:
            return cls(**known, rest=rest)
        except ConfigError as error:
            raise ValueError(str(error)) from error


_KINDS: dict[str, tuple[type, ...]] = {
    "schema": (int,), "id": (str,), "time": (str,), "operator": (str, type(None)),
    "title": (str,), "what": (list,), "why": (str,), "how": (dict,), "effect": (list,),
    "problems": (list,), "decision": (str,), "rollback": (str,), "claim": (str,),
    "environment": (dict,), "artifacts": (list,), "prev": (str, type(None)),
    "seal": (str, type(None)),
}  # fmt: skip


def _change(row: Any) -> Change:
    if not isinstance(row, dict) or not isinstance(row.get("key"), str):
        raise ValueError(f"what: {row!r} has no key")
    return Change(row["key"], row.get("before"), row.get("after"))


def _effect(row: Any) -> LogEffect:
    if not isinstance(row, dict) or not isinstance(row.get("metric"), str):
        raise ValueError(f"effect: {row!r} has no metric")
    interval = row.get("interval") or (None, None)
    if not isinstance(interval, list | tuple) or len(interval) != 2:
        raise ValueError(f"effect: interval {interval!r} is not [low, high]")
    known = {name: row.get(name) for name in ("before", "after", "n", "verdict")}
    return LogEffect(row["metric"], low=interval[0], high=interval[1], **known)


# --- what is hashed ------------------------------------------------------------------------


def canonical(data: Mapping[str, Any]) -> bytes:
    """The one way to write `data`: sorted keys, no spaces, UTF-8."""
    text = json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def digest(data: Mapping[str, Any]) -> str:
    """What the next record's `prev` holds."""
    return hashlib.sha256(canonical(data)).hexdigest()


def seal_of(data: Mapping[str, Any], key: bytes) -> str:
    """What only the holder of the key can make: of all but the id and the seal itself."""
    sealed = {name: value for name, value in data.items() if name not in ("id", "seal")}
    return hmac.new(key, canonical(sealed), hashlib.sha256).hexdigest()


def content_id(data: Mapping[str, Any]) -> str:
    """The id of a record with this content, `prev` included and `id` not; so in every schema."""
    return digest({name: value for name, value in data.items() if name != "id"})[:ID_LENGTH]
