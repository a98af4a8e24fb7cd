"""Fleets: groups, the odd replica, merged numbers, the fleet file, tokens."""

import httpx
import pytest

from engine.errors import ConfigError
from engine.remote.fleet.fleet import Fleet, FleetTarget, attach_all, read_fleet
from engine.remote.fleet.fleet_engine import FleetEngine
from engine.remote.fleet.odd import odd_ones
from engine.snapshot import (
    BatchState,
    KvState,
    LatencyState,
    Percentiles,
    QueueState,
    Snapshot,
    SourceState,
)
from remote_pages import sglang
from remote_stub import Server, page, with_value

BUSY, IDLE, AFTER = page("vllm/busy"), page("vllm/idle"), page("vllm/after")


def fleet(*bodies, group=None):
    """Replicas r0, r1, … that answer with these pages, looked at once."""
    engines = [
        Server(body).attach(f"http://10.0.0.{i}:8000", name=f"r{i}", group=group)
        for i, body in enumerate(bodies)
    ]
    several = Fleet(engines)
    several.poll()
    return several


def like(waiting=3, running=20, usage=0.4, ttft=300.0, tpot=30.0):
    return Snapshot(
        queue=QueueState(waiting=waiting),
        batch=BatchState(running=running),
        kv=KvState(usage=usage),
        latency=LatencyState(
            ttft_ms=Percentiles(p50=ttft, n=50), tpot_ms=Percentiles(p50=tpot, n=50)
        ),
    )


# --- who is odd --------------------------------------------------------------------------


def test_equal_replicas_have_no_odd_one():
    several = {
        f"r{i}": like(waiting=i % 4, usage=0.4 + 0.02 * i, ttft=280 + 9 * i) for i in range(6)
    }
    assert odd_ones(several) == []


@pytest.mark.parametrize("others", [1, 2, 3, 7])
def test_the_odd_one_is_named_with_its_numbers(others):
    several = {f"r{i}": like(waiting=2 + i % 3) for i in range(others)}
    several["bad"] = like(waiting=41, usage=0.97, ttft=8200.0)
    found = odd_ones(several)
    assert {odd.replica for odd in found} == {"bad"}
    assert {odd.metric for odd in found} == {"queue", "KV usage", "TTFT p50"}
    queue = next(odd for odd in found if odd.metric == "queue")
    assert queue.text.startswith("queue 41 (others 2")


def test_a_replica_that_gets_no_work_is_odd():
    several = {f"r{i}": like(waiting=0, running=20 + i) for i in range(4)}
    several["r4"] = like(waiting=0, running=0)
    (found,) = odd_ones(several)
    assert (found.replica, found.metric, found.value) == ("r4", "requests inside", 0)


def test_differences_that_do_not_matter_are_none():
    several = {"a": like(waiting=0, ttft=20.0, tpot=3.0, usage=0.01)}
    several["b"] = like(waiting=3, ttft=90.0, tpot=9.0, usage=0.1, running=20)
    assert odd_ones(several) == []


def test_numbers_that_are_not_known_are_not_compared():
    several = {f"r{i}": like() for i in range(3)}
    several["new"] = Snapshot()
    assert odd_ones(several) == []


def test_one_replica_alone_cannot_be_odd():
    assert odd_ones({"r0": like(waiting=1000)}) == []


# --- groups ------------------------------------------------------------------------------


def test_replicas_group_by_the_model_that_they_serve():
    other = BUSY.replace(b'model_name="smollm2"', b'model_name="qwen"')
    groups = fleet(BUSY, other, AFTER).groups()
    assert [(g.name, list(g.snapshots)) for g in groups] == [
        ("smollm2", ["r0", "r2"]),
        ("qwen", ["r1"]),
    ]


def test_the_verdict_names_who_is_down_and_who_stands_out():
    several = fleet(BUSY, AFTER, AFTER, httpx.ConnectError("Connection refused"), group="chat")
    (group,) = several.groups()
    assert group.live == ["r0", "r1", "r2"]
    assert group.verdict.startswith("3 of 4 live; r3 unreachable 0 s: Connection refused; ")
    assert "r0 stands out: queue 13 (others 0)" in group.verdict


def test_a_healthy_group_says_so():
    (group,) = fleet(AFTER, AFTER, AFTER).groups()
    assert group.verdict == "3 of 3 live; no replica stands out"


def test_a_group_merges_by_bucket_and_never_adds_a_share():
    full = with_value(AFTER, "vllm:kv_cache_usage_perc", "1.0")
    (group,) = fleet(full, full, BUSY).groups()
    merged = group.merged
    assert merged.kv.usage == pytest.approx((1 + 1 + 0.08839779005524862) / 3)
    assert merged.batch.running == 11 and merged.queue.waiting == 13
    assert merged.finished["stop"] == 22 + 22 + 5
    # TTFT over 77 requests: rank 38.5; 18 × … at or below 2.5 s: 3, at or below 5 s: 48.
    assert merged.latency.ttft_ms.n == 77
    assert merged.latency.ttft_ms.p50 == pytest.approx((2.5 + 2.5 * (38.5 - 3) / 45) * 1e3)


