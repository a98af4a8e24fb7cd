"""A cost model in a model's place: a step takes so long, and its tokens are made up. No torch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.request import Request
from engine.scheduling.plan import Computed, KvFacts, ModelFacts, Plan
from engine.simulated.clock import VirtualClock
from engine.simulated.work import StepWork, work_of
from engine.text.output import IncrementalDecoder


class StepCost(Protocol):
    def __call__(self, work: StepWork) -> int:
        """Nanoseconds that a step takes."""
        ...

    @property
    def least(self) -> int:
        """No step takes less, in ns."""
        ...


@dataclass
class LinearCost:
    """A floor, and so much for each token of its kind, in nanoseconds.

    Each step's cost is drawn within ± `spread` (a share) of that, with `seed`.
    """

    floor: float
    prompt_token: float
    decode_token: float
    context_token: float = 0.0
    """Of each token that is in a row's cache, or comes into it."""
    spread: float = 0.0
    seed: int = 0
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self, work: StepWork) -> int:
        spent = self.floor + self.context_token * work.held
        spent += self.decode_token * work.decodes
        spent += self.prompt_token * (work.tokens - work.decodes)
        return int(spent * self._random.uniform(1 - self.spread, 1 + self.spread))

    @property
    def least(self) -> int:
        return int(self.floor * (1 - self.spread))


class RecordedCost:
    """Steps take what they took: nanoseconds, in the order of the steps."""

    least = 0

    def __init__(self, times: Iterable[int]) -> None:
        self._times = iter(times)

    def __call__(self, work: StepWork) -> int:
        spent = next(self._times, None)
        if spent is None:
            raise ValueError("the record has no more steps")
        return spent


def kv_facts(
    pages: int,
    page_tokens: int,
    bytes_per_token: float,
    fp16_bytes_per_token: float,
    slabs: int,
) -> KvFacts:
    """What a pool in int8_channel weighs that has no tensors. Slabs hold one page each, in fp16."""
    page, slab = round(bytes_per_token * page_tokens), round(fp16_bytes_per_token * page_tokens)
    whole = pages * page + slabs * slab
    return KvFacts("int8_channel", page, slab, whole, bytes_per_token, fp16_bytes_per_token)


def made_up(request: Request) -> int:
    """A token of its own for each request: only what is equal shares pages."""
    return request.number & 0x7FFF


class CostCompute:
    """A Loop's compute in virtual time: `clock` moves by what each plan costs.

    `token` gives a request its next token; `words` are the texts of tokens 0, 1, 2 ….
    """

    BUILD, SAMPLE = 0.02, 0.04
    """Shares of a step's time beside its forward pass."""
    saturation_ratio = None
    drafter = None

    def __init__(
        self,
        facts: ModelFacts,
        cost: StepCost,
        clock: VirtualClock,
        page_tokens: int,
        token: Callable[[Request], int] = made_up,
        eos_ids: frozenset[int] = frozenset(),
        words: Sequence[str] = (),
    ) -> None:
        self.facts, self.eos_ids = facts, eos_ids
        self._cost, self._clock, self._token = cost, clock, token
        self.page_tokens, self.words = page_tokens, words

    def run(self, plan: Plan) -> Computed:
        spent = self.spend(work_of(plan.items, self.page_tokens))
        rows = [item.request for item in plan.items if item.samples]
        kept = {item.request.id: 1 for item in plan.items if item.draft}
        return Computed([(row, self._token(row)) for row in rows], kept, (), *spent)

    @property
    def least_step(self) -> int:
        """No step takes less, in ns."""
        return self._cost.least

    def spend(self, work: StepWork) -> tuple[int, int, int]:
        """Let the time of such a step pass: ns of building, computing and sampling."""
        spent = self._cost(work)
        self._clock.advance(spent)
        build, sample = int(spent * self.BUILD), int(spent * self.SAMPLE)
        return build, spent - build - sample, sample

    def next_tokens(self, request: Request, count: int) -> list[int]:
        """Append the request's next tokens to it; gives them."""
        if self._token is made_up:
            tokens = [made_up(request)] * count
            request.output_ids += tokens
            request.num_tokens += count
            return tokens
        for _ in range(count):
            request.append(self._token(request))
        return request.output_ids[-count:] if count else []

    def detokenizer(self) -> IncrementalDecoder:
        return Words(self.words) if self.words else MUTE


class Words:
    """One request's output as words with spaces between them."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words, self._gap = words, ""

    def push(self, ids: Sequence[int]) -> str:
        found = [self._words[i] for i in ids if i < len(self._words)]
        text = self._gap + " ".join(found) if found else ""
        self._gap = " " if found else self._gap
        return text

    def flush(self) -> str:
        return ""


class Mute:
    """Says nothing."""

    def push(self, ids: Sequence[int]) -> str:
        return ""

    def flush(self) -> str:
        return ""


MUTE = Mute()
