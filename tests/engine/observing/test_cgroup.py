"""What a container gives, read from the files of both versions of control groups."""

from pathlib import Path

import pytest

from engine.observing import machine
from engine.observing.cgroup import CpuQuota, cpu_quota, memory_limit, memory_room, throttled_share


def place(tmp_path, own, files):
    """A tree of control groups and this process's line in it."""
    root, line = tmp_path / "cgroup", tmp_path / "own"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    root.mkdir(exist_ok=True)
    line.write_text(own)
    return root, line


V2 = "0::/kube/pod\n"
V1 = "4:memory:/job\n1:cpu,cpuacct:/job\n0::/\n"


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        (V2, {"kube/pod/cpu.max": "50000 100000\n"}, 0.5),
        (V2, {"kube/pod/cpu.max": "max 100000\n"}, None),
        (V2, {"kube/pod/cpu.max": "max 100000", "kube/cpu.max": "150000 100000"}, 1.5),
        (V2, {"kube/pod/cpu.max": "400000 100000", "kube/cpu.max": "100000 100000"}, 1.0),
        (V2, {"cpu.max": "25000 100000"}, 0.25),  # mounted as the root of the container
        ("0::/../other\n", {"cpu.max": "20000 10000"}, 2.0),
        (V1, {"cpu/job/cpu.cfs_quota_us": "50000", "cpu/job/cpu.cfs_period_us": "100000"}, 0.5),
        (V1, {"cpu,cpuacct/job/cpu.cfs_quota_us": "300000",
              "cpu,cpuacct/job/cpu.cfs_period_us": "100000"}, 3.0),
        (V1, {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"}, None),
        (V2, {"kube/pod/cpu.max": "50000 0"}, None),
        (V2, {"kube/pod/cpu.max": ""}, None),
        ("3:cpu,cpuacct:/job\n", {"cpuacct,cpu/job/cpu.cfs_quota_us": "50000",
                                  "cpuacct,cpu/job/cpu.cfs_period_us": "100000"}, 0.5),
        ("0::/\u00e9\n", {"\u00e9/cpu.max": "50000 100000"}, 0.5),
        ("0::/a:b\n", {"a:b/cpu.max": "50000 100000"}, 0.5),
        ("", {"cpu.max": "50000 100000"}, 0.5),  # no /proc
        (V2, {"kube/pod/cpu.max": "9" * 400 + " 100000"}, None),
        ("", {}, None),
        ("nonsense\n", {"cpu.max": "x y"}, None),
    ],
)  # fmt: skip
def test_the_tightest_quota_counts(tmp_path, own, files, cores):
    found = cpu_quota(*place(tmp_path, own, files))
    assert (None if found is None else found.cores) == cores


def test_throttling_is_counted_between_two_readings(tmp_path):
    stat = "nr_periods 100\nnr_throttled 40\nthrottled_usec 5\n"
    root, own = place(tmp_path, V2, {"kube/pod/cpu.max": "50000 100000", "kube/pod/cpu.stat": stat})
    before = cpu_quota(root, own)
    assert before == CpuQuota(0.5, 100, 40, 5e-6)
    (root / "kube/pod/cpu.stat").write_text("nr_periods 120\nnr_throttled 55\n")
    assert throttled_share(before, cpu_quota(root, own)) == 0.75
    assert throttled_share(None, None) == 0.0
    assert throttled_share(before, before) is None
    assert throttled_share(CpuQuota(0.5), CpuQuota(0.5)) is None


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        (V2, {"kube/pod/memory.max": "1073741824", "kube/memory.max": "max"}, 1 << 30),
        (V2, {"kube/pod/memory.max": "max"}, None),
        (V1, {"memory/job/memory.limit_in_bytes": "9223372036854771712",
              "memory/memory.limit_in_bytes": "2048"}, 2048),
        (V1, {"memory/job/memory.limit_in_bytes": "9223372036854771712"}, None),
        (V2, {"kube/pod/memory.max": "4096", "kube/pod/memory.high": "2048"}, 2048),
        (V2, {"kube/pod/memory.max": "max", "kube/memory.high": "2048"}, 2048),
        (V1, {"memory/job/memory.limit_in_bytes": "9223372036854771712",  # of a group not seen
              "memory/job/memory.stat": "cache 1\nhierarchical_memory_limit 2048\n"}, 2048),
        (V2, {"kube/pod/memory.max": "9" * 50}, None),
    ],
)  # fmt: skip
def test_the_least_memory_counts(tmp_path, own, files, limit):
    assert memory_limit(*place(tmp_path, own, files)) == limit


@pytest.mark.parametrize(
    ("own", "files", "room"),
    [
        (V2, {"kube/pod/memory.max": "4096", "kube/pod/memory.current": "3000",
              "kube/pod/memory.stat": "anon 1\ninactive_file 500\n"}, 1596),
        (V2, {"kube/pod/memory.max": "4096", "kube/pod/memory.current": "1000",
              "kube/memory.max": "8192", "kube/memory.current": "8000"}, 192),
        (V1, {"memory/job/memory.limit_in_bytes": "4096",
              "memory/job/memory.usage_in_bytes": "3000",
              "memory/job/memory.stat": "inactive_file 9\ntotal_inactive_file 500\n"}, 1596),
        (V2, {"kube/pod/memory.high": "4096", "kube/pod/memory.current": "5000"}, 0),
        (V2, {"kube/pod/memory.max": "max", "kube/pod/memory.current": "5000"}, None),
    ],
)  # fmt: skip
def test_what_may_still_be_taken_is_what_the_tightest_group_leaves(tmp_path, own, files, room):
    assert memory_room(*place(tmp_path, own, files)) == room


def test_memory_is_no_more_than_the_containers(monkeypatch):
    monkeypatch.setattr(machine, "memory_room", lambda: 1000)
    assert machine.available_memory() == 1000
    monkeypatch.setattr(machine, "memory_room", lambda: None)
    assert machine.available_memory() > 1000
    monkeypatch.setattr(machine, "memory_room", lambda: 1 << 60)
    assert 1000 < machine.available_memory() < 1 << 60


def test_a_part_of_a_core_is_one_core(monkeypatch):
    monkeypatch.setattr(machine, "cpu_quota", lambda: CpuQuota(0.5))
    assert machine.cores() == 1
    monkeypatch.setattr(machine, "cpu_quota", lambda: CpuQuota(1000.0))
    everything = machine.cores()
    monkeypatch.setattr(machine, "cpu_quota", lambda: None)
    assert machine.cores() == everything >= 1


def test_here_it_reads_without_a_crash():
    assert cpu_quota(own=Path("/proc/self/cgroup")) is None or cpu_quota().cores > 0
