"""Automatic items: what a Snapshot shows, and what it does not."""

from dataclasses import replace

import pytest

from checklists.book import Item, load, names
from checklists.checks import COMPUTED, answer, check_look, parse_expectation
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.simulated.demo import DemoEngine
from engine.simulated.script import SCRIPTS
from engine.snapshot import (
    BatchState,
    EngineInfo,
    KvState,
    LatencyState,
    Percentiles,
    QueueState,
    Snapshot,
    Source,
    SourceState,
    StageShares,
)

HEALTHY = Snapshot(
    engine=EngineInfo(kernels="cpu", paused=False),
    queue=QueueState(waiting=0, wait_ms=Percentiles(mean=10.0, n=50)),
    batch=BatchState(running=0, cap=4, preemption_tax=0.0),
    kv=KvState(format="int8_channel", total=10, free=4, open=1, sealed=3, cached=2, usage=0.4),
    latency=LatencyState(e2e_ms=Percentiles(p50=90.0, mean=100.0, n=50)),
    stages=StageShares(tokenize=0.02, detokenize=0.01),
    finished={"stop": 98, "timeout": 2},
    ledger={"pages": 0, "slabs": 0},
)


def item(look, expect="known", fails=None, severity="must"):
    return Item("x", "t", "auto", "o", "w", look=look, expect=expect, fails=fails,
                severity=severity)  # fmt: skip


def verdict(look, expect, snapshot=HEALTHY, fails=None, severity="must"):
    return answer(item(look, expect, fails, severity), snapshot).verdict


@pytest.mark.parametrize(
    ("expect", "value", "holds"),
    [
        ("<= 0.8", 0.8, True), ("<= 0.8", 0.81, False), (">= 2", 2, True), ("< 2", 2, False),
        ("> 2", 3, True), ("== live", "live", True), ("!= live", "live", False),
        ("== true", True, True), ("== 1", True, False), ("== true", 1, False),
        ("in cpu triton", "cpu", True), ("in cpu triton", "reference", False),
        ("known", 0, True), ("known", False, True), ("<= 1", "text", False),
        ("<= 1", True, False), ("== 48", 48.0, True),
    ],
)  # fmt: skip
def test_expectations(expect, value, holds):
    assert parse_expectation(expect).holds(value) is holds


@pytest.mark.parametrize("text", ["", "<=", "<= 1 2", "near 3", "in", "known 3", "<= true", "=="])
def test_text_that_expects_nothing_is_refused(text):
    with pytest.raises(ConfigError):
        parse_expectation(text)


def test_right_between_and_wrong():
    def at(usage, **more):
        snapshot = replace(HEALTHY, kv=replace(HEALTHY.kv, usage=usage))
        return verdict("snapshot.kv.usage", "<= 0.8", snapshot, **more)

    assert [at(u, fails="> 0.95") for u in (0.8, 0.9, 0.96)] == ["pass", "warn", "fail"]
    assert at(0.9) == "fail"
    assert at(0.96, fails="> 0.95", severity="should") == "warn"


def test_evidence_has_the_value_and_what_was_expected():
    result = answer(item("snapshot.kv.usage", "<= 0.3"), HEALTHY)
    assert result.evidence == "snapshot.kv.usage is 0.4, expected <= 0.3"
    assert result.value == 0.4
    one_of = answer(item("snapshot.source.state", "in live stale"), HEALTHY)
    assert one_of.evidence == "snapshot.source.state is live, expected one of live, stale"
    known = answer(item("snapshot.kv.usage", "known"), HEALTHY)
    assert known.evidence == "snapshot.kv.usage is 0.4, and any value will do"


def test_what_is_not_reported_is_unknown_and_never_zero():
    blank = Snapshot()
    for name in COMPUTED:
        if name not in ("alarm",):
            assert verdict(f"computed.{name}", "known", blank) == "unknown", name
    for look in ("snapshot.kv.usage", "snapshot.batch.preemption_tax", "snapshot.steps.telemetry"):
        assert verdict(look, "<= 1", blank) == "unknown"
    assert verdict("snapshot.kv.usage", "<= 1", None) == "unknown"
    assert "not reported" not in answer(item("snapshot.kv.usage"), None).evidence


def test_a_percentile_without_samples_says_how_few():
    result = answer(item("snapshot.latency.e2e_ms.p99"), HEALTHY)
    assert result.verdict == "unknown"
    assert "n is too small (50 samples)" in result.evidence


@pytest.mark.parametrize("state", [s for s in SourceState if s is not SourceState.LIVE])
def test_numbers_of_a_source_that_is_not_live_are_unknown(state):
    dead = replace(HEALTHY, source=Source(state, reason="connection refused"))
    result = answer(item("snapshot.kv.usage", "<= 0.8"), dead)
    assert result.verdict == "unknown"
    assert "connection refused" in result.evidence
    assert verdict("computed.wait_share", "<= 1", dead) == "unknown"
    assert verdict("snapshot.source.state", "== live", dead) == "fail"


