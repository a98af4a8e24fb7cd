"""Recordings: what goes in comes out, how large it gets, and what damage does."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from console.cli import app, main
from console.recording.file import LONGEST, SEGMENT_BYTES, Recording
from console.recording.line import Moment, line_of
from console.recording.recorder import About, Recorder, RecorderThread, new_path, prune
from console.recording.replay import Replay
from engine.errors import ConfigError
from engine.simulated.demo import DemoEngine
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
from waiting import CEILING_S

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
@given(SNAPSHOT, TIME, st.integers(0, 9))
def test_any_snapshot_comes_back_from_its_line(snapshot, at, new_events):
    line = line_of(snapshot, at, new_events)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    moment = Moment.of(line)
    assert (moment.at, moment.new_events) == (round(at, 3), new_events)
    found = moment.snapshot()
    assert near(without_waits(snapshot), without_waits(found))
    for before, after in zip(snapshot.requests, found.requests, strict=True):
        if before.wait_ms is None or not math.isfinite(before.wait_ms):
            assert after.wait_ms is None
        else:  # one that still grows is kept to a millisecond
            assert abs(before.wait_ms - after.wait_ms) <= max(0.51, abs(before.wait_ms) * 6e-5)


def without_waits(snapshot):
    return replace(snapshot, requests=tuple(replace(r, wait_ms=None) for r in snapshot.requests))


def test_the_growing_age_of_a_request_changes_nothing_in_its_line():
    row = RequestRow("r-1", "waiting", 0, 8, 0, 9, 0, wait_ms=1000.0, age_s=1.0)
    later = replace(row, wait_ms=1250.0, age_s=1.25)
    lines = [
        json.loads(line_of(Snapshot(1, START + passed, requests=(one,)), START + passed, 0))
        for passed, one in ((0.0, row), (0.25, later))
    ]
    assert lines[0]["requests"] == lines[1]["requests"]


@settings(max_examples=40, deadline=None)
@given(SNAPSHOT)
def test_what_graphs_read_is_in_a_sample(snapshot):
    sample = Moment.of(line_of(snapshot, 1.0, 0)).sample()
    assert near(snapshot.batch.running, sample.batch.running)
    assert near(snapshot.latency, sample.latency)
    assert sample.requests == () and sample.kv.page_map is None


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A recording of 70 seconds of a full engine, and the Snapshots in it."""
    path = tmp_path_factory.mktemp("full") / "a.everec"
    return path, record(path, 70, "full")


def test_a_file_gives_back_what_was_recorded(full):
    path, seen = full
    recording = Recording(path)
    assert recording.broken is None
    assert len(recording.segments) == 3
    moments = every_moment(recording)
    assert [m.at - recording.began for m in moments] == [i / 4 for i in range(280)]
    assert all(
        near(without_waits(s), without_waits(m.snapshot()))
        for s, m in zip(seen, moments, strict=True)
    )
    assert recording.about["config"]["max_batch"] == 48


def every_moment(recording):
    return [m for i in range(len(recording.segments)) for m in recording.moments(i)]


def test_it_is_json_lines_to_other_tools(full):
    path, seen = full
    with zstandard.open(path, "rt", encoding="utf-8") as lines:
        head, *rest = map(json.loads, lines)
    assert head["target"] == "fake" and head["config"]["max_batch"] == 48
    assert [line["seq"] for line in rest] == [s.seq for s in seen]
    assert rest[0]["requests"]["id"] == [row.id for row in seen[0].requests]


def test_new_events_are_counted_once(tmp_path):
    path = tmp_path / "a.everec"
    seen = record(path, 70, "preempting")
    counts = [m.new_events for m in every_moment(Recording(path))]
    before = set(seen[0].events)
    assert counts[0] == 0
    for count, snapshot in zip(counts[1:], seen[1:], strict=True):
        assert count == len([e for e in snapshot.events if e not in before])
        before = set(snapshot.events)
    assert sum(counts) > 2


@pytest.mark.parametrize("script", ["typical", "full"])
def test_an_hour_at_four_a_second_is_small(tmp_path, script, request):
    """Page maps, owners, ages, histograms and request rows included."""
    if script == "full":
        path, seen = request.getfixturevalue("full")
    else:
        path = tmp_path / "a.everec"
        seen = record(path, 60, script)
    assert seen[-1].kv.page_map and seen[-1].kv.page_owners and len(seen[-1].requests) > 10
    assert path.stat().st_size / (len(seen) / 4) * 3600 < 16e6


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
    """The bytes of a recording of two segments, each of two lines; and where the second begins."""
    path = tmp_path_factory.mktemp("small") / "a.everec"
    clock = Clock()
    recorder = Recorder(path, About("x", 1), clock)
    for number in range(4):
        clock.now = START + 20 * number
        recorder.add(Snapshot(seq=number, time=clock.now, events=(Event(clock.now, "cap", "x"),)))
    recorder.close()
    return path.read_bytes(), Recording(path).segments[1].begin


