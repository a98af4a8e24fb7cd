"""Recordings: what goes in comes out, how large it gets, and what damage does."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from console.cli import app
from console.recording.codec import difference, patched, sample_of, snapshot_of, state_of
from console.recording.file import MAGIC, Recording
from console.recording.recorder import About, Recorder, RecorderThread, new_path, prune
from console.recording.replay import Replay
from engine.errors import ConfigError
from engine.simulated.fake import FakeEngine
from engine.snapshot import (
    AllocatorState,
    BatchState,
    Event,
    KvState,
    MemoryState,
    RequestRow,
    Snapshot,
    Source,
    SourceState,
)
from recordings import START, Clock, record
from repository import ROOT

FLOAT = st.none() | st.floats()
COUNT = st.integers(0, 2**40)
TIME = st.floats(0, 4e9)
LETTERS = st.text("fosc", min_size=0, max_size=200)
ROW = st.builds(
    RequestRow,
    st.sampled_from(["r-1", "r-2", "r-3", "r-4", "-", ""]),
    st.sampled_from(["running", "waiting", "preempted"]),
    *[COUNT] * 5,
    wait_ms=FLOAT,
    ttft_ms=FLOAT,
    age_s=FLOAT,
    source=st.none() | st.text(max_size=5),
    preemptions=st.none() | COUNT,
)
SNAPSHOT = st.builds(
    Snapshot,
    seq=COUNT,
    time=TIME,
    source=st.builds(Source, st.sampled_from(SourceState), reason=st.none() | st.text(max_size=9)),
    batch=st.builds(
        BatchState,
        running=st.none() | COUNT,
        dynamic=st.none() | st.booleans(),
        step_ms=FLOAT,
        bound_shares=st.none() | st.dictionaries(st.sampled_from("ab-"), st.floats(0, 1)),
    ),
    kv=st.builds(
        KvState,
        page_map=st.none() | LETTERS,
        owner_names=st.none() | st.dictionaries(LETTERS, LETTERS),
    ),
    memory=st.builds(
        MemoryState,
        allocators=st.none()
        | st.lists(st.builds(AllocatorState, st.just("x"), COUNT), max_size=3).map(tuple),
    ),
    finished=st.dictionaries(st.text(max_size=3), COUNT, max_size=3),
    events=st.lists(
        st.builds(Event, TIME, st.just("cap"), st.text(max_size=4), COUNT), max_size=4
    ).map(tuple),
    requests=st.lists(ROW, max_size=4).map(tuple),
)  # fmt: skip


def near(a, b):
    """Equal but for the rounding that a recording may do."""
    if isinstance(a, float) and isinstance(b, float | None):
        if not math.isfinite(a):
            return b is None
        return b is not None and abs(a - b) <= max(0.00051, abs(a) * 6e-5)
    if isinstance(a, int) and isinstance(b, float) and not isinstance(a, bool):
        return near(float(a), b)
    if is_dataclass(a):
        return type(a) is type(b) and all(
            near(getattr(a, f.name), getattr(b, f.name)) for f in fields(a)
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(near(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(near, a, b))
    return type(a) is type(b) and a == b


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(SNAPSHOT, min_size=1, max_size=4))
def test_any_snapshots_come_back_through_json(snapshots):
    before = None
    for snapshot in snapshots:
        state = state_of(snapshot)
        delta = state if before is None else difference(before, state)
        delta = json.loads(json.dumps(delta, allow_nan=False))
        before = delta if before is None else patched(before, delta)
        assert near(snapshot, snapshot_of(before))


@settings(max_examples=40, deadline=None)
@given(SNAPSHOT)
def test_what_graphs_read_is_in_a_sample(snapshot):
    sample = sample_of(state_of(snapshot))
    assert near(snapshot.batch.running, sample.batch.running)
    assert near(snapshot.latency, sample.latency)
    assert sample.requests == () and sample.kv.page_map is None


def test_a_growing_age_takes_no_room():
    row = RequestRow("r-1", "waiting", 0, 8, 0, 9, 0, wait_ms=1000.0, age_s=1.0)
    later = replace(row, wait_ms=1250.0, age_s=1.25)
    states = [
        state_of(Snapshot(1, time_s, requests=(one,)))
        for time_s, one in ((10.0, row), (10.25, later))
    ]
    assert difference(*states)["requests"] == {}


def test_a_file_gives_back_what_was_recorded(tmp_path):
    path = tmp_path / "a.everec"
    seen = record(path, 70, "full")
    recording = Recording(path)
    assert recording.damage is None
    assert len(recording.segments) == 3
    frames = [f for i in range(len(recording.segments)) for f in recording.segment(i)]
    assert [round(t, 3) for t, _ in frames] == [i / 4 for i in range(280)]
    assert all(near(s, snapshot_of(state)) for s, (_, state) in zip(seen, frames, strict=True))
    assert recording.about["config"]["max_batch"] == 48


@pytest.mark.parametrize("script", ["typical", "full"])
def test_an_hour_at_four_a_second_is_small(tmp_path, script):
    """Page maps, owners, ages, histograms and request rows included."""
    path = tmp_path / "a.everec"
    seen = record(path, 60, script)
    assert seen[-1].kv.page_map and seen[-1].kv.page_owners and len(seen[-1].requests) > 10
    assert path.stat().st_size * 60 < 12e6


def test_a_frame_seen_twice_is_written_once(tmp_path):
    clock = Clock()
    recorder = Recorder(tmp_path / "a", About("x", 4), clock)
    for time_s in (0.0, 0.1, 0.2):
        clock.now = START + time_s
        recorder.add(Snapshot(seq=1, time=START))
    recorder.add(Snapshot(seq=1, time=START, source=Source(SourceState.UNREACHABLE)))
    recorder.close()
    assert recorder.frames == 2


# --- damage ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The bytes of a short recording, and the seconds of its frames."""
    path = tmp_path_factory.mktemp("small") / "a.everec"
    clock = Clock()
    recorder = Recorder(path, About("x", 1), clock)
    for second in range(4):
        clock.now = START + 2 * second
        recorder.add(Snapshot(seq=second, time=clock.now, events=(Event(clock.now, "cap", "x"),)))
    recorder.close()
    return path.read_bytes()


