"""What an engine looks like at one moment. Standard library only.

Every panel, gate, recording and metrics endpoint reads this type and nothing else, and
external engines map to it too. A field that an engine does not report is None, never 0.
Times are in seconds or milliseconds as the name says; memory is in bytes; ratios are 0–1.
"""

from __future__ import annotations

import json
import math
import types
import typing
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any

SCHEMA = 1


class SourceState(StrEnum):
    """How far the numbers can be trusted."""

    LIVE = "live"
    STALE = "stale"
    UNREACHABLE = "unreachable"
    UNPARSABLE = "unparsable"
    WRONG_ENGINE = "wrong_engine"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a Snapshot came from."""

    state: SourceState = SourceState.LIVE
    engine: str = "evewatch"
    target: str = "embedded"
    age_s: float = 0.0
    """Seconds since the numbers were true."""
    reason: str | None = None
    """Why the state is not live, in one line."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds, from raw samples of the recent window, or from the buckets of an external
    engine's histogram. None where n is too small."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    mean: float | None = None
    n: int = 0
    floor: float | None = None
    """From a histogram: a percentile that is no more than this lies in the first bucket, and is
    known only to be below it."""
    ceiling: float | None = None
    """From a histogram: a percentile that is None although n is large enough lies above this."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many samples of the recent window fell where; milliseconds."""

    edges_ms: tuple[float, ...] = ()
    """Upper edges, rising."""
    counts: tuple[int, ...] = ()
    """One for each edge, and one for what is above the last; not cumulative."""


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """How many tokens each of something had, from the buckets of an engine's histogram."""

    p50: float | None = None
    p90: float | None = None
    mean: float | None = None
    n: int = 0
    edges: tuple[float, ...] = ()
    """Upper edges, rising."""
    counts: tuple[int, ...] = ()
    """One for each edge, and one for what is above the last; not cumulative."""


@dataclass(frozen=True, slots=True)
class LengthState:
    """Of the recent window, or of the last that there was; None where an engine does not tell."""

    prompt: TokenCounts | None = None
    """Of requests that ended."""
    output: TokenCounts | None = None
    step: TokenCounts | None = None
    """Computed in a step."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One of several engines that a Snapshot is of."""

    name: str
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    """0–1"""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is running."""

    model: str | None = None
    device: str | None = None
    kernels: str | None = None
    """Backend of the kernels: cpu | triton | reference."""
    compute: str | None = None
    """How quantised weights are multiplied: f32 | int16 | int8 | mixed."""
    note: str | None = None
    """A lasting condition the operator must know, e.g. "no C compiler: reference kernels"."""
    policy: str | None = None
    max_model_len: int | None = None
    uptime_s: float | None = None
    paused: bool | None = None
    """Admission is paused: running requests go on, waiting ones stay."""
    alarm: str | None = None
    """What the watchdog says while work waits and nothing is computed."""
    draining: bool | None = None
    """Nothing new is accepted; what was accepted before is finished."""


@dataclass(frozen=True, slots=True)
class QueueState:
    waiting: int | None = None
    oldest_wait_s: float | None = None
    arrivals_per_s: float | None = None
    finished_per_s: float | None = None
    wait_ms: Percentiles = Percentiles()
    """Queued → first scheduled."""
    wait_hist: Histogram | None = None
    requests_total: int | None = None


@dataclass(frozen=True, slots=True)
class BatchState:
    running: int | None = None
    cap: int | None = None
    """Most sequences that may run now."""
    cap_max: int | None = None
    dynamic: bool | None = None
    """The cap moves with the queue."""
    step_ms: float | None = None
    """Mean step time of the last second."""
    prefill_tokens: float | None = None
    """Mean per step, last second."""
    decode_tokens: float | None = None
    bound_by: str | None = None
    """What limited the last steps: cap | kv | token_budget | batch (a static batch collects or
    runs) | queue (nothing waits)."""
    bound_shares: dict[str, float] | None = None
    """Share of the last minute's steps (0–1) that each limit bound; None without steps."""
    output_tok_s: float | None = None
    prompt_tok_s: float | None = None
    steps_total: int | None = None
    output_tokens_total: int | None = None
    prompt_tokens_total: int | None = None
    preemptions_total: int | None = None
    preemption_tax: float | None = None
    """Tokens computed again after preemption over useful ones."""
    predicting: bool | None = None
    """Admission goes by predicted lengths of outputs; False while they do not hold, None where
    it does not predict."""
    length_coverage: float | None = None
    """Of the outputs that ended lately, the share that was as long as expected; 0.8 is meant."""
    draft_accepted_ratio: float | None = None
    """Of the tokens that speculation drafted, the share that the model accepted."""
    draft_tokens: float | None = None
    """Accepted tokens a draft, mean; a step without drafts gives one token, these come on top."""
    draft_gain: float | None = None
    """Tokens a second over what they would be without drafts, estimated; below 1 they cost more
    than they bring."""
    padding_tokens_total: int | None = None
    """Computed for finished rows of a static batch."""
    max_wait_ms: float | None = None
    """So long a static batch waits to fill; a moving cap opens wider for one that waited so."""


