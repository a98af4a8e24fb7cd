"""The diagnosis on evidence made up by hand: each cause, its order, and what is missing."""

from dataclasses import replace

import numpy as np
import pytest

from engine.observing.host import Busy, HostEvidence
from engine.remote.adapters import NAMES
from engine.snapshot import (
    BatchState,
    KvState,
    QueueState,
    Snapshot,
    Source,
    SourceState,
    StageShares,
)
from playbooks.diagnosis import (
    CAUSES,
    Broken,
    Deviation,
    Evidence,
    Growth,
    Restarts,
    StepCurve,
    Tail,
    Usual,
    diagnose,
    facts_needed,
    from_snapshots,
)
from playbooks.diagnosis.causes import UNPLANNED
from playbooks.diagnosis.flags import FLAGS
from playbooks.statistics.knee import DOUBLING_GAIN, doubling_gain

QUIET = HostEvidence(
    seconds=10.0, cores=2, compute_threads=2, threads=20, cpu_s=12.0, wait_s=0.3, others_s=0.2,
    idle_cores=0.7, steal_share=0.0, throttled_share=0.0, cpu_pressure=0.02, memory_pressure=0.0,
    io_pressure=0.0, involuntary_per_s=20.0, major_faults_per_s=0.0, swapped_bytes=0,
    available_share=0.6, disk_free_bytes=1 << 36, clock_jump_s=0.0,
    busiest=(Busy("python loop.py", 4711, 0.9),),
)  # fmt: skip
HEALTHY = Evidence(
    requests=40, error_rate=0.0, mean_running=6.0, waiting_share=0.0,
    kv_limited_share=0.0, batch_limited_share=0.0,
    token_limited_share=0.02, busy_share=0.97, token_gain=0.5, token_budget=256, tpot_ms=40.0,
    queue_share=0.05, tokenize_share=0.01, decode_share=0.7, logging_share=0.0,
    log_lines_per_request=0.0, preemption_tax=0.0, kv_usage=0.1, kv_waste=0.1,
    prefix_expected=0.3, prefix_hit_ratio=0.35, generator_late_ms=0.0, host=QUIET,
    curve=StepCurve(20.0, 2.0), growth=(), mean_kld=1e-4, suspects=(), clipped=0.0,
    mixed_answers=0, broken_versions=(), tail=Tail(40), restarts=Restarts(0, 30.0),
    broken=Broken(40, 0), refused_share=0.0, inconsistent=(), odd_replicas=(),
    lengths=(), at_once_share=0.0, repeats=1.0, emptied=0,
)  # fmt: skip
SLOW = Deviation("load.tpot_ms", 80.0, 40.0, 1.0)
SICK = {
    "version_mismatch": {"broken_versions": ("triton: 2.1; torch 2.8 asks for triton 3.4",)},
    "cross_talk": {"mixed_answers": 2},
    "static_scale_clips": {"clipped": 0.05},
    "outlier_channel_quantised": {"mean_kld": 0.05, "suspects": ("layer 3 head 0 channel 7",)},
    "leak": {"growth": (Growth("pages", "ledger", 0.3, 0.2),)},
    "throttled": {"host": replace(QUIET, throttled_share=0.4, cpu_quota=0.5)},
    "host_contended": {"host": replace(QUIET, idle_cores=0.0, wait_s=8.0, others_s=9.0)},
    "fewer_threads_than_cores": {"host": replace(QUIET, compute_threads=1)},
    "memory_pressure": {"host": replace(QUIET, memory_pressure=0.2)},
    "clock_jumped": {"host": replace(QUIET, clock_jump_s=3.0)},
    "generator_bound": {"generator_late_ms": 40.0},
    "logging_overhead": {"logging_share": 0.1, "log_lines_per_request": 12.0},
    "tokenizer_bound": {"tokenize_share": 0.5},
    "fragmentation": {"kv_limited_share": 0.6, "kv_waste": 0.7, "kv_usage": 0.9},
    "preemption_thrash": {"preemption_tax": 0.4, "kv_limited_share": 0.5},
    "speculation_hurts": {"draft_accepted_ratio": 0.2, "draft_gain": 0.9},
    "kv_bound": {"kv_limited_share": 0.5, "kv_usage": 0.95, "kv_waste": 0.1},
    "token_budget_bound": {"token_limited_share": 0.8},
    "batch_too_large_for_objective": {"tpot_objective_ms": 30.0},
    "over_saturated": {"mean_running": 80.0},
    "cap_bound": {"batch_limited_share": 0.8, "waiting_share": 0.8},
    "compute_bound": {"batch_limited_share": 0.8, "mean_running": 40.0},
    "cold_prefix_cache": {"prefix_hit_ratio": 0.0},
    "restarted_while_watched": {"restarts": Restarts(2, 45.0)},
    "target_inconsistent": {"inconsistent": ("500 output tokens came, it counted 312",)},
    "broken_streams": {"broken": Broken(40, 3, ("3 × dropped: closed",))},
    "failing_requests": {"refused_share": 0.2},
    "unstable_answers": {"repeats": 0.2},
    "wrong_lengths": {"lengths": ("9 of 40 answers were longer than they may be",)},
    "held_back": {"at_once_share": 0.9},
    "stalls": {"tail": Tail(40, 2, 120.0, 3000.0)},
    "replica_differs": {"odd_replicas": ("b: 80 ms a token, the others 40 ms",)},
    "slower_than_usual": {"usual": Usual(2, 0.25, slower=(SLOW,))},
    "worse_than_usual": {"usual": Usual(2, 0.25, worse=(SLOW,))},
    "underloaded": {"busy_share": 0.2, "mean_running": 1.0},
}


