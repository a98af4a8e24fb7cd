"""What a check is going to send, said before its first request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from playbooks.load.arrivals import Closed
from playbooks.load.mix import parse_mix
from playbooks.load.workload import LoadSpec, make_spec
from playbooks.outside import crosstalk, quality_cases, replicas, soak
from playbooks.outside.site import UrlSite
from playbooks.runs.spec import Playbook
from playbooks.steps import models

SAMPLE = 200
"""Requests whose mean length stands for all."""
ASKED_TOKENS = 100
"""Of a golden or marked prompt of a canary with its answer, about."""
COUNTED = 100_000
"""Requests of an open load that are counted at most."""


@dataclass(frozen=True)
class Announcement:
    """About: lengths are drawn, and an answer may end early. Nothing more is sent than this."""

    requests: int = 0
    tokens: int = 0
    """Prompts and answers together."""
    at_once: int = 0
    """Requests in flight at most."""
    open_loop: bool = False
    """Some arrive whether or not others are answered: more may be in flight where they are not."""
    more: int = 0
    """Requests on top of these where something is measured once more, or a canary stays undecided
    for as long as it may."""
    notes: tuple[str, ...] = ()
    """What is disruptive, in words."""

    def plus(self, other: Announcement) -> Announcement:
        return Announcement(
            self.requests + other.requests, self.tokens + other.tokens,
            max(self.at_once, other.at_once), self.open_loop or other.open_loop,
            self.more + other.more, (*self.notes, *other.notes),
        )  # fmt: skip

    def text(self, budget_s: float | None) -> str:
        limit = "without a time limit" if budget_s is None else f"within {budget_s / 60:.0f} min"
        once = f"at most {self.at_once} at once" if self.at_once else "as they arrive"
        late = ", more where arrivals are open and answers late" if self.open_loop else ""
        most = f"up to {self.requests + self.more:,} where something is repeated or takes longer"
        return "; ".join((
            f"will send about {self.requests:,} requests, {self.tokens:,} tokens, {limit}",
            f"{once}{late}", *([most] if self.more else []), *self.notes,
        ))  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def announcement_of(playbook: Playbook, site: UrlSite) -> Announcement:
    """What that check sends to that target. Raises ConfigError."""
    steps = [step.parameters for step in playbook.steps if step.type.on_url]
    return announced(steps, site.care.disruptive, len(site.group))


def announced(steps: Iterable[Any], disruptive: bool = False, group: int = 1) -> Announcement:
    """Of the parameters of steps; those that send nothing add nothing. `group`: replicas, the
    target itself included."""
    total = Announcement()
    for params in steps:
        for kind, count in OF_KIND.items():
            if isinstance(params, kind):
                total = total.plus(count(params))
        if isinstance(params, models.SoakStep) and params.storms and disruptive:
            total = total.plus(_STORMS)
        if isinstance(params, models.LoadStep) and group > 1:
            asked = group * replicas.TURNS * replicas.REQUESTS
            total = total.plus(Announcement(asked, asked * replicas.TOKENS, 1, more=3 * asked))
    return total


def _load(params: models.LoadStep) -> Announcement:
    """What looks slower than usual is measured once more."""
    found = _of(make_spec(params.arrivals, params.lengths, requests=params.requests,
                          duration_s=params.duration_s, seed=0))  # fmt: skip
    return replace(found, more=found.requests)


def _profile(params: models.ProfileStep) -> Announcement:
    """Once more where the host disturbed it, and where it looks slower than usual."""
    found = _of(make_spec(params.arrivals, params.lengths, requests=params.requests, seed=0))
    return replace(found, more=3 * found.requests)


def _canary(params: models.CanaryStep) -> Announcement:
    """Of both sides together. Every stage takes its least time, and one with the baseline alone
    goes before the stage with everybody."""
    from playbooks.canary.plan import parse_stages
    from playbooks.canary.probes import CASES, MARKED

    shares = parse_stages(params.stages)
    stages = len(shares) + (shares[-1] == 1.0)
    seconds = [max(s * params.time_scale * stages, 1.0) for s in (params.least_s, params.hold_s)]
    least, most = (_of(make_spec(params.arrivals, params.lengths, duration_s=s, seed=0))
                   for s in seconds)  # fmt: skip
    marked = 0 if "crosstalk" in params.waive else 2 * MARKED * (1 + len(shares))
    asked = marked + (0 if "quality" in params.waive else 2 * CASES)
    traffic = replace(least, more=most.requests - least.requests)
    return traffic.plus(Announcement(asked, asked * ASKED_TOKENS, max(CASES, MARKED)))


def _of(spec: LoadSpec) -> Announcement:
    closed = isinstance(spec.arrivals, Closed)
    count = spec.requests
    if count is None and not isinstance(spec.arrivals, Closed):
        end = int((spec.seconds or 0.0) * 1e9)
        times = islice(spec.arrivals.times(spec.seed), COUNTED)
        count = sum(1 for _ in _before(times, end))
    users = spec.arrivals.users if isinstance(spec.arrivals, Closed) else 0
    if count is None:  # a closed loop until its time is over: one answer a second and user
        count = int(users * (spec.seconds or 0.0))
    return Announcement(count, int(count * _mean(spec.mix.pairs(spec.seed))), users, not closed)


def _before(times: Iterable[int | None], end: int) -> Iterable[int]:
    for time in times:
        if time is None or time >= end:
            return
        yield time


def _mean(pairs: Iterable[tuple[int, int]]) -> float:
    drawn = [prompt + output for prompt, output in islice(pairs, SAMPLE)]
    return sum(drawn) / max(len(drawn), 1)


def _sweep(params: models.SweepStep) -> Announcement:
    """What the host disturbed is measured once more."""
    count = params.repeats * sum(max(params.least_requests, params.requests_per_user * n)
                                 for n in params.batches)  # fmt: skip
    mean = _mean(parse_mix(params.lengths).pairs(0))
    return Announcement(count, int(count * mean), max(params.batches), more=count)


def _quality(params: models.QualityStep) -> Announcement:
    marked = crosstalk.CLIENTS * len(crosstalk.ROUNDS)
    prompt = crosstalk.TIMES * 6
    found = Announcement(marked, marked * (prompt + crosstalk.OUTPUT), crosstalk.CLIENTS)
    if params.size == "probe" and not (params.record or params.against):
        return found
    requests, tokens = quality_cases.size_of(params)
    return found.plus(Announcement(requests, tokens, quality_cases.AT_ONCE))


def _soak(params: models.SoakStep) -> Announcement:
    """By time: as many as come if an answer takes a second."""
    by_time = soak.AT_ONCE * params.duration_s if params.duration_s is not None else 0.0
    count = max(params.wave * params.waves, int(by_time)) + soak.WARM_UP_WAVES * soak.AT_ONCE + 1
    return Announcement(count, count * (2 * soak.PROMPT + soak.LONG // 3 + soak.OUTPUT),
                        soak.AT_ONCE)  # fmt: skip


_STORMS = Announcement(
    soak.STORM + 2 * soak.REFUSED,
    soak.STORM * (2 * soak.PROMPT + soak.LONG),
    soak.STORM,
    notes=(
        f"disruptive: {soak.STORM} clients that leave at once, {soak.REFUSED} requests for a model "
        f"that is not there, {soak.REFUSED} with a prompt of twice the model's length",
    ),
)
OF_KIND: dict[type[Any], Callable[[Any], Announcement]] = {
    models.LoadStep: _load,
    models.ProfileStep: _profile,
    models.CanaryStep: _canary,
    models.SweepStep: _sweep,
    models.QualityStep: _quality,
    models.SoakStep: _soak,
}