@dataclass(frozen=True, slots=True)
class KvState:
    format: str | None = None
    page_tokens: int | None = None
    total: int | None = None
    """Pages; free + open + sealed + cached == total."""
    free: int | None = None
    open: int | None = None
    sealed: int | None = None
    cached: int | None = None
    usage: float | None = None
    """(open + sealed) / total."""
    page_map: str | None = None
    """One letter a page, in pool order: f free, o open, s sealed, c cached."""
    pages_per_letter: int | None = None
    """More than 1 in a pool too large to draw: a letter of the maps stands for so many pages."""
    page_owners: str | None = None
    """Like page_map: a letter of `owner_names`, + several holders, * one of the rest, . nobody.
    None unless somebody looks at it (Engine.watch_pages)."""
    owner_names: dict[str, str] | None = None
    """Letter -> id of the request that holds the pages."""
    page_ages: str | None = None
    """Like page_map: digit n is a page taken less than 2ⁿ s ago (9: all older), . a free one."""
    tail_waste_tokens: int | None = None
    """Token places in pages in use that hold no token."""
    fragmentation_ratio: float | None = None
    """Tail waste over token places in use."""
    bytes_per_token: float | None = None
    """All layers, sealed."""
    sealed_ratio: float | None = None
    """Sealed bytes per token over fp16's."""
    effective_ratio: float | None = None
    """The same with open slabs and tail waste, as the pool stands now."""
    saturation_ratio: float | None = None
    """Share of the values written that a static scale clipped; None without static scales."""
    pool_bytes: int | None = None
    largest_fit_tokens: int | None = None
    """Longest request that could be admitted now."""
    shadow_largest_fit_tokens: int | None = None
    """The same for contiguous allocation of the same trace."""
    shadow_fragmentation: float | None = None
    """1 − largest free run / free, for contiguous allocation of the same trace."""
    shadow_map: str | None = None
    """Like page_map, of that allocation: s taken, f free; None as `page_owners`."""
    prefix_queried_total: int | None = None
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits_total: int | None = None
    """Those found in it."""
    prefix_hit_ratio: float | None = None
    """The second over the first; some engines tell only this."""
    evictions_total: int | None = None


@dataclass(frozen=True, slots=True)
class AllocatorState:
    """Reserved ≥ allocated ≥ active: what lies between them is memory that is lost for now."""

    name: str
    reserved_bytes: int | None = None
    """Taken from the system or the device."""
    allocated_bytes: int | None = None
    """Of it, handed out."""
    active_bytes: int | None = None
    """Of it, in use: for the KV pool the bytes of tokens, for torch also blocks about to go."""


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU, from NVML."""

    index: int
    name: str | None = None
    utilisation: float | None = None
    """Share of time (0–1) that a kernel ran."""
    memory_busy: float | None = None
    """Share of time (0–1) that device memory was read or written."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: int | None = None
    clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] | None = None
    """Why the clock is held down, in words; empty when it is not."""


@dataclass(frozen=True, slots=True)
class MemoryState:
    rss_bytes: int | None = None
    available_bytes: int | None = None
    cpu_percent: float | None = None
    """Of one core: 200 is two cores busy."""
    cores: int | None = None
    device_used_bytes: int | None = None
    device_total_bytes: int | None = None
    bandwidth_bytes_s: float | None = None
    """An estimate: weights and KV pages that the last steps read, over the time they took."""
    bandwidth_peak_bytes_s: float | None = None
    """What reading memory reaches on this machine at best, measured at the start."""
    allocators: tuple[AllocatorState, ...] | None = None


@dataclass(frozen=True, slots=True)
class LatencyState:
    """Requests of the recent window, from their scheduled arrival."""

    ttft_ms: Percentiles = Percentiles()
    tpot_ms: Percentiles = Percentiles()
    itl_ms: Percentiles = Percentiles()
    e2e_ms: Percentiles = Percentiles()
    ttft_hist: Histogram | None = None
    tpot_hist: Histogram | None = None
    itl_hist: Histogram | None = None
    e2e_hist: Histogram | None = None


@dataclass(frozen=True, slots=True)
class StageShares:
    """Share of request time (0–1), over the requests that finished in the recent window."""

    queue: float | None = None
    tokenize: float | None = None
    prefill: float | None = None
    decode: float | None = None
    detokenize: float | None = None
    return_: float | None = None


@dataclass(frozen=True, slots=True)
class StepShares:
    """Share of engine time (0–1) over the recent steps."""

    plan: float | None = None
    build: float | None = None
    forward_prefill: float | None = None
    forward_decode: float | None = None
    draft: float | None = None
    """Looking for drafts, and ..."""
    verify: float | None = None
    """... computing them; None where nothing is drafted."""
    sample: float | None = None
    apply: float | None = None
    telemetry: float | None = None