@pytest.mark.parametrize("cause", SICK)
def test_each_cause_is_found_first(cause):
    finding = diagnose(replace(HEALTHY, **SICK[cause]))[0]
    assert finding.cause == cause
    assert 0.5 < finding.confidence < 1
    assert finding.evidence
    assert finding.remedy
    assert finding.refuted_by
    assert finding.applies in ("live", "restart", None)
    assert any(character.isdigit() for text in finding.evidence for character in text)


def test_every_cause_has_a_case():
    assert set(SICK) == {cause.name for cause in CAUSES}


def test_a_healthy_engine_is_blamed_for_nothing():
    (finding,) = diagnose(HEALTHY)
    assert finding.cause == "healthy"
    assert not finding.is_problem


@pytest.mark.parametrize("fact", sorted(facts_needed()))
def test_what_is_missing_is_named_and_is_not_healthy(fact):
    (finding,) = diagnose(replace(HEALTHY, **{fact: None}))
    assert finding.cause == "inconclusive"
    assert finding.missing == (fact,)


@pytest.mark.parametrize("cause", SICK)
def test_a_cause_is_never_found_without_its_evidence(cause):
    needs = next(c.needs for c in CAUSES if c.name == cause)
    for fact in needs:
        found = diagnose(replace(HEALTHY, **SICK[cause] | {fact: None}))
        assert cause not in {finding.cause for finding in found}
        assert found[-1].cause == ("healthy" if fact in UNPLANNED else "inconclusive")


def test_a_cause_that_was_not_looked_for_is_not_missing():
    found = diagnose(Evidence(growth=()), {"growth"})
    assert [finding.cause for finding in found] == ["healthy"]
    assert diagnose(Evidence(), {"growth"})[0].missing == ("growth",)
    assert diagnose(Evidence(), set())[0].cause == "inconclusive"


def test_nothing_measured_is_inconclusive():
    (finding,) = diagnose(Evidence())
    assert finding.cause == "inconclusive"
    assert set(finding.missing) == facts_needed()


def test_the_wait_is_or_is_not_most_of_the_latency():
    slow = {"tpot_objective_ms": 30.0}
    short = diagnose(replace(HEALTHY, **slow, queue_share=0.1))[0]
    long = diagnose(replace(HEALTHY, **slow, queue_share=0.8))[0]
    assert "not most of the latency" in short.evidence[1]
    assert "lower the cap" in short.remedy
    assert "most of the latency, so a smaller batch alone would make it longer" in long.evidence[1]
    assert "send less" in long.remedy


def test_a_promise_that_not_even_one_row_keeps_is_not_the_batch():
    found = diagnose(replace(HEALTHY, tpot_objective_ms=5.0))
    assert found[0].cause == "healthy"


def test_a_leak_is_named_by_its_class():
    growth = (
        Growth("resident set", "memory", 9000.0, 4000.0),
        Growth("engine.request.Request", "object", 1.0),
        Growth("engine._loop.kept", "container", 1.0, 1.0),
        Growth("slabs", "ledger", 0.1),
    )
    finding = diagnose(replace(HEALTHY, growth=growth))[0]
    assert finding.evidence[0].startswith("grows: slabs")
    assert "slabs" in finding.remedy
    only_memory = diagnose(replace(HEALTHY, growth=growth[:1]))[0]
    assert only_memory.confidence < finding.confidence
    assert "bytes per request" in only_memory.evidence[0]


def test_who_asks_for_little_and_who_has_idle_cores_lost_nothing_that_counts():
    contended = SICK["host_contended"]["host"]
    for changes in ({"cpu_s": 1.0, "wait_s": 0.5}, {"idle_cores": 1.0}):
        assert diagnose(replace(HEALTHY, host=replace(contended, **changes)))[0].cause == "healthy"
    stolen = replace(QUIET, steal_share=0.3)
    (finding,) = diagnose(replace(HEALTHY, host=stolen))
    assert finding.cause == "host_contended"
    assert "hypervisor" in finding.evidence[0]
    assert "cores of its own" in finding.remedy


def test_cores_that_others_have_are_no_lack_of_threads():
    few = replace(QUIET, compute_threads=1)
    assert diagnose(replace(HEALTHY, host=few))[0].cause == "fewer_threads_than_cores"
    busy = replace(few, idle_cores=0.1)
    assert diagnose(replace(HEALTHY, host=busy))[0].cause == "healthy"


