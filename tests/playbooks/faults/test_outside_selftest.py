"""The self-test of the outside view, on the product's own server with a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.observing.host import HostEvidence, Witness, silent
from playbooks.faults.outside_selftest import run_outside_selftest
from playbooks.runs import spec
from quiet import undisturbed
from report_schemas import violations
from served import MODEL, Served, serving

LOAD = """
[[steps]]
kind = "load"
with = { arrivals = "closed:3", lengths = "fixed:12,6", requests = 60 }
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


def run(served: Served, *faults: str, seeds: int = 0) -> list[dict[str, Any]]:
    book = spec.read(LOAD, Path("short.toml"))
    config = EngineConfig(model=MODEL)
    report = run_outside_selftest(served.url, MODEL, config, list(faults), seeds, playbook=book)
    assert violations(report, "selftest") == []
    return list(report["rows"])


def test_a_fault_that_clients_do_not_see_is_refused(served):
    with pytest.raises(ConfigError, match=r"leak_pages.*known: swapped_answers"):
        run(served, "leak_pages")


SHORT = ["refusals", "cut_streams", "stalled_requests", "half_counted", "slow_replica",
         "ignored_limits"]  # fmt: skip
"""Faults that a load alone shows."""


@pytest.mark.parametrize("name", SHORT)
def test_each_fault_is_the_first_finding(served, name):
    rows = undisturbed(lambda: run(served, name), lambda rows: rows[0]["found"])
    assert rows[0]["found"] and float(rows[0]["confidence"]) >= 0.55, rows[0]


def test_a_sound_server_passes(served):
    rows = undisturbed(lambda: run(served, "refusals", seeds=3),
                       lambda rows: all(row["found"] for row in rows))  # fmt: skip
    assert [row["first"] for row in rows] == ["healthy"] * 3 + ["failing_requests"]
    assert all(row["found"] for row in rows)


CONTENDED = {"cpu_s": 5.0, "wait_s": 5.0, "others_s": 6.0, "idle_cores": 0.0, "cores": 2}


def test_a_run_in_which_the_host_is_blamed_is_done_once_more_and_says_so(served):
    """The first run finds a host that others have, the second one a quiet one."""
    readings = [HostEvidence(8.0, **CONTENDED), HostEvidence(8.0)]

    class Told(Witness):
        @property
        def evidence(self) -> HostEvidence:
            return readings[0]

    def witness() -> Witness:
        if readings[1:] and made:
            readings.pop(0)
        made.append(Told(look=silent))
        return made[-1]

    made: list[Witness] = []
    book, config = spec.read(LOAD, Path("short.toml")), EngineConfig(model=MODEL)
    report = run_outside_selftest(served.url, MODEL, config, [], 1, playbook=book, witness=witness)
    (row,) = report["rows"]
    assert len(made) == 2
    assert (row["first"], row["found"]) == ("healthy", True), row
