"""The requests that a fleet has at a moment, from those that arrived last."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from playbooks.forecast.traffic import Arrival, Traffic

LEAST_S = 15.0
"""Is looked through at once."""
AMONG = 4
"""Times as many are drawn from, where some are taken for those under way."""


def newest(traffic: Traffic, now_s: float, count: int) -> Iterator[Arrival]:
    """The last `count` that came before `now_s`, or all that did."""
    return traffic.arrivals(_since(traffic, now_s, count), now_s) if count > 0 else iter(())


def under_way(traffic: Traffic, now_s: float, count: int, random: Random) -> Iterator[Arrival]:
    """`count` that have been running for a while, as requests that come at `now_s`: with what is
    left of their outputs, and without their prompts, which were work of an earlier time.

    The longer an output is, the sooner it is met, anywhere in it.
    """
    recent = list(newest(traffic, now_s, AMONG * count))
    lengths = [arrival.output_tokens for arrival in recent]
    for one in random.choices(recent, lengths, k=count) if any(lengths) else ():
        yield Arrival(now_s, 1, math.ceil(one.output_tokens * random.random()))


def _since(traffic: Traffic, now_s: float, count: int) -> float:
    """Since when so many requests, above 0, came."""
    span = max(2 * count / max(traffic.rate(now_s), 1e-9), LEAST_S)
    while now_s > 0:
        begin = max(now_s - span, 0.0)
        times = traffic.times(begin, now_s)
        if len(times) >= count:
            return float(times[-count])
        count, now_s, span = count - len(times), begin, 2 * span
    return 0.0