def opened(path, data):
    """Lines that play, and where it is broken; None when it is refused in one line."""
    path.write_bytes(data)
    try:
        player = Replay.open(path, clock=lambda: 0.0)
    except ConfigError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return None
    lines = [m.line for m in every_moment(player.recording)]
    player.seek(player.length_s)
    player.snapshot()
    player.refill()
    return lines, player.recording.broken


def test_cut_at_every_byte_it_plays_up_to_the_cut(tmp_path, small):
    path = tmp_path / "cut.everec"
    data, _ = small
    whole, nothing = opened(path, data)
    assert len(whole) == 4 and nothing is None
    lengths = set()
    for size in range(len(data)):
        found = opened(path, data[:size])
        if found is not None:
            lines, broken = found
            assert lines == whole[: len(lines)]
            lengths.add(len(lines))
            at_an_edge = broken is None
            assert at_an_edge or (broken.reason == "cut off" and broken.byte <= size)
            if broken is not None:
                assert broken.time == START + 20 * (len(lines) - 1)
    assert lengths == {1, 2, 3, 4}


def test_of_a_segment_with_a_flipped_bit_nothing_is_shown(tmp_path, small):
    path = tmp_path / "flip.everec"
    data, second = small
    whole, _ = opened(path, data)
    harmless = 0
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << (at % 8)
        found = opened(path, bytes(flipped))
        if found is None:
            continue
        lines, broken = found
        assert lines == whole[: len(lines)]
        if broken is None:  # a bit that means nothing to zstd; the checksum has been right
            assert lines == whole
            harmless += 1
        elif broken.reason != "cut off":  # as a block's size that points beyond the file looks
            assert broken.byte <= second and len(lines) <= (2 if at >= second else 0)
    assert harmless < len(data) / 100


