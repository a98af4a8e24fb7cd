"""Counters of a page against what clients got."""

from array import array
from dataclasses import dataclass, field, replace

import pytest

from engine.snapshot import BatchState, Snapshot
from playbooks.load.record import RequestRecord
from playbooks.outside import counters
from playbooks.outside.counters import Counters, disagreements


@dataclass
class Page:
    """A watch whose target stands still."""

    snapshot: Snapshot
    restarts: int = 0
    looks: list[int] = field(default_factory=list)

    def look(self):
        return self.snapshot


@pytest.fixture(autouse=True)
def no_wait(monkeypatch):
    monkeypatch.setattr(counters, "SETTLE_S", 0.0)


def page(ended, output, prompt):
    batch = BatchState(output_tokens_total=output, prompt_tokens_total=prompt)
    return Page(replace(Snapshot(), finished={"stop": ended}, batch=batch))


RECORDS = [
    RequestRecord(i, 0, 10, 5, events=array("q", [1, 2]), prompt_tokens=10, output_tokens=5,
                  cached_tokens=4, finish_reason="stop")
    for i in range(20)
]  # fmt: skip
BEFORE = Counters(100, 1000, 5000)


@pytest.mark.parametrize(("ended", "output", "prompt", "what"), [
    (120, 1100, 5200, ""),
    (120, 1100, 5120, ""),  # what the prefix cache had is not counted by all
    (500, 9000, 9000, ""),  # others' traffic
    (110, 1100, 5200, "requests ended: clients got 20, its counter rose by 10"),
    (120, 1050, 5200, "output tokens: clients got 100, its counter rose by 50"),
    (120, 1100, 5050, "prompt tokens: clients got 120, its counter rose by 50"),
])  # fmt: skip
def test_nothing_that_clients_got_may_be_missing(ended, output, prompt, what):
    found = disagreements(BEFORE, RECORDS, page(ended, output, prompt))
    assert "; ".join(found) == what


def test_counters_that_began_again_prove_nothing():
    watch = replace(page(5, 10, 10), restarts=1)
    assert disagreements(BEFORE, RECORDS, watch) is None


def test_a_page_without_counters_proves_nothing():
    assert disagreements(Counters(), RECORDS, Page(Snapshot())) is None
