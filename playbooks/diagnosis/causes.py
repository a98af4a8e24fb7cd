"""The causes, in the order in which they are to be believed, and the diagnosis itself.

The order matters where one cause brings another with it: a mixed-up row makes every other
number doubtful, wasted memory looks like too little memory, and a log that holds up each step
looks like a slow machine. The first finding is what to work on first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from playbooks.diagnosis import capacity, host, outside, service, trust
from playbooks.diagnosis.evidence import Evidence
from playbooks.diagnosis.findings import HEALTHY, INCONCLUSIVE, Finding
from playbooks.diagnosis.flags import in_own_flags

Look = Callable[[Evidence], Finding | None]
INSIDE, OUTSIDE = "inside", "outside"


@dataclass(frozen=True)
class Cause:
    name: str
    needs: tuple[str, ...]
    """Facts without which it can be neither found nor excluded."""
    look: Look
    title: str
    view: str = INSIDE
    """What can see it: outside, any client of the engine; inside, its own process alone."""
    sooner: tuple[tuple[str, ...], Look] | None = None
    """Fewer facts that find it as well, and never exclude it."""

    def find(self, evidence: Evidence, planned: set[str]) -> Result:
        """`planned`: the facts that were to be measured."""
        for needs, look in ((self.needs, self.look), *([self.sooner] if self.sooner else [])):
            if all(getattr(evidence, name) is not None for name in needs):
                finding = look(evidence)
                if finding is not None:
                    return Result(found=finding)
        if not planned.issuperset(self.needs):
            return Result()
        lacking = [name for name in self.needs if getattr(evidence, name) is None]
        return Result(excluded=not lacking, lacking=lacking)


@dataclass(frozen=True)
class Result:
    """Of looking for one cause: found, excluded, or neither."""

    found: Finding | None = None
    excluded: bool = False
    lacking: Sequence[str] = ()
    """Facts that were to be measured and are missing."""


CAUSES = (
    Cause("version_mismatch", ("broken_versions",), trust.version_mismatch,
          "versions that are known not to work together", OUTSIDE),
    Cause("cross_talk", ("mixed_answers",), trust.cross_talk,
          "requests get each other's tokens", OUTSIDE),
    Cause("restarted_while_watched", ("restarts",), outside.restarted_while_watched,
          "the engine started again while it was watched", OUTSIDE),
    Cause("target_inconsistent", ("inconsistent",), outside.target_inconsistent,
          "counters and answers disagree", OUTSIDE),
    Cause("broken_streams", ("broken",), outside.broken_streams,
          "answers end before they are finished", OUTSIDE),
    Cause("unstable_answers", ("repeats",), outside.unstable_answers,
          "greedy answers are not the same twice", OUTSIDE),
    Cause("wrong_lengths", ("lengths",), outside.wrong_lengths,
          "answers or prompts have another length than was asked for", OUTSIDE),
    Cause("static_scale_clips", ("clipped",), trust.static_scale_clips,
          "static KV scales that do not fit the work"),
    Cause("outlier_channel_quantised", ("mean_kld", "suspects"), trust.outlier_channel,
          "K channels that stand out lose the others' precision"),
    Cause("leak", ("growth",), trust.leak, "something is not given back", OUTSIDE),
    Cause("throttled", ("host",), host.throttled, "a CPU quota holds the engine back"),
    Cause("host_contended", ("host",), host.host_contended, "others have the engine's cores"),
    Cause("fewer_threads_than_cores", ("host",), host.fewer_threads_than_cores,
          "cores stand idle that the engine has no threads for"),
    Cause("memory_pressure", ("host",), host.memory_pressure, "the machine is short of memory"),
    Cause("clock_jumped", ("host",), host.clock_jumped,
          "the clock was set while it was looked at"),
    Cause("generator_bound", ("generator_late_ms",), service.generator_bound,
          "the load generator was the limit, not the engine", OUTSIDE),
    Cause("failing_requests", ("refused_share",), outside.failing_requests,
          "requests are refused or answered with an error", OUTSIDE),
    Cause("held_back", ("at_once_share",), outside.held_back,
          "streamed answers come in one piece", OUTSIDE),
    Cause("stalls", ("tail",), outside.stalls, "a tail without load", OUTSIDE),
    Cause("replica_differs", ("odd_replicas",), outside.replica_differs,
          "one replica is not as the others", OUTSIDE),
    Cause("worse_than_usual", ("usual",), outside.worse_than_usual,
          "answers or errors are worse than in the last healthy runs", OUTSIDE),
    Cause("logging_overhead", ("logging_share",), service.logging_overhead,
          "log lines hold up the steps"),
    Cause("tokenizer_bound", ("tokenize_share",), service.tokenizer_bound,
          "requests wait for the tokenizer"),
    Cause("fragmentation", ("kv_limited_share", "kv_waste"), capacity.fragmentation,
          "KV memory is held and not used"),
    Cause("preemption_thrash", ("preemption_tax",), capacity.preemption_thrash,
          "requests are thrown out and computed again"),
    Cause("kv_bound", ("kv_limited_share", "kv_usage"), capacity.kv_bound,
          "the KV cache has no room for who waits", OUTSIDE),
    Cause("token_budget_bound", ("token_limited_share", "token_gain"), capacity.token_budget_bound,
          "steps are full before the machine is"),
    Cause("speculation_hurts", ("draft_accepted_ratio",), capacity.speculation_hurts,
          "drafts cost more than they bring", OUTSIDE),
    Cause("slower_than_usual", ("usual",), outside.slower_than_usual,
          "it is slower than in the last healthy runs", OUTSIDE),
    Cause("batch_too_large_for_objective", ("tpot_ms", "curve", "queue_share"),
          capacity.batch_too_large, "tokens come slower than was promised"),
    Cause("over_saturated", ("mean_running", "curve"), capacity.over_saturated,
          "the batch is far past its knee"),
    Cause("cap_bound", ("batch_limited_share", "curve", "mean_running"), capacity.cap_bound,
          "the batch is full and the machine is not",
          sooner=(("mean_running", "waiting_share"), capacity.one_row)),
    Cause("compute_bound", ("batch_limited_share", "token_limited_share", "curve", "mean_running"),
          capacity.compute_bound, "the machine is the limit"),
    Cause("cold_prefix_cache", ("prefix_expected", "prefix_hit_ratio"), service.cold_prefix_cache,
          "equal beginnings are computed again", OUTSIDE),
    Cause("underloaded", ("busy_share", "waiting_share", "mean_running"), service.underloaded,
          "the engine has little to do: nothing is proved about load"),
)  # fmt: skip


OF_HOST = tuple(cause.name for cause in CAUSES if cause.needs == ("host",))
"""Causes of the machine and not of the engine."""
UNPLANNED = ("usual", "draft_accepted_ratio", "repeats", "lengths", "at_once_share")
"""Facts that no step sets out to measure: of runs before this one, of drafts, where an engine
makes them, and of what only a network and a server can do to answers."""


def facts_needed() -> set[str]:
    """By any cause, of what steps measure."""
    return {fact for cause in CAUSES for fact in cause.needs}.difference(UNPLANNED)


def diagnose(evidence: Evidence, examined: Iterable[str] | None = None) -> list[Finding]:
    """Findings, the first to be worked on first; `healthy` alone when there is nothing else.

    Every cause is tried on what is there. `examined`: the facts that the run set out to measure;
    None: all that steps can. One of them that is missing makes the result inconclusive, and is
    named; a cause that needs others is neither found nor excluded.
    """
    planned = facts_needed() if examined is None else set(examined)
    results = {cause.name: cause.find(evidence, planned) for cause in CAUSES}
    found = [in_own_flags(r.found, evidence.engine) for r in results.values() if r.found]
    missing = [name for result in results.values() for name in result.lacking]
    excluded = [name for name, result in results.items() if result.excluded]
    if missing or not (found or excluded):
        found.append(_inconclusive(missing))
    return found or [_healthy(excluded)]


def _inconclusive(missing: Sequence[str]) -> Finding:
    names = tuple(dict.fromkeys(missing))
    text = f"not measured: {', '.join(names)}" if names else "no cause was looked for"
    return Finding(
        INCONCLUSIVE, 1.0, (text,), "measure what is missing and run it again", None,
        "the missing numbers", names,
    )  # fmt: skip


def _healthy(looked_for: Sequence[str]) -> Finding:
    count = f"{len(looked_for)} cause{'s' if len(looked_for) != 1 else ''}"
    text = f"{count} looked for, none found: {', '.join(looked_for)}"
    return Finding(
        HEALTHY, 0.9, (text,), "nothing to do", None, "a load unlike the one that was used"
    )