def test_rubbish_never_crashes(tmp_path, small):
    path, chance = tmp_path / "rubbish.everec", random.Random(3)
    for _ in range(300):
        data = bytearray(small[0])
        for _ in range(chance.randint(1, 30)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        where = chance.randrange(len(data))
        opened(path, bytes(data[:where]) + chance.randbytes(chance.randrange(60)))
    opened(path, small[0][: small[1]] + chance.randbytes(500))


def written(path, *frames, window_log=22):
    parameters = zstandard.ZstdCompressionParameters.from_level(
        9, window_log=window_log, write_checksum=True, write_content_size=False
    )
    pack = zstandard.ZstdCompressor(compression_params=parameters)
    with path.open("wb") as file:
        for frame in frames:
            stream = pack.compressobj()
            file.write(stream.compress(frame) + stream.flush())


HEAD = b'{"evewatch_recording": 2}\n'
LINE = line_of(Snapshot(seq=1), START, 0)


def test_a_right_checksum_around_nonsense_is_damage_too(tmp_path):
    path = tmp_path / "odd.everec"
    written(path, HEAD, b"no line at all\n")
    with pytest.raises(ConfigError, match="nothing was recorded"):
        Replay.open(path)
    written(path, HEAD, LINE, LINE[:-3] + b"\n")
    player = Replay.open(path, clock=lambda: 0.0)
    player.step(9)
    assert player.snapshot().source.state is SourceState.UNPARSABLE
    deep = b'{"at":1.0,"new_events":0,"x":' + b"[" * 100_000 + b"\n"
    written(path, HEAD, deep)
    assert Replay.open(path).snapshot().source.state is SourceState.UNPARSABLE


@pytest.mark.parametrize("where", ["head", "first", "second"])
def test_it_unpacks_to_a_limit(tmp_path, where):
    """Two kilobytes can be packed gigabytes."""
    path = tmp_path / "bomb.everec"
    bomb = LINE[:-2] + b" " * (2 * LONGEST) + b"}\n"
    frames = {"head": [bomb], "first": [HEAD, bomb], "second": [HEAD, LINE, bomb]}[where]
    written(path, *frames)
    assert path.stat().st_size < 8000
    tracemalloc.start()
    try:
        if where == "second":
            player = Replay.open(path, clock=lambda: 0.0)
            assert player.length_s == 0 and "more than" in player.recording.broken.reason
        else:
            with pytest.raises(ConfigError):
                Replay.open(path)
        assert tracemalloc.get_traced_memory()[1] < 2.5 * LONGEST
    finally:
        tracemalloc.stop()


def test_a_window_larger_than_ours_is_refused(tmp_path):
    path = tmp_path / "window.everec"
    written(path, HEAD, LINE + bytes(64), window_log=27)
    with pytest.raises(ConfigError):
        Replay.open(path)


def test_a_recorder_stays_within_what_a_reader_unpacks(tmp_path):
    clock, path = Clock(), tmp_path / "wide.everec"
    recorder = Recorder(path, About("x", 20), clock)
    for number in range(30):
        clock.now = START + number / 20
        noise = "".join(random.Random(number).choices("fosc", k=SEGMENT_BYTES // 8))
        recorder.add(Snapshot(seq=number, kv=KvState(page_map=noise)))
    recorder.close()
    recording = Recording(path)
    assert len(recording.segments) > 2 and len(every_moment(recording)) == 30


REFUSED = {
    "empty": (b"", "the file is empty"),
    "other": (b"\x89PNG\r\n\x1a\n and so on", "is no recording"),
    "head": (b"\x28\xb5\x2f\xfd\x04", "damaged at byte 0 (cut off)"),
    "old": (b"evewatch recording\nHEAD", "no longer read"),
}


@pytest.mark.parametrize("name", [*REFUSED, "newer", "missing", "folder"])
def test_what_cannot_be_played_is_refused_in_one_line(tmp_path, name, monkeypatch, capsys):
    path = tmp_path / "x.everec"
    if name in REFUSED:
        path.write_bytes(REFUSED[name][0])
        why = REFUSED[name][1]
    elif name == "newer":
        written(path, b'{"evewatch_recording": 99}\n')
        why = "newer EveWatch (schema 99"
    else:
        path, why = (tmp_path, "cannot be read") if name == "folder" else (path, "cannot be read")
    monkeypatch.setattr(sys, "argv", ["evewatch", "replay", str(path), "--info"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    told = capsys.readouterr()
    assert why in told.err and told.err.count("\n") == 1 and not told.out


# --- the recorder's life -------------------------------------------------------------------


def test_a_killed_recorder_loses_two_seconds_at_most(tmp_path):
    """Of what it had taken: it tells when that was, so that a slow start counts for nothing."""
    path = tmp_path / "killed.everec"
    code = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from console.recording.recorder import About, Recorder, RecorderThread\n"
        "from engine.simulated.demo import DemoEngine\n"
        "engine = DemoEngine(); engine.start()\n"
        "recorder = Recorder(Path(sys.argv[1]), About('x', 10))\n"
        "add = recorder.add\n"
        "def told(snapshot): add(snapshot); print(snapshot.time, flush=True)\n"
        "recorder.add = told\n"
        "RecorderThread(engine, recorder, 10).start()\n"
        "threading.Event().wait()\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    first = last = float(writer.stdout.readline())
    while last < first + 1.6:
        last = float(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    rest, _ = writer.communicate()
    last = float(([last, *rest.split("\n")[:-1]])[-1])
    recording = Recording(path)
    assert recording.broken.reason == "cut off"
    assert first < recording.ended <= last < recording.ended + 2.0


def test_the_oldest_segments_go_when_the_file_is_full(tmp_path):
    path = tmp_path / "a.everec"
    record(path, 250, hz=2.0, max_bytes=60_000)
    assert path.stat().st_size <= 60_000 + 20_000
    assert path.stat().st_mode & 0o777 == 0o600
    recording = Recording(path)
    assert recording.broken is None
    assert recording.began > START + 20
    assert recording.moments(0)[0].at == recording.began
    assert recording.ended == START + 249.5
    player = Replay(recording)
    for position in (0.0, 7.5, player.length_s):
        player.seek(position)
        assert player.snapshot().time == pytest.approx(recording.began + position, rel=0, abs=0.2)


def test_an_existing_file_is_not_written_over(tmp_path):
    path = tmp_path / "a.everec"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        Recorder(path, About("x", 4))
    assert path.read_text() == "mine"


def test_what_is_recorded_is_for_its_owner_alone(tmp_path):
    path = tmp_path / "new" / "folder" / "a.everec"
    Recorder(path, About("x", 4)).close()
    assert path.stat().st_mode & 0o777 == 0o600
    for folder in (path.parent, path.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


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
    engine = DemoEngine()

    def full(data):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(recorder, "_write", full)
    thread = RecorderThread(engine, recorder, 50)
    thread.start()
    assert thread.wait(CEILING_S)
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
