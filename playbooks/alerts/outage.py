"""How long an engine was silent of late: who answers now and then does not answer."""

from __future__ import annotations

from collections import deque


class Outage:
    """Over the last `window_s`; `look` at every look."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._silences: deque[tuple[float, float]] = deque()
        """From when to when, each from a look that was not answered to the next look."""
        self._silent_since: float | None = None

    def look(self, live: bool, now: float) -> None:
        if self._silent_since is not None:
            self._silences.append((self._silent_since, now))
        self._silent_since = None if live else now
        while self._silences and self._silences[0][0] < now - self._window_s:
            self._silences.popleft()

    @property
    def seconds(self) -> float:
        return sum(end - begin for begin, end in self._silences)

    @property
    def since(self) -> float | None:
        """When the first of these silences began."""
        return self._silences[0][0] if self._silences else self._silent_since

    def forget(self) -> None:
        self._silences.clear()
        self._silent_since = None
