"""A soak from outside: waves of short requests with clients that leave; then the target must be
as it was.

Between two waves nothing is sent. Running and waiting must come back to nothing, KV usage to its
floor; resident memory and, of a process on this machine, open files have no slope; its counters
rise by what was sent. Requests that stay while no token comes are left behind; requests with tokens
are somebody else's, and then nothing can be said about what is left. Storms are disruptive and run
only where that was allowed: many cancellations at once, and requests that must be refused (a model
that is not there, prompts longer than the model takes).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.observing.host import Held, held_by
from engine.snapshot import Snapshot
from playbooks.diagnosis import Growth
from playbooks.load.prompts import TextPrompts, fresh_seed
from playbooks.outside.asking import Answer, Question, ask, ask_whole
from playbooks.outside.counters import Counters, disagreements
from playbooks.outside.load import NO_PAGE
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.statistics.intervals import theil_sen
from playbooks.steps import models

PROMPT, OUTPUT, LONG = 6, 4, 48
"""Words and tokens; a client that leaves has asked for LONG."""
LEAVE_EVERY, LEAVE_AFTER = 3, 2
AT_ONCE = 8
STORM, REFUSED = 24, 4
"""Clients that leave at once; requests of each kind that must be refused."""
NO_MODEL = "evewatch-no-such-model"
WARM_UP_WAVES = 2
QUIET_S, SETTLE_S, LOOK_S = 4.0, 20.0, 0.25
"""What stays for QUIET_S without a token is left behind; tokens for SETTLE_S are others'."""
RESTED_S = 5.0
"""After so long without a request the next one may find it asleep."""
LONGEST_SENT = 16_384
"""Tokens: a model that takes more is not sent prompts beyond its length."""
LEAST_BYTES, LEAST_RSS = 1024, 32 << 20
LEAST_RATE, LEAST_GROWTH = 0.02, 4
"""Of open files: one in fifty requests leaves one."""
LEAST_USAGE = 0.02
"""Of the KV cache: less is no growth."""
INSIDE = ("idle_pages_per_request", "entries_per_request")


@dataclass(frozen=True)
class IdleLook:
    """The target after `served` requests, with nothing of ours in it."""

    served: int
    running: int | None
    waiting: int | None
    kv_usage: float | None
    rss: int | None
    files: int | None
    """Open ones."""
    others: bool
    """Tokens came although nothing was asked."""

    @property
    def held(self) -> int | None:
        known = [n for n in (self.running, self.waiting) if n is not None]
        return sum(known) if known and not self.others else None


def run_soak(site: UrlSite, params: models.SoakStep, clock: StepClock) -> StepOutcome:
    with site.watched():
        soak = _Soak(site, params, clock)
        before = Counters.of(site.watch.look())
        soak.waves()
        if params.storms and site.care.disruptive:
            soak.storms()
        disagree = disagreements(before, soak.endpoint.records, site.watch)
        soak.watch_on()
    looks, last = soak.looks, soak.looks[-1]
    grown = growth(looks)
    told = last.held is not None
    slopes = {
        "rss_bytes_per_request": _slope(looks, [look.rss for look in looks]),
        "open_files_per_request": _slope(looks, [look.files for look in looks]),
    }
    metrics: dict[str, Any] = {
        "grew": len(grown) if told else None,
        "left": last.held,
        **{name: slope and slope[0] for name, slope in slopes.items()},
        "growth": tuple(grown) if told else None,
        "inconsistent": disagree or None,  # what a load found is not taken back
        **site.facts(),
    }
    doubts = [why for why in (soak.endpoint.tripped, None if soak.answered else "no request was "
              "answered", None if site.watch.told else NO_PAGE) if why]  # fmt: skip
    if last.others:
        doubts.append("others use the target: what is left behind cannot be told from theirs")
    report = {"served": soak.served, "answered": soak.answered,
              "to_refuse": soak.to_refuse, "refused": soak.refused, "disagree": disagree,
              "looks": [asdict(look) for look in looks],
              "storms": params.storms and site.care.disruptive,
              "watched_s": round(site.watch.seconds, 1)}  # fmt: skip
    note = f"{soak.served} served, {len(grown)} things grew, watched {site.watch.seconds:.0f} s"
    blind = {*INSIDE, *(name for name, slope in slopes.items() if slope is None)}
    return StepOutcome(metrics, note, report, not_told=frozenset(blind), doubts=tuple(doubts))


