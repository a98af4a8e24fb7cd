"""The keeper: looks at engines by the rules, and tells onsets and recoveries, each once.

A pure machine: Snapshots and the time come in, messages go out. So a recording can be played
through it as fast as it is read. Between onset and recovery a rule says nothing; what is not
known changes nothing; and while an engine does not answer, no other rule of it begins or ends: the
numbers that it showed last are not those of now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.snapshot import Snapshot, SourceState
from playbooks.alerts.causes import TABLE as CAUSES
from playbooks.alerts.causes import Causes, Diagnosis
from playbooks.alerts.fields import OBJECTIVES
from playbooks.alerts.file import SNAPSHOT, SOURCE, STATE, AlertsFile, Rule
from playbooks.alerts.growth import Growth
from playbooks.alerts.outage import Outage
from playbooks.alerts.silences import Silence, silenced
from playbooks.objectives.budget import Budget

FIRING, RECOVERED = "firing", "recovered"
FLAPS = 4.0
"""An engine that is silent for a quarter of the time does not answer."""
GAP_S = 120.0
"""Looks that lie farther apart, or go back in time, see nothing last: the machine slept, or its
clock was set."""


@dataclass(frozen=True)
class Affected:
    """One target in a message."""

    name: str
    value: float | None
    since: float
    """Unix seconds: of the breach, or of being back."""
    reason: str | None = None


@dataclass(frozen=True)
class Message:
    id: str
    """The same whenever and however often it is sent."""
    state: str
    """firing | recovered"""
    rule: str
    severity: str
    words: str
    """What the rule is about."""
    text: str
    targets: tuple[Affected, ...]
    time: float

    def to_dict(self) -> dict[str, Any]:
        return {"schema": 1, "kind": "alert", **asdict(self)}

    @property
    def line(self) -> str:
        """For a screen."""
        names = ", ".join(
            one.name + (f" ({one.value:g})" if one.value is not None else "")
            + (f" ({one.reason})" if one.reason else "")
            for one in self.targets
        )  # fmt: skip
        severity = "critical" if self.severity == "critical" else "warning"
        state = "firing" if self.state == FIRING else "recovered"
        return f"{severity} {state}: {self.rule}: {self.words}: {names}"


@dataclass
class Episode:
    """A rule at one target: how long it has been beyond its limit, or back."""

    firing: bool = False
    since: float | None = None
    """When what would change `firing` began, and has not stopped since."""
    onset: float = 0.0
    value: float | None = None
    """When that was last seen to be so."""
    reason: str | None = None
    told: bool = False
    """Its onset went out: it was not silenced."""
    ended: float | None = None
    """When it was over last."""
    growth: Growth | None = None
    """Of a rule on growth."""

    def turn(self, turns: bool, now: float, lasts: float) -> bool:
        """It begins to fire, or ends: what would change it has lasted."""
        if not turns:
            self.since = None
            return False
        self.since = now if self.since is None else self.since
        if now - self.since < lasts:
            return False
        self.firing, self.onset, self.since = not self.firing, self.since, None
        return True

    def forget(self) -> None:
        """What was on its way to a change has not been seen to last."""
        self.since = self.growth = None


class Keeper:
    """`look` as often as engines are looked at; what comes back is to be sent.

    `before`: what fired when another keeper of these rules ended, as its `to_plain` said it.
    """

    def __init__(self, alerts: AlertsFile, before: Iterable[Mapping[str, Any]] = ()) -> None:
        self._alerts = alerts
        self._rules = {
            of: [rule for rule in alerts.rules if rule.of == of]
            for of in (STATE, SNAPSHOT, CAUSES, OBJECTIVES)
        }
        self._diagnoses: dict[str, Diagnosis] = {}
        self._outages: dict[str, Outage] = {}
        self._before = {(one["rule"], one["target"]): one for one in before}
        self._episodes: dict[tuple[str, str], Episode] = {}
        self._open: dict[tuple[str, str], list[Affected]] = {}
        """Of messages that wait for others of their rule: (rule, state) → targets."""
        self._opened: dict[tuple[str, str], float] = {}
        self._looked: float | None = None
        self.silences: tuple[Silence, ...] = ()

    def look(
        self,
        targets: Mapping[str, Snapshot],
        now: float,
        services: Mapping[str, Sequence[Budget]] | None = None,
    ) -> list[Message]:
        """`services`: the budgets of each; those that are not known now are left out."""
        self._mind_the_gap(now)
        for name, snapshot in targets.items():
            live = self._source(name, snapshot, now)
            self._each(STATE, name, snapshot, now)
            self._each(SNAPSHOT, name, snapshot if live else None, now)
            if self._rules[CAUSES]:
                self._each(CAUSES, name, self._causes(name, snapshot, live, now), now)
        for name, budgets in (services or {}).items():
            self._each(OBJECTIVES, name, budgets or None, now)
        return self._due(now)

    def to_plain(self) -> list[dict[str, Any]]:
        """What fires, the oldest first: rule, target, since when, and whether it was told."""
        firing = sorted(
            (one.onset, *key, one.told) for key, one in self._episodes.items() if one.firing
        )
        return [
            {"rule": rule, "target": target, "since": since, "told": told}
            for since, rule, target, told in firing
        ]

    def close(self, now: float) -> list[Message]:
        """What still waits for others."""
        return [self._message(key, now) for key in list(self._open)]

    def _mind_the_gap(self, now: float) -> None:
        if self._looked is not None and not 0 <= now - self._looked <= GAP_S:
            for episode in self._episodes.values():
                episode.forget()
            for diagnosis in self._diagnoses.values():
                diagnosis.forget()
            for outage in self._outages.values():
                outage.forget()
        self._looked = now

    # --- rules --------------------------------------------------------------------------

    def _source(self, name: str, snapshot: Snapshot, now: float) -> bool:
        """Whether the engine's numbers are those of now; its silence is an alert of its own."""
        source = snapshot.source
        live = source.state is SourceState.LIVE
        episode = self._episode(SOURCE, name)
        if not live:
            episode.reason = source.reason or source.state.value.replace("_", " ")
        outage, lasts = self._outage(name), self._alerts.source_s
        outage.look(live, now)
        if episode.firing:
            turned = episode.turn(live, now, lasts)
        else:
            episode.since = outage.since
            turned = episode.turn(outage.seconds >= lasts, now, lasts)
        if turned:
            outage.forget()
        self._tell(SOURCE, name, episode, turned, now)
        return live

    def _outage(self, name: str) -> Outage:
        return self._outages.setdefault(name, Outage(FLAPS * self._alerts.source_s))

    def _causes(self, name: str, snapshot: Snapshot, live: bool, now: float) -> Causes | None:
        diagnosis = self._diagnoses.setdefault(name, Diagnosis())
        if live:
            return diagnosis.look(snapshot, now)
        diagnosis.forget()
        return None

    def _each(self, of: str, name: str, seen: Any, now: float) -> None:
        """All rules of that kind. `seen` None: it is not to be seen now."""
        for rule in self._rules[of]:
            if seen is not None:
                self._rule(rule, name, rule.read(seen), now)
            elif (episode := self._episodes.get((rule.name, name))) is not None:
                episode.forget()

    def _rule(self, rule: Rule, name: str, value: float | None, now: float) -> None:
        episode = self._episode(rule.name, name)
        if value is not None and rule.change_s is not None:
            value = _grown(rule, episode, value, now)
        if value is None:
            if rule.of == OBJECTIVES:
                episode.forget()
            return
        turns = rule.cleared(value) if episode.firing else rule.breached(value)
        if turns:
            episode.value = value
        turned = episode.turn(turns, now, _lasts(rule, episode))
        if turned and not episode.firing:
            episode.ended = now
            if episode.growth is not None:
                episode.growth.over()
        self._tell(rule.name, name, episode, turned, now)

    def _episode(self, rule: str, name: str) -> Episode:
        if (rule, name) not in self._episodes:
            episode = self._episodes[rule, name] = Episode()
            if (before := self._before.get((rule, name))) is not None:
                episode.firing, episode.told = True, before["told"]
                episode.onset = before["since"]
        return self._episodes[rule, name]

    # --- messages -----------------------------------------------------------------------

    def _tell(self, rule: str, name: str, episode: Episode, turned: bool, now: float) -> None:
        """An onset, once nothing silences it; a recovery, if its onset was told."""
        if episode.firing and not episode.told and not silenced(self.silences, rule, name, now):
            episode.told = True
        elif not (turned and not episode.firing and episode.told):
            return
        else:
            episode.told = False
        key = (rule, FIRING if episode.firing else RECOVERED)
        self._opened.setdefault(key, now)
        reason = episode.reason if episode.firing else None
        one = Affected(name, episode.value, episode.onset, reason)
        self._open.setdefault(key, []).append(one)

    def _due(self, now: float) -> list[Message]:
        due = [key for key, at in self._opened.items() if not 0 <= now - at < self._alerts.group_s]
        return [self._message(key, now) for key in due]

    def _message(self, key: tuple[str, str], now: float) -> Message:
        del self._opened[key]
        targets = tuple(self._open.pop(key))
        name, state = key
        rule = next((rule for rule in self._alerts.rules if rule.name == name), None)
        if rule is None:
            about = ("critical", "the engine does not answer, or cannot be read", "")
        else:
            about = (rule.severity, rule.words, rule.text)
        text = f"{name} {state} " + " ".join(f"{one.name}@{one.since:.3f}" for one in targets)
        identity = hashlib.sha256(text.encode()).hexdigest()[:16]
        return Message(identity, state, name, *about, targets, now)


def _lasts(rule: Rule, episode: Episode) -> float:
    """How long what would change it has to last."""
    if not episode.firing:
        return rule.lasts_s
    relapsed = episode.ended is not None and episode.onset - episode.ended < rule.relapse_s
    return rule.relapse_s if relapsed else rule.back_s


def _grown(rule: Rule, episode: Episode, value: float, now: float) -> float | None:
    """What the rule judges: of a breach that goes on, what came lately."""
    assert rule.change_s is not None
    if episode.growth is None:
        episode.growth = Growth(rule.change_s, rule.calm_s)
    episode.growth.look(value, now)
    if episode.firing:
        return episode.growth.lately
    return episode.growth.so_far if rule.over else episode.growth.whole