def opened(path, data):
    """Frames that play, and the damage; None when it is refused in one line."""
    path.write_bytes(data)
    try:
        player = Replay.open(path, clock=lambda: 0.0)
    except ConfigError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return None
    seqs = []
    for segment in range(len(player.recording.segments)):
        seqs += [state["seq"] for _, state in player.recording.segment(segment)]
    player.snapshot()
    return seqs, player.recording.damage


def test_cut_at_every_byte_it_plays_up_to_the_cut(tmp_path, small):
    path, whole = tmp_path / "cut.everec", list(range(4))
    lengths = set()
    for size in range(len(small)):
        found = opened(path, small[:size])
        if found is not None:
            seqs, damage = found
            assert seqs == whole[: len(seqs)]
            lengths.add(len(seqs))
            at_an_edge = damage is None
            assert at_an_edge or (damage.reason == "cut off" and damage.byte <= size)
            if damage is not None:
                assert damage.time == START + 2 * (len(seqs) - 1)
    assert lengths == {1, 2, 3}
    assert opened(path, small) == (whole, None)


def test_a_flipped_byte_anywhere_is_noticed_at_its_place(tmp_path, small):
    path = tmp_path / "flip.everec"
    for at in range(len(small)):
        data = bytearray(small)
        data[at] ^= 1 << (at % 8)
        found = opened(path, bytes(data))
        if found is not None:
            seqs, damage = found
            assert damage is not None and damage.byte <= at
            assert seqs == list(range(len(seqs))) and len(seqs) < 4


