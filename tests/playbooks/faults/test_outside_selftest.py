"""The self-test of the outside view, on the product's own server with a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from playbooks.faults.outside_selftest import run_outside_selftest
from playbooks.runs import spec
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


def run(served: Served, *faults: str, seeds: int = 0) -> list[dict[str, object]]:
    book = spec.read(LOAD, Path("short.toml"))
    config = EngineConfig(model=MODEL)
    report = run_outside_selftest(served.url, MODEL, config, faults or None, seeds, playbook=book)
    assert violations(report, "selftest") == []
    return list(report["rows"])


def test_a_fault_that_clients_do_not_see_is_refused(served):
    with pytest.raises(ConfigError, match=r"leak_pages.*known: swapped_answers"):
        run(served, "leak_pages")


def test_refusals_are_found(served):
    (healthy, refused) = run(served, "refusals", seeds=1)
    assert healthy["fault"] is None and healthy["wanted"] == "healthy"
    assert refused["wanted"] == "failing_requests"
