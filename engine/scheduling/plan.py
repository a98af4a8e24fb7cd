"""What a step computes, and what comes of it: the words between scheduler, compute and loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from engine.request import FinishReason, Request
from engine.scheduling.pages import PagePool
from engine.text.output import IncrementalDecoder


class PlanItem(NamedTuple):
    """Compute `tokens` tokens of `request`, from position `start` on."""

    request: Request
    start: int
    tokens: int
    samples: int
    """So many rows at its end give a token: 1 where the last is the newest known token, one more
    for each token of a draft, else 0."""
    padding: bool = False
    """A finished row of a static batch: it is computed and its result thrown away."""
    draft: Sequence[int] = ()
    """Tokens that may come next, computed behind the newest known one; they are in `tokens`."""


@dataclass
class Plan:
    """What one step computes, and what making room for it did."""

    items: list[PlanItem] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    ended: list[tuple[Request, FinishReason]] = field(default_factory=list)
    """Requests that ended while planning (timeout, no room for ever)."""
    bound_by: str = "queue"
    """Why no more was planned: cap | kv | token_budget | batch (a static batch collects or
    runs) | queue (nothing more waits)."""

    promised: int | None = None
    """Pages that protected requests may still take; counted when first asked for."""

    @property
    def tokens(self) -> int:
        return sum(item.tokens for item in self.items)


@dataclass(slots=True)
class Computed:
    """What came of a Plan. Its K and V are in the cache; times in ns."""

    tokens: list[tuple[Request, int | None]]
    """Of every item that samples, in order; None: the output is not finite. An item with a draft
    gives one token, and one more for each token of the draft that was the right one."""
    kept: dict[str, int]
    """Tokens that each item with a draft gave, by request id: so many of its rows stand."""
    damaged: Sequence[Request] = ()
    """Of the items that do not sample, those whose output is not finite."""
    build: int = 0
    forward: int = 0
    sample: int = 0


@dataclass(frozen=True)
class KvFacts:
    """What pages and slabs weigh, all layers together."""

    format: str
    page_bytes: int
    slab_bytes: int
    pool_bytes: int
    """Pages, slabs and scratch."""
    bytes_per_token: float
    """Sealed."""
    fp16_bytes_per_token: float

    def in_use(self, pool: PagePool) -> int:
        """Bytes of the pages that requests hold and of the slabs that are out."""
        slabs = pool.slabs - pool.free_slabs
        return pool.used * self.page_bytes + slabs * self.slab_bytes

    @property
    def sealed_ratio(self) -> float:
        """Sealed bytes over fp16's."""
        return self.bytes_per_token / self.fp16_bytes_per_token


@dataclass(frozen=True)
class ModelFacts:
    """What computes, in the words of a Snapshot."""

    model: str
    device: str
    kernels: str
    vocab: int
    weight_bytes: int
    """Read once a step."""
    kv: KvFacts
    note: str | None = None
    """A lasting condition that the operator must know."""
    compute: str | None = None
    """What the setting comes to on this model: f32 | int16 | int8 | mixed."""


class Draft(NamedTuple):
    """Tokens that may come next."""

    tokens: Sequence[int] = ()
    odds: Sequence[float] = ()
    """How likely each comes if all before it have come."""


NO_DRAFT = Draft()


class Drafter(Protocol):
    """Knows tokens that may come next."""

    def depth(self, requests: int, most: int, step: float, row: float) -> int:
        """How many tokens, at most `most`, are worth looking for where so many requests decode
        in a step of `step` and one row more costs `row` (ns); 0: none."""
        ...

    def draft(self, asked: Sequence[tuple[Request, int]]) -> Sequence[Draft]:
        """For each request at most so many tokens."""
        ...

    def forget(self, request: Request) -> None:
        """It has ended."""
        ...


class Compute(Protocol):
    """Turns Plans into tokens: a model with its cache and sampler, or a cost model."""

    facts: ModelFacts

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an output."""
        ...

    @property
    def saturation_ratio(self) -> float | None:
        """Share of the values written that a static scale clipped; None without such scales."""
        ...

    @property
    def drafter(self) -> Drafter | None:
        """A second, smaller model, where there is one."""
        ...

    def run(self, plan: Plan) -> Computed:
        """Whatever it raises ends the plan's requests, and nobody else's."""
        ...

    def detokenizer(self) -> IncrementalDecoder:
        """For one request's output."""
        ...
