"""Replicas beside each other: the slow one, the one that fails, the one with other settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from playbooks.faults.proxy import FaultyProxy
from playbooks.faults.tampering import Refusals, SlowReplica, Tampering
from playbooks.load.endpoint import EndpointSpec
from playbooks.outside.replicas import Replica, judge, odd_replicas
from served import Served, serving


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


def found(served: Served, *faults: Tampering | None) -> tuple[tuple[str, ...], list[str]]:
    with ExitStack() as stack:
        urls = [stack.enter_context(FaultyProxy(served.url, fault)).url for fault in faults]
        return odd_replicas([EndpointSpec(url) for url in urls]), urls


def test_the_slow_one_is_named_and_equal_ones_are_not(served):
    odd, urls = found(served, None, SlowReplica(event_wait_s=0.15), None)
    assert odd and all(line.startswith(urls[1]) for line in odd)
    assert "TTFT" in odd[0] or "TPOT" in odd[0]


def test_the_one_that_fails_is_named(served):
    odd, urls = found(served, None, Refusals(every=4))
    assert odd[0] == f"{urls[1]}: 4 of 16 requests failed, none elsewhere"


def test_settings_that_differ_are_named_with_the_odd_one():
    same = {"KV pages": 512, "model": "m"}
    three = {"a": Replica([], same), "b": Replica([], same | {"KV pages": 256}),
             "c": Replica([], same)}  # fmt: skip
    assert judge(three) == ("b: KV pages 256, the others 512",)
    two = {"a": Replica([], same), "b": Replica([], same | {"KV pages": 256})}
    assert judge(two) == ("KV pages differs: 512 at a, 256 at b",)
    silent = {"a": Replica([], same), "b": Replica([], {"KV pages": None, "model": "m"})}
    assert judge(silent) == ()
