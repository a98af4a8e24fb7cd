"""What a load is: arrivals and lengths put together to requests, and when it ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import ConfigError
from playbooks.load.arrivals import Arrivals, Closed, Ramp, TraceArrivals, parse_arrivals
from playbooks.load.formats import CountTokens
from playbooks.load.lengths import Fixed
from playbooks.load.mix import FIXED_WARNING, Mix, Preset, TracePairs, parse_mix
from playbooks.load.prompts import fresh_seed
from playbooks.load.slo import Slo
from playbooks.load.traces import Trace
from playbooks.load.units import SECONDS

ENDLESS_S = 1e7
"""Seconds of a load that somebody else ends."""
DEFAULT_ARRIVALS, DEFAULT_LENGTHS, DEFAULT_DURATION_S = "poisson:1", "chat*0.2", 30.0


@dataclass(frozen=True)
class LoadSpec:
    """Raises ConfigError for what contradicts itself."""

    arrivals: Arrivals
    mix: Mix
    requests: int | None = None
    """Ends after so many …"""
    duration_s: float | None = None
    """… or so many seconds of sending, whichever comes first; then open requests drain."""
    seed: int = 0
    """Of times and lengths, and of what prompts say …"""
    prompt_seed: int | None = None
    """… unless they have one of their own."""
    shared_prefix: int = 0
    """First tokens of the prompts that are the same for all."""
    ignore_eos: bool = False
    """Outputs run to their drawn length."""
    timeout_s: float = 600.0
    """A request that is not answered in full by then has failed."""
    warm_up_s: float | None = None
    """Left out of the measurement; None: found by the summary."""
    slo: Slo = field(default_factory=Slo)

    def __post_init__(self) -> None:
        for name, least in (("requests", 1), ("seed", 0), ("shared_prefix", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}: expected at least {least}, got {value}")
        for name in ("duration_s", "timeout_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= ENDLESS_S:
                raise ConfigError(f"{name}: expected seconds above 0, got {value:g}")
        if self.warm_up_s is not None and not self.warm_up_s >= 0:
            raise ConfigError(f"warm_up: expected seconds, got {self.warm_up_s:g}")
        if self.endless:
            raise ConfigError("a load needs an end: give --requests or --duration")

    @property
    def words_seed(self) -> int:
        """What the prompts are made from."""
        return self.seed if self.prompt_seed is None else self.prompt_seed

    @property
    def endless(self) -> bool:
        finite = isinstance(self.arrivals, TraceArrivals) or isinstance(self.mix, TracePairs)
        return self.requests is None and self.seconds is None and not finite

    @property
    def seconds(self) -> float | None:
        """Of sending at most; a ramp alone ends where it is up."""
        if self.duration_s is None and self.requests is None and isinstance(self.arrivals, Ramp):
            return self.arrivals.seconds
        return self.duration_s

    @property
    def traces(self) -> list[Trace]:
        """The files that it reads while it runs."""
        found = [self.mix.trace] if isinstance(self.mix, TracePairs) else []
        if isinstance(self.arrivals, TraceArrivals) and self.arrivals.trace not in found:
            found.append(self.arrivals.trace)
        return found

    @property
    def warnings(self) -> list[str]:
        notes = []
        if isinstance(self.mix, Preset) and isinstance(self.mix.prompt, Fixed):
            notes.append(FIXED_WARNING)
        if isinstance(self.arrivals, TraceArrivals) and self.arrivals.trace.unit.warning:
            trace = self.arrivals.trace
            notes.append(f"{trace.path.name}: {trace.unit.warning}")
        for trace in self.traces:
            if trace.format == "sharegpt" and trace.estimated:
                notes.append(f"{trace.path.name}: lengths are estimated at 4 characters a token")
        return notes

    def describe(self) -> dict[str, Any]:
        return {
            "arrivals": self.arrivals.label,
            "lengths": self.mix.label,
            "seed": self.seed,
            "prompt_seed": self.words_seed,
            "requests": self.requests,
            "duration_s": self.seconds,
            "shared_prefix": self.shared_prefix,
            "ignore_eos": self.ignore_eos,
            "timeout_s": self.timeout_s,
        }


class Planned(NamedTuple):
    """One request, before it is sent."""

    number: int
    at_ns: int | None
    """After the start; None: when its user is ready for it."""
    prompt: int
    output: int
    """In tokens."""


class Workload:
    """The requests of a spec, in order. `limit` is the longest that the target takes."""

    def __init__(self, spec: LoadSpec, limit: int | None = None) -> None:
        self._spec, self._limit = spec, limit
        self.shortened = 0
        """Requests that were longer than the limit, and were cut to it."""

    def __iter__(self) -> Iterator[Planned]:
        spec = self._spec
        times: Iterator[int | None] = itertools.repeat(None)
        if not isinstance(spec.arrivals, Closed):
            times = iter(spec.arrivals.times(spec.seed))
        end_ns = None if spec.seconds is None else int(spec.seconds * 1e9)
        pairs = spec.mix.pairs(spec.seed)
        for index, (at, pair) in enumerate(zip(times, pairs, strict=False)):
            if index == spec.requests or (at is not None and end_ns is not None and at >= end_ns):
                return
            yield Planned(index, at, *self._fit(*pair))

    def _fit(self, prompt: int, output: int) -> tuple[int, int]:
        limit = self._limit
        if limit is None or prompt + output <= limit:
            return prompt, output
        self.shortened += 1
        output = min(output, max(limit // 2, 1))
        return max(min(prompt, limit - output), 1), output


def make_spec(
    arrivals: str | None = None,
    lengths: str | None = None,
    trace: Path | None = None,
    *,
    time_scale: float = 1.0,
    time_unit: str | None = None,
    prompt_scale: float = 1.0,
    output_scale: float = 1.0,
    count_tokens: CountTokens | None = None,
    **rest: Any,
) -> LoadSpec:
    """A spec from what people write; `rest` are fields of LoadSpec. Raises ConfigError.

    Without a seed (None) times and lengths are those of seed 0, and the prompts are new ones.

    A trace gives what `arrivals` and `lengths` leave open. Without an end of its own a load
    runs for DEFAULT_DURATION_S.
    """
    if rest.get("seed", 0) is None:
        rest |= {"seed": 0, "prompt_seed": fresh_seed()}
    for name, factor in (("time", time_scale), ("prompt", prompt_scale), ("output", output_scale)):
        if not 1e-6 <= factor <= 1e6:
            raise ConfigError(f"{name}_scale: expected a factor above 0, got {factor:g}")
    if time_unit is not None and time_unit not in SECONDS:
        raise ConfigError(f"time_unit: expected {', '.join(SECONDS)}, got {time_unit!r}")
    file = Trace(trace, count_tokens, time_unit) if trace is not None else None
    if file is None or arrivals is not None:
        for name, given in (("time_scale", time_scale != 1), ("time_unit", time_unit is not None)):
            if given:
                raise ConfigError(f"{name}: is of the times of a trace; there are none to stretch")
    when = parse_arrivals(arrivals or DEFAULT_ARRIVALS)
    if file is not None and arrivals is None:
        if file.unit.doubt is not None:
            raise ConfigError(f"trace {file.path}: {file.unit.doubt}")
        when = TraceArrivals(file, time_scale)
    mix: Mix = parse_mix(lengths or DEFAULT_LENGTHS, count_tokens)
    if file is not None and lengths is None:
        mix = TracePairs(file)
    mix = mix.scaled(prompt_scale, output_scale)
    has_end = file is not None or isinstance(when, Ramp) or rest.get("requests") is not None
    if rest.get("duration_s") is None and not has_end:
        rest["duration_s"] = DEFAULT_DURATION_S
    return LoadSpec(when, mix, **rest)
