"""vLLM's own server as a child of ours: started, waited for, watched, and always ended.

It runs in a session of its own, so that a signal reaches it and every worker that it forks, and
Ctrl-C at our terminal does not end it behind our back. Its output goes to a log file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from engine.errors import ConfigError, EngineError
from engine.paths import open_private, private_folder, user_folder
from engine.remote.client import Client
from engine.remote.engine import RemoteEngine
from engine.snapshot import Snapshot, SourceState

START_S = 1800.0
"""A large model from a network disk takes long; a dead child is seen at once."""
GRACE_S = ((signal.SIGINT, 20.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0))
TAIL_BYTES = 64 << 10
LAST_LINES = 12
"""Of the log, in the error when the child dies."""
INSTALL = (
    "vLLM is not installed: `pip install vllm` into this environment (on a machine with a GPU), "
    "or watch one that runs elsewhere with `evewatch watch URL`"
)


@dataclass(frozen=True)
class VllmSpec:
    """What to start. Raises ConfigError for what cannot be."""

    model: str
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    max_batch: int | None = None
    port: int | None = None
    """None: a free one."""
    extra: tuple[str, ...] = ()
    """Passed on as they are: Ray, nodes, whatever vLLM takes."""

    def __post_init__(self) -> None:
        for name in ("tensor_parallel", "pipeline_parallel", "data_parallel", "max_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{name.replace('_', '-')}: expected at least 1, got {value}")
        for flag in ("--host", "--port", "--uds"):
            if any(arg == flag or arg.startswith(f"{flag}=") for arg in self.extra):
                raise ConfigError(f"{flag}: is set by EveWatch; leave it out of what follows --")

    def command(self, program: Sequence[str], port: int) -> list[str]:
        flags = {
            "--tensor-parallel-size": self.tensor_parallel,
            "--pipeline-parallel-size": self.pipeline_parallel,
            "--data-parallel-size": self.data_parallel,
            "--max-num-seqs": self.max_batch,
        }
        given = [part for f, n in flags.items() if n is not None for part in (f, str(n))]
        where = ["--host", "127.0.0.1", "--port", str(port)]
        return [*program, "serve", self.model, *where, *given, *self.extra]


def find_vllm() -> list[str]:
    """Raises ConfigError that says how to install it."""
    if path := shutil.which("vllm"):
        return [path]
    if importlib.util.find_spec("vllm") is not None:
        return [sys.executable, "-m", "vllm.entrypoints.cli.main"]
    raise ConfigError(INSTALL)


class ChildEngine(RemoteEngine):
    """RemoteEngine on a server that `start` starts and `stop` ends."""

    def __init__(self, spec: VllmSpec, *, start_s: float = START_S, **options: Any) -> None:
        self._program = find_vllm()
        port = spec.port or _free_port()
        super().__init__(
            Client(f"http://127.0.0.1:{port}"), name="vllm", expected="vllm", cap=spec.max_batch,
            **options,
        )  # fmt: skip
        self.spec, self.log_path = spec, user_folder() / "logs" / f"vllm-{port}.log"
        self._command = spec.command(self._program, port)
        self._start_s = start_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._told = 0
        """Bytes of the log that the events have told."""

    @property
    def model(self) -> str | None:
        return super().model or self.spec.model

    @property
    def loading(self) -> str:
        last = self.tail(1)
        return f"vLLM with {self.spec.model}" + (f": {last[0]}" if last else "")

    # life

    def start(self) -> None:
        """Return when it is healthy. Raises EngineError with the log's end when it dies."""
        self._spawn()
        try:
            self._wait_until_healthy()
        except BaseException:
            self._end()
            raise
        super().start()

    def stop(self) -> None:
        self._stopping.set()
        super().stop()
        self._end()

    def _spawn(self) -> None:
        try:
            private_folder(self.log_path.parent)
            log = open_private(self.log_path, "wb")
        except OSError as error:
            raise EngineError(f"{self.log_path}: cannot be written ({error.strerror})") from error
        with log:
            log.write(f"$ {' '.join(self._command)}\n".encode())
            log.flush()
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise EngineError(f"{self._command[0]}: {error.strerror}") from error

    def _wait_until_healthy(self) -> None:
        end = time.monotonic() + self._start_s
        health = f"{self.url}/health"
        with httpx.Client(timeout=2.0, trust_env=False) as http:
            while time.monotonic() < end:
                if self._stopping.is_set():
                    raise EngineError("stopped before vLLM was up")
                if (code := self.exit_code) is not None:
                    raise EngineError(self._obituary(code))
                with contextlib.suppress(httpx.HTTPError):
                    if http.get(health).status_code == 200:
                        return
                self._stopping.wait(0.25)
        raise EngineError(
            f"vLLM was not healthy within {self._start_s:g} s; its log: {self.log_path}"
        )

    @property
    def exit_code(self) -> int | None:
        """Of the child; None while it runs."""
        process = self._process  # another thread may end it meanwhile
        return process.poll() if process is not None else None

    def _obituary(self, code: int) -> str:
        how = f"signal {-code}" if code < 0 else f"code {code}"
        lines = "\n  ".join(self.tail(LAST_LINES))
        return f"vLLM ended with {how}; the last lines of {self.log_path}:\n  {lines}"

    def _end(self) -> None:
        """The child and all that it forked, gently first."""
        process = self._process
        if process is None:
            return
        for number, patience in GRACE_S:
            if not _alive(process):
                break
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            _wait(process, patience)
        process.wait()
        self._process = None

    # the log

    def tail(self, lines: int, since: int = 0) -> list[str]:
        """The end of its log, from byte `since` on, without empty lines."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(since, log.seek(0, os.SEEK_END) - TAIL_BYTES))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return []
        kept = [line.rstrip() for line in text.replace("\r", "\n").split("\n") if line.strip()]
        return kept[-lines:]

    def poll(self) -> Snapshot:
        """Also tells the newest lines of its log, as events."""
        with contextlib.suppress(OSError):
            size = self.log_path.stat().st_size
            if size != self._told:
                fresh = self.tail(LAST_LINES, since=self._told)
                self._told = size
                for line in fresh:
                    self._say("log", line)
        return super().poll()

    def snapshot(self) -> Snapshot:
        """When the child has ended, the reason says so."""
        snapshot = super().snapshot()
        code = self.exit_code
        if code is None or snapshot.source.state is SourceState.LIVE:
            return snapshot
        last = (self.tail(1) or ["no log"])[0]
        reason = f"vLLM ended with code {code}: {last}"
        return replace(snapshot, source=replace(snapshot.source, reason=reason))


def _alive(process: subprocess.Popen[bytes]) -> bool:
    """It, or another process of its group."""
    if process.poll() is None:
        return True
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    end = time.monotonic() + seconds
    while _alive(process) and time.monotonic() < end:
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
