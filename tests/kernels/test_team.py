"""Threads that share out a job: every item once, nobody waits for who is late."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.cpu import native
from kernels.cpu.native import POINTER, SIZE
from kv_builders import backend
from repository import ROOT

WORK = ctypes.CFUNCTYPE(None, POINTER, SIZE)
RUN = ctypes.CFUNCTYPE(None, POINTER, WORK, POINTER, SIZE)
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def _compiler() -> None:
    backend("cpu")  # skips without a compiler


def run(threads: int, items: int, work: Callable[[int], object]) -> None:
    team = native._team(threads)
    call = RUN(team.run)
    call(ctypes.addressof(team), WORK(lambda _, item: work(item) and None), None, items)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_item_is_done_once_before_it_returns(threads: int) -> None:
    for items in (0, 1, 2, 3, 64):
        done: list[int] = []
        run(threads, items, done.append)
        assert sorted(done) == list(range(items))


def test_items_run_side_by_side() -> None:
    meeting = threading.Barrier(3)
    run(3, 3, lambda item: meeting.wait(PATIENCE_S))
    assert not meeting.broken


def test_one_thread_takes_them_in_order() -> None:
    done: list[int] = []
    run(1, 9, done.append)
    assert done == list(range(9))


def test_nobody_waits_for_a_worker_that_does_not_come() -> None:
    """The only worker is held in another's job: this one is done without it."""
    held, go, done = threading.Event(), threading.Event(), []
    meeting = threading.Barrier(2)

    def hold(item: int) -> None:
        meeting.wait(PATIENCE_S)  # both threads are in it
        held.set()
        go.wait(PATIENCE_S)

    other = threading.Thread(target=run, args=(2, 2, hold))
    other.start()
    assert held.wait(PATIENCE_S)
    run(2, 10, done.append)
    assert done == list(range(10))
    assert other.is_alive()
    go.set()
    other.join(PATIENCE_S)


CHILD = """
import os, sys
import torch
torch.set_num_threads(2)
from kernels import cpu
x = torch.eye(9)
cpu.argmax(x)
pid = os.fork()
right = cpu.argmax(x)[1].tolist() == list(range(9))
if pid:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) or not right)
os._exit(not right)
"""


def test_a_forked_child_has_a_team_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", CHILD], cwd=ROOT, check=True, timeout=PATIENCE_S)


def test_workers_leave_signals_to_others() -> None:
    meeting, blocked = threading.Barrier(2), set()

    def look(item: int) -> None:
        meeting.wait(PATIENCE_S)
        if threading.current_thread() is not threading.main_thread():
            status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text()
            blocked.add(int(status.split("SigBlk:\t")[1].split()[0], 16))

    if not Path("/proc/self/task").exists():
        pytest.skip("no /proc here")
    run(2, 2, look)
    assert len(blocked) == 1
    assert blocked.pop() & 1 << 1  # SIGINT is the second
