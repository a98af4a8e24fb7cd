"""The host as a witness, on recorded /proc trees and on this machine."""

import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from engine.observing.cgroup import CpuQuota
from engine.observing.host import (
    HostEvidence,
    Places,
    Reading,
    Witness,
    held_by,
    listening_pid,
    look,
    pid_behind,
    silent,
)
from engine.observing.host.processes import Process, read, shown_name
from engine.observing.host.reading import CpuTimes, ThreadTimes

LINUX = sys.platform == "linux"
SOUND = HostEvidence(10.0, 2, cpu_s=10.0, wait_s=0.1, others_s=0.2, steal_share=0.0,
                     throttled_share=0.0)  # fmt: skip


def tree(root, *, busy=(100, 100), steal=0, wait_ns=0, own=100, other=50, majors=0):
    """A machine of two cores: process 10 with child 11, and a stranger 20."""

    def write(name, text):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    rows = [f"cpu{i} {user} 0 0 1000 0 0 0 {steal} 0 0" for i, user in enumerate(busy)]
    write("stat", "\n".join(["cpu 9 9 9 9 9 9 9 9 9 9", *rows, "cpu7 9999 0 0 0 0 0 0 0 0 0"]))
    write("cpuinfo", "\n\n".join(f"processor\t: {i}\nphysical id\t: 0\ncore id\t\t: {i}"
                                 for i in (0, 1)))  # fmt: skip
    write("meminfo", "MemTotal:       1000 kB\nMemAvailable:    250 kB\n")
    write("vmstat", "pgmajfault 3\npswpin 5\npswpout 2\n")
    for kind, us in (("cpu", 2_000_000), ("memory", 500_000), ("io", 0)):
        write(f"pressure/{kind}", f"some avg10=0.00 avg60=0 avg300=0 total={us}\nfull total=7\n")
    for pid, parent, name, ticks in (
        (10, 1, "python3", own), (11, 10, "a (worker) x", own), (20, 1, "python3", other),
    ):  # fmt: skip
        rest = f"S {parent} 0 0 0 0 0 0 0 {majors} 0 {ticks} 0 0 0 20 0 1 0 {pid * 7} 0 0"
        write(f"{pid}/stat", f"{pid} ({name}) {rest}")
        write(f"{pid}/status", "Name:\tx\nCpus_allowed_list:\t0-1\n")
        write(f"{pid}/task/{pid}/schedstat", f"1000 {wait_ns} 7")
        write(f"{pid}/task/{pid}/status",
              "voluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t9\n")  # fmt: skip
    write("20/cmdline", "python3\0-u\0/x/loop.py\0--token\0secret\0")
    write("10/cgroup", "0::/\n")
    return Places(root, root / "cgroup", root / "gone")


def test_a_recorded_machine_is_read(tmp_path):
    seen = look(10, tree(tmp_path, steal=3, wait_ns=4_000_000_000, majors=6))
    assert seen.cores == 2
    assert seen.own == {10, 11}
    assert seen.cpu == CpuTimes(busy=2.0, steal=0.06, idle=20.0)
    assert seen.threads == {10: ThreadTimes(4.0, 9), 11: ThreadTimes(4.0, 9)}
    assert seen.processes[11] == Process(11, 10, 77, "a (worker) x", 1.0, 6)
    assert seen.pressure == {"cpu": 2.0, "memory": 0.5, "io": 0.0}
    assert seen.available_share == 0.25
    assert seen.swapped_bytes == 7 * os.sysconf("SC_PAGE_SIZE")
    assert seen.disk_free_bytes > 0


def test_a_target_is_seen_whether_this_process_started_it_or_it_started_this_process(
    tmp_path, monkeypatch
):
    places = tree(tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: 10)
    child = look(11, places)
    assert child.own == {11} == set(child.threads)
    monkeypatch.setattr(os, "getpid", lambda: 11)
    assert look(10, places).own == {10}


def test_two_threads_of_a_core_are_one_core(tmp_path):
    places = tree(tmp_path)
    (tmp_path / "cpuinfo").write_text(
        "processor : 0\nphysical id : 0\ncore id : 4\n\nprocessor : 1\nphysical id : 0\ncore id : 4"
    )
    assert look(10, places).cores == 1
    (tmp_path / "cpuinfo").write_text("processor : 0\nFeatures : x\n\nprocessor : 1\n")
    assert look(10, places).cores == 2


def test_where_there_is_no_proc_nothing_is_told(tmp_path):
    places = Places(tmp_path / "none", tmp_path / "none")
    with Witness(look=lambda: look(10, places)) as witness:
        pass
    told = witness.evidence
    assert told.lost is None
    assert not told.disturbed
    unknown = ("cpu_s", "wait_s", "others_s", "steal_share", "throttled_share", "idle_cores",
               "memory_pressure", "major_faults_per_s", "swapped_bytes", "threads")  # fmt: skip
    assert {name: getattr(told, name) for name in unknown} == dict.fromkeys(unknown)


def witnessed(*readings, **options):
    """Evidence of a host whose looks are these; the first and the last ones."""
    looks = iter(readings)
    with Witness(10, look=lambda: next(looks), **options) as witness:
        pass
    return witness.evidence


def at(monotonic, **fields):
    return Reading(monotonic, fields.pop("wall", monotonic), **{"cores": 2, **fields})