def test_a_group_has_its_replicas_each_with_its_own_numbers():
    merged = fleet(BUSY, AFTER, httpx.ConnectError("refused"), group="chat").groups()[0].merged
    assert [(one.name, one.running, one.waiting) for one in merged.replicas] == [
        ("r0", 11, 13), ("r1", 0, 0)
    ]  # fmt: skip


def test_a_group_that_is_all_down_has_no_numbers():
    (group,) = fleet(httpx.ConnectError("x"), httpx.ConnectError("x")).groups()
    assert group.merged.source.state is SourceState.UNREACHABLE
    assert group.merged.batch.running is None
    assert group.verdict.startswith("0 of 2 live")


def test_the_chosen_part_of_a_fleet_is_shown():
    engine = FleetEngine(fleet(BUSY, AFTER))
    assert engine.snapshot().queue.waiting == 13  # the first
    engine.choose(target="r1")
    assert engine.snapshot().queue.waiting == 0 and len(engine.series()) == 1
    engine.choose(group="smollm2")
    assert engine.snapshot().queue.requests_total == 60
    before = engine.snapshot().seq
    engine.fleet.poll()
    assert engine.snapshot().seq > before  # or graphs would stand still
    assert engine.series() == () and engine.why_not("submit")


# --- the file ----------------------------------------------------------------------------

GOOD = """
interval = 2.5
[[target]]
name = "a100-1"
url = "http://10.0.0.1:8000"
group = "chat"
token_env = "VLLM_TOKEN"
[[target]]
url = "http://10.0.0.2:8000/metrics"
engine = "sglang"
"""


def write(tmp_path, text):
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    return path


def test_a_fleet_file(tmp_path):
    targets, interval = read_fleet(write(tmp_path, GOOD))
    assert interval == 2.5
    assert targets == [
        FleetTarget("http://10.0.0.1:8000", "a100-1", "chat", "VLLM_TOKEN"),
        FleetTarget("http://10.0.0.2:8000/metrics", engine="sglang"),
    ]
    several = attach_all(targets, environment={"VLLM_TOKEN": "t"})
    assert list(several.engines) == ["a100-1", "10.0.0.2:8000/metrics"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("group =", "grupp =", "target 1: unknown key 'grupp'"),
        ("interval = 2.5", "every = 2.5", "unknown key 'every'"),
        ("interval = 2.5", "interval = 0", "interval: expected seconds"),
        ("interval = 2.5", "interval = true", "interval: expected seconds"),
        ('"sglang"', '"gpt"', "target 2: engine: expected one of"),
        ('"http://10.0.0.1:8000"', "8000", "target 1: url: expected a text"),
        ('"http://10.0.0.1:8000"', '"10.0.0.1"', "target 1: .*expected the address"),
        ('url = "http://10.0.0.1:8000"\n', "", "target 1: no url"),
        ("[[target]]", "[[targets]]", "unknown key 'targets'"),
        ("interval", "= =", "not valid TOML"),
    ],
)
def test_a_fleet_file_that_is_wrong_says_where(tmp_path, old, new, why):
    with pytest.raises(ConfigError, match=why):
        read_fleet(write(tmp_path, GOOD.replace(old, new)))


def test_no_file_no_targets(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_fleet(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"no \[\[target\]\]"):
        read_fleet(write(tmp_path, "interval = 1\n"))


def test_a_token_that_is_not_in_the_environment_is_an_error():
    target = FleetTarget("http://h:1", token_env="NO_SUCH")
    with pytest.raises(ConfigError, match=r"NO_SUCH .* is not set"):
        attach_all([target], environment={})


def test_two_targets_of_one_name_are_an_error():
    with pytest.raises(ConfigError, match="two targets are called"):
        attach_all([FleetTarget("http://h:1"), FleetTarget("http://h:1")])


def test_a_target_that_breaks_our_reading_is_named_and_the_others_are_shown(monkeypatch):
    from engine.remote.adapters.sglang import Sglang

    monkeypatch.setattr(Sglang, "read", lambda self, page: 1 / 0)
    several = fleet(sglang(), AFTER, group="chat")
    states = {n: e.snapshot().source for n, e in several.engines.items()}
    assert states["r1"].state is SourceState.LIVE
    assert states["r0"].reason == "not understood (ZeroDivisionError)"
    (group,) = several.groups()
    assert group.merged.finished["stop"] == 22
