"""Ways out: a bell, a command, a webhook, Alertmanager, chat services. Each has a thread and a
queue of its own: one that hangs delays nothing else, and nothing is dropped while the process
lives.

A message that may have arrived although nobody confirmed it (the time was over, the connection
broke after it was sent) is sent again with the same id and the mark `repeat`. One that the other
side refuses for what it is waits behind the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from playbooks.alerts.command import Command
from playbooks.alerts.delivery import NotDelivered
from playbooks.alerts.file import WayToml
from playbooks.alerts.keeper import FIRING, Affected, Message
from playbooks.alerts.posting import Alertmanager, Webhook
from playbooks.steps.durations import seconds

log = logging.getLogger("evewatch.alerts")
WAITS_S = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
"""After a try that failed; then the last one again and again."""
LAST_WAIT_S = 0.2
"""At the end, when little time is left."""
AGAIN_S = 60.0
SEVERITIES = ("warning", "critical")


class Send(Protocol):
    def __call__(self, message: Message, repeat: bool) -> None:
        """Raises NotDelivered."""
        ...


def way_out(way: WayToml, bell: Callable[[], None], environment: Mapping[str, str]) -> Way:
    secret = environment.get(way.secret_env, "") if way.secret_env else ""
    limit = seconds(way.limit)
    name = f"{way.kind} {way.url or ' '.join(way.argv)}".strip()
    match way.kind:
        case "bell":
            return Way(name, Bell(bell), way.severity)
        case "command":
            return Way(name, Command(way.argv, limit), way.severity)
        case "webhook":
            return Way(name, Webhook(way.url, secret, limit), way.severity)
        case "alertmanager":
            manager = Alertmanager(way.url, secret, limit)
            return Way(name, manager, way.severity, again=manager.again)
        case "apprise":
            from playbooks.alerts.chat import Apprise

            chat = Apprise(secret, way.secret_env or "", limit)
            return Way(chat.name, chat, way.severity)


@dataclass
class _Waiting:
    message: Message
    unsure: bool = False
    """It may have arrived."""
    refused: int = 0
    due: float = 0.0
    """Monotonic seconds; not to be tried before."""


class Way:
    """Messages in order, each until it is delivered.

    `again` is called every `AGAIN_S`: for what the other side wants to hear again and again.
    """

    def __init__(
        self,
        name: str,
        send: Send,
        severity: str = "warning",
        waits: Sequence[float] = WAITS_S,
        again: Callable[[], None] | None = None,
    ) -> None:
        self.name, self._send, self._waits, self._again = name, send, waits, again
        self._least = SEVERITIES.index(severity)
        self._queue: list[_Waiting] = []
        self._wake = threading.Condition()
        self._closing = self._ended = False
        self._fails, self._due, self._again_due = 0, 0.0, time.monotonic() + AGAIN_S
        self.delivered = 0
        self.problem: str | None = None
        """Of the last try, if it failed."""
        self._thread = threading.Thread(target=self._work, name=f"alerts-{name}", daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        if SEVERITIES.index(message.severity) < self._least:
            return
        with self._wake:
            self._queue.append(_Waiting(message))
            self._wake.notify()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def to_dict(self) -> dict[str, Any]:
        """How it is, for a report."""
        return {"way": self.name, "delivered": self.delivered, "waiting": self.waiting,
                "problem": self.problem}  # fmt: skip

    def finish(self) -> None:
        """What is left is tried without long waits; `close` waits for it."""
        with self._wake:
            self._closing, self._due = True, 0.0
            for one in self._queue:
                one.due = 0.0
            self._wake.notify()

    def close(self, patience_s: float) -> list[Message]:
        """Deliver what is left within so long a time; gives what could not be."""
        self.finish()
        self._thread.join(patience_s)
        self._ended = True  # before the lock: a way that fails at once hardly lets go of it
        with self._wake:
            return [one.message for one in self._queue]

    # --- its thread -----------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._wake:
                if self._over:
                    return
                one = self._ready()
                if one is None and not self._time_to_say_again:
                    self._wake.wait(self._pause())
                    continue
            if one is not None:
                self._deliver(one)
            else:
                self._say_again()

    @property
    def _over(self) -> bool:
        return self._ended or (self._closing and not self._queue)

    @property
    def _time_to_say_again(self) -> bool:
        return self._again is not None and time.monotonic() >= self._again_due

    def _ready(self) -> _Waiting | None:
        """The first that is to be tried now."""
        now = time.monotonic()
        return next((one for one in self._queue if max(one.due, self._due) <= now), None)

    def _pause(self) -> float | None:
        """Until something is to be done; None: until a message comes."""
        times = [max(one.due, self._due) for one in self._queue]
        times += [self._again_due] if self._again is not None else []
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _deliver(self, one: _Waiting) -> None:
        problem = self._try(lambda: self._send(one.message, one.unsure))
        with self._wake:
            if problem is None:
                self._queue.remove(one)
                self.delivered += 1
                self._fails = 0
                self.problem = self.problem if any(w.refused for w in self._queue) else None
            elif not self._ended:
                self._failed(one, problem)

    def _failed(self, one: _Waiting, problem: NotDelivered) -> None:
        if self.problem is None:
            log.warning("%s: %s; it is tried again", self.name, problem)
        self.problem = str(problem)
        one.unsure = one.unsure or problem.unsure
        if problem.refused:
            one.due = self._next_try(one.refused, problem)
            one.refused += 1
            self._queue.remove(one)
            self._queue.append(one)
        else:
            self._due = self._next_try(self._fails, problem)
            self._fails += 1

    def _next_try(self, tries: int, problem: NotDelivered) -> float:
        wait_s = max(self._waits[min(tries, len(self._waits) - 1)], problem.wait_s)
        return time.monotonic() + (min(wait_s, LAST_WAIT_S) if self._closing else wait_s)

    def _say_again(self) -> None:
        assert self._again is not None
        problem = self._try(self._again)
        if problem is not None:
            log.warning("%s: %s; it is said again", self.name, problem)
        self._again_due = time.monotonic() + AGAIN_S

    def _try(self, send: Callable[[], None]) -> NotDelivered | None:
        try:
            send()
        except NotDelivered as error:
            return error
        except Exception as error:  # a way's own bug must not end the way
            log.exception("%s", self.name)
            return NotDelivered(f"{type(error).__name__}: {error}")
        return None


def close_all(ways: Sequence[Way], patience_s: float) -> list[list[Message]]:
    """At the same time; what each could not deliver."""
    for way in ways:
        way.finish()
    end = time.monotonic() + patience_s
    return [way.close(max(0.0, end - time.monotonic())) for way in ways]


class Bell:
    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring

    def __call__(self, message: Message, repeat: bool) -> None:
        if message.state == FIRING:
            self._ring()


def sample(now: float) -> Message:
    """For `alerts test`: says that it is one."""
    target = Affected("test", 1.0, now)
    made = Message("test", FIRING, "test", "critical", "a test of this way", "nothing is wrong",
                   (target,), now)  # fmt: skip
    return replace(made, id=f"test-{int(now)}")
