"""A webhook and Alertmanager: what is sent, and servers that hang, drip, refuse or send on."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

import httpx
import pytest

from playbooks.alerts.delivery import NotDelivered
from playbooks.alerts.keeper import FIRING, RECOVERED, Affected, Message
from playbooks.alerts.posting import SIGNATURE, STANDS_S, Alertmanager, Webhook
from report_schemas import violations


def message(number: int = 0, severity: str = "critical", state: str = FIRING) -> Message:
    target = Affected("a", 80.0, 1000.0)
    return Message(f"id-{number}", state, "queue", severity, "queue.waiting above 50", "send less",
                   (target,), 1010.0)  # fmt: skip


def answering(handler) -> httpx.MockTransport:
    return httpx.MockTransport(handler)


def test_a_webhook_is_signed_and_names_its_message():
    seen: list[httpx.Request] = []

    def handler(request):
        seen.append(request)
        return httpx.Response(204)

    Webhook("http://hook/x", "secret", 5.0, answering(handler))(message(4), False)
    (request,) = seen
    when, _, signature = request.headers[SIGNATURE].partition(",v1=")
    body = f"{when.removeprefix('t=')}.".encode() + request.content
    assert signature == hmac.new(b"secret", body, hashlib.sha256).hexdigest()
    assert request.headers["idempotency-key"] == "id-4"
    sent = json.loads(request.content)
    assert sent["rule"] == "queue" and violations(sent, "alert") == []


def refuse(request):
    raise httpx.ConnectError("refused")


def hang(request):
    raise httpx.ReadTimeout("too long")


@pytest.mark.parametrize(
    ("handler", "words", "unsure"),
    [
        (lambda _: httpx.Response(500), "answers 500", True),
        (lambda _: httpx.Response(404), "answers 404", False),
        (lambda _: httpx.Response(302, headers={"location": "http://b/"}), "http://b/", False),
        (refuse, "nobody answers", False),
        (hang, "ReadTimeout", True),
    ],
)
def test_a_webhook_that_does_not_take_it(handler, words, unsure):
    with pytest.raises(NotDelivered, match=words) as error:
        Webhook("http://hook/x", "", 5.0, answering(handler))(message(), False)
    assert error.value.unsure is unsure


def test_alertmanager_gets_one_alert_a_target_and_its_end():
    seen = []

    def handler(request):
        seen.append((str(request.url), json.loads(request.content)))
        return httpx.Response(200)

    to = Alertmanager("http://am:9093/", "", 5.0, answering(handler))
    to(message(), False)
    to(message(state=RECOVERED), False)
    (url, (onset,)), (_, (end,)) = seen
    assert url == "http://am:9093/api/v2/alerts"
    assert onset["labels"] == end["labels"]
    assert onset["startsAt"] == "1970-01-01T00:16:40Z" and "endsAt" in end
    assert onset["annotations"]["summary"] == "queue.waiting above 50"


@contextmanager
def speaking(*parts: bytes, between_s: float = 0.0) -> Iterator[str]:
    """The address of a server that says these parts and then nothing, without closing."""
    ended = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                for part in parts:
                    connection.sendall(part)
                    ended.wait(between_s)
                ended.wait()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
    finally:
        ended.set()
        listener.close()


DRIP = [bytes([one]) for one in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 4000]


@pytest.mark.parametrize(
    "parts", [(), (b"HTTP/1.1 200 OK\r\n",), DRIP], ids=["silent", "half a head", "a byte a time"]
)
def test_a_try_ends_with_its_limit_however_the_other_side_drips(parts):
    with speaking(*parts, between_s=0.05) as url:
        began = time.monotonic()
        with pytest.raises(NotDelivered) as error:
            Webhook(url, "", 0.3)(message(), False)
        assert error.value.unsure  # it was sent: it may have arrived
        assert time.monotonic() - began < 0.05 * len(DRIP) / 2


def test_an_answer_without_an_end_is_an_answer():
    """Its status says all; who never ends its body holds up nothing."""
    with speaking(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n") as url:
        Webhook(url, "", 30.0)(message(), False)


def test_what_is_refused_says_why_and_is_this_message_s_fault():
    def handler(request):
        return httpx.Response(400, json={"error": "text too long"})

    with pytest.raises(NotDelivered, match=r"answers 400: .*text too long") as error:
        Webhook("http://hook/x", "", 5.0, answering(handler))(message(), False)
    assert error.value.refused and not error.value.unsure


@pytest.mark.parametrize(
    ("code", "asked", "wait_s"),
    [(429, "30", 30.0), (503, "86400", 300.0), (429, "tomorrow", 0.0), (500, "30", 0.0)],
)
def test_who_is_busy_may_ask_for_a_pause(code, asked, wait_s):
    def handler(request):
        return httpx.Response(code, headers={"retry-after": asked})

    with pytest.raises(NotDelivered) as error:
        Webhook("http://hook/x", "", 5.0, answering(handler))(message(), False)
    assert error.value.wait_s == wait_s and not error.value.refused


def test_alertmanager_is_told_again_what_fires_and_no_longer_what_is_over():
    """It forgets within minutes what it is not told again."""
    sent = []

    def handler(request):
        sent.append(json.loads(request.content))
        return httpx.Response(200)

    to = Alertmanager("http://am:9093/am", "", 5.0, answering(handler))
    to.again()
    assert sent == []
    to(message(), False)
    to.again()
    ((onset,), (again,)) = sent
    assert {k: v for k, v in onset.items() if k != "endsAt"} == {
        k: v for k, v in again.items() if k != "endsAt"
    }
    ends = [unix(one["endsAt"]) - time.time() for one in (onset, again)]
    assert all(STANDS_S - 60 < left <= STANDS_S for left in ends)
    to(message(state=RECOVERED), False)
    (end,) = sent[-1]
    assert end["startsAt"] == onset["startsAt"] and end["endsAt"] == "1970-01-01T00:16:40Z"
    to.again()
    assert len(sent) == 3


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
