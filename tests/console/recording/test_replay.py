"""Replay: an engine that plays a file, and the console on it."""

import threading
from functools import lru_cache

import pytest

from console.app import build_app
from console.recording.replay import Replay, parse_position
from console.renderables.lines import plain, width_of
from console.renderables.playback import Playback, playback_line
from console.renderables.screen_state import EnginePhase
from engine.errors import ConfigError, EngineError
from engine.simulated.demo import DemoEngine
from engine.snapshot import SourceState
from journeys import Console, journey
from recordings import START, Clock, record
from screens import check, settle, text_of
from waiting import until_shown


def change_settings(engine, passed):
    if passed == 10.0:
        engine.set_dynamic(False)
        engine.set_cap(20)
    if passed == 20.0:
        engine.set_paused(True)
    if passed == 30.0:
        engine.set_paused(False)


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    path = tmp_path_factory.mktemp("film") / "a.everec"
    return path, record(path, 80, "full", between=change_settings)


@pytest.fixture
def player(film):
    """With a clock of its own."""
    clock = Clock(0.0)
    replay = Replay.open(film[0], clock)
    replay.time = clock
    return replay


def test_it_plays_at_the_pace_of_the_clock(film, player):
    _, seen = film
    player.start()
    assert player.snapshot().seq == seen[0].seq
    player.time.now = 5.0
    assert player.position_s == 5.0
    assert player.snapshot().seq == seen[20].seq
    assert player.now() == START + 5.0
    player.faster(1)
    player.time.now = 10.0
    assert player.position_s == 15.0
    player.faster(-100)
    assert player.playback.speed == 0.1
    player.time.now = 1000.0
    assert player.playback.position_s == pytest.approx(15.0 + 99.0, abs=40)


def test_it_ends_and_begins_again(player):
    player.start()
    player.time.now = 500.0
    assert player.playback.ended and not player.playback.playing
    assert player.position_s == player.length_s == 79.75
    assert player.toggle()
    assert player.position_s == 0.0


def test_it_stands_still_while_paused(player):
    player.start()
    player.time.now = 3.0
    assert not player.toggle()
    player.time.now = 9.0
    assert player.position_s == 3.0
    player.toggle()
    player.time.now = 10.0
    assert player.position_s == 4.0


def test_settings_are_shown_as_they_were(film, player):
    for position, cap, paused in [
        (5, None, False),
        (12, 20, False),
        (25, 20, True),
        (35, 20, False),
    ]:
        player.seek(position)
        snapshot = player.snapshot()
        assert bool(snapshot.engine.paused) is paused
        assert snapshot.batch.cap == cap if cap else snapshot.batch.cap != 20
    player.seek(5)
    assert player.snapshot().batch.cap == film[1][20].batch.cap


def test_steps_go_from_frame_to_frame_across_segments(film, player):
    _, seen = film
    player.seek(29.75)
    player.step(1)
    assert (player.position_s, player.snapshot().seq) == (30.0, seen[120].seq)
    player.step(-2)
    assert (player.position_s, player.snapshot().seq) == (29.5, seen[118].seq)
    player.step(-1000)
    assert player.position_s == 0.0
    player.step(10_000)
    assert player.position_s == player.length_s


def test_every_event_can_be_jumped_to_and_back(film, player):
    _, seen = film
    wanted = [
        i / 4
        for i in range(1, len(seen))
        if seen[i].events != seen[i - 1].events and seen[i].events
    ]
    player.seek(0.0)
    found = []
    while player.seek_event(1) is not None:
        found.append(player.position_s)
    assert found == wanted
    back = []
    while player.seek_event(-1) is not None:
        back.append(player.position_s)
    assert back == found[-2::-1]
    player.seek(9.0)
    texts = [player.seek_event(1) for _ in range(30)]
    assert any("cap" in text for text in texts if text)


def test_graphs_get_every_frame_once_and_all_anew_after_a_jump(player):
    player.start()
    player.time.now = 3.0
    assert player.jumped
    frames = player.refill()
    assert not player.jumped and [s.time for s in frames][-1] <= START + 3.0
    player.time.now = 5.0
    assert len(player.passed()) == 8 and not player.jumped
    player.seek(60.0)
    assert player.jumped
    frames = player.refill()
    assert not player.jumped and len(frames) == 31
    assert frames[0].time < frames[-1].time <= START + 60.0


