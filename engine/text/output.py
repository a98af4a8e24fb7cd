"""A request's output as text: decoding token by token, and stop strings.

Text that could be the beginning of a stop string is held back until it is known not to be,
so that no part of a stop string ever reaches the reader; the streamed pieces joined are
exactly the text of a request that was not streamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class IncrementalDecoder(Protocol):
    def push(self, ids: Sequence[int]) -> str: ...

    def flush(self) -> str: ...


class OutputText:
    """With `include_stop` the stop string that was found is the end of the text. What the first
    `unsearched` pushes give is not searched."""

    def __init__(
        self,
        decoder: IncrementalDecoder,
        stop: tuple[str, ...] = (),
        include_stop: bool = False,
        unsearched: int = 0,
    ) -> None:
        self._decoder = decoder
        self._stop, self._include_stop, self._unsearched = stop, include_stop, unsearched
        self._longest = max((len(s) for s in stop), default=0)
        self._held = ""
        self.stopped = False
        """A stop string has been found: the output is complete."""
        if not stop:
            self.push = decoder.push  # type: ignore[method-assign]  # nothing to look for

    def push(self, ids: Sequence[int]) -> str:
        """Text that is safe to show after these tokens."""
        text = self._decoder.push(ids)
        if self._unsearched > 0:
            self._unsearched -= 1
            return text
        return self._release(text)

    def finish(self) -> str:
        """What was held back, at the end of a request that no stop string ended."""
        if self.stopped:
            return ""
        text = self._decoder.flush()
        if self._stop:
            text = self._release(text)
        if not self.stopped:
            text, self._held = text + self._held, ""
        return text

    def _release(self, text: str) -> str:
        self._held += text
        found = [(at, len(s)) for s in self._stop if (at := self._held.find(s)) >= 0]
        if found:
            self.stopped = True
            at, length = min(found)
            text, self._held = self._held[: at + length * self._include_stop], ""
            return text
        safe = len(self._held) - self._possible_start()
        text, self._held = self._held[:safe], self._held[safe:]
        return text

    def _possible_start(self) -> int:
        """Length of the longest tail that some stop string starts with."""
        for length in range(min(self._longest - 1, len(self._held)), 0, -1):
            tail = self._held[-length:]
            if any(s.startswith(tail) for s in self._stop):
                return length
        return 0