def test_settings_are_known_or_not():
    config = EngineConfig(kv_format="fp16")
    look = item("config.kv_format", "== fp16")
    assert answer(look, None, config).verdict == "pass"
    assert answer(look, None, config.to_dict()).verdict == "pass"
    assert answer(look, None, None).verdict == "unknown"
    assert answer(item("config.kv_memory"), None, config).verdict == "unknown"


ENVIRONMENT = {
    "verdict": "warn",
    "checks": [
        {"id": "gpu", "verdict": "pass", "value": "A", "evidence": "cool"},
        {"id": "gpu", "verdict": "warn", "value": "B", "evidence": "hot"},
        {"id": "nccl", "verdict": "skip", "value": "–", "evidence": "no CUDA"},
        {"id": "torch", "verdict": "fail", "value": "2", "evidence": "broken"},
    ],
}


def test_the_environment_answers_for_itself_by_its_worst():
    def of(name, environment=ENVIRONMENT):
        return answer(item(f"environment.{name}", None), None, None, environment)

    assert (of("gpu").verdict, of("gpu").evidence) == ("warn", "gpu B: hot")
    assert of("torch").verdict == "fail"
    assert of("nccl").verdict == "pass"
    assert of("nccl").evidence.startswith("does not apply")
    assert of("nobody").verdict == "unknown"
    assert of("verdict").verdict == "warn"
    assert of("verdict").evidence == "environment: gpu, torch"
    assert of("gpu", None).verdict == "unknown"


@pytest.mark.parametrize(
    ("name", "changes", "value"),
    [
        ("wait_share", {}, 0.1),
        ("failed_share", {}, 0.02),
        ("failed_share", {"finished": {}}, None),
        ("failed_share", {"finished": {"success": 97, "failure": 3}}, 0.03),
        ("held_at_idle", {}, 0),
        ("held_at_idle", {"ledger": {"pages": 3, "slots": 1}}, 4),
        ("held_at_idle", {"batch": BatchState(running=1)}, None),
        ("held_at_idle", {"ledger": {}}, None),
        ("pool_gap", {}, 0),
        ("pool_gap", {"kv": KvState(total=10, free=4, open=1, sealed=3, cached=1)}, 1),
        ("pool_gap", {"kv": KvState(total=10, free=4)}, None),
        ("text_share", {}, 0.03),
        ("cap_use", {"batch": BatchState(running=3, cap=4)}, 0.75),
        ("alarm", {}, "none"),
        ("alarm", {"engine": EngineInfo(alarm="nothing fits")}, "nothing fits"),
        ("alarm", {"source": Source(engine="vllm")}, None),
        ("clipped", {}, 0.0),
        ("clipped", {"kv": KvState(format="int8_static", saturation_ratio=0.02)}, 0.02),
        ("clipped", {"kv": KvState(format="int8_static")}, None),
    ],
)
def test_computed_numbers(name, changes, value):
    found = COMPUTED[name](replace(HEALTHY, **changes))
    assert found == (pytest.approx(value) if isinstance(value, float) else value)


def test_every_number_of_a_snapshot_can_be_looked_at_and_nothing_else():
    for look in ("snapshot.gpus", "snapshot.kv.page_map", "computed.alarm", "config.seed",
                 "environment.cuda_builds"):  # fmt: skip
        check_look(look)
    for look in ("kv.usage", "snapshot.", "snapshot", "environment.", "environment.A b", ""):
        with pytest.raises(ConfigError):
            check_look(look)


@pytest.mark.parametrize("script", list(SCRIPTS))
def test_no_state_of_an_engine_makes_an_item_crash(script):
    snapshot = DemoEngine(script, clock=lambda: 1000.0).snapshot()
    for name in names():
        for one in load(name).of_kind("auto"):
            result = answer(one, snapshot, EngineConfig(), ENVIRONMENT)
            assert result.verdict in ("pass", "warn", "fail", "unknown")
            assert result.evidence


def test_a_full_pool_and_a_pause_are_found():
    items = {one.id: one for one in load("pre_holiday").items}
    full = replace(HEALTHY, kv=replace(HEALTHY.kv, usage=0.99),
                   engine=replace(HEALTHY.engine, paused=True))  # fmt: skip
    assert answer(items["kv_room"], full).verdict == "fail"
    assert answer(items["not_paused"], full).verdict == "fail"
    assert answer(items["failures"], full).verdict == "fail"
    assert answer(items["kernels"], replace(full, engine=EngineInfo(kernels="reference"))
                  ).verdict == "fail"  # fmt: skip