def test_nothing_can_be_changed(player):
    for control in ("set_cap", "set_paused", "set_dynamic", "set_draining", "cancel", "submit"):
        with pytest.raises(EngineError, match="recording"):
            getattr(player, control)(1)
        assert "recording" in player.why_not(control)
    assert player.config.max_batch == 48


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12:30", 750), ("1:02:03", 3723), ("0:05", 5), ("90", 90), ("90 s", 90), ("2 min", 120),
        ("1h", 3600), ("50%", 500), ("50 %", 500), ("+30", 130), ("-30 s", 70), ("−1 min", 40),
    ],
)  # fmt: skip
def test_places_in_words(text, seconds):
    assert parse_position(text, Playback(100.0, 1000.0, 1.0, True)) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "+50%", "ten", "-"])
def test_places_that_are_none(text):
    with pytest.raises(ConfigError, match="expected 12:30"):
        parse_position(text, Playback(100.0, 1000.0, 1.0, True))


@pytest.mark.parametrize("width", [62, 80, 120])
def test_the_line_of_a_replay_fits(width):
    for damage in ("", "cut off at byte 12,345, 00:01:02"):
        line = playback_line(Playback(500.0, 1000.0, 2.0, True, damage), width)
        assert width_of(line) <= width
        text = plain(line)
        assert "▶ ×2" in text and "00:08:20" in text and "00:16:40" in text
        assert damage in text
    assert "‖" in plain(playback_line(Playback(1.0, 9.0, 1.0, False), width))
    assert "■" in plain(playback_line(Playback(9.0, 9.0, 1.0, False), width))


def test_a_source_that_fell_silent_falls_silent_again(tmp_path):
    from engine.observing.watchable import aged

    path = tmp_path / "a.everec"
    record(path, 20, "dead")
    player = Replay.open(path, Clock(0.0))
    player.seek(1.0)
    assert aged(player.snapshot(), player.now()).source.state is SourceState.LIVE
    player.seek(15.0)
    snapshot = aged(player.snapshot(), player.now())
    assert snapshot.source.state is SourceState.UNREACHABLE
    assert "out of memory" in snapshot.source.reason


async def shown(player, size, keys, position):
    """An app that stands at `position`, after keys; its screen's text."""
    app = build_app(player, clock=player.now, refresh_hz=0.001, readonly=True)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, lambda: app.bridge.phase is EnginePhase.UP)
        player.stop()
        player.seek(position)
        app.tick()
        await app.workers.wait_for_complete()
        await pilot.press(*keys)
        await app.workers.wait_for_complete()
        app.tick()
        await settle(pilot, app)
        return text_of(app)


@pytest.mark.parametrize(
    ("name", "size", "keys"),
    [
        ("replay-120x40", (120, 40), []),
        ("replay-80x24", (80, 24), []),
        ("replay-kv-120x40", (120, 40), ["3"]),
    ],
)
async def test_a_recording_through_the_same_panels(player, name, size, keys):
    check(name, await shown(player, size, keys, 60.0))


async def test_the_same_position_looks_the_same_however_it_was_reached(film):
    straight = await shown(Replay.open(film[0], Clock(0.0)), (120, 40), [], 60.0)
    stepped = Replay.open(film[0], Clock(0.0))
    stepped.seek(75.0)
    text = await shown(stepped, (120, 40), ["left_square_bracket", "right_square_bracket"], 60.0)
    assert text == straight


async def test_damage_is_said_on_the_screen(film, tmp_path):
    path = tmp_path / "cut.everec"
    path.write_bytes(film[0].read_bytes()[:-50])
    text = await shown(Replay.open(path, Clock(0.0)), (120, 40), [], 5.0)
    assert "▲ cut off at byte" in text


# --- keys ------------------------------------------------------------------------------------


class Running:
    """A console on a recording, for an `async with`; its clock stands still."""

    def __init__(self, player, size=(120, 40)):
        self.player = player
        self.app = build_app(player, clock=player.now, refresh_hz=0.001, readonly=True)
        self.context = self.app.run_test(size=size, notifications=True)

    async def __aenter__(self):
        pilot = await self.context.__aenter__()
        console = Console(self.app, pilot, None)
        await console.until(lambda: self.app.bridge.phase is EnginePhase.UP)
        self.player.stop()
        self.app.tick()
        return console

    async def __aexit__(self, *error):
        await self.context.__aexit__(*error)