class _Soak:
    def __init__(self, site: UrlSite, params: models.SoakStep, clock: StepClock) -> None:
        self.site, self.params, self.clock = site, params, clock
        self.endpoint = GuardedEndpoint(site)
        self.prompts = TextPrompts(fresh_seed())
        self.served = self.answered = self.to_refuse = self.refused = 0
        self.looks: list[IdleLook] = []
        self.others = False
        self._end = None if clock.left_s is None else time.monotonic() + clock.left_s

    def waves(self) -> None:
        params = self.params
        end = None if params.duration_s is None else time.monotonic() + params.duration_s
        for _ in range(WARM_UP_WAVES):
            self._wave(min(params.wave, AT_ONCE))
        self.looks.append(self._idle())
        done = 0
        while done < params.waves or (end is not None and time.monotonic() < end):
            self._wave(params.wave)
            self.looks.append(self._idle())
            done += 1
            self.clock.check(min(done, params.waves), params.waves + 1)

    def storms(self) -> None:
        """Many that leave at once; then what must be refused."""
        self._send([Question(self._prompt(i), LONG, 1 + i % 3) for i in range(STORM)], STORM)
        spec, newest = self.endpoint.spec, self.site.newest
        asked = [spec.prompt(self._prompt(i)) | {"model": NO_MODEL} for i in range(REFUSED)]
        longest = newest.engine.max_model_len if newest is not None else None
        if longest is not None and longest <= LONGEST_SENT:
            asked += [spec.prompt(self.prompts.make(0, 2 * longest))] * REFUSED
        answers = ask_whole(self.endpoint, [one | {"max_tokens": OUTPUT} for one in asked], 2)
        self.served += len(answers)
        self.to_refuse = len(answers)
        self.refused = sum(answer.refused for answer in answers)
        self.looks.append(self._idle())

    def watch_on(self) -> None:
        """Leave it alone until it was watched long enough; then ask once: who has slept may wake
        slowly."""
        begun = time.monotonic()
        while self.site.watch.seconds < self.site.least_watch_s and not self._over():
            time.sleep(LOOK_S)
        if time.monotonic() - begun > RESTED_S and not self._over():
            self._wave(1)
        self.clock.show(1, 1)

    def _over(self) -> bool:
        return self._end is not None and time.monotonic() > self._end

    def _wave(self, count: int) -> None:
        leaves = [(i + 1) % LEAVE_EVERY == 0 for i in range(count)]
        self._send([Question(self._prompt(i), LONG if gone else OUTPUT,
                             LEAVE_AFTER if gone else None)
                    for i, gone in enumerate(leaves)], AT_ONCE)  # fmt: skip

    def _send(self, questions: Sequence[Question], at_once: int) -> list[Answer]:
        answers = ask(self.endpoint, questions, at_once)
        self.served += len(answers)
        self.answered += sum(answer.error is None for answer in answers)
        return answers

    def _prompt(self, number: int) -> str:
        return self.prompts.make(self.served + number, PROMPT)

    def _idle(self) -> IdleLook:
        """At rest, or after SETTLE_S as it is."""
        end = time.monotonic() + (SETTLE_S if not self.others else QUIET_S)
        before = seen = self.site.watch.look()
        moved = time.monotonic()
        while _inside(seen) and time.monotonic() < end and time.monotonic() - moved < QUIET_S:
            time.sleep(LOOK_S)
            seen = self.site.watch.look()
            if seen.batch.output_tokens_total != before.batch.output_tokens_total:
                before, moved = seen, time.monotonic()
        self.others = bool(_inside(seen)) and time.monotonic() - moved < QUIET_S
        live, process = seen.source.state == "live", self.site.process
        held = held_by(process) if process is not None else Held(None, None)
        told = seen.memory.rss_bytes if live else None
        return IdleLook(
            self.served,
            seen.batch.running if live else None,
            seen.queue.waiting if live else None,
            seen.kv.usage if live else None,
            held.resident_bytes if told is None else told,
            held.open_files,
            self.others,
        )


def _inside(seen: Snapshot) -> int:
    if seen.source.state != "live":
        return 0
    return (seen.batch.running or 0) + (seen.queue.waiting or 0)


def growth(looks: Sequence[IdleLook]) -> list[Growth]:
    """What did not come back, and what rose from look to look."""
    last, found = looks[-1], []
    if last.held:
        held = _slope(looks, [look.held for look in looks])
        rate = held[0] if held and held[0] > 0 else last.held / max(last.served, 1)
        found.append(Growth("requests that never end", "ledger", rate))
    usage = [look.kv_usage for look in looks]
    if _rises(looks, usage, 0.0, LEAST_USAGE):
        found.append(Growth("KV usage at rest", "ledger", (_slope(looks, usage) or (0.0, 0.0))[0]))
    rss = [look.rss for look in looks]
    if _rises(looks, rss, LEAST_BYTES, LEAST_RSS):
        found.append(Growth("resident memory", "memory", (_slope(looks, rss) or (0.0, 0.0))[0]))
    files = [look.files for look in looks]
    if _rises(looks, files, LEAST_RATE, LEAST_GROWTH):
        found.append(Growth("open files", "container", (_slope(looks, files) or (0.0, 0.0))[0]))
    return found


def _rises(looks: Sequence[IdleLook], values: Sequence[float | None], rate: float,
           least: float) -> bool:  # fmt: skip
    slope = _slope(looks, values)
    if slope is None or values[0] is None or values[-1] is None:
        return False
    return slope[1] > 0 and slope[0] >= rate and values[-1] - values[0] >= least


def _slope(looks: Sequence[IdleLook], values: Sequence[float | None]) -> tuple[float, float] | None:
    """Per request, and the lower end of its interval; None where a look lacks the value."""
    known = [float(v) for v in values if v is not None]
    if len(known) < len(values) or len(known) < 3:
        return None
    found = theil_sen([look.served for look in looks], known)
    return None if found is None or found.low is None else (found.estimate, found.low)
