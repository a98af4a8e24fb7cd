"""Ways out: what hangs, answers wrongly or is down delays nothing else, and loses nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import threading
from collections import deque

import httpx
import pytest

from engine.snapshot import QueueState, Snapshot
from playbooks.alerts.delivery import NotDelivered
from playbooks.alerts.file import load
from playbooks.alerts.keeper import FIRING, RECOVERED, Affected, Message
from playbooks.alerts.watchkeeper import Watchkeeper, state_path
from playbooks.alerts.ways import (
    SIGNATURE,
    Alertmanager,
    Bell,
    Command,
    Way,
    Webhook,
    sample,
)
from playbooks.optlog import OptLog
from waiting import CEILING_S, until


def message(number: int = 0, severity: str = "critical", state: str = FIRING) -> Message:
    target = Affected("a", 80.0, 1000.0)
    return Message(f"id-{number}", state, "queue", severity, "queue.waiting above 50", "send less",
                   (target,), 1010.0)  # fmt: skip


class Flaky:
    """Fails as the list says, then delivers."""

    def __init__(self, *problems: NotDelivered | None) -> None:
        self.problems = deque(problems)
        self.got: list[tuple[str, bool]] = []
        self.tries = 0

    def __call__(self, message: Message, repeat: bool) -> None:
        self.tries += 1
        problem = self.problems.popleft() if self.problems else None
        if problem is not None:
            raise problem
        self.got.append((message.id, repeat))


def way(send, severity: str = "warning") -> Way:
    return Way("test", send, severity, waits=(0.0,))


def test_messages_go_out_in_order_each_until_it_is_delivered():
    send = Flaky(NotDelivered("down"), NotDelivered("down"), None, NotDelivered("slow", True))
    one = way(send)
    for number in range(3):
        one.put(message(number))
    assert one.close(CEILING_S) == []
    assert send.got == [("id-0", False), ("id-1", True), ("id-2", False)]
    assert one.delivered == 3 and one.problem is None


def test_a_way_that_hangs_delays_no_other_one():
    stuck, other = threading.Event(), Flaky()

    def hang(message, repeat):
        stuck.wait(CEILING_S)

    slow, quick = way(hang), way(other)
    for number in range(5):
        slow.put(message(number))
        quick.put(message(number))
    assert quick.close(CEILING_S) == [] and len(other.got) == 5
    assert slow.waiting == 5
    stuck.set()
    assert slow.close(CEILING_S) == []


def test_what_could_not_be_delivered_is_named():
    one = way(Flaky(*[NotDelivered("down")] * 10_000))
    one.put(message(7))
    assert [left.id for left in one.close(0.3)] == ["id-7"]
    assert one.problem == "down"


def test_a_way_takes_what_is_severe_enough():
    send = Flaky()
    one = way(send, "critical")
    one.put(message(1, "warning"))
    one.put(message(2, "critical"))
    one.close(CEILING_S)
    assert [got[0] for got in send.got] == ["id-2"]


def test_a_bug_of_a_way_ends_nothing():
    tries = []

    def broken(message, repeat):
        tries.append(message.id)
        if len(tries) < 3:
            raise KeyError("oops")

    one = way(broken)
    one.put(message(1))
    assert one.close(CEILING_S) == [] and len(tries) == 3


def test_the_bell_rings_for_onsets():
    rung = []
    bell = Bell(lambda: rung.append(1))
    bell(message(state=FIRING), False)
    bell(message(state=RECOVERED), False)
    assert rung == [1]


def test_a_command_reads_json(tmp_path):
    out = tmp_path / "out"
    code = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())"
    Command([sys.executable, "-c", code], 30.0)(message(3), True)
    got = json.loads(out.read_text())
    assert (got["id"], got["repeat"], got["targets"][0]["name"]) == ("id-3", True, "a")


@pytest.mark.parametrize(
    ("argv", "words", "unsure"),
    [
        ([sys.executable, "-c", "import sys; sys.exit('no room')"], "ended with 1: no room", True),
        (["/no/such/program"], "could not be started", False),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "longer than 0.2 s", True),
    ],
)
def test_a_command_that_fails(argv, words, unsure):
    with pytest.raises(NotDelivered, match=words) as error:
        Command(argv, 0.2 if "60" in argv[-1] else 30.0)(message(), False)
    assert error.value.unsure is unsure


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
    assert json.loads(request.content)["rule"] == "queue"


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


def test_a_test_says_that_it_is_one():
    assert sample(5.0).id == "test-5" and "test" in sample(5.0).line


def test_the_watchkeeper_sends_writes_down_and_shows(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    path = tmp_path / "a.toml"
    path.write_text(
        'group = "1s"\n[[rules]]\nname = "queue"\nfield = "queue.waiting"\nabove = 5\nlasts = "2s"'
    )
    waiting = [9]
    send, heard = Flaky(NotDelivered("down", True)), []
    keeper = Watchkeeper(
        load(path, {}), [way(send)], lambda: {"a": Snapshot(queue=QueueState(waiting[0]))},
        heard.append,
    )  # fmt: skip
    for now in range(10):
        keeper.look(float(now))
    until(lambda: len(send.got) == 1)
    keeper.look(10.0)
    shown = json.loads(state_path().read_text())
    assert shown["firing"] == [{"rule": "queue", "target": "a", "since": 0.0}]
    assert shown["ways"][0]["delivered"] == 1
    waiting[0] = 0
    for now in range(11, 20):
        keeper.look(float(now))
    assert keeper.stop(CEILING_S) == []
    assert [one.state for one in heard] == [FIRING, RECOVERED]
    assert [got[1] for got in send.got] == [True, False]
    titles = [record.title for record in OptLog().read().records]
    assert titles == ["Alert firing: queue", "Alert recovered: queue"]
