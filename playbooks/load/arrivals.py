"""When requests arrive. Seeded: the same seed gives the same nanoseconds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from engine.errors import ConfigError
from playbooks.load.draws import BLOCK, Draw, generator, stratified
from playbooks.load.traces import Trace

FORMS = "poisson:RATE, gamma:RATE,CV, constant:RATE, ramp:FROM-TO/SECONDS, closed:USERS[,THINK_S]"
MAX_RATE, MAX_CV, MAX_USERS, MAX_SECONDS = 1e6, 50.0, 100_000, 1e7


@dataclass(frozen=True)
class Gamma:
    """Independent gaps with a coefficient of variation: 1 is Poisson, above it is bursty."""

    rate: float
    """Requests/s."""
    cv: float = 1.0

    @property
    def label(self) -> str:
        return f"poisson:{self.rate:g}" if self.cv == 1 else f"gamma:{self.rate:g},{self.cv:g}"

    def times(self, seed: int) -> Iterator[int]:
        """Nanoseconds from the start, without end."""
        now = 0.0
        for gap in unit_gaps(seed, self.cv):
            now += gap * 1e9 / self.rate
            yield int(now)


@dataclass(frozen=True)
class Constant:
    """Equal gaps: the easiest traffic there is."""

    rate: float

    @property
    def label(self) -> str:
        return f"constant:{self.rate:g}"

    def times(self, seed: int) -> Iterator[int]:
        return (int(i * 1e9 / self.rate) for i in itertools.count())


@dataclass(frozen=True)
class Ramp:
    """Poisson arrivals whose rate moves evenly from `first` to `last`, and stays there."""

    first: float
    last: float
    seconds: float

    @property
    def label(self) -> str:
        return f"ramp:{self.first:g}-{self.last:g}/{self.seconds:g}"

    def times(self, seed: int) -> Iterator[int]:
        expected = 0.0
        for gap in unit_gaps(seed):
            expected += gap
            yield int(self._when(expected) * 1e9)

    def _when(self, expected: float) -> float:
        """Seconds until so many arrivals are expected: the rate's integral, turned around."""
        a, slope = self.first, (self.last - self.first) / self.seconds
        within = (self.first + self.last) / 2 * self.seconds
        if expected > within:
            return self.seconds + (expected - within) / self.last
        root = math.sqrt(a * a + 2 * slope * expected)
        return 2 * expected / (a + root)  # the form that does not cancel when the slope is 0


@dataclass(frozen=True)
class TraceArrivals:
    """The arrivals of a trace, its times multiplied by `scale`: 0.1 is ten times as fast."""

    trace: Trace
    scale: float = 1.0

    @property
    def label(self) -> str:
        return f"{self.trace.path.name}*{self.scale:g}"

    def times(self, seed: int) -> Iterator[int]:
        first: float | None = None
        for row in self.trace.rows():
            if row.at_s is None:
                raise ConfigError(
                    f"trace {self.trace.path}: has no arrival times; give --arrivals as well"
                )
            first = row.at_s if first is None else first
            yield int((row.at_s - first) * self.scale * 1e9)


@dataclass(frozen=True)
class Closed:
    """`users` who each wait for their answer, think, and ask again."""

    users: int
    think_s: float = 0.0
    """Mean of the exponential time between an answer and the next question."""

    @property
    def label(self) -> str:
        return f"closed:{self.users}" + (f",{self.think_s:g}" if self.think_s else "")

    def think_ns(self, seed: int, index: int) -> int:
        """Before request `index`."""
        if not self.think_s:
            return 0
        return int(generator(seed, Draw.THINK, index).exponential(self.think_s) * 1e9)


OpenArrivals = Gamma | Constant | Ramp | TraceArrivals
Arrivals = OpenArrivals | Closed


def unit_gaps(seed: int, cv: float = 1.0) -> Iterator[float]:
    """Gamma gaps of mean 1, without end."""
    rng, shape = generator(seed, Draw.ARRIVALS), cv**-2
    while True:
        gaps: np.ndarray = gammaincinv(shape, stratified(rng, BLOCK)) / shape
        yield from gaps.tolist()


def parse_arrivals(text: str) -> Arrivals:
    """`poisson:5` and the like (FORMS). Raises ConfigError."""
    name, _, rest = text.partition(":")
    values = rest.replace("/", ",").replace("-", ",").split(",") if name == "ramp" else None
    values = rest.split(",") if values is None else values
    match name, len(values):
        case "poisson", 1:
            return Gamma(_rate(text, values[0]))
        case "gamma", 2:
            return Gamma(_rate(text, values[0]), _number(text, values[1], "a CV", 0.05, MAX_CV))
        case "constant", 1:
            return Constant(_rate(text, values[0]))
        case "ramp", 3:
            return _ramp(text, *values)
        case "closed", 1 | 2:
            return _closed(text, *values)
    raise ConfigError(f"arrivals: {text!r} is not known; use {FORMS}")


def _ramp(text: str, first: str, last: str, seconds: str) -> Ramp:
    start = _number(text, first, "a first rate", 0, MAX_RATE)
    return Ramp(start, _rate(text, last), _number(text, seconds, "seconds", 1e-3, MAX_SECONDS))


def _closed(text: str, users: str, think: str = "0") -> Closed:
    count = _number(text, users, "users", 1, MAX_USERS)
    if count != int(count):
        raise ConfigError(f"arrivals: {text!r}: expected a whole number of users")
    return Closed(int(count), _number(text, think, "seconds to think", 0, MAX_SECONDS))


def _rate(text: str, value: str) -> float:
    return _number(text, value, "requests per second", 1e-6, MAX_RATE)


def _number(text: str, value: str, what: str, low: float, high: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        raise ConfigError(
            f"arrivals: {text!r}: expected {what} from {low:g} to {high:g}, got {value!r}"
        )
    return number
