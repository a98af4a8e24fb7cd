"""The kinds of steps: what parameters each takes, and what metrics come out of it. No torch.

A playbook is checked against this before anything runs; `evewatch playbook show` prints it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ConfigError


@dataclass(frozen=True)
class Parameter:
    kind: type[Any]
    """str, int, float, bool or list (of texts)."""
    default: Any
    about: str
    least: float | None = None
    read: Callable[[Any], object] | None = None
    """What the step will read the value with. Raises ConfigError for one that it cannot."""

    def check(self, value: Any) -> Any:
        """The value as the step takes it. Raises ConfigError with what was expected."""
        if self.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not self.kind:
            raise ConfigError(f"expected {_NAMES[self.kind]}, got {value!r}")
        if self.kind is float and not math.isfinite(value):
            raise ConfigError(f"expected a finite number, got {value!r}")
        if self.least is not None and value < self.least:
            raise ConfigError(f"expected at least {self.least:g}, got {value:g}")
        if self.kind is list and not all(type(v) in (str, int) for v in value):
            raise ConfigError(f"expected a list of texts or numbers, got {value!r}")
        if self.read is not None:
            self.read(value)
        return value


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false",
          list: "a list"}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    about: str
    parameters: Mapping[str, Parameter]
    metrics: Mapping[str, str]
    """Name and what it is; numbers, or facts of the diagnosis."""
    facts: tuple[str, ...] = ()
    """Of the metrics, those that a diagnosis needs from this step."""


def _text(
    default: str | None, about: str, read: Callable[[Any], object] | None = None
) -> Parameter:
    return Parameter(str, default, about, read=read)


def _one_of(default: str, *others: str, about: str) -> Parameter:
    known = (default, *others)

    def read(value: str) -> None:
        if value not in known:
            raise ConfigError(f"expected one of {', '.join(known)}, got {value!r}")

    return _text(default, about, read)


def _count(default: int | None, about: str, least: int = 1) -> Parameter:
    return Parameter(int, default, about, least)


def _number(default: float | None, about: str) -> Parameter:
    return Parameter(float, default, about, 0.0)


def _switch(default: bool, about: str) -> Parameter:
    return Parameter(bool, default, about)


def _read_arrivals(text: str) -> object:
    from playbooks.load.arrivals import parse_arrivals

    return parse_arrivals(text)


def _read_lengths(text: str) -> object:
    from playbooks.load.mix import parse_mix

    return parse_mix(text)


def _read_slo(text: str) -> object:
    from playbooks.load.slo import parse_slo

    return parse_slo(text)


def _read_stages(text: str) -> object:
    from playbooks.canary.plan import parse_stages

    return parse_stages(text)


def _read_batches(sizes: list[Any]) -> None:
    if not sizes or any(type(n) is not int or n < 1 for n in sizes):
        raise ConfigError(f"expected whole numbers of at least 1, got {sizes!r}")
    if sorted(set(sizes)) != sizes:
        raise ConfigError(f"expected sizes that rise, got {sizes!r}")


_SEED = _count(0, "of times, lengths and prompts", 0)
_LENGTHS = _text(
    "chat*0.05", "prompt and output lengths, as `evewatch load --lengths`", _read_lengths
)
_LATENCY = {
    f"{name}_{p}_ms": f"{name.upper()} {p}, milliseconds"
    for name in ("ttft", "tpot", "e2e", "queue")
    for p in ("p50", "p90", "p99")
}
_THROUGHPUT = {
    "output_tok_s": "output tokens per second",
    "requests_s": "requests per second",
}

KINDS: dict[str, Kind] = {
    "environment": Kind(
        "versions, driver, compiler and memory of this machine",
        {},
        {
            "failures": "checks that are known to break",
            "warnings": "checks that nobody vouches for",
            "broken_versions": "fact: the failed checks",
        },
        ("broken_versions",),
    ),
    "profile": Kind(
        "where the time of requests and of steps goes",
        {
            "arrivals": _text("closed:8", "as `evewatch profile --arrivals`", _read_arrivals),
            "lengths": _LENGTHS,
            "requests": _count(48, "how many"),
            "seed": _SEED,
        },
        {
            **_THROUGHPUT,
            "step_ms": "mean step time",
            **{f"{s}_share": f"of request time, {s}" for s in
               ("queue", "tokenize", "prefill", "decode", "detokenize", "return")},
            **{f"{s}_step_share": f"of step time, {s}" for s in
               ("plan", "build", "gemm", "attention", "sample", "apply", "telemetry")},
        },
    ),
    "load": Kind(
        "traffic, with everything watched that a diagnosis asks for",
        {
            "arrivals": _text("closed:6", "as `evewatch load --arrivals`", _read_arrivals),
            "lengths": _LENGTHS,
            "requests": _count(None, "end after so many"),
            "duration_s": _number(None, "end after so many seconds of sending"),
            "shared_prefix": _count(0, "first words that all prompts share", 0),
            "tpot_objective_ms": _number(None, "time per token that was promised"),
            "slo": _text(None, "goodput: ttft=500,tpot=50,e2e=5s", _read_slo),
            "seed": _SEED,
        },
        {
            **_THROUGHPUT,
            **_LATENCY,
            "requests": "requests sent",
            "error_rate": "share of requests that failed",
            "goodput_share": "share of requests that met every objective",
            "knee": "rows at which doubling stops to pay, from step times",
            "mean_running": "rows of a step",
            "waiting_share": "of the steps, those that left somebody waiting",
            "kv_door": "of the steps, those without room in the KV cache",
            "cap_door": "of the steps, those with a full batch",
            "budget_door": "of the steps, those full of tokens",
            "busy_share": "of the time, steps",
            "token_gain": "gain of twice the tokens a step",
            "tpot_ms": "median time per token",
            "queue_share": "of request time, waiting",
            "tokenize_share": "of the middle request's time, tokenizing and waiting for it",
            "decode_share": "of request time, decoding",
            "logging_share": "of step time, writing log lines",
            "log_lines_per_request": "log lines per request",
            "preemption_tax": "recomputed over useful tokens",
            "kv_usage": "of the pages, those held",
            "kv_waste": "of the token places held, those without a token",
            "prefix_expected": "hit ratio that equal beginnings should give",
            "prefix_hit_ratio": "hit ratio of the prefix cache",
            "generator_late_ms": "how late the generator was beyond what is tolerable",
            "curve": "fact: step times by rows",
        },
        (
            "mean_running", "waiting_share", "kv_door", "cap_door", "budget_door", "busy_share",
            "token_gain", "tpot_ms", "queue_share", "tokenize_share", "logging_share",
            "preemption_tax", "kv_usage", "kv_waste", "prefix_expected", "prefix_hit_ratio",
            "generator_late_ms", "curve",
        ),
    ),
    "sweep": Kind(
        "throughput and tail latency over the batch size, the knee and the cap",
        {
            "batches": Parameter(
                list, [1, 2, 4, 8, 16, 32, 64], "rising batch sizes", read=_read_batches
            ),
            "repeats": _count(3, "runs of each size"),
            "lengths": _LENGTHS,
            "requests_per_user": _count(5, "requests of a run, times its batch"),
            "least_requests": _count(40, "requests of a run at least"),
            "p99_objective_ms": _number(None, "P99 that the cap keeps below"),
            "p99_of": _one_of("e2e", "ttft", "tpot", about="whose P99: e2e, ttft or tpot"),
            "refine": _switch(True, "measure between the knee's rungs too"),
            "seed": _SEED,
        },
        {
            "knee": "rows at which doubling stops to pay",
            "recommended_cap": "a little before the knee, and under the objective",
            "cap_over_recommended": "the configured cap over the recommended one",
            "peak_tok_s": "best throughput of all sizes",
        },
    ),
    "compare": Kind(
        "the same requests through engines that differ by one setting",
        {
            "experiment": _text("owners_table", "a shipped experiment or a file"),
            "quick": _switch(True, "the experiment's small size"),
            "quality": _switch(False, "judge KV formats too"),
            "seed": _count(None, "instead of the experiment's own", 0),
        },
        {
            "goals_missed": "goals that failed",
            "goals_unclear": "goals that the data do not decide",
            "worse": "metrics that got worse, first arm to last",
            "throughput_ratio": "throughput, last arm over first",
            "p99_ratio": "E2E P99, last arm over first",
        },
    ),
    "quality": Kind(
        "does the KV format change what the model says",
        {
            "size": _one_of("quick", "probe", "full", about="probe (seconds), quick or full"),
            "baseline": _text("fp16", "KV format it is held against"),
            "cases": Parameter(list, [], "files of cases of your own"),
        },
        {
            "mean_kld": "mean KL divergence from the baseline",
            "p99_kld": "99 % KL divergence",
            "top1_agreement": "share of positions with the same best token",
            "rms_dp": "RMS change of the probability",
            "ppl_change": "relative change of perplexity",
            "passkey_misses": "passkeys missed more, of 20",
            "clipped": "share of K and V that static scales clipped",
            "mixed_answers": "answers that depend on who shares the batch",
            "failed_limits": "limits of the quality check that fail",
            "unclear": "1 when the check's own controls fail, else 0",
            "suspects": "fact: K channels that stand out",
        },
        ("mean_kld", "suspects", "clipped", "mixed_answers"),
    ),
    "soak": Kind(
        "many requests, cancellations, timeouts, refusals: what is left, what grows",
        {
            "requests": _count(240, "in waves", 8),
            "waves": _count(8, "looks at the idle engine", 4),
            "duration_s": _number(None, "instead: waves until so many seconds are over"),
            "storms": _switch(True, "cancel, timeout, oversized, shared-prefix"),
            "seed": _SEED,
        },
        {
            "grew": "classes of resources, containers and objects that grow",
            "left": "resources that are held after the storms",
            "rss_bytes_per_request": "slope of the resident set",
            "idle_pages_per_request": "slope of the pages held at idle",
            "entries_per_request": "slope of the entries of all containers",
            "growth": "fact: what grows",
        },
        ("growth",),
    ),
    "faults": Kind(
        "put known causes into the engine and see that each is found",
        {"faults": Parameter(list, [], "names; none: all"), "seeds": _count(1, "healthy runs")},
        {"missed": "faults that were not found first", "false_alarms": "healthy runs blamed"},
    ),
    "canary": Kind(
        "a candidate beside the baseline, with more of the traffic stage by stage",
        {
            "candidate": Parameter(list, [], "settings of the candidate: key=value"),
            "candidate_url": _text(None, "or its URL, where the target is a URL"),
            "arrivals": _text("poisson:4", "as `evewatch load --arrivals`", _read_arrivals),
            "lengths": _LENGTHS,
            "stages": _text("1,10,50,100", "percent of the users on the candidate, rising",
                            _read_stages),
            "min_samples": _count(300, "answers of each side that a stage needs (P99: 299)", 29),
            "tail_ratio": _number(1.10, "a tail above this of the baseline's is too high"),
            "time_scale": _number(1.0, "times every stage's duration"),
            "seed": _SEED,
        },
        {
            "reached_percent": "largest share of the traffic that the candidate had",
            "rolled_back": "1 when it was rolled back, 0 when it was promoted",
        },
    ),
    "checklist": Kind(
        "the automatic items of a checklist, answered under a small load",
        {
            "name": _text("pre_holiday", "a shipped checklist or a file"),
            "answers": _text(None, "file with the answers of people"),
        },
        {
            "failed_items": "items that fail",
            "warned_items": "items that warn",
            "unknown_items": "automatic items without evidence",
            "open_items": "items that a person has still to answer",
        },
    ),
}  # fmt: skip


def parameters(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a step, the given ones over the defaults (checked already)."""
    return {name: p.default for name, p in KINDS[kind].parameters.items()} | dict(given)