def test_rubbish_never_crashes(tmp_path, small):
    path, chance = tmp_path / "rubbish.everec", random.Random(3)
    for _ in range(300):
        data = bytearray(small)
        for _ in range(chance.randint(1, 30)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        where = chance.randrange(len(data))
        opened(path, bytes(data[:where]) + chance.randbytes(chance.randrange(60)))
    opened(path, MAGIC + chance.randbytes(500))


def test_a_right_checksum_around_nonsense_is_damage_too(tmp_path):
    from console.recording.file import HEAD, KEYFRAME, packed

    path = tmp_path / "odd.everec"
    head = MAGIC + packed(HEAD, b'{"schema": 1}', START)
    path.write_bytes(head + packed(KEYFRAME, b"no zstd at all", START, 1))
    with pytest.raises(ConfigError, match="nothing was recorded"):
        Replay.open(path)


REFUSED = {
    "empty": (b"", "the file is empty"),
    "other": (b"\x89PNG\r\n\x1a\n and so on", "is no recording"),
    "head": (MAGIC + b"HEAD", "damaged at byte 19 (cut off)"),
}


@pytest.mark.parametrize("name", [*REFUSED, "newer", "missing", "folder"])
def test_what_cannot_be_played_is_refused_in_one_line(tmp_path, name):
    from console.recording.file import HEAD, packed

    path = tmp_path / "x.everec"
    if name in REFUSED:
        path.write_bytes(REFUSED[name][0])
        why = REFUSED[name][1]
    elif name == "newer":
        path.write_bytes(MAGIC + packed(HEAD, b'{"schema": 99}', START))
        why = "newer EveWatch (schema 99"
    else:
        path, why = (tmp_path, "cannot be read") if name == "folder" else (path, "cannot be read")
    done = subprocess.run(
        [sys.executable, "-m", "main", "replay", str(path), "--info"],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2
    assert why in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


# --- the recorder's life -------------------------------------------------------------------


def test_a_killed_recorder_loses_two_seconds_at_most(tmp_path):
    path = tmp_path / "killed.everec"
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from console.recording.recorder import About, Recorder, RecorderThread\n"
        "from engine.simulated.fake import FakeEngine\n"
        "engine = FakeEngine(); engine.start()\n"
        "thread = RecorderThread(engine, Recorder(Path(sys.argv[1]), About('x', 10)), 10)\n"
        "thread.start()\n"
        "time.sleep(60)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=ROOT)
    end = time.monotonic() + 20
    while time.monotonic() < end and (not path.exists() or path.stat().st_size < 9000):
        time.sleep(0.05)
    time.sleep(0.7)
    writer.send_signal(signal.SIGKILL)
    killed = time.time()
    writer.wait()
    recording = Recording(path)
    assert recording.damage is None
    assert killed - (recording.began + recording.length_s) < 2.0


def test_the_oldest_segments_go_when_the_file_is_full(tmp_path):
    path = tmp_path / "a.everec"
    record(path, 130, hz=2.0, max_bytes=60_000)
    assert path.stat().st_size <= 60_000 + 20_000
    recording = Recording(path)
    assert recording.damage is None
    assert recording.began > START + 20
    assert next(recording.segment(0))[0] == 0.0
    frames = list(recording.segment(len(recording.segments) - 1))
    assert recording.began + frames[-1][0] == pytest.approx(START + 129.5, rel=0, abs=1e-3)
    player = Replay(recording)
    assert player.length_s == pytest.approx(recording.length_s)
    for position in (0.0, 7.5, player.length_s):
        player.seek(position)
        assert player.snapshot().time == pytest.approx(recording.began + position, rel=0, abs=0.2)


def test_an_existing_file_is_not_written_over(tmp_path):
    path = tmp_path / "a.everec"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        Recorder(path, About("x", 4))
    assert path.read_text() == "mine"


def test_old_recordings_make_room(tmp_path):
    for number in range(4):
        (tmp_path / f"2026010{number}.everec").write_bytes(bytes(100))
    (tmp_path / "notes.txt").write_bytes(bytes(1000))
    gone = prune(tmp_path, 250)
    assert [path.name for path in gone] == ["20260101.everec", "20260100.everec"]
    assert (tmp_path / "notes.txt").exists()
    first = new_path(tmp_path, START)
    first.write_bytes(b"")
    assert new_path(tmp_path, START) != first


def test_a_full_disk_ends_the_recording_with_the_reason(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path / "a.everec", About("x", 50))
    engine = FakeEngine()

    def full(data):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(recorder, "_write", full)
    thread = RecorderThread(engine, recorder, 50)
    thread.start()
    assert thread.wait(20)
    assert "No space left on device" in str(thread.error)


def test_record_and_replay_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    run = CliRunner().invoke(app, ["record", "demo", "--duration", "1.2s", "--hz", "10", "--json"])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert report["kind"] == "record" and report["frames"] >= 3
    path = Path(report["file"])
    assert path.parent == tmp_path / "recordings"
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    info = CliRunner().invoke(app, ["replay", str(path), "--json"])
    assert info.exit_code == 0
    assert json.loads(info.stdout)["damage"]["reason"] == "cut off"
    assert "cut off at byte" in info.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["demo", "--hz", "0"], "--hz"),
        (["demo", "--duration", "soon"], "--duration"),
        (["demo", "--max-size", "1K"], "--max-size"),
        (["http://127.0.0.1:1", "--token-env", "NO_SUCH_NAME"], "--token-env"),
    ],
)
def test_wrong_options_of_record(arguments, why):
    run = CliRunner().invoke(app, ["record", *arguments])
    assert isinstance(run.exception, ConfigError) and why in str(run.exception)