@dataclass(frozen=True, slots=True)
class ObjectiveCount:
    """How many requests met an objective, of how many, since the engine began to count."""

    name: str
    """ttft | tpot | e2e | availability | reachable, which counts seconds"""
    limit_ms: float | None
    """None: availability, reachable."""
    good: int
    """Met it for certain."""
    total: int
    unsure: int = 0
    """Of the rest, those in the bucket that holds the limit: some of them met it."""
    above_ms: float | None = None
    """The bounds of that bucket; None where the count is exact."""
    below_ms: float | None = None
    """None with `above_ms`: the engine's last bucket, which has no end."""
    since: float | None = None
    """Unix seconds; None where it is not known, or lies behind a restart."""


@dataclass(frozen=True, slots=True)
class Event:
    time: float
    """Unix seconds."""
    kind: str
    """preempt | cap | reserve | reject | error | timeout | kv_capacity | pause | config | watchdog
    | saturation | info; of a watchkeeper alert_firing | alert_recovered"""
    text: str
    count: int = 1
    """Events of this kind that this line stands for (rate-limited kinds)."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    id: str
    state: str
    position: int
    """Tokens in the cache."""
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    pages: int
    wait_ms: float | None = None
    ttft_ms: float | None = None
    age_s: float | None = None
    source: str | None = None
    """Who sent it: load | console | api | bench."""
    tokenize_ms: float | None = None
    detokenize_ms: float | None = None
    """So far."""
    preemptions: int | None = None
    """How often it gave its pages back and computed them again."""
    draft_tokens: int | None = None
    """Tokens that were drafted for it; None without any."""
    accepted_tokens: int | None = None
    """Of them, those that were right."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    seq: int = 0
    """Grows by one with each new Snapshot of a source."""
    time: float = 0.0
    """Unix seconds."""
    source: Source = Source()
    engine: EngineInfo = EngineInfo()
    queue: QueueState = QueueState()
    batch: BatchState = BatchState()
    kv: KvState = KvState()
    memory: MemoryState = MemoryState()
    gpus: tuple[GpuState, ...] | None = None
    """Those of the machine; empty when it has none."""
    latency: LatencyState = LatencyState()
    stages: StageShares = StageShares()
    steps: StepShares = StepShares()
    lengths: LengthState = LengthState()
    replicas: tuple[Replica, ...] = ()
    """Ranks behind one address, or the targets of a group; empty where it is one engine."""
    finished: dict[str, int] = field(default_factory=dict)
    """Requests ended, by finish reason."""
    objectives: tuple[ObjectiveCount, ...] = ()
    """Those that were asked for, and of which the engine tells enough."""
    events: tuple[Event, ...] = ()
    """The newest last; a bounded tail."""
    ledger: dict[str, int] = field(default_factory=dict)
    """What requests hold, by class of resource; all zero at idle."""
    requests: tuple[RequestRow, ...] = ()
    """Running first, then waiting; a bounded head."""
    schema: int = SCHEMA

    def to_json(self) -> str:
        """One line of JSON. NaN and infinities become null."""
        return json.dumps(_plain(self), separators=(",", ":"), allow_nan=False)

    def to_plain(self, without: tuple[str, ...] = ()) -> dict[str, Any]:
        """What `to_json` writes, as dicts and lists; fields in `without` are left out."""
        names = (f.name for f in fields(self) if f.name not in without)
        return {name: _plain(getattr(self, name)) for name in names}

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        """Inverse of `to_json`. Unknown keys (a newer schema) are ignored.

        Raises ValueError when the text is no Snapshot.
        """
        return cls.from_plain(json.loads(text))

    @classmethod
    def from_plain(cls, data: Any) -> Snapshot:
        """Inverse of `to_plain`. Raises ValueError as `from_json` does."""
        if not isinstance(data, dict) or not isinstance(data.get("schema"), int):
            raise ValueError("not a snapshot: no schema number")
        return _build(cls, data)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _build(kind: Any, value: Any) -> Any:
    """`value` from JSON as type `kind`; ValueError names what does not fit."""
    if isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(value, dict):
            raise ValueError(f"{kind.__name__}: expected an object, got {type(value).__name__}")
        hints = _hints(kind)
        known = {name: _build(hints[name], item) for name, item in value.items() if name in hints}
        try:
            return kind(**known)
        except TypeError as error:
            raise ValueError(f"{kind.__name__}: {error}") from error
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _build(next(a for a in args if a is not type(None)), value)
    if origin in (tuple, dict) and not isinstance(value, list if origin is tuple else dict):
        raise ValueError(f"expected {origin.__name__}, got {value!r}")
    if origin is tuple:
        return tuple(_build(args[0], item) for item in value)
    if origin is dict:
        return {str(key): _build(args[1], item) for key, item in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(value)
    if not isinstance(value, kind):
        raise ValueError(f"expected {kind.__name__}, got {value!r}")
    return value


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = typing.get_type_hints(kind)
    return _HINTS[kind]
