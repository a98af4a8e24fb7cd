"""Measurements with a witness beside them: what is repeated, what is marked, what is said."""

import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from engine.errors import ConfigError
from engine.observing.host import Busy, HostEvidence
from playbooks.measure.witnessed import host_report, less_disturbed, most_lost, witness_at
from playbooks.reports.documents.parts import doubts, host_line

CALM = HostEvidence(10.0, 2, 2, cpu_s=10.0, wait_s=0.1, others_s=0.2, steal_share=0.01,
                    throttled_share=0.0, memory_pressure=0.0, clock_jump_s=0.0)  # fmt: skip
ROUGH = replace(CALM, steal_share=0.2, busiest=(Busy("cc1", 7, 0.5),), seconds=30.0)

LISTENER = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def measured(*spans):
    """What is measured, one span after another, and how often."""
    rest = list(spans)
    found = less_disturbed(lambda: rest.pop(0), lambda span: [span])
    return found, len(spans) - len(rest)


def test_what_was_calm_is_measured_once():
    assert measured(CALM, ROUGH) == (CALM, 1)


def test_what_was_disturbed_is_measured_once_more_and_the_better_one_counts():
    worse = replace(ROUGH, steal_share=0.3)
    assert measured(ROUGH, CALM) == (CALM, 2)
    assert measured(ROUGH, worse, CALM) == (ROUGH, 2)


def test_a_host_that_tells_nothing_is_not_asked_twice():
    silent = HostEvidence(1.0)
    assert measured(silent, CALM) == (silent, 1)
    assert most_lost([]) == 0.0
    report = host_report([silent])
    assert report["lost"] is None
    assert report["doubt"] is None
    assert "not told" in host_line({"host": report})


def test_a_target_elsewhere_has_no_witness_and_a_pid_must_be_somebodys():
    assert witness_at("http://192.0.2.1:8000") is None
    with pytest.raises(ConfigError, match="--pid 1073741824: no process"):
        witness_at("http://192.0.2.1:8000", 1 << 30)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_target_here_has_one_by_its_port_or_by_its_pid():
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        port = int(server.stdout.readline())
        assert witness_at(f"http://127.0.0.1:{port}").pid == server.pid
        assert witness_at("http://192.0.2.1:8000", server.pid).pid == server.pid
        server.stdin.close()
    with socket.create_server(("127.0.0.1", 0)) as own:
        assert witness_at(f"http://127.0.0.1:{own.getsockname()[1]}") is None


def test_shares_are_means_by_time_and_what_is_marked_says_why():
    report = host_report([CALM, ROUGH])
    assert report["steal_share"] == pytest.approx((10 * 0.01 + 30 * 0.2) / 40)
    assert (report["spans"], report["disturbed"]) == (2, 1)
    assert report["most_lost"] == ROUGH.lost
    assert report["busiest"] == [{"name": "cc1", "pid": 7, "cores": 0.5}]
    (text,) = doubts({"host": report})
    assert "in 1 of 2 runs" in text
    assert "20% to steal" in text
    assert "steal 15.2%" in host_line({"host": report})
    assert doubts({"host": host_report([CALM])}) == []
    assert doubts({}) == []
