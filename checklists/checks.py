"""Automatic items: Snapshot, settings and environment -> pass | warn | fail | unknown.

Every answer has its evidence. A number that is not there is `unknown`, and so is every number
of a source that is not live.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.snapshot import Snapshot, SourceState

if TYPE_CHECKING:
    from checklists.book import Item

Value = str | int | float | bool
Settings = EngineConfig | Mapping[str, Any] | None


@dataclass(frozen=True)
class ItemResult:
    verdict: str
    """pass | warn | fail | unknown"""
    evidence: str
    value: Value | None = None


@dataclass(frozen=True)
class Expectation:
    """ "<= 0.8": a comparison with a value; "in a b": one of some; "known": any value."""

    op: str
    values: tuple[Value, ...]

    def holds(self, value: Value) -> bool:
        if self.op == "known":
            return True
        if self.op in ("in", "==", "!="):
            return any(_same(value, one) for one in self.values) == (self.op != "!=")
        limit = self.values[0]
        if isinstance(value, bool | str) or isinstance(limit, bool | str):
            return False
        return {"<=": value <= limit, ">=": value >= limit, "<": value < limit,
                ">": value > limit}[self.op]  # fmt: skip

    def seen(self, look: str, value: Value) -> str:
        """The evidence: what is there, and what should be."""
        name, names = _shown(value), [_shown(one) for one in self.values]
        if self.op == "known":
            return f"{look} is {name}, and any value will do"
        if self.op == "in":
            return f"{look} is {name}, expected one of {', '.join(names)}"
        return f"{look} is {name}, expected {self.op} {names[0]}"

    def asked(self, look: str) -> str:
        """The same before anybody has looked."""
        names = [_shown(one) for one in self.values]
        if self.op == "known":
            return f"looks at {look}: any value will do"
        if self.op == "in":
            return f"looks at {look}: expected one of {', '.join(names)}"
        return f"looks at {look}: expected {self.op} {names[0]}"


def _same(a: Value, b: Value) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def parse_expectation(text: str) -> Expectation:
    """Raises ConfigError."""
    op, _, rest = text.strip().partition(" ")
    values = tuple(_value(word) for word in rest.split())
    if op == "known" and not values:
        return Expectation(op, ())
    if op == "in" and values:
        return Expectation(op, values)
    if op not in ("<=", ">=", "<", ">", "==", "!=") or len(values) != 1:
        raise ConfigError(
            f'{text!r} is no expectation; write "<= 0.8", "== live", "in cpu triton" or "known"'
        )
    if op in ("<=", ">=", "<", ">") and isinstance(values[0], bool | str):
        raise ConfigError(f"{text!r}: {op} needs a number")
    return Expectation(op, values)


def _value(word: str) -> Value:
    if word in ("true", "false"):
        return word == "true"
    for make in (int, float):
        try:
            return make(word)
        except ValueError:
            continue
    return word


def answer(
    item: Item,
    snapshot: Snapshot | None,
    config: Settings = None,
    environment: Mapping[str, Any] | None = None,
) -> ItemResult:
    """What the tool can say about an automatic item.

    `environment` is a report of the environment step: checks of id, verdict and evidence.
    """
    assert item.look is not None, "automatic items have one; the book checks it"
    place, _, name = item.look.partition(".")
    if place == "environment":
        return _from_environment(name, environment)
    value, reason = _find(place, name, snapshot, config)
    if value is None:
        return ItemResult("unknown", f"{item.look}: {reason}")
    expected, failing = item.expectation, item.failure
    assert expected is not None
    evidence = expected.seen(item.look, value)
    if expected.holds(value):
        return ItemResult("pass", evidence, value)
    if failing is not None and not failing.holds(value):
        return ItemResult("warn", evidence, value)
    return ItemResult("fail" if item.severity == "must" else "warn", evidence, value)


def unseen(item: Item) -> ItemResult:
    """Of an automatic item at which nobody has looked yet."""
    assert item.look is not None, "automatic items have one; the book checks it"
    expected = item.expectation
    asked = f"looks at {item.look}" if expected is None else expected.asked(item.look)
    return ItemResult("unknown", asked)


def _find(
    place: str, name: str, snapshot: Snapshot | None, config: Settings
) -> tuple[Value | None, str]:
    """The value, or None and why there is none."""
    if place == "config":
        table = config.to_dict() if isinstance(config, EngineConfig) else config
        found = table.get(name) if table is not None else None
        return found, "not set" if table is not None else "the settings are not known"
    if snapshot is None:
        return None, "there is no snapshot"
    if name == "source.state":
        return snapshot.source.state.value, ""
    if snapshot.source.state is not SourceState.LIVE:
        state, why = snapshot.source.state.value, snapshot.source.reason or "no reason given"
        return None, f"the source is {state}: {why}"
    if place == "computed":
        return COMPUTED[name](snapshot), "the numbers for it are missing, or too few"
    found = walk(snapshot, name)
    few = _too_few(snapshot, name)
    return found, few or "this engine does not report it"


def walk(snapshot: Snapshot, name: str) -> Any:
    """What stands at a dotted name; None where the engine does not report it."""
    found: Any = snapshot
    for part in name.split("."):
        found = None if found is None else getattr(found, part)
    return found


def _too_few(snapshot: Snapshot, name: str) -> str | None:
    """Of a percentile: how many samples there are."""
    block, _, percentile = name.rpartition(".")
    if not re.fullmatch(r"p\d\d", percentile):
        return None
    return f"n is too small ({walk(snapshot, block).n} samples)"


def _from_environment(name: str, environment: Mapping[str, Any] | None) -> ItemResult:
    if environment is None:
        return ItemResult("unknown", f"environment.{name}: the environment was not examined")
    if name == "verdict":
        failing = [c["id"] for c in environment["checks"] if c["verdict"] in ("warn", "fail")]
        evidence = f"environment: {', '.join(failing)}" if failing else "no check complains"
        return ItemResult(str(environment["verdict"]), evidence)
    found = [check for check in environment["checks"] if check["id"] == name]
    if not found:
        return ItemResult("unknown", f"environment.{name}: there is no such check")
    order = ("fail", "warn", "pass", "skip")
    worst = min(found, key=lambda check: order.index(check["verdict"]))
    evidence = f"{name} {worst['value']}: {worst['evidence']}"
    if worst["verdict"] == "skip":
        return ItemResult("pass", f"does not apply: {evidence}")
    return ItemResult(worst["verdict"], evidence)


# --- numbers that are made of several -------------------------------------------------------


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def wait_share(s: Snapshot) -> float | None:
    """Mean queue wait over mean time to the last token."""
    return _share(s.queue.wait_ms.mean, s.latency.e2e_ms.mean)


def failed_share(s: Snapshot) -> float | None:
    """Requests that ended in error, timeout or rejection, over all that ended; TGI and Triton
    call all of them failures."""
    bad = sum(s.finished.get(reason, 0) for reason in ("error", "timeout", "rejected", "failure"))
    return _share(bad, sum(s.finished.values()))


def held_at_idle(s: Snapshot) -> int | None:
    """What requests still hold while none is there; None while the engine is busy."""
    if not s.ledger or s.batch.running != 0 or s.queue.waiting != 0:
        return None
    return sum(s.ledger.values())


def pool_gap(s: Snapshot) -> int | None:
    """Pages that are in no state: free + open + sealed + cached must be all."""
    kv = s.kv
    states = [kv.free, kv.open, kv.sealed, kv.cached]
    if kv.total is None or any(n is None for n in states):
        return None
    return kv.total - sum(n for n in states if n is not None)


def text_share(s: Snapshot) -> float | None:
    """Tokenizing and detokenizing, of request time."""
    parts = (s.stages.tokenize, s.stages.detokenize)
    return None if parts[0] is None or parts[1] is None else parts[0] + parts[1]


def cap_use(s: Snapshot) -> float | None:
    return _share(s.batch.running, s.batch.cap)


def alarm(s: Snapshot) -> str | None:
    """What the watchdog says; other engines have none that we can read."""
    if s.source.engine != "evewatch":
        return None
    return s.engine.alarm or "none"


def clipped(s: Snapshot) -> float | None:
    """Share of KV values that a static scale clipped; formats without one clip nothing."""
    if s.kv.format is None:
        return None
    return s.kv.saturation_ratio if s.kv.format == "int8_static" else 0.0


COMPUTED: dict[str, Callable[[Snapshot], Value | None]] = {
    "wait_share": wait_share, "failed_share": failed_share, "held_at_idle": held_at_idle,
    "pool_gap": pool_gap, "text_share": text_share, "cap_use": cap_use, "alarm": alarm,
    "clipped": clipped,
}  # fmt: skip


def check_look(look: str) -> None:
    """ConfigError when there is nothing at this place."""
    place, _, name = look.partition(".")
    if place == "snapshot":
        _check_path(Snapshot, name, look)
    elif place == "config":
        known = sorted(f.name for f in dataclasses.fields(EngineConfig))
        if name not in known:
            raise ConfigError(f"look: the settings have no {name!r}; they have {', '.join(known)}")
    elif place == "computed":
        if name not in COMPUTED:
            raise ConfigError(f"look: {name!r} is not one of {', '.join(COMPUTED)}")
    elif place != "environment" or not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ConfigError(
            f"look: {look!r}: expected snapshot.…, config.…, environment.… or computed.…"
        )


def _check_path(kind: Any, name: str, look: str) -> None:
    for part in name.split("."):
        hints = typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        if part not in hints:
            known = f"; it has {', '.join(hints)}" if hints else ""
            raise ConfigError(f"look: {look!r}: there is no {part!r}{known}")
        kind = hints[part]
        if isinstance(kind, types.UnionType):
            kind = next(one for one in typing.get_args(kind) if one is not type(None))
    if dataclasses.is_dataclass(kind):
        raise ConfigError(f"look: {look!r} is a group of numbers; name one of them")


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
