"""Ways out: a bell, a command, a webhook, Alertmanager, chat services. Each has a thread and a
queue of its own: one that hangs delays nothing else, and nothing is dropped while the process
lives.

A message that may have arrived although nobody confirmed it (the time was over, the connection
broke after it was sent) is sent again with the same id and the mark `repeat`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import httpx

from playbooks.alerts.delivery import NotDelivered
from playbooks.alerts.file import WayToml
from playbooks.alerts.keeper import FIRING, Message
from playbooks.steps.durations import seconds

log = logging.getLogger("evewatch.alerts")
WAITS_S = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
"""After a try that failed; then the last one again and again."""
SIGNATURE = "X-EveWatch-Signature"
SEVERITIES = ("warning", "critical")


class Send(Protocol):
    def __call__(self, message: Message, repeat: bool) -> None:
        """Raises NotDelivered."""
        ...


def way_out(way: WayToml, bell: Callable[[], None], environment: Mapping[str, str]) -> Way:
    secret = environment.get(way.secret_env, "") if way.secret_env else ""
    limit = seconds(way.limit)
    send: Send
    match way.kind:
        case "bell":
            send = Bell(bell)
        case "command":
            send = Command(way.argv, limit)
        case "webhook":
            send = Webhook(way.url, secret, limit)
        case "alertmanager":
            send = Alertmanager(way.url, secret, limit)
        case "apprise":
            from playbooks.alerts.chat import Apprise

            chat = Apprise(secret, way.secret_env or "", limit)
            return Way(chat.name, chat, way.severity)
    return Way(f"{way.kind} {way.url or ' '.join(way.argv)}".strip(), send, way.severity)


class Way:
    """Messages in order, each until it is delivered."""

    def __init__(
        self, name: str, send: Send, severity: str = "warning", waits: Sequence[float] = WAITS_S
    ) -> None:
        self.name, self._send, self._waits = name, send, waits
        self._least = SEVERITIES.index(severity)
        self._queue: deque[Message] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self.delivered = 0
        self.problem: str | None = None
        """Of the last try, if it failed."""
        self._thread = threading.Thread(target=self._work, name=f"alerts-{name}", daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        if SEVERITIES.index(message.severity) < self._least:
            return
        with self._wake:
            self._queue.append(message)
            self._wake.notify()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def to_dict(self) -> dict[str, Any]:
        """How it is, for a report."""
        return {"way": self.name, "delivered": self.delivered, "waiting": self.waiting,
                "problem": self.problem}  # fmt: skip

    def close(self, patience_s: float) -> list[Message]:
        """Deliver what is left within so long a time; gives what could not be."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(patience_s)
        return list(self._queue)

    def _work(self) -> None:
        tries, unsure = 0, False
        while (message := self._next()) is not None:
            problem = self._try(message, unsure)
            if problem is None:
                self._queue.popleft()
                self.delivered += 1
                self.problem, tries, unsure = None, 0, False
                continue
            self.problem = str(problem)
            if tries == 0:
                log.warning("%s: %s; it is tried again", self.name, problem)
            tries, unsure = tries + 1, unsure or problem.unsure
            self._pause(self._waits[min(tries, len(self._waits)) - 1])

    def _try(self, message: Message, repeat: bool) -> NotDelivered | None:
        try:
            self._send(message, repeat)
        except NotDelivered as error:
            return error
        except Exception as error:  # a way's own bug must not end the way
            log.exception("%s", self.name)
            return NotDelivered(f"{type(error).__name__}: {error}")
        return None

    def _next(self) -> Message | None:
        with self._wake:
            while not self._queue and not self._closing:
                self._wake.wait()
            return self._queue[0] if self._queue else None

    def _pause(self, wait_s: float) -> None:
        with self._wake:
            if not self._closing:
                self._wake.wait_for(lambda: self._closing, wait_s)
        if self._closing:
            time.sleep(min(wait_s, 0.2))


class Bell:
    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring

    def __call__(self, message: Message, repeat: bool) -> None:
        if message.state == FIRING:
            self._ring()


class Command:
    """Reads the message as JSON on its standard input. No shell has a hand in it."""

    def __init__(self, argv: Sequence[str], limit_s: float) -> None:
        self._argv, self._limit_s = list(argv), limit_s

    def __call__(self, message: Message, repeat: bool) -> None:
        data = json.dumps(_body(message, repeat)).encode()
        try:
            done = subprocess.run(
                self._argv, input=data, capture_output=True, timeout=self._limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise NotDelivered(f"it took longer than {self._limit_s:g} s", True) from None
        except OSError as error:
            raise NotDelivered(f"it could not be started ({error.strerror})") from error
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            why = f": {words[-1][:200]}" if words else ""
            raise NotDelivered(f"it ended with {done.returncode}{why}", True)


class Webhook:
    """POSTs JSON, signed with HMAC-SHA256 over the time and the body where there is a secret."""

    def __init__(
        self, url: str, secret: str, limit_s: float, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._url, self._secret = url, secret
        self._client = httpx.Client(timeout=limit_s, transport=transport)

    def __call__(self, message: Message, repeat: bool) -> None:
        body = json.dumps(_body(message, repeat)).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": message.id}
        if self._secret:
            at = str(int(time.time()))
            signed = hmac.new(self._secret.encode(), f"{at}.".encode() + body, hashlib.sha256)
            headers[SIGNATURE] = f"t={at},v1={signed.hexdigest()}"
        _post(self._client, self._url, body, headers)


class Alertmanager:
    """Its v2 API: one alert a target; a recovery is the same alert with an end."""

    def __init__(
        self, url: str, token: str, limit_s: float, transport: httpx.BaseTransport | None = None
    ) -> None:
        base = url.rstrip("/")
        self._url = base if base.endswith("/api/v2/alerts") else f"{base}/api/v2/alerts"
        self._token = token
        self._client = httpx.Client(timeout=limit_s, transport=transport)

    def __call__(self, message: Message, repeat: bool) -> None:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"  # not shown
        alerts = [self._alert(message, one.name, one.since) for one in message.targets]
        _post(self._client, self._url, json.dumps(alerts).encode(), headers)

    def _alert(self, message: Message, target: str, since: float) -> dict[str, Any]:
        labels = {"alertname": f"EveWatch {message.rule}", "instance": target,
                  "severity": message.severity}  # fmt: skip
        about = {"summary": message.words, "description": message.text}
        when = "startsAt" if message.state == FIRING else "endsAt"
        return {"labels": labels, "annotations": about, when: _iso(since)}


def _post(client: httpx.Client, url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """A redirect is not followed: where an alert goes is what the file says."""
    try:
        answer = client.post(url, content=body, headers=dict(headers))
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise NotDelivered(f"nobody answers there ({error})") from error
    except httpx.HTTPError as error:
        raise NotDelivered(f"{type(error).__name__}: {error}", True) from error
    if answer.is_redirect:
        where = answer.headers.get("location", "elsewhere")
        raise NotDelivered(f"it sends on to {where}; name that address in the file")
    if not answer.is_success:
        raise NotDelivered(f"it answers {answer.status_code}", answer.status_code >= 500)


def _body(message: Message, repeat: bool) -> dict[str, Any]:
    return message.to_dict() | {"repeat": repeat, "sent_by": os.getpid()}


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def sample(now: float) -> Message:
    """For `alerts test`: says that it is one."""
    from playbooks.alerts.keeper import Affected

    target = Affected("test", 1.0, now)
    made = Message("test", FIRING, "test", "critical", "a test of this way", "nothing is wrong",
                   (target,), now)  # fmt: skip
    return replace(made, id=f"test-{int(now)}")
