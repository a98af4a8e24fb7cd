"""What the console does with recordings: `R` makes one, and the keys that move in one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from console.control.surface import ConsoleSurface
from console.history import History
from console.recording.recorder import (
    About,
    Recorder,
    RecorderThread,
    new_path,
    prune,
    recordings_folder,
)
from console.recording.replay import Replay, parse_position
from console.renderables import format as fmt
from console.screens.dialogs import FormField, FormScreen, ask, paragraph
from engine.errors import ConfigError
from playbooks.objectives.file import Objectives

HZ = 4.0


class RecordingControls(ConsoleSurface):
    """The `action_…` methods of the app around recordings. They run in the UI's thread."""

    recorder: RecorderThread | None = None
    """While it records."""
    _own_history: History | None = None
    """Of our own engine, while another is visited."""
    _moving = 0
    """Moves in a recording that are not done yet."""

    @cached_property
    def _turn(self) -> asyncio.Lock:
        return asyncio.Lock()

    # recording

    def action_toggle_recording(self) -> None:
        if self.player is not None:
            self.notify("this is a recording already", severity="warning")
        elif self.recorder is None:
            self._start_recording()
        else:
            self.stop_recording()
        self.draw(self.bridge.poll())

    def _start_recording(self) -> None:
        folder = recordings_folder()
        try:
            prune(folder)
            path = new_path(folder, self.clock())
            engine = self.bridge.engine
            target = self.bridge.poll().source.target
            about = About(target, HZ, engine.config, self._promised)
            recorder = Recorder(path, about, self.clock)
        except ConfigError as error:
            self.notify(str(error), severity="error")
            return
        self.recorder = RecorderThread(engine, recorder, HZ)
        self.recorder.start()
        self.notify(f"recording to {path}", timeout=4)

    @property
    def _promised(self) -> Objectives | None:
        book = self.keeper.book if self.keeper is not None else None
        return None if book is None else book.objectives

    def stop_recording(self) -> Path | None:
        """End it if there is one, and say where it is."""
        thread, self.recorder = self.recorder, None
        if thread is None:
            return None
        thread.stop()
        recorder = thread.recorder
        text = f"recorded {fmt.size(recorder.bytes)}: evewatch replay {recorder.path}"
        self.notify(text, timeout=8)
        return recorder.path

    @property
    def recorded(self) -> str:
        """For the header: "REC 1.2 MiB", "" while it does not record."""
        if self.recorder is None:
            return ""
        if self.recorder.error is not None:
            self.notify(str(self.recorder.error), severity="error")
            self.recorder = None
            return ""
        return f"REC {fmt.size(self.recorder.recorder.bytes)}"

    # replay

    @property
    def player(self) -> Replay | None:
        engine = self.bridge.engine
        return engine if isinstance(engine, Replay) else None

    def visit(self, player: Replay) -> None:
        """Show what has not come yet through the same panels; `come_home` ends it."""
        self._own_history = self._own_history or self.history
        self.history, self.clock = History(), player.now
        self.bridge.visit(player, player.now)
        player.play()
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self.tick()

    def come_home(self) -> None:
        """From a visit to our own engine, if there is one."""
        clock = self.bridge.come_home()
        if clock is not None and self._own_history is not None:
            self.clock, self.history, self._own_history = clock, self._own_history, None
            self.tick()

    def take_passed(self) -> None:
        """Into the graphs: what was played since the last look, all of it anew after a jump."""
        player = self.player
        if player is None or self._moving:
            return
        if player.jumped:
            self._move(lambda player: None)
            return
        for snapshot in player.passed():
            self.history.push(snapshot)

    def _move(self, move: Callable[[Replay], str | None]) -> None:
        """Move in the recording and fill the graphs anew, off the UI's thread; what `move`
        returns is said."""
        if self.player is not None:
            self._moving += 1
            self.run_worker(self._moved(self.player, move))

    async def _moved(self, player: Replay, move: Callable[[Replay], str | None]) -> None:
        """First the frame is drawn, then the graphs."""
        try:
            async with self._turn:  # in the order of the keys
                said = await asyncio.to_thread(move, player)
                self.draw(self.bridge.poll())
                samples = await asyncio.to_thread(player.refill)
                self.history = History()
                for sample in samples:
                    self.history.push(sample)
        finally:
            self._moving -= 1
        if said:
            self.notify(said, timeout=2)
        self.draw(self.bridge.poll())

    def action_step_frames(self, frames: int) -> None:
        self._move(lambda player: player.step(frames))

    def action_change_speed(self, steps: int) -> None:
        if self.player is not None:
            self.player.faster(steps)
            self.draw(self.bridge.poll())

    def action_seek_event(self, direction: int) -> None:
        none = "no event after this" if direction > 0 else "no event before this"

        def move(player: Replay) -> str | None:
            found = player.seek_event(direction)
            return none if found is None else None

        self._move(move)

    def action_seek_position(self) -> None:
        player = self.player
        if player is None:
            return

        def wrong(text: str) -> str:
            try:
                parse_position(text, player.playback)
            except ConfigError as error:
                return str(error)
            return ""

        above = paragraph(
            f"12:30 or 90 s from the beginning, +30 s or -5 min from here, 50 % of the whole "
            f"({fmt.uptime(player.length_s)})."
        )
        form = FormScreen("Go to", [FormField("to", "time", check=wrong)], above)
        ask(self, form, self._seek_to)

    def _seek_to(self, texts: dict[str, str]) -> None:
        self._move(lambda player: player.seek(parse_position(texts["to"], player.playback)))
