"""Budgets that are spent too fast are told once, and once when it is over."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import ConfigError
from engine.observing.objectives import Objective
from engine.snapshot import ObjectiveCount, Snapshot, Source, SourceState
from playbooks.alerts.burn import with_burn_rules
from playbooks.alerts.file import AlertsFile, load
from playbooks.alerts.watchkeeper import Watchkeeper
from playbooks.objectives.book import Book
from playbooks.objectives.file import Objectives

DAY = 86_400.0
PROMISED = Objectives((Objective("ttft", 0.99, 0.5),), 8 * DAY)
BEGAN = 1_798_070_400.0
NONE = AlertsFile((), (), 15.0, 0.0, Path("none"))


class Night:
    """An engine that counts, looked at every so often; `missing` is the share of its requests."""

    def __init__(self, tmp_path, text: str = "", services=None) -> None:
        path = tmp_path / "alerts.toml"
        path.write_text(text)
        self.now, self.good, self.total, self.missing = 0.0, 0.0, 0.0, 0.0
        self.state = SourceState.LIVE
        self.rng = random.Random(0)
        self.told: list[tuple[float, str, str, str]] = []
        alerts = with_burn_rules(load(path, {}), PROMISED)
        self.keeper = Watchkeeper(
            alerts, (), self.targets, book=Book(PROMISED, tmp_path / "objectives.json"),
            services=services,
        )  # fmt: skip

    def targets(self) -> dict[str, Snapshot]:
        count = ObjectiveCount("ttft", 500.0, int(self.good), int(self.total), since=BEGAN)
        source = Source(self.state)
        seen = Snapshot(time=BEGAN + self.now, source=source, objectives=(count,))
        return {"a": seen, "b": replace(seen, objectives=())}

    def live(self, seconds: float, step: float = 5.0) -> None:
        for _ in range(int(seconds / step)):
            self.now += step
            came = self.rng.randint(0, 4) * step
            self.total += came
            self.good += came - sum(self.rng.random() < self.missing for _ in range(int(came)))
            for one in self.keeper.look(BEGAN + self.now):
                self.told.append((self.now, one.rule, one.state, one.targets[0].name))

    def of(self, rule: str) -> list[tuple[str, float]]:
        return [(state, now) for now, name, state, _ in self.told if name == rule]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("playbooks.alerts.watchkeeper.SAVE_EVERY_S", DAY)  # a disk is slow


def test_a_breach_is_told_once_and_its_end_once(tmp_path):
    night = Night(tmp_path)
    night.live(3600, 10.0)
    night.missing, began = 0.8, night.now
    night.live(1200)
    night.missing, ended = 0.0, night.now
    night.live(3600)
    (fired, at), (recovered, over) = night.of("ttft budget fast")
    assert (fired, recovered) == ("firing", "recovered")
    # 14.4 × over 16 min is 2 % of the budget: at 80 × it is spent in 3 min
    assert 120 < at - began < 240 and over - ended <= 60
    (fired, at), (recovered, over) = night.of("ttft missed")
    assert (fired, recovered) == ("firing", "recovered")
    assert at - began <= 60 and over - ended <= 60
    assert [state for state, _ in night.of("ttft budget slow")] == ["firing", "recovered"]
    assert {name for _, _, _, name in night.told} == {"a"} and not night.of("source")


def test_a_day_within_the_objective_is_silent(tmp_path):
    night = Night(tmp_path)
    night.missing = 0.009
    night.live(DAY, 60.0)
    assert night.told == []


def test_slow_spending_is_a_warning(tmp_path):
    night = Night(tmp_path)
    night.missing = 0.08
    night.live(3 * 3600, 20.0)
    assert [state for state, _ in night.of("ttft budget slow")] == ["firing"]
    assert not night.of("ttft budget fast")


def test_what_nobody_sees_is_no_spending(tmp_path):
    """An engine that does not answer is `source`; its budget's alerts neither begin nor end."""
    night = Night(tmp_path)
    night.live(3600, 10.0)
    night.missing, night.state = 0.9, SourceState.UNREACHABLE
    night.live(600)
    assert {rule for _, rule, _, _ in night.told} == {"source"}


def test_a_fleet_s_budget_is_the_group_s(tmp_path):
    night = Night(tmp_path, services=lambda: {"chat": ("a", "b")})
    night.live(600, 10.0)
    night.missing = 0.9
    night.live(600)
    assert {name for _, rule, _, name in night.told} == {"chat"}


def test_a_rule_of_one_s_own_takes_its_place_and_budgets_have_fields(tmp_path):
    text = (
        '[[rules]]\nname = "ttft budget fast"\nfield = "objectives.ttft.spent"\nabove = 0.5\n'
        '[[rules]]\nname = "gone soon"\nfield = "objectives.ttft.pace"\nabove = 3\n'
    )
    night = Night(tmp_path, text)
    names = [rule.name for rule in night.keeper.keeper._alerts.rules]  # type: ignore[union-attr]
    assert names == [
        "ttft budget fast", "gone soon", "ttft missed", "ttft budget slow", "ttft budget spent",
    ]  # fmt: skip
    night.missing = 0.2
    night.live(1200)
    assert night.of("gone soon") and not night.of("ttft budget fast")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("objectives.tftt.spent", "alerts.toml:3: .*did you mean 'ttft'"),
        ("objectives.ttft.spend", "did you mean 'spent'"),
        ("objectives", "objectives.NAME.WHAT"),
    ],
)
def test_what_is_wrong_in_a_rule_is_one_line(tmp_path, field, words):
    path = tmp_path / "alerts.toml"
    path.write_text(f'[[rules]]\nname = "x"\nfield = "{field}"\nabove = 1\n')
    with pytest.raises(ConfigError, match=words):
        load(path, {})


def test_messages_say_what_is_at_stake():
    alerts = with_burn_rules(NONE, PROMISED)
    words = {rule.name: (rule.words, rule.text, rule.severity) for rule in alerts.rules}
    assert words["ttft budget fast"] == (
        "pace of the ttft budget over 16 min and 80 s (1 lasts) above 14.4",
        "at this pace the whole window's budget would be gone in 13 h", "critical",
    )  # fmt: skip


def test_an_objective_that_most_may_miss_has_no_alert_for_most():
    loose = Objectives((Objective("ttft", 0.5, 0.5),), 8 * DAY)
    names = {rule.name for rule in with_burn_rules(NONE, loose).rules}
    assert names == {"ttft budget fast", "ttft budget slow", "ttft budget spent"}
