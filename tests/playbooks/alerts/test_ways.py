"""Ways out: what hangs, answers wrongly or is down delays nothing else, and loses nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import deque

import pytest

from engine.snapshot import KvState, QueueState, Snapshot
from playbooks.alerts.command import Command
from playbooks.alerts.delivery import NotDelivered
from playbooks.alerts.file import load
from playbooks.alerts.keeper import FIRING, RECOVERED, Affected, Message
from playbooks.alerts.silences import Silence, Silences
from playbooks.alerts.watchkeeper import Watchkeeper, state_path
from playbooks.alerts.ways import Bell, Way, close_all, sample
from playbooks.optlog import OptLog
from vllm_stub import alive
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
    def down(message, repeat):
        raise NotDelivered("down")

    one = way(down)
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
    assert shown["firing"] == [{"rule": "queue", "target": "a", "since": 0.0, "told": True}]
    assert shown["ways"][0]["delivered"] == 1
    waiting[0] = 0
    for now in range(11, 20):
        keeper.look(float(now))
    assert keeper.stop(CEILING_S) == []
    assert [one.state for one in heard] == [FIRING, RECOVERED]
    assert [got[1] for got in send.got] == [True, False]
    titles = [record.title for record in OptLog().read().records]
    assert titles == ["Alert firing: queue", "Alert recovered: queue"]


def test_what_is_refused_for_what_it_is_waits_behind_the_others():
    got: list[tuple[str, bool]] = []

    def choosy(message, repeat):
        if message.id == "id-0" and len(got) < 2:
            raise NotDelivered("answers 400: too long", refused=True)
        got.append((message.id, repeat))

    one = way(choosy)
    for number in range(3):
        one.put(message(number))
    assert one.close(CEILING_S) == []
    assert [name for name, _ in got] == ["id-1", "id-2", "id-0"]


def test_a_way_that_is_down_keeps_its_order_and_waits_as_it_is_asked():
    tries: list[tuple[str, float]] = []

    def busy(message, repeat):
        tries.append((message.id, time.monotonic()))
        if len(tries) == 1:
            raise NotDelivered("answers 429", wait_s=0.2)

    one = Way("test", busy, waits=(0.0,))
    one.put(message(0))
    one.put(message(1))
    until(lambda: len(tries) == 3)
    assert [name for name, _ in tries] == ["id-0", "id-0", "id-1"]
    assert tries[1][1] - tries[0][1] >= 0.2
    one.close(CEILING_S)


def test_ways_that_hang_are_closed_at_the_same_time():
    stuck = threading.Event()
    ways = [way(lambda message, repeat: stuck.wait(CEILING_S) and None) for _ in range(100)]
    for one in ways:
        one.put(message(3))
    began = time.monotonic()
    left = close_all(ways, 0.3)
    assert [[m.id for m in those] for those in left] == [["id-3"]] * 100
    assert time.monotonic() - began < 100 * 0.3
    stuck.set()


def test_what_wants_to_be_said_again_is(monkeypatch):
    monkeypatch.setattr("playbooks.alerts.ways.AGAIN_S", 0.02)
    said = []

    def again():
        said.append(1)
        raise NotDelivered("down")  # it is said again all the same

    one = Way("test", Flaky(), waits=(0.0,), again=again)
    until(lambda: len(said) > 2)
    one.put(message(1))
    assert one.close(CEILING_S) == [] and one.delivered == 1


def test_what_a_command_leaves_in_the_background_holds_up_nothing(tmp_path):
    """It has its output open still, and is done all the same."""
    pid = tmp_path / "pid"
    Command(["sh", "-c", f"sleep 60 & echo $! > {pid}"], CEILING_S)(message(), False)
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(tmp_path):
    pid = tmp_path / "pid"
    with pytest.raises(NotDelivered, match="longer than 3 s"):
        Command(["sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], 3.0)(message(), False)
    until(lambda: not alive(int(pid.read_text())))


def test_a_watchkeeper_that_starts_again_tells_nothing_twice_and_ends_what_it_finds(
    tmp_path, monkeypatch
):
    """Its process was ended, by whatever; what fired then may have been told or been silenced."""
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    path = tmp_path / "a.toml"
    path.write_text(
        'group = "1s"\n[[rules]]\nname = "queue"\nfield = "queue.waiting"\nabove = 5\n'
        'lasts = "2s"\n[[rules]]\nname = "kv"\nfield = "kv.usage"\nabove = 0.9\nlasts = "2s"\n'
    )
    waiting, silences = [9], Silences(tmp_path / "silences.json")
    silences.add(Silence("kv", "*", 60.0, "we know"), now=0.0)

    def begun() -> Watchkeeper:
        def seen():
            return {"a": Snapshot(queue=QueueState(waiting[0]), kv=KvState(usage=0.95))}

        return Watchkeeper(load(path, {}), (), seen, silences=silences)

    def told(keeper: Watchkeeper, *span: int) -> list[tuple[str, str]]:
        looks = [keeper.look(float(now)) for now in range(*span)]
        return [(one.rule, one.state) for several in looks for one in several]

    assert told(begun(), 0, 20) == [("queue", FIRING)]
    again = begun()
    assert told(again, 30, 50) == []
    waiting[0] = 0
    assert told(again, 50, 70) == [("queue", RECOVERED), ("kv", FIRING)]
    state_path().write_text('{"file": 3, "firing": [{"rule": 1}, 7]}')
    assert told(begun(), 80, 100) == [("kv", FIRING)]
