"""The page of a night with one incident: who was not there knows what happened and what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from console.cli import app
from engine.errors import ConfigError
from engine.observing.objectives import Objective
from engine.snapshot import ObjectiveCount, QueueState, Snapshot
from playbooks.alerts.file import load
from playbooks.alerts.keeper import FIRING, RECOVERED, Affected, Message
from playbooks.alerts.watchkeeper import Watchkeeper, kept_state, record_of
from playbooks.handover.incidents import incidents
from playbooks.handover.page import handover
from playbooks.objectives.budget import budgets
from playbooks.objectives.course import Course
from playbooks.objectives.file import Objectives
from playbooks.optlog import Change, LogEffect, OptLog, Record
from playbooks.reports.documents import document
from playbooks.reports.formats import as_html, as_markdown
from report_schemas import violations

EVENING = datetime(2026, 12, 24, 20, tzinfo=UTC).timestamp()
HOUR = 3600.0


def at(hours: float, record: Record) -> Record:
    time = datetime.fromtimestamp(EVENING + hours * HOUR, UTC).isoformat()
    return replace(record, time=time, id=f"{hours:016.3f}".replace(".", ""))


def alert(hours: float, state: str, rule="queue", target="chat", **more) -> Record:
    one = Affected(target, 80.0, EVENING + hours * HOUR, more.get("reason"))
    when = EVENING + hours * HOUR + 30
    message = Message("id", state, rule, "critical", "queue.waiting above 50",
                      "send less, or add a replica", (one,), when)  # fmt: skip
    return at(hours + 0.01, record_of(message))


CAP = Record(
    "Cap 48 → 24", (Change("cap", 48, 24),), why="steps got slow", decision="adopt",
    operator="anna",
    effect=(LogEffect("ttft_p99_ms", 4200.0, 900.0),), rollback="set cap back to 48",
)  # fmt: skip
LIST = Record(
    "Checklist pre_holiday signed off: warn", why="Before the holiday",
    how={"command": "checklist"}, operator="ben",
    problems=("who is on call: fail, though it must be so; nobody",),
)  # fmt: skip
NIGHT = [
    at(-48, LIST), alert(-5, FIRING), alert(-4, RECOVERED),
    alert(7.0, FIRING), at(7.2, CAP), alert(7.5, RECOVERED),
    at(8, Record("Replica 3 looked at", problems=("its fan is loud",), operator="anna")),
]  # fmt: skip


def spent() -> dict[str, tuple]:
    promised = Objectives((Objective("ttft", 0.99, 0.5),), 8 * 86_400.0)
    course = Course(promised.each, promised.window_s)
    for n in range(13):
        good, total = n * 3500, n * 3600
        course.look(EVENING + n * HOUR, [ObjectiveCount("ttft", 500.0, good, total, since=EVENING)])
    return {"chat": budgets(promised, [course], EVENING + 12 * HOUR)}


def page(records=NIGHT, since=0.0, until=12.0, **more):
    return handover(records, EVENING + since * HOUR, EVENING + until * HOUR, **more)


def test_an_incident_has_its_length_and_what_was_done_meanwhile():
    (one,) = incidents(NIGHT, EVENING, EVENING + 12 * HOUR)
    assert (one.rule, one.target, one.value) == ("queue", "chat", 80.0)
    assert (one.ended or 0) - one.began == pytest.approx(HOUR / 2)
    assert [deed.partition(" ")[2] for deed in one.done] == ["Cap 48 → 24 (anna)"]


def test_one_that_began_before_and_went_on_is_of_this_time():
    assert len(incidents(NIGHT, EVENING - 4.5 * HOUR, EVENING + 12 * HOUR)) == 2


def test_an_onset_without_an_end_is_open_or_was_told_to_nobody():
    records = [alert(1, FIRING), alert(2, FIRING), alert(3, FIRING, target="b")]
    firing = [{"rule": "queue", "target": "b", "since": EVENING + 3 * HOUR}]
    found = page(records, watch={"firing": firing})["incidents"]
    assert [(i["target"], i["ended"], i["open"]) for i in found] == [
        ("chat", None, False), ("chat", None, False), ("b", None, True),
    ]  # fmt: skip


def test_the_page_says_what_happened_what_was_done_and_what_to_do():
    watch = {"firing": [], "rules": [{"words": "queue.waiting above 50", "text": "add a replica"}],
             "targets": {"chat": "live"}, "ended": None}  # fmt: skip
    forecast = {"start": "2026-12-25T08:00:00", "seconds": 86_400, "warnings": [],
                "sentences": ["It saturates at 20:00."]}  # fmt: skip
    report = page(watch=watch, budgets=spent(), forecast=forecast)
    text = as_markdown(report)
    for words in (
        "Nothing fires", "budget that will not last: ttft of chat", "1 alert in this time",
        "1 change",
        "critical | queue", "30 min", "Cap 48 → 24 (anna)", "cap: 48 → 24", "steps got slow",
        "ttft_p99_ms 4,200 → 900",
        "adopt, anna", "set cap back to 48", "who is on call: fail", "ben",
        "its fan is loud", "It saturates at 20:00.", "add a replica", "ttft within 500 ms: 99 %",
    ):  # fmt: skip
        assert words in text, words
    assert "<h2>What happened</h2>" in as_html(report)
    json.loads(json.dumps(report))


def test_a_quiet_night_says_so():
    text = as_markdown(page([], watch={"firing": []}))
    assert "Nothing fires." in text and "No alert in this time; nothing was changed" in text


def test_what_nobody_watches_is_not_known():
    assert "Nobody keeps watch: what fires is not known." in as_markdown(page([]))


def test_a_watch_that_ended_is_named():
    watch = {"firing": [{"rule": "queue", "target": "a", "since": EVENING}], "rules": [],
             "ended": EVENING + HOUR}  # fmt: skip
    text = as_markdown(page([], watch=watch))
    assert "1 firing: queue at a" in text and "nobody keeps watch since" in text


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_a_watchkeeper_saw_is_on_the_page(home):
    (home / "a.toml").write_text(
        'group = "1s"\n[[rules]]\nname = "q"\nfield = "queue.waiting"\nabove = 5\nlasts = "2s"\n'
        'text = "add one"\n'
    )
    keeper = Watchkeeper(
        load(home / "a.toml", {}), (), lambda: {"a": Snapshot(queue=QueueState(waiting=9))}
    )
    now = datetime.now(UTC).timestamp()
    for second in range(10):
        keeper.look(now - 10 + second)
    assert [one["rule"] for one in kept_state()["firing"]] == ["q"]
    done = CliRunner().invoke(app, ["log", "handover", "--out", str(home / "page.html"), "--json"])
    report = json.loads(done.stdout)
    assert report["verdict"].startswith("1 firing: q at a") and report["incidents"][0]["open"]
    assert {"if": "queue.waiting above 5", "then": "add one"} in report["remedies"]
    assert "q fires at a since" in (home / "page.html").read_text()
    keeper.stop(0.1)
    assert kept_state()["ended"] is not None
    assert OptLog().read().records


@pytest.mark.parametrize(("since", "words"), [("2126-01-01", "in the future"), ("soon", "no time")])
def test_since_must_be_a_time_that_was(home, since, words):
    with pytest.raises(ConfigError, match=words):
        raise CliRunner().invoke(app, ["log", "handover", "--since", since]).exception  # type: ignore[misc]


def test_alerts_that_overlap_at_a_target_are_told_as_one_thing_that_happened():
    records = [
        alert(7.0, FIRING), alert(7.05, FIRING, rule="ttft budget fast"), at(7.2, CAP),
        alert(7.4, RECOVERED, rule="ttft budget fast"), alert(7.5, RECOVERED),
        alert(9.0, FIRING, rule="source"), alert(9.1, RECOVERED, rule="source"),
    ]  # fmt: skip
    report = page(records, watch={"firing": []})
    lead = document(report).lead
    assert "3 alerts in this time" in lead[1] and len(lead) == 4
    assert "30 min, chat: queue, ttft budget fast. Done:" in lead[2] and "(anna)" in lead[2]
    assert lead[3].endswith("6 min, chat: source. Nothing is written down of it.")
    told = [one["if"] for one in report["remedies"]]
    assert told.count("an objective is missed, or its budget goes too fast") == 1


def test_the_page_is_as_its_schema_says():
    watch = {"firing": [{"rule": "q", "target": "a", "since": EVENING, "told": True}], "rules": [],
             "ended": None, "targets": {"a": "live"}}  # fmt: skip
    seen = {"a": Snapshot(queue=QueueState(waiting=3))}
    for report in (page(), page(watch=watch, budgets=spent(), engines=seen), page([], watch=watch)):
        assert violations(report, "handover") == []