def test_two_causes_at_once_come_in_their_order():
    sick = replace(HEALTHY, **SICK["kv_bound"], **SICK["cross_talk"])
    assert [f.cause for f in diagnose(sick)] == ["cross_talk", "kv_bound"]


def test_one_row_and_a_queue_are_the_cap_without_a_curve():
    one = replace(HEALTHY, mean_running=1.0, waiting_share=0.9, curve=None)
    first, rest = diagnose(one)[0], diagnose(one)[1:]
    assert first.cause == "cap_bound" and "one request runs" in first.evidence[0]
    assert [f.missing for f in rest] == [("curve",)]  # what needs it is not excluded
    for unlike in ({"kv_limited_share": 0.5, "kv_usage": 1.0}, {"waiting_share": 0.1},
                   {"mean_running": 2.0}, {"kv_usage": 0.95}):  # fmt: skip
        assert "cap_bound" not in {f.cause for f in diagnose(replace(one, **unlike))}


def test_what_is_there_is_tried_though_nobody_planned_it():
    broken = Evidence(growth=(), broken=Broken(9, 2))
    assert [f.cause for f in diagnose(broken, {"growth"})] == ["broken_streams"]


def test_the_remedy_names_the_flag_of_the_engine():
    full = replace(HEALTHY, **SICK["cap_bound"])
    assert "--max-num-seqs up" in diagnose(replace(full, engine="vllm"))[0].remedy
    assert "--max-running-requests up" in diagnose(replace(full, engine="sglang"))[0].remedy
    assert "--" not in diagnose(full)[0].remedy
    known = {cause.name for cause in CAUSES}
    assert set(FLAGS) <= known
    for engines in FLAGS.values():
        assert set(engines) <= set(NAMES)


def test_a_rhythm_is_named():
    for tail, text in ((Tail(60, 3, 100.0, 3000.0, every=20), "every 20th request"),
                       (Tail(60, 3, 100.0, 3000.0, every_s=10.0), "every 10 s"),
                       (Tail(60, 3, 100.0, 3000.0), "5% of the requests")):  # fmt: skip
        assert text in diagnose(replace(HEALTHY, tail=tail))[0].evidence[0]


def test_what_changed_since_is_named():
    unusual = Usual(3, 0.1, slower=(SLOW,), changed=("threads 2 → 1",))
    found = diagnose(replace(HEALTHY, usual=unusual))[0]
    assert "threads 2 → 1" in found.evidence[1] and "last 3 healthy runs" in found.evidence[0]


# --- step times ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("fixed", "per_row"), [(20.0, 2.0), (5.0, 0.1), (1.0, 3.0), (30.0, 0.0)])
def test_the_knee_of_a_line_is_the_knee_of_its_curve(fixed, per_row):
    """Against the sweep's own rule, on the throughput that the line gives at every size."""
    curve = StepCurve(fixed, per_row)
    sizes = list(range(1, 4097))
    rates = [n / curve.ms(n) for n in sizes]
    worth = [n for n in range(1, 2049) if doubling_gain(sizes, rates, n) >= DOUBLING_GAIN]
    assert min(curve.knee, 2048) == (worth[-1] if worth else 1)
    for n in (1, 7, 300):
        assert curve.doubling_gain(n) == pytest.approx(rates[2 * n - 1] / rates[n - 1] - 1)


# --- snapshots ------------------------------------------------------------------------------------


def shot(waiting, door, usage):
    return Snapshot(
        queue=QueueState(waiting=waiting),
        batch=BatchState(running=4, bound_by=door, preemption_tax=0.1),
        kv=KvState(usage=usage, fragmentation_ratio=0.2, prefix_hit_ratio=0.5),
        stages=StageShares(queue=0.4, tokenize=0.1, decode=0.3),
    )


def test_facts_of_a_series_of_snapshots():
    series = [shot(0, "queue", 0.2), shot(3, "kv", 0.9), shot(2, "kv", 1.0), shot(0, "queue", 0.3)]
    facts = from_snapshots(series)
    assert facts["kv_limited_share"] == 0.5
    assert facts["batch_limited_share"] == 0.0
    assert facts["waiting_share"] == 0.5
    assert facts["mean_running"] == 4
    assert facts["kv_usage"] == pytest.approx(np.mean([0.2, 0.9, 1.0, 0.3]))
    assert facts["queue_share"] == 0.4
    assert facts["preemption_tax"] == 0.1
    assert facts["prefix_hit_ratio"] == 0.5


def test_what_an_engine_does_not_report_stays_unknown():
    facts = from_snapshots([Snapshot(batch=BatchState(running=2))])
    assert facts["mean_running"] == 2
    assert facts["kv_limited_share"] is None
    assert facts["waiting_share"] is None
    evidence = Evidence().having(facts)
    assert evidence.kv_limited_share is None
    assert diagnose(evidence)[-1].cause == "inconclusive"


def test_snapshots_that_are_not_live_prove_nothing():
    dead = replace(shot(0, "queue", 0.1), source=Source(SourceState.STALE))
    assert from_snapshots([dead]) == {}
    assert from_snapshots([]) == {}
