"""A way out that starts a command for each message."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress

from playbooks.alerts.delivery import NotDelivered, body
from playbooks.alerts.keeper import Message


class Command:
    """Reads the message as JSON on its standard input. No shell has a hand in it.

    Files stand where pipes would: what it leaves running in the background holds up nothing.
    """

    def __init__(self, argv: Sequence[str], limit_s: float) -> None:
        self._argv, self._limit_s = list(argv), limit_s

    def __call__(self, message: Message, repeat: bool) -> None:
        with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as said:
            told.write(json.dumps(body(message, repeat)).encode())
            told.seek(0)
            try:
                process = subprocess.Popen(
                    self._argv, stdin=told, stdout=subprocess.DEVNULL, stderr=said,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise NotDelivered(f"it could not be started ({error.strerror})") from error
            code = self._code_of(process)
            if code:
                said.seek(0)
                words = said.read().decode(errors="replace").strip().splitlines()
                why = f": {words[-1][:200]}" if words else ""
                raise NotDelivered(f"it ended with {code}{why}", True)

    def _code_of(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise NotDelivered(f"it took longer than {self._limit_s:g} s", True) from None
