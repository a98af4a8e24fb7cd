"""Ways out over HTTP: a webhook, and Alertmanager.

A try ends with its limit, however slowly the other side takes or answers. A redirect is not
followed: where an alert goes is what the file says.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx

from playbooks.alerts.delivery import NotDelivered, body
from playbooks.alerts.keeper import FIRING, Affected, Message

SIGNATURE = "X-EveWatch-Signature"
REFUSED = (400, 413, 422)
"""Of this message, and not of whoever sends it."""
BUSY = (429, 503)
MOST_WAIT_S = 300.0
"""Of what the other side asks for."""
CONNECT_SHARE = 0.8
"""Of the limit, for a connection: so it is known that nothing was sent."""
SAID_BYTES = 2000
ALWAYS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
STANDS_S = 300.0
"""An alert stands at Alertmanager for so long without being said again."""


class Post:
    """To one address."""

    def __init__(
        self, url: str, limit_s: float, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        self._url, self._limit_s, self._transport = url, limit_s, transport
        # The system's certificates and SSL_CERT_FILE: inside a company they are its own.
        self._trusted = ssl.create_default_context() if url.startswith("https:") else False

    def __call__(self, content: bytes, headers: Mapping[str, str]) -> None:
        """Raises NotDelivered."""
        try:
            asyncio.run(self._within_limit(content, headers))
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NotDelivered(f"nobody answers there ({_reason(error)})") from error
        except TimeoutError:
            raise NotDelivered(f"no whole answer in {self._limit_s:g} s", True) from None
        except httpx.HTTPError as error:
            raise NotDelivered(f"{type(error).__name__}: {error}", True) from error

    async def _within_limit(self, content: bytes, headers: Mapping[str, str]) -> None:
        limits = httpx.Timeout(self._limit_s, connect=self._limit_s * CONNECT_SHARE)
        async with (
            asyncio.timeout(self._limit_s),
            httpx.AsyncClient(
                timeout=limits, transport=self._transport, verify=self._trusted
            ) as client,
            client.stream(
                "POST", self._url, content=content,
                headers={**ALWAYS, **headers},
            ) as answer,
        ):  # fmt: skip
            if not answer.is_success:
                raise await _refusal(answer)


def _reason(error: BaseException) -> str:
    """What lies at its bottom: the library says that all attempts failed."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


async def _refusal(answer: httpx.Response) -> NotDelivered:
    code = answer.status_code
    if answer.is_redirect:
        where = answer.headers.get("location", "elsewhere")
        return NotDelivered(f"it sends on to {where}; name that address in the file")
    said = await _said(answer)
    why = f"it answers {code}" + (f": {said}" if said else "")
    asked = answer.headers.get("retry-after", "") if code in BUSY else ""
    wait_s = min(float(asked), MOST_WAIT_S) if asked.isdecimal() else 0.0
    return NotDelivered(why, code >= 500, refused=code in REFUSED, wait_s=wait_s)


async def _said(answer: httpx.Response) -> str:
    """The first line of its reason, if it is a text."""
    if not answer.headers.get("content-type", "").startswith(("text/plain", "application/json")):
        return ""
    found = b""
    async for part in answer.aiter_bytes(SAID_BYTES):
        found += part
        if len(found) >= SAID_BYTES:
            break
    return " ".join(found[:SAID_BYTES].decode(errors="replace").split())[:200]


class Webhook:
    """POSTs JSON, signed with HMAC-SHA256 over the time and the body where there is a secret."""

    def __init__(
        self,
        url: str,
        secret: str,
        limit_s: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._secret, self._post = secret, Post(url, limit_s, transport)

    def __call__(self, message: Message, repeat: bool) -> None:
        content = json.dumps(body(message, repeat)).encode()
        headers = {"Idempotency-Key": message.id}
        if self._secret:
            at = str(int(time.time()))
            signed = hmac.new(self._secret.encode(), f"{at}.".encode() + content, hashlib.sha256)
            headers[SIGNATURE] = f"t={at},v1={signed.hexdigest()}"
        self._post(content, headers)


class Alertmanager:
    """Its v2 API: one alert a target; a recovery is the same alert with an end.

    Alertmanager forgets what it is not told again, and what it was told before its own restart:
    `again` says all that fires, and is to be called every minute.
    """

    def __init__(
        self,
        url: str,
        token: str,
        limit_s: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        base = url.rstrip("/")
        whole = base if base.endswith("/api/v2/alerts") else f"{base}/api/v2/alerts"
        self._post = Post(whole, limit_s, transport)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}  # not shown
        self._firing: dict[tuple[str, str], dict[str, Any]] = {}
        self._lock = threading.Lock()

    def __call__(self, message: Message, repeat: bool) -> None:
        alerts = [self._alert(message, one) for one in message.targets]
        self._send(alerts)
        with self._lock:
            for one, alert in zip(message.targets, alerts, strict=True):
                if message.state == FIRING:
                    self._firing[message.rule, one.name] = alert
                else:
                    self._firing.pop((message.rule, one.name), None)

    def again(self) -> None:
        """Raises NotDelivered."""
        with self._lock:
            alerts = list(self._firing.values())
        if alerts:
            self._send([one | {"endsAt": _iso(time.time() + STANDS_S)} for one in alerts])

    def _send(self, alerts: list[dict[str, Any]]) -> None:
        self._post(json.dumps(alerts).encode(), self._headers)

    def _alert(self, message: Message, one: Affected) -> dict[str, Any]:
        labels = {"alertname": f"EveWatch {message.rule}", "instance": one.name,
                  "severity": message.severity}  # fmt: skip
        about = {"summary": message.words, "description": _described(message, one)}
        if message.state == FIRING:
            times = {"startsAt": _iso(one.since), "endsAt": _iso(time.time() + STANDS_S)}
        else:
            with self._lock:
                begun = self._firing.get((message.rule, one.name), {})
            times = {k: v for k, v in begun.items() if k == "startsAt"}
            times["endsAt"] = _iso(one.since)
        return {"labels": labels, "annotations": about, **times}


def _described(message: Message, one: Affected) -> str:
    value = "" if one.value is None else f"{one.value:g}"
    return "; ".join(part for part in (one.reason or value, message.text) if part)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
