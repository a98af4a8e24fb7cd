"""The models: what a step of each type can be told, said here and nowhere else.

From these come the checks of playbook files, their JSON Schema, what `playbook show` prints, and
the options of the commands of the same name. Types of steps are in registry.py.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Len

from checklists.tomlfile import STRICT
from engine.errors import ConfigError
from playbooks.steps.fields import Option, Reads, Time

ArrivalsText = Annotated[
    str,
    Reads("playbooks.load.arrivals:parse_arrivals"),
    Option(
        "closed:USERS[,THINK_S], poisson:RATE, gamma:RATE,CV, constant:RATE or "
        "ramp:FROM-TO/SECONDS",
        flag="--arrivals",
    ),
]
LengthsText = Annotated[
    str,
    Reads("playbooks.load.mix:parse_mix"),
    Option(
        "chat, code, lognormal:PROMPT,OUTPUT[,SIGMA], uniform:A-B,C-D, fixed:PROMPT,OUTPUT or a "
        "trace file; each may end in *FACTOR",
        flag="--lengths",
    ),
]
Seed = Annotated[int, Ge(0), Option("Of times, lengths and prompts", flag="--seed")]
PromptSeed = Annotated[
    int | None,
    Ge(0),
    Option(
        "Of times, lengths and prompts; without one the prompts differ from run to run, so that "
        "no prefix cache flatters",
        flag="--seed",
    ),
]


@dataclass(frozen=True)
class EnvironmentStep:
    """Nothing to be told."""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class ProfileStep:
    __pydantic_config__ = STRICT
    arrivals: ArrivalsText = "closed:8"
    lengths: LengthsText = "chat*0.05"
    requests: Annotated[int, Ge(1), Option("How many")] = 48
    seed: Seed = 0


@dataclass(frozen=True)
class LoadStep:
    __pydantic_config__ = STRICT
    arrivals: ArrivalsText = "closed:6"
    lengths: LengthsText = "chat*0.05"
    requests: Annotated[int | None, Ge(1), Option("End after so many are sent")] = None
    duration_s: Annotated[
        float | None,
        Gt(0),
        Le(1e7),
        Time(),
        Option("End after so many seconds of sending; 30 if no end", flag="--duration"),
    ] = None
    shared_prefix: Annotated[int, Ge(0), Option("First words that all prompts share")] = 0
    tpot_objective_ms: Annotated[
        float | None, Gt(0), Option("Time per token that was promised", unit="ms")
    ] = None
    slo: Annotated[
        str | None,
        Reads("playbooks.load.slo:parse_slo"),
        Option("Goodput: ttft=500,tpot=50,e2e=5s, milliseconds"),
    ] = None
    seed: PromptSeed = None


@dataclass(frozen=True)
class SweepStep:
    __pydantic_config__ = STRICT
    batches: Annotated[
        tuple[Annotated[int, Ge(1)], ...], Len(1), Option("Rising batch sizes: 1,2,4,8")
    ] = (1, 2, 4, 8, 16, 32, 64)
    repeats: Annotated[int, Ge(1), Option("Runs of each size")] = 3
    lengths: LengthsText = "chat*0.05"
    requests_per_user: Annotated[int, Ge(1), Option("Requests of a run, times its batch")] = 5
    least_requests: Annotated[
        int,
        Ge(1),
        Option("Requests of a run at least, its warm-up not counted; three runs of 40 have a P99"),
    ] = 40
    p99_objective_ms: Annotated[
        float | None,
        Gt(0),
        Option("P99 that the recommended cap keeps below", unit="ms", flag="--p99-objective"),
    ] = None
    p99_of: Annotated[
        Literal["e2e", "ttft", "tpot"], Option("What the objective is of: e2e, ttft or tpot")
    ] = "e2e"
    refine: Annotated[
        bool,
        Option("Measure between the knee's two rungs too", flag="--refine/--no-refine"),
    ] = True
    seed: PromptSeed = None

    def __post_init__(self) -> None:
        if any(b <= a for a, b in itertools.pairwise(self.batches)):
            raise ConfigError(f"batches: expected sizes that rise, got {list(self.batches)}")


@dataclass(frozen=True)
class CompareStep:
    __pydantic_config__ = STRICT
    experiment: Annotated[str, Option("One that ships, or a TOML file")] = "owners_table"
    quick: Annotated[bool, Option("The experiment's small size: a first look")] = True
    quality: Annotated[
        bool,
        Option("Judge KV formats that have no verdict kept", flag="--quality/--no-quality"),
    ] = False
    scale: Annotated[float | None, Gt(0), Le(64), Option("Times the experiment's lengths")] = None
    repeats: Annotated[int | None, Ge(2), Option("Rounds of all arms")] = None
    rate: Annotated[
        float | None,
        Gt(0),
        Le(1e6),
        Option("Requests/s of an open loop that latency is measured with"),
    ] = None
    allow_many: Annotated[bool, Option("Allow several changes in one arm")] = False
    seed: Annotated[
        int | None, Ge(0), Option("Of lengths and times, instead of the experiment's own")
    ] = None


@dataclass(frozen=True)
class QualityStep:
    __pydantic_config__ = STRICT
    size: Annotated[
        Literal["quick", "probe", "full"],
        Option("probe (seconds), quick (a third of the cases) or full"),
    ] = "quick"
    baseline: Annotated[str, Option("KV format that it is held against")] = "fp16"
    cases: Annotated[tuple[str, ...], Option("Files of cases of your own, .toml or .jsonl")] = ()
    golden: Annotated[
        bool, Option("Run the golden set that ships", flag="--golden/--no-golden")
    ] = True
    record: Annotated[
        str | None, Option("Write the answers of the target at a URL to this file")
    ] = None
    against: Annotated[
        str | None,
        Option(
            "Hold the answers of the target at a URL against that file, or against a second URL"
        ),
    ] = None


@dataclass(frozen=True)
class SoakStep:
    __pydantic_config__ = STRICT
    requests: Annotated[int, Ge(8), Option("Short ones, in waves; every third is cancelled")] = 240
    waves: Annotated[int, Ge(4), Option("Looks at the idle engine, enough for a slope")] = 8
    duration_s: Annotated[
        float | None,
        Gt(0),
        Time(),
        Option("Instead: waves until so many seconds are over", flag="--duration"),
    ] = None
    storms: Annotated[
        bool, Option("Cancel, timeout, oversized, prefixes", flag="--storms/--no-storms")
    ] = True
    seed: Seed = 0

    def __post_init__(self) -> None:
        if self.requests < self.waves:
            raise ConfigError(f"requests: fewer than {self.waves}; every wave needs one")

    @property
    def wave(self) -> int:
        """Requests of one."""
        return self.requests // self.waves


@dataclass(frozen=True)
class FaultsStep:
    __pydantic_config__ = STRICT
    faults: Annotated[tuple[str, ...], Option("Names; none: all")] = ()
    seeds: Annotated[int, Ge(0), Option("Healthy runs")] = 1


@dataclass(frozen=True)
class CanaryStep:
    __pydantic_config__ = STRICT
    candidate: Annotated[tuple[str, ...], Option("Settings of the candidate: key=value")] = ()
    candidate_url: Annotated[str | None, Option("Or its URL, where the target is a URL")] = None
    arrivals: ArrivalsText = "poisson:4"
    lengths: LengthsText = "chat*0.05"
    stages: Annotated[
        str,
        Reads("playbooks.canary.plan:parse_stages"),
        Option("Percent of the users on the candidate, rising"),
    ] = "1,10,50,100"
    least_s: Annotated[
        float, Gt(0), Time(), Option("Seconds that a stage takes at least", flag="--least")
    ] = 600.0
    hold_s: Annotated[
        float, Gt(0), Time(), Option("Seconds that a stage may stay undecided", flag="--hold")
    ] = 7200.0
    min_samples: Annotated[
        int, Ge(29), Option("Answers of each side that a stage needs (P99: 299)")
    ] = 300
    metric: Annotated[
        Literal["slowdown", "e2e", "ttft", "tpot"],
        Option("Whose tail is compared: slowdown, e2e, ttft or tpot"),
    ] = "slowdown"
    tail_ratio: Annotated[
        float, Gt(0), Option("Above this of the baseline's the candidate's tail is too high")
    ] = 1.10
    time_scale: Annotated[
        float, Gt(0), Option("All times, times this; 0.1 is a quick rehearsal")
    ] = 1.0
    users: Annotated[int, Ge(1), Option("Who send the requests; each stays on one side")] = 10_000
    waive: Annotated[
        tuple[Literal["memory", "quality", "crosstalk"], ...],
        Option("Do without: memory, quality, crosstalk"),
    ] = ()
    seed: PromptSeed = None

    def __post_init__(self) -> None:
        if self.hold_s < self.least_s:
            raise ConfigError(f"hold_s: {self.hold_s:g} is below least_s {self.least_s:g}")


@dataclass(frozen=True)
class ChecklistStep:
    __pydantic_config__ = STRICT
    name: Annotated[str, Option("A shipped checklist or a file")] = "pre_holiday"
    answers: Annotated[str | None, Option("File with the answers of people")] = None


@dataclass(frozen=True)
class BenchWork:
    """No step of a playbook: what `evewatch bench` is told."""

    __pydantic_config__ = STRICT
    requests: Annotated[int, Ge(1), Option("How many")] = 32
    prompt_mean: Annotated[float, Ge(1), Option("Mean prompt length", unit="tokens")] = 96.0
    output_mean: Annotated[float, Ge(1), Option("Mean output length", unit="tokens")] = 64.0
    sigma: Annotated[float, Ge(0), Le(4), Option("Spread of the lognormal lengths; 0 is none")] = (
        0.8
    )
    seed: Annotated[int, Ge(0), Option("Of lengths and prompts")] = 0
    workload: Annotated[
        str | None, Option('Requests from a JSON list of {"prompt", "out"} instead')
    ] = None


@dataclass(frozen=True)
class FitWork:
    """No step of a playbook: what `evewatch forecast fit` is told."""

    __pydantic_config__ = STRICT
    duration_s: Annotated[
        float, Gt(0), Le(1e5), Time(), Option("Seconds of load, all of it", flag="--duration")
    ] = 240.0
    rounds: Annotated[
        int, Ge(2), Le(20), Option("Times that every load is run; each round judges the others")
    ] = 3
    seed: Seed = 0
