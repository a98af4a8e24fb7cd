"""Each onset and each recovery is told once, and only of engines that can be read."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import ConfigError
from engine.snapshot import BatchState, KvState, QueueState, Snapshot, Source, SourceState
from playbooks.alerts.fields import reading
from playbooks.alerts.file import AlertsFile, load
from playbooks.alerts.keeper import Keeper, Message
from playbooks.alerts.silences import Silence, Silences

FILE = """
group = "5s"
[[rules]]
name = "queue"
field = "queue.waiting"
above = 50
clears = 30
lasts = "30s"
severity = "critical"
text = "send less, or add a machine"
[[rules]]
name = "preempting"
field = "batch.preemptions_total"
above = 10
change = "1m"
lasts = "5s"
"""


def alerts(tmp_path: Path, text: str = FILE) -> AlertsFile:
    path = tmp_path / "alerts.toml"
    path.write_text(text)
    return load(path, {"SECRET": "s"})


@pytest.fixture
def keeper(tmp_path) -> Keeper:
    return Keeper(alerts(tmp_path))


def seen(waiting: int | None = 0, preempted: int = 0, state: str = "live") -> Snapshot:
    source = Source(SourceState(state), reason=None if state == "live" else "refused")
    queue, batch = QueueState(waiting=waiting), BatchState(preemptions_total=preempted)
    return Snapshot(source=source, queue=queue, batch=batch)


def told(keeper: Keeper, course, name="a", step=1.0) -> list[tuple[float, str, str]]:
    """(when, rule, state) of what `course(now)` gives rise to."""
    found = []
    now = 0.0
    for snapshot in course:
        for message in keeper.look({name: snapshot}, now):
            found.append((now, message.rule, message.state))
        now += step
    return found


def test_a_breach_is_told_once_and_its_end_once_and_soon(keeper):
    course = [seen(0)] * 100 + [seen(80)] * 300 + [seen(0)] * 200
    assert told(keeper, course) == [(135.0, "queue", "firing"), (435.0, "queue", "recovered")]


def test_what_does_not_last_is_not_told(keeper):
    assert told(keeper, ([seen(80)] * 29 + [seen(0)]) * 20) == []


def test_between_the_limit_and_where_it_clears_nothing_ends(keeper):
    course = [seen(80)] * 60 + [seen(40)] * 300 + [seen(30)] * 60
    assert [what[1:] for what in told(keeper, course)] == [
        ("queue", "firing"), ("queue", "recovered"),
    ]  # fmt: skip


def test_a_flapping_field_is_one_alert(keeper):
    rng = random.Random(0)
    course = [seen(80)] * 60 + [seen(rng.choice([0, 80])) for _ in range(600)] + [seen(0)] * 60
    assert [what[1:] for what in told(keeper, course)] == [
        ("queue", "firing"), ("queue", "recovered"),
    ]  # fmt: skip


def test_a_source_that_breaks_is_an_alert_of_its_own_and_no_breach(keeper):
    gone = replace(seen(900, preempted=500), source=Source(SourceState.UNREACHABLE, reason="no"))
    course = [seen(0)] * 60 + [gone] * 300 + [seen(0)] * 60
    assert told(keeper, course) == [(80.0, "source", "firing"), (380.0, "source", "recovered")]


def test_a_source_that_flaps_is_one_alert(keeper):
    course = [seen(0)] * 10 + [seen(state="unreachable")] * 30
    course += [seen(state="live" if n % 10 else "stale") for n in range(300)] + [seen()] * 60
    assert [what[1] for what in told(keeper, course)] == ["source", "source"]


@pytest.mark.parametrize(("answers", "alerts"), [(2, 1), (3, 1), (10, 0)])
def test_one_that_answers_now_and_then_is_one_alert(keeper, answers, alerts):
    """Every so many looks one is answered (2, 3), or one is not (10)."""

    def state(n: int) -> str:
        return "live" if (n % answers == 0) == (answers < 10) else "unreachable"

    course = [seen()] * 60 + [seen(state=state(n)) for n in range(600)] + [seen()] * 60
    assert [what[1:] for what in told(keeper, course)] == [
        ("source", "firing"), ("source", "recovered"),
    ][: 2 * alerts]  # fmt: skip


def test_time_without_numbers_counts_neither_way(keeper):
    """Twenty seconds of a breach, ten minutes of nothing, and ten seconds more: not thirty."""
    course = [seen(80)] * 20 + [seen(state="unreachable")] * 600 + [seen(80)] * 29 + [seen(0)] * 60
    assert {what[1] for what in told(keeper, course)} == {"source"}


def test_what_is_not_known_changes_nothing(keeper):
    course = [seen(80)] * 60 + [seen(None)] * 300 + [seen(0)] * 60
    assert [what[2] for what in told(keeper, course)] == ["firing", "recovered"]


def test_growth_of_what_only_grows(keeper):
    """Three a minute are none; one a second are; a restart of the counter is not."""
    slow = [seen(preempted=n // 20) for n in range(300)]
    fast = [seen(preempted=15 + n) for n in range(120)]
    after = [seen(preempted=0)] * 200
    found = told(keeper, slow + fast + after)
    assert [what[1:] for what in found] == [("preempting", "firing"), ("preempting", "recovered")]
    assert 300 < found[0][0] < 330


def test_a_day_of_healthy_traffic_is_silent(keeper):
    rng = random.Random(1)
    course = (seen(rng.randrange(40), preempted=n // 60) for n in range(0, 86_400, 5))
    assert told(keeper, course, step=5.0) == []


def test_targets_that_come_together_are_one_message(keeper):
    def look(now, waiting):
        return keeper.look({name: seen(waiting) for name in "abc"}, now)

    messages = [m for now in range(120) for m in look(float(now), 80 if now > 10 else 0)]
    (message,) = messages
    assert [one.name for one in message.targets] == ["a", "b", "c"]
    assert message.targets[0].value == 80 and message.targets[0].since == 11
    assert "queue.waiting above 50" in message.line and message.text.startswith("send less")
    assert json.loads(json.dumps(message.to_dict()))["severity"] == "critical"


def test_a_silence_holds_its_tongue_until_it_ends(keeper):
    keeper.silences = (Silence("que*", "a", 100.0, "we know"),)
    course = [seen(80)] * 200 + [seen(0)] * 60
    found = told(keeper, course)
    assert [(what[1], what[2]) for what in found] == [("queue", "firing"), ("queue", "recovered")]
    assert found[0][0] == 105.0  # it still fires when the silence ends


def test_what_was_silenced_to_its_end_is_never_told(keeper):
    keeper.silences = (Silence("*", "*", 1e9, "maintenance"),)
    assert told(keeper, [seen(80)] * 100 + [seen(0)] * 100) == []


def test_silences_are_kept_and_those_that_are_over_go(tmp_path):
    kept = Silences(tmp_path / "silences.json")
    kept.add(Silence("a", "*", 50.0, "x"), now=10.0)
    kept.add(Silence("b", "*", 500.0, "y"), now=100.0)
    assert [one.rule for one in kept.read()] == ["b"]
    kept.path.write_text("{}")
    with pytest.raises(ConfigError, match="no file of silences"):
        kept.read()


def test_ids_are_the_same_for_the_same_onset(tmp_path):
    def first() -> Message:
        keeper = Keeper(alerts(tmp_path))
        return next(m for now in range(60) for m in keeper.look({"a": seen(80)}, float(now)))

    assert first().id == first().id


@pytest.mark.parametrize(
    ("field", "snapshot", "value"),
    [
        ("queue.waiting", seen(7), 7.0),
        ("queue.waiting", seen(None), None),
        ("latency.ttft_ms.p99", seen(), None),
        ("engine.alarm", seen(), 0.0),
        ("engine.paused", Snapshot(), None),
        ("finished.error", Snapshot(finished={"stop": 3}), 0.0),
        ("finished.error", Snapshot(finished={"error": 2, "stop": 3}), 2.0),
        ("finished", Snapshot(finished={"error": 2, "stop": 3}), 5.0),
        ("finished.error", Snapshot(), None),
    ],
)
def test_fields(field, snapshot, value):
    assert reading(field)(snapshot) == value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('field = "queue.waiting"', 'field = "queue.wating"'), "alerts.toml:5: .*did you mean"),
        (("above = 50", ""), "above or below"),
        (("above = 50", "above = 50\nbelow = 3"), "above or below"),
        (("clears = 30", "clears = 60"), "beyond the limit"),
        (('lasts = "30s"', 'lasts = "soon"'), "not a time"),
        (('name = "preempting"', 'name = "queue"'), "alerts.toml:12: .*taken"),
        (('name = "queue"', 'name = "source"'), "taken"),
        (('severity = "critical"', 'severity = "high"'), "critical, warning"),
        (('group = "5s"', 'gruop = "5s"'), "did you mean 'group'"),
        (('group = "5s"', '[[ways]]\nkind = "command"\n'), "argv"),
        (('group = "5s"', '[[ways]]\nkind = "webhook"\nurl = "ftp://x"\n'), "http"),
        (('group = "5s"', '[[ways]]\nkind = "bell"\nsecret_env = "NONE"\n'), "NONE is not set"),
        (('group = "5s"', '[[ways]]\nkind = "pigeon"\n'), "bell, command, webhook"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(tmp_path, change, words):
    with pytest.raises(ConfigError, match=words) as error:
        alerts(tmp_path, FILE.replace(*change))
    assert "\n" not in str(error.value)


STATES = """
[[rules]]
name = "gone"
field = "source.unreachable"
above = 0
lasts = "60s"
severity = "critical"
[[rules]]
name = "pages"
field = "causes.kv_bound"
above = 0
lasts = "10s"
"""


def short_of_pages(limited: bool) -> Snapshot:
    batch = BatchState(running=20, bound_by="kv" if limited else "queue")
    return Snapshot(batch=batch, queue=QueueState(waiting=9 if limited else 0),
                    kv=KvState(usage=0.99 if limited else 0.3))  # fmt: skip


def test_a_state_of_a_target_is_a_rule_of_its_own(tmp_path):
    keeper = Keeper(alerts(tmp_path, STATES))
    course = [seen()] * 60 + [seen(state="unreachable")] * 40 + [seen()] * 60
    course += [seen(state="unreachable")] * 300 + [seen(state="stale")] * 100 + [seen()] * 100
    found = [what for what in told(keeper, course) if what[1] == "gone"]
    assert found == [(225.0, "gone", "firing"), (525.0, "gone", "recovered")]


def test_a_cause_that_a_diagnosis_finds_is_told_once(tmp_path):
    keeper = Keeper(alerts(tmp_path, STATES))
    course = [short_of_pages(False)] * 200 + [short_of_pages(True)] * 200
    found = told(keeper, course + [short_of_pages(False)] * 200)
    assert [what[1:] for what in found] == [("pages", "firing"), ("pages", "recovered")]
    assert 200 < found[0][0] < 260 and 400 < found[1][0] < 460


def test_a_cause_that_there_is_not_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"alerts.toml:10: .*did you mean 'kv_bound'"):
        alerts(tmp_path, STATES.replace("causes.kv_bound", "causes.kv_bond"))


GROWTH = """
[[rules]]
name = "preempting"
field = "batch.preemptions_total"
above = 30
clears = 10
change = "1m"
"""


def test_growth_begins_as_soon_as_it_is_more_and_ends_by_what_came_since_the_cure(tmp_path):
    """One a second for ten minutes: 30 are more than a minute may have; half a minute of none ends
    it, long before the last minute is empty."""
    keeper = Keeper(alerts(tmp_path, GROWTH))
    course = [seen(preempted=0)] * 100 + [seen(preempted=n) for n in range(600)]
    course += [seen(preempted=600)] * 200
    assert told(keeper, course) == [
        (136.0, "preempting", "firing"), (730.0, "preempting", "recovered"),
    ]  # fmt: skip


def test_a_burst_is_told_once_and_so_is_each_that_follows(tmp_path):
    keeper = Keeper(alerts(tmp_path, GROWTH))
    course = [seen(preempted=40 * (n // 200)) for n in range(800)]
    assert [what[2] for what in told(keeper, course)] == ["firing", "recovered"] * 3


def test_growth_that_is_too_small_needs_the_whole_window(tmp_path):
    """No progress is told once a whole window was seen: the first seconds say nothing."""
    rule = GROWTH.replace("above = 30\nclears = 10", "below = 30").replace("1m", "20s")
    keeper = Keeper(alerts(tmp_path, rule))
    course = [seen(preempted=5 * n) for n in range(30)] + [seen(preempted=150)] * 60
    course += [seen(preempted=150 + 5 * n) for n in range(60)]
    assert [what[2] for what in told(keeper, course)] == ["firing", "recovered"]


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["slept", "set back"])
def test_a_clock_that_jumps_makes_nothing_last(keeper, jump):
    """Seen at 10 s before a sleep and right after it: that is not an hour, nor half a minute."""
    found = [message for now in range(20) for message in keeper.look({"a": seen(80)}, float(now))]
    for now in range(20, 45):
        found += keeper.look({"a": seen(80)}, now + jump)
    assert found == []
    for now in range(45, 60):
        found += keeper.look({"a": seen(80)}, now + jump)
    assert [one.state for one in found] == ["firing"]
