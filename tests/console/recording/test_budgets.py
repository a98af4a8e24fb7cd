"""A recording keeps what budgets need: panel 8 in a replay, and rules tried on it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from console.app import build_app
from console.cli import app
from console.recording.file import Recording
from console.recording.line import Moment
from console.recording.recorder import About, Recorder
from console.recording.replay import Replay
from engine.observing.objectives import Objective
from engine.snapshot import ObjectiveCount, QueueState, Snapshot, Source, SourceState
from playbooks.objectives.file import Objectives
from playbooks.reports.formats import as_markdown
from recordings import START, Clock, record
from report_schemas import violations
from screens import settle, text_of
from waiting import until_shown

PROMISED = Objectives((Objective("ttft", 0.99, 0.5), Objective("reachable", 0.99)), 86_400.0)
RULES = '[[rules]]\nname = "queue"\nfield = "queue.waiting"\nabove = 50\n'


def night(path: Path, seconds: int = 3600) -> Path:
    """An hour: ten minutes of it most requests miss and a queue stands, two nobody answers."""
    clock = Clock()
    recorder = Recorder(path, About("http://a:1", 1.0, objectives=PROMISED), clock)
    good = total = 0
    for second in range(seconds):
        clock.now = START + second
        storm, gone = 1200 <= second < 1800, 3000 <= second < 3120
        total += 0 if gone else 4
        good += 0 if gone or (storm and second % 10) else 4
        count = ObjectiveCount("ttft", 500.0, good, total, since=START)
        state = SourceState.UNREACHABLE if gone else SourceState.LIVE
        recorder.add(Snapshot(
            seq=second, time=clock.now, source=Source(state, target="http://a:1"),
            queue=QueueState(waiting=90 if storm else 3), objectives=(count,),
        ))  # fmt: skip
    recorder.close()
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return night(tmp_path_factory.mktemp("night") / "night.everec")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))


def test_budgets_of_any_moment_are_those_of_the_counts_until_then(recorded):
    player = Replay.open(recorded)
    assert player.budgets is not None and player.budgets.at(START) == ()
    player.budgets.read()
    ttft, answers = player.budgets.at(START + 1500)
    assert (ttft.tally.total, ttft.tally.missed) == (6000, 1080)
    assert ttft.spent == pytest.approx(1080 / 6000 / 0.01 * 1500 / 86_400)
    assert ttft.fast.told and answers.tally.missed == 0
    ttft, answers = player.budgets.at(START + 3599)
    assert ttft.tally.missed == 2160 and not ttft.fast.told
    assert answers.tally.missed == 120


def test_a_recording_without_objectives_has_no_budgets_and_reads_as_before(tmp_path):
    record(tmp_path / "old.everec", 5)
    player = Replay.open(tmp_path / "old.everec")
    assert player.budgets is None and player.snapshot().batch.running is not None


@pytest.mark.parametrize(
    "promised",
    [{}, [], 3, {"each": [], "window_s": -1}, {"each": [{"name": "moon"}], "window_s": 5},
     {"each": [{"name": "ttft", "share": 7, "within_s": 1}], "window_s": 5}],
)  # fmt: skip
def test_a_head_that_promises_nonsense_is_played_without_budgets(tmp_path, monkeypatch, promised):
    head = About.head
    monkeypatch.setattr(
        About, "head",
        lambda self, at: json.dumps(json.loads(head(self, at)) | {"objectives": promised}).encode(),
    )  # fmt: skip
    assert Replay.open(night(tmp_path / "odd.everec", 3)).budgets is None


@pytest.mark.parametrize(
    "line",
    [b"{}", b'{"objectives":[{"name":3}],"source":{"state":"live"}}', b'{"source":{"state":"x"}}',
     b'{"objectives":[', b'{"source":' + b"[" * 5000],
)  # fmt: skip
def test_a_line_that_cannot_be_read_counts_nothing(line):
    seen = Moment(START, 0, line).counts()
    assert seen.objectives == ()


async def test_panel_8_is_there_in_a_replay(recorded, tmp_path):
    player = Replay.open(recorded, lambda: 0.0)
    app = build_app(player, clock=player.now, refresh_hz=0.001, theme="evewatch", language="en")
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, lambda: player.budgets.at(player.now()))  # type: ignore[union-attr]
        player.seek(1500.0)
        app.tick()
        await settle(pilot, app)
        assert "⁸ Budget" in text_of(app) and "▲ TTFT" in text_of(app)


def replayed(*args: object):
    done = CliRunner().invoke(app, ["alerts", "replay", *map(str, args)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def test_rules_are_tried_on_it(recorded, tmp_path):
    """Each breach once, its end once, within a minute of cause and cure."""
    file = tmp_path / "a.toml"
    file.write_text(
        RULES + '[[ways]]\nkind = "webhook"\nurl = "http://x/"\nsecret_env = "NOT_SET"\n'
    )
    report = json.loads(replayed(file, recorded, "--json"))
    assert violations(report, "alerts_replay") == []
    at: dict[str, list[float]] = {}
    for one in report["messages"]:
        at.setdefault(one["rule"], []).append(one["time"] - START)
    cured = {"queue": (1200, 1800), "ttft missed": (1200, 1800), "source": (3000, 3120)}
    for rule, (cause, cure) in cured.items():
        onset, end = at.pop(rule)
        assert cause <= onset <= cause + 60 and cure <= end <= cure + 60, rule
    for times in at.values():  # budgets: told when they are spent, and over within a minute
        assert len(times) == 2 and 1200 < times[0] < 1800 <= times[1] <= 1860
    assert set(at) == {"ttft budget fast", "ttft budget slow"}
    text = as_markdown(report)
    assert "5 alerts in 60 min" in text and "queue.waiting above 50" in text


def test_replay_info_has_the_budgets(recorded):
    done = CliRunner().invoke(app, ["replay", str(recorded), "--info", "--json"])
    ttft, answers = json.loads(done.stdout)["budgets"]
    assert (ttft["unit"], ttft["missed"]) == ("requests", 2160)
    assert (answers["unit"], answers["missed"]) == ("seconds", 120)


def test_record_keeps_what_is_promised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evewatch.toml").write_text(
        '[objectives]\nwindow = "8d"\nttft = { within = "500ms", share = 0.99 }\n'
    )
    out = tmp_path / "a.everec"
    done = CliRunner().invoke(app, ["record", "demo", "--duration", "0.3s", "--out", str(out)])
    assert done.exit_code == 0, done.exception
    recording = Recording(out)
    assert recording.about["objectives"] == asdict(
        Objectives((Objective("ttft", 0.99, 0.5),), 8 * 86_400.0)
    ) | {"each": [asdict(Objective("ttft", 0.99, 0.5))]}
    assert [one.name for one in recording.moments(0)[-1].snapshot().objectives] == ["ttft"]
