"""The causes, in the order in which they are to be believed, and the diagnosis itself.

The order matters where one cause brings another with it: a mixed-up row makes every other
number doubtful, wasted memory looks like too little memory, and a log that holds up each step
looks like a slow machine. The first finding is what to work on first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from playbooks.diagnosis import capacity, host, service, trust
from playbooks.diagnosis.evidence import Evidence
from playbooks.diagnosis.findings import HEALTHY, INCONCLUSIVE, Finding

Look = Callable[[Evidence], Finding | None]


@dataclass(frozen=True)
class Cause:
    name: str
    needs: tuple[str, ...]
    """Facts without which it can be neither found nor excluded."""
    look: Look
    title: str


CAUSES = (
    Cause("version_mismatch", ("broken_versions",), trust.version_mismatch,
          "versions that are known not to work together"),
    Cause("cross_talk", ("mixed_answers",), trust.cross_talk,
          "requests get each other's tokens"),
    Cause("static_scale_clips", ("clipped",), trust.static_scale_clips,
          "static KV scales that do not fit the work"),
    Cause("outlier_channel_quantised", ("mean_kld", "suspects"), trust.outlier_channel,
          "K channels that stand out lose the others' precision"),
    Cause("leak", ("growth",), trust.leak, "something is not given back"),
    Cause("throttled", ("host",), host.throttled, "a CPU quota holds the engine back"),
    Cause("host_contended", ("host",), host.host_contended, "others have the engine's cores"),
    Cause("fewer_threads_than_cores", ("host",), host.fewer_threads_than_cores,
          "cores stand idle that the engine has no threads for"),
    Cause("memory_pressure", ("host",), host.memory_pressure, "the machine is short of memory"),
    Cause("clock_jumped", ("host",), host.clock_jumped,
          "the clock was set while it was looked at"),
    Cause("generator_bound", ("generator_late_ms",), service.generator_bound,
          "the load generator was the limit, not the engine"),
    Cause("logging_overhead", ("logging_share",), service.logging_overhead,
          "log lines hold up the steps"),
    Cause("tokenizer_bound", ("tokenize_share",), service.tokenizer_bound,
          "requests wait for the tokenizer"),
    Cause("fragmentation", ("kv_limited_share", "kv_waste"), capacity.fragmentation,
          "KV memory is held and not used"),
    Cause("preemption_thrash", ("preemption_tax",), capacity.preemption_thrash,
          "requests are thrown out and computed again"),
    Cause("kv_bound", ("kv_limited_share", "kv_usage"), capacity.kv_bound,
          "the KV cache has no room for who waits"),
    Cause("token_budget_bound", ("token_limited_share", "token_gain"), capacity.token_budget_bound,
          "steps are full before the machine is"),
    Cause("batch_too_large_for_objective", ("tpot_ms", "curve", "queue_share"),
          capacity.batch_too_large, "tokens come slower than was promised"),
    Cause("over_saturated", ("mean_running", "curve"), capacity.over_saturated,
          "the batch is far past its knee"),
    Cause("cap_bound", ("batch_limited_share", "curve", "mean_running"), capacity.cap_bound,
          "the batch is full and the machine is not"),
    Cause("compute_bound", ("batch_limited_share", "token_limited_share", "curve", "mean_running"),
          capacity.compute_bound, "the machine is the limit"),
    Cause("cold_prefix_cache", ("prefix_expected", "prefix_hit_ratio"), service.cold_prefix_cache,
          "equal beginnings are computed again"),
    Cause("underloaded", ("busy_share", "waiting_share", "mean_running"), service.underloaded,
          "the engine has little to do: nothing is proved about load"),
)  # fmt: skip


def facts_needed(names: Iterable[str] | None = None) -> set[str]:
    """By these causes, or by all."""
    wanted = None if names is None else set(names)
    return {fact for c in CAUSES if wanted is None or c.name in wanted for fact in c.needs}


def diagnose(evidence: Evidence, examined: Iterable[str] | None = None) -> list[Finding]:
    """Findings, the first to be worked on first; `healthy` alone when there is nothing else.

    `examined`: the facts that the run set out to measure. A cause that needs others was not
    looked for; None: everything was to be looked for. A fact that was to be measured and is
    missing makes the result inconclusive, and is named.
    """
    planned = None if examined is None else set(examined)
    found: list[Finding] = []
    missing: list[str] = []
    looked_for = []
    for cause in CAUSES:
        if planned is not None and not planned.issuperset(cause.needs):
            continue
        looked_for.append(cause.name)
        lacking = [name for name in cause.needs if getattr(evidence, name) is None]
        missing += lacking
        finding = None if lacking else cause.look(evidence)
        if finding is not None:
            found.append(finding)
    if missing or not looked_for:
        found.append(_inconclusive(missing))
    return found or [_healthy(looked_for)]


def _inconclusive(missing: Sequence[str]) -> Finding:
    names = tuple(dict.fromkeys(missing))
    text = f"not measured: {', '.join(names)}" if names else "no cause was looked for"
    return Finding(
        INCONCLUSIVE, 1.0, (text,), "measure what is missing and run it again", None,
        "the missing numbers", names,
    )  # fmt: skip


def _healthy(looked_for: Sequence[str]) -> Finding:
    text = f"{len(looked_for)} causes looked for, none found: {', '.join(looked_for)}"
    return Finding(
        HEALTHY, 0.9, (text,), "nothing to do", None, "a load unlike the one that was used"
    )