def test_what_others_had_is_lost_to_them_and_own_threads_waiting_for_each_other_is_not(tmp_path):
    before = replace(look(10, tree(tmp_path)), monotonic=0.0, wall=0.0)
    alone = look(10, tree(tmp_path, own=600, busy=(600, 600), wait_ns=4 * 10**9))
    shared = look(10, tree(tmp_path, own=350, busy=(1100, 1100), other=1500, wait_ns=10**10))
    told = witnessed(before, replace(alone, monotonic=10.0, wall=10.0))
    assert (told.cpu_s, told.wait_s, told.others_s) == (pytest.approx(10.0), 8.0, 0.0)
    assert told.others_share == 0.0
    assert told.lost == 0.0
    told = witnessed(before, replace(shared, monotonic=10.0, wall=10.0))
    assert told.cpu_s == pytest.approx(5.0)
    assert told.others_s == pytest.approx(15.0)
    assert told.others_share == pytest.approx(15 / 20)
    assert told.disturbed
    (busiest,) = told.busiest
    assert (busiest.pid, busiest.cores) == (20, pytest.approx(1.45))


def test_steal_is_a_share_of_what_was_asked_for(tmp_path):
    before = replace(look(10, tree(tmp_path)), monotonic=0.0, wall=0.0)
    now = look(10, tree(tmp_path, own=500, busy=(500, 500), steal=100))
    told = witnessed(before, replace(now, monotonic=10.0, wall=10.0))
    assert told.steal_share == pytest.approx(2 / 10)
    assert told.disturbed


def test_a_quota_keeps_the_time_that_it_stood_and_not_all_of_every_period_that_it_was_spent_in():
    before, now = CpuQuota(0.5, 0, 0, 1.0), CpuQuota(0.5, 100, 100, 7.0)
    own = {"own": frozenset({10})}
    told = witnessed(
        at(0.0, quota=before, processes={10: Process(10, 1, 1, "x", 1.0, 0)}, **own),
        at(10.0, quota=now, processes={10: Process(10, 1, 1, "x", 7.0, 0)}, **own),
    )
    assert told.throttled_share == 1.0
    assert told.quota_share == pytest.approx(0.5)
    assert told.cores == 1
    assert replace(told, stood_s=None).quota_share == 1.0


def test_a_pid_that_is_taken_again_starts_from_nothing(tmp_path):
    def row(started, cpu_s):
        return {20: Process(20, 1, started, "x", cpu_s, 0)}

    told = witnessed(at(0.0, processes=row(1, 50.0)), at(10.0, processes=row(2, 3.0)))
    assert told.busiest[0].cores == pytest.approx(0.3)


def test_steps_of_the_wall_clock_add_up_whatever_their_sign():
    assert witnessed(at(0.0), at(10.0, wall=12.0)).clock_jump_s == pytest.approx(2.0)
    assert witnessed(at(0.0), at(10.0, wall=7.0)).clock_jump_s == pytest.approx(3.0)
    assert witnessed(at(0.0), at(10.0, wall=10.01)).clock_jump_s == 0.0


def test_what_is_lost_to_several_is_not_added_up_beyond_all():
    lost = replace(SOUND, steal_share=0.5, throttled_share=0.5).lost
    assert lost == pytest.approx(0.75, abs=0.01)
    assert replace(SOUND, steal_share=1.2).lost <= 1.0
    assert SOUND.lost < 0.05
    assert replace(SOUND, steal_share=0.5).disturbed
    assert not SOUND.disturbed


def test_an_interpreter_is_named_by_its_script_and_tells_no_secrets(tmp_path):
    places = tree(tmp_path)
    assert shown_name(20, "python3", places.proc) == "python3 loop.py"
    assert shown_name(20, "cc1", places.proc) == "cc1"
    (tmp_path / "20/cmdline").write_text("python3\0-m\0http.server\0x\0")
    assert shown_name(20, "python3", places.proc) == "python3 -m http.server"
    (tmp_path / "20/cmdline").write_text("python3\0-c\0print(1)\0")
    assert shown_name(20, "python3", places.proc) == "python3 -c"


def test_a_silent_host_says_nothing():
    assert witnessed(silent(), silent()).lost is None


def test_who_sends_the_load_is_no_stranger(tmp_path):
    """This process measures another one: what it takes itself is not lost to others."""

    def seen(cpu_s, mine):
        rows = {10: Process(10, 1, 1, "server", cpu_s, 0),
                os.getpid(): Process(os.getpid(), 1, 1, "evewatch", mine, 0)}  # fmt: skip
        return {"processes": rows, "own": frozenset({10}), "cpu": CpuTimes(cpu_s + mine, 0.0, 0.0)}

    told = witnessed(at(0.0, **seen(0.0, 0.0)), at(10.0, **seen(15.0, 5.0)))
    assert told.others_s == 0.0
    assert told.busiest == ()


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_this_process_is_seen_at_work_and_its_children_are_others():
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with Witness(look=lambda: look(os.getpid())) as witness:
            before = os.times()
            while (now := os.times()).user - before.user < 0.3:
                pass
    finally:
        loop.kill()
        loop.wait()
    told = witness.evidence
    assert 0.25 <= told.cpu_s <= now.user + now.system
    assert told.others_s > 0
    assert told.cores >= 1
    assert told.threads >= 1


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_who_listens_on_a_port_is_found():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listening_pid(port) == os.getpid()
        assert pid_behind(f"http://127.0.0.1:{port}") == os.getpid()
        assert pid_behind(f"http://192.0.2.1:{port}") is None
    assert listening_pid(port) is None
    assert read(1 << 30) is None


OPENS = """
import sys
files = [open("/dev/null") for _ in range(7)]
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_open_files_of_a_process_are_counted():
    with subprocess.Popen(
        [sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        child.stdout.readline()
        held = held_by(child.pid)
        assert held.open_files == len(os.listdir(f"/proc/{child.pid}/fd")) >= 10
        assert held.resident_bytes > 1 << 20
        child.stdin.write("\n")
    gone = held_by(1 << 30)
    assert (gone.open_files, gone.resident_bytes) == (None, None)
