"""Replicas beside each other: the slow one, the one that fails, the one with other settings."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from playbooks.faults.proxy import FaultyProxy
from playbooks.faults.tampering import Refusals, SlowReplica, Tampering
from playbooks.load.record import RequestRecord
from playbooks.outside.care import Care, GuardTripped
from playbooks.outside.replicas import Replica, judge, odd_replicas
from playbooks.outside.site import UrlSite
from playbooks.runs import spec
from playbooks.runs.history import History
from playbooks.runs.options import CheckOptions
from playbooks.runs.runner import run_playbook
from quiet import undisturbed
from served import Served, serving

BOOK = """
[[steps]]
kind = "load"
with = { arrivals = "closed:3", lengths = "fixed:12,6", requests = 40 }
"""


class QuietSite(UrlSite):
    def witness(self) -> None:
        return None


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


def found(served: Served, *faults: Tampering | None) -> tuple[tuple[str, ...], list[str]]:
    with ExitStack() as stack:
        urls = [stack.enter_context(FaultyProxy(served.url, fault)).url for fault in faults]
        return odd_replicas([UrlSite(url) for url in urls]), urls


def test_the_slow_one_is_named_and_equal_ones_are_not(served):
    odd, urls = found(served, None, SlowReplica(wait=0.15), None)
    assert odd and all(line.startswith(urls[1]) for line in odd)
    assert "TTFT" in odd[0] or "TPOT" in odd[0]


def test_the_one_that_fails_is_named(served):
    odd, urls = found(served, None, Refusals(every=4))
    assert odd[0] == f"{urls[1]}: 4 of 16 requests failed, none elsewhere"


def test_one_with_other_answers_is_named():
    def replica(*texts: str) -> Replica:
        records = [
            RequestRecord(i, 0, 24, 12, finish_reason="stop", events=array("q", [i + 1]), text=[t])
            for i, t in enumerate(texts)
        ]
        return Replica(records)

    alike = [f"{n} and so it goes on" for n in range(10)]
    rounded = [*alike[:8], "or not", "well"]
    other = [f"no {n}" for n in range(10)]
    assert judge({"a": replica(*alike), "b": replica(*rounded)}) == ()
    assert judge({"a": replica(*alike), "b": replica(*rounded), "c": replica(*other)}) == (
        "c: 0% of its answers to the same prompts begin as those of a",
    )
    (line,) = judge({"a": replica(*alike), "c": replica(*other)})
    assert line == "a: 0% of its answers to the same prompts begin as those of c"
    assert judge({"a": replica(*alike[:7]), "c": replica(*other[:7])}) == ()  # too few to tell


def test_settings_that_differ_are_named_with_the_odd_one():
    same = {"KV pages": 512, "model": "m"}
    three = {"a": Replica([], same), "b": Replica([], same | {"KV pages": 256}),
             "c": Replica([], same)}  # fmt: skip
    assert judge(three) == ("b: KV pages 256, the others 512",)
    two = {"a": Replica([], same), "b": Replica([], same | {"KV pages": 256})}
    assert judge(two) == ("KV pages differs: 512 at a, 256 at b",)
    silent = {"a": Replica([], same), "b": Replica([], {"KV pages": None, "model": "m"})}
    assert judge(silent) == ()


def test_a_check_of_a_group_names_the_slow_one_first(served, tmp_path):
    book = spec.read(BOOK, Path("short.toml"))
    with FaultyProxy(served.url) as good, FaultyProxy(served.url, SlowReplica(0.2)) as slow:
        site = QuietSite(good.url, replicas=(slow.url,))
        report = run_playbook(book, site, CheckOptions(folder=tmp_path / "report", log=False))
    causes = [finding["cause"] for finding in report["findings"]]
    assert "replica_differs" in causes
    (found,) = [f for f in report["findings"] if f["cause"] == "replica_differs"]
    assert found["evidence"][0].startswith(slow.url)


def test_a_slower_day_by_url_is_named(served, tmp_path):
    """The same service, at another address and slower: its figures are in one file."""
    book, usual = spec.read(BOOK, Path("short.toml")), tmp_path / "usual.json"

    def check(fault: Tampering | None) -> list[str]:
        with FaultyProxy(served.url, fault) as proxy:
            options = CheckOptions(folder=tmp_path / "report", log=False, usual=History(usual))
            report = run_playbook(book, QuietSite(proxy.url), options)
        return [finding["cause"] for finding in report["findings"]]

    def both() -> list[str]:
        usual.unlink(missing_ok=True)
        return check(None) + check(SlowReplica(0.2))

    found = undisturbed(both, lambda causes: causes == ["healthy", "slower_than_usual"])
    assert found[0] == "healthy" and "slower_than_usual" in found[1:]


def test_one_whose_model_ended_at_once_has_not_failed():
    plain, quiet = Replica(), Replica()
    for i in range(16):
        plain.records.append(RequestRecord(i, 0, 24, 12))
        quiet.records.append(RequestRecord(i, 0, 24, 12, error="no_output" if i == 3 else None))
    assert judge({"a": plain, "b": quiet}) == ()
    quiet.records[4].error = "http_503"
    assert judge({"a": plain, "b": quiet}) == ("b: 1 of 16 requests failed, none elsewhere",)


def test_one_that_is_down_is_named_and_the_others_are_compared(served):
    with FaultyProxy(served.url) as good, FaultyProxy(served.url) as gone:
        pass
    with FaultyProxy(served.url) as good:
        odd = odd_replicas(UrlSite(good.url, replicas=(gone.url,)).group)
    (line,) = odd
    assert line.startswith(f"{gone.url} is down: ")


def test_care_and_the_journal_are_those_of_the_check(served):
    with FaultyProxy(served.url) as good, FaultyProxy(served.url, Refusals(every=2)) as bad:
        site = UrlSite(good.url, replicas=(bad.url,), care=Care((("error_rate", 0.4),)))
        with pytest.raises(GuardTripped, match=rf"{bad.url}: stopped by the guard error_rate"):
            odd_replicas(site.group)
    sent = {phase.address: len(phase.records) for phase in site.journal.phases}
    assert sent[good.url] >= sent[bad.url] >= 10


def timed(ttft_ms: int) -> Replica:
    """16 answers, the first token of each after so long."""
    rows = []
    for i in range(16):
        first = ttft_ms * 1_000_000
        rows.append(RequestRecord(i, 0, 24, 12, events=array("q", [first, first + 10**7]),
                                  output_tokens=2, finish_reason="length"))  # fmt: skip
    return Replica(rows)


def test_only_who_is_slow_both_times_is_slow():
    quick, slow = {"a": timed(20), "b": timed(20)}, {"a": timed(20), "b": timed(400)}
    other = {"a": timed(400), "b": timed(20)}
    assert judge(slow) == judge(slow, slow) and judge(slow)[0].startswith("b: ")
    assert judge(slow, quick) == judge(slow, other) == judge(quick) == ()
    slow["a"].records[0].error = "http_503"
    assert judge(slow, quick) == ("a: 1 of 32 requests failed, none elsewhere",)