@journey("app.step_frames(-1)", "app.step_frames(1)", "app.change_speed(-1)", "app.change_speed(1)")
async def test_keys_step_and_change_the_speed(player):
    async with Running(player) as c:
        await c.press("right_square_bracket", "right_square_bracket", "left_square_bracket")
        await c.app.workers.wait_for_complete()
        assert player.position_s == 0.25
        await c.press("greater_than_sign", "greater_than_sign", "less_than_sign")
        assert player.playback.speed == 2.0
        assert "‖ ×2" in c.screen
        await c.press("space")
        assert player.playback.playing and "▶ ×2" in c.screen
        assert not c.app.paused


@journey("app.seek_position")
async def test_a_time_can_be_gone_to(player):
    async with Running(player) as c:
        await c.press("S")
        await c.replace("nowhere")
        await c.until(lambda: "expected 12:30" in c.screen)
        await c.replace("0:40")
        await c.until(lambda: player.position_s == 40.0)
        await c.app.workers.wait_for_complete()
        assert len(c.app.history["running"]) > 15
        assert "00:00:40" in c.screen.splitlines()[1]


@journey("app.seek_event(-1)", "app.seek_event(1)")
async def test_events_can_be_jumped_between(player):
    async with Running(player) as c:
        await c.press("e", "e")
        await c.app.workers.wait_for_complete()
        second = player.position_s
        await c.press("E")
        await c.app.workers.wait_for_complete()
        assert 0 < player.position_s < second
        await c.press(*["E"] * 3)
        await c.app.workers.wait_for_complete()
        assert player.position_s > 0
        await c.until(lambda: "no event before this" in c.screen)


async def test_moving_unpacks_off_the_uis_thread(player, monkeypatch):
    async with Running(player) as c:
        await c.app.workers.wait_for_complete()
        threads, ui = set(), threading.current_thread()
        unpack = player.recording.moments

        def moments(index):
            threads.add(threading.current_thread())
            return unpack(index)

        monkeypatch.setattr(player, "_moments", lru_cache(4)(moments))
        for keys in (["e"], ["right_square_bracket"], ["E"]):
            await c.press(*keys)
            await c.app.workers.wait_for_complete()
        await c.press("S")
        await c.replace("1:10")
        await c.until(lambda: player.position_s == 70.0)
        await c.app.workers.wait_for_complete()
        assert threads and len(c.app.history["running"]) > 25
    assert ui not in threads


async def test_what_would_change_the_engine_says_that_this_is_a_recording(player):
    app = build_app(player, clock=player.now, refresh_hz=0.001)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        c = Console(app, pilot, None)
        await c.until(lambda: app.bridge.phase is EnginePhase.UP)
        await c.press("minus")
        await c.until(lambda: "this is a recording" in c.screen)
        await c.press("R")
        await c.until(lambda: "this is a recording already" in c.screen)


async def test_keys_of_a_replay_do_nothing_on_an_engine():
    clock = Clock()
    app = build_app(DemoEngine(clock=clock), clock=clock, refresh_hz=0.001)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        c = Console(app, pilot, clock)
        await c.until(lambda: app.bridge.phase is EnginePhase.UP)
        before = app.bridge.poll()
        await c.press("left_square_bracket", "less_than_sign", "S", "e", "E")
        assert app.screen is app.overview
        assert app.bridge.poll() == before


@journey("app.toggle_recording")
async def test_what_is_seen_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    clock = Clock()
    app = build_app(DemoEngine(clock=clock), clock=clock, refresh_hz=0.001)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        c = Console(app, pilot, clock)
        await c.until(lambda: app.bridge.phase is EnginePhase.UP)
        await c.press("R")
        await c.until(lambda: "REC" in c.screen.splitlines()[0])
        for _ in range(6):
            frames = app.recorder.recorder.frames
            await c.pass_time(1.0)
            await c.until(lambda frames=frames: app.recorder.recorder.frames > frames)
        path = app.recorder.recorder.path
        await c.press("R")
        assert "REC" not in c.screen.splitlines()[0]
        await c.until(lambda: "evewatch replay" in c.screen)
    played = Replay.open(path, Clock(0.0))
    assert path.parent == tmp_path / "recordings"
    assert played.length_s >= 5.0
    assert played.snapshot().batch.cap_max == 48


async def test_quitting_ends_the_recording(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    app = build_app(DemoEngine(), refresh_hz=0.001)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        c = Console(app, pilot, None)
        await c.until(lambda: app.bridge.phase is EnginePhase.UP)
        await c.press("R")
        await c.until(lambda: app.recorder is not None and app.recorder.recorder.frames > 0)
        recorder = app.recorder.recorder
        await c.press("q")
        await c.until(lambda: app._exit)
    assert Replay.open(recorder.path).recording.broken is None
