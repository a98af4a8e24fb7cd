"""Growth of what only ever grows, over the last while."""

from __future__ import annotations

from collections import deque


class Growth:
    """In the last `window_s`, and in the last `calm_s` of it: what came before a breach ended says
    nothing of now."""

    def __init__(self, window_s: float, calm_s: float) -> None:
        self._window_s, self._calm_s = window_s, calm_s
        self._past: deque[tuple[float, float]] = deque()

    def look(self, value: float, now: float) -> None:
        """A counter that fell began anew."""
        if self._past and value < self._past[-1][1]:
            self._past.clear()
        self._past.append((now, value))
        self._drop(now - self._window_s)

    @property
    def so_far(self) -> float:
        """Of as much of the window as is known: it has grown by this at least."""
        return self._past[-1][1] - self._past[0][1]

    @property
    def whole(self) -> float | None:
        """None until the whole window is known."""
        (began, _), (now, _) = self._past[0], self._past[-1]
        return self.so_far if now - began >= self._window_s else None

    @property
    def lately(self) -> float | None:
        """What the window would have at the pace of the last `calm_s`; None: not known yet."""
        now, value = self._past[-1]
        old = next((v for at, v in reversed(self._past) if at <= now - self._calm_s), None)
        return None if old is None else (value - old) * self._window_s / self._calm_s

    def over(self) -> None:
        """A breach has ended: it is no part of the next one."""
        self._drop(self._past[-1][0] - self._calm_s)

    def _drop(self, before: float) -> None:
        while len(self._past) > 1 and self._past[1][0] <= before:
            self._past.popleft()
