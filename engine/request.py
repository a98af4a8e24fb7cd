"""A request: what was asked, how far it is, when each stage happened. No torch."""

from __future__ import annotations

import itertools
import math
from array import array
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import RequestError

if TYPE_CHECKING:
    from engine.stream import Stream


class Status(StrEnum):
    NEW = "new"
    """Submitted, not yet tokenized or not yet taken in by the engine thread."""
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    """Lost its pages; waits to recompute them."""
    FINISHED = "finished"


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    KV_CAPACITY = "kv_capacity"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    ERROR = "error"


class Priority(IntEnum):
    """Lower goes first; see engine/scheduling/waiting.py for how waiting makes up for it."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


STAGES = ("queue", "tokenize", "prefill", "decode", "detokenize", "return")
"""Of a request's life in the engine: docs/measurement.md."""
MAX_TOKENS_LIMIT = 1_000_000
MAX_LOGPROBS = 20
TOKEN_ID_MOST = 2**31 - 1
PENALTY_MOST = 2.0
BIAS_MOST = 100.0


class TokenLogprobs(NamedTuple):
    """Natural logarithms of the model's own distribution: before everything that SamplingParams
    change in it."""

    token: int
    """The one that was chosen."""
    logprob: float
    top: tuple[tuple[int, float], ...]
    """The likeliest tokens, best first: as many as were asked for."""


@dataclass(frozen=True)
class SamplingParams:
    """How to choose tokens, and when to end. Raises RequestError on a value out of range."""

    max_tokens: int = 256
    min_tokens: int = 0
    """Before so many output tokens EOS and stop ids cannot be sampled, and stop strings are no
    end."""
    temperature: float = 0.0
    """0 is greedy."""
    top_k: int = 0
    """0 is off."""
    top_p: float = 1.0
    seed: int | None = None
    """None: derived from the engine's seed and the request's number."""
    min_p: float = 0.0
    """Only tokens at least so likely as the likeliest times this; 0 is off."""
    presence_penalty: float = 0.0
    """Taken from the logit of each token that the output has."""
    frequency_penalty: float = 0.0
    """The same, as often as the output has it."""
    repetition_penalty: float = 1.0
    """Divides positive logits of tokens in prompt or output, multiplies negative ones."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Added to the logits of these tokens."""
    allowed_token_ids: tuple[int, ...] = ()
    """No other token can be sampled; empty: all can."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Runs of token ids that the output never has, unless nothing else is left."""
    stop: tuple[str, ...] = ()
    """Strings that end the output."""
    stop_token_ids: tuple[int, ...] = ()
    """Token ids that end the output, `ignore_eos` or not."""
    include_stop: bool = False
    """What ended the output is part of its text."""
    ignore_eos: bool = False
    logprobs: int | None = None
    """Report each token's log probability, and those of so many likeliest ones; None: none."""

    def __post_init__(self) -> None:
        _whole("max_tokens", self.max_tokens, 1, MAX_TOKENS_LIMIT)
        _whole("min_tokens", self.min_tokens, 0, self.max_tokens)
        _whole("top_k", self.top_k, 0, 2**31 - 1)
        _number("temperature", self.temperature, 0.0, 100.0)
        _number("top_p", self.top_p, 1e-6, 1.0)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("presence_penalty", self.presence_penalty, -PENALTY_MOST, PENALTY_MOST)
        _number("frequency_penalty", self.frequency_penalty, -PENALTY_MOST, PENALTY_MOST)
        _number("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        if self.seed is not None:
            _whole("seed", self.seed, 0, 2**63 - 1)
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise RequestError(f"stop: expected non-empty strings, got {text!r}")
        for name in ("stop_token_ids", "allowed_token_ids"):
            for token in getattr(self, name):
                _whole(name, token, 0, TOKEN_ID_MOST)
        for token, bias in self.logit_bias:
            _whole("logit_bias", token, 0, TOKEN_ID_MOST)
            _number("logit_bias", bias, -BIAS_MOST, BIAS_MOST)
        for word in self.bad_words:
            if not word:
                raise RequestError("bad_words: a word without tokens")
            for token in word:
                _whole("bad_words", token, 0, TOKEN_ID_MOST)

    def beyond(self, vocab: int) -> str | None:
        """The field that asks something of a token which a vocabulary of that size lacks."""
        if not (self.logit_bias or self.allowed_token_ids or self.bad_words):
            return None
        named = {
            "logit_bias": [token for token, _ in self.logit_bias],
            "allowed_token_ids": self.allowed_token_ids,
            "bad_words": itertools.chain(*self.bad_words),
        }
        return next((name for name, ids in named.items() if max(ids, default=0) >= vocab), None)

    def adjusts(self, produced: int) -> bool:
        """Something is asked of the logits after so many output tokens."""
        return produced < self.min_tokens or self._always_adjusts

    @cached_property
    def _always_adjusts(self) -> bool:
        given = self.logit_bias or self.allowed_token_ids or self.bad_words
        penalties = self.presence_penalty or self.frequency_penalty
        return bool(given or penalties or self.repetition_penalty != 1.0)


def _whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(f"{name}: expected a whole number from {low} to {high}, got {value!r}")


def _number(name: str, value: object, low: float, high: float) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not low <= number <= high:  # NaN fails both
        raise RequestError(f"{name}: expected a number from {low:g} to {high:g}, got {value!r}")


@dataclass(slots=True)
class Stamps:
    """Monotonic nanoseconds, 0 until it happens. Durations add up over tokens."""

    arrival: int = 0
    """When the load meant to send it: latencies start here."""
    received: int = 0
    tokenize_start: int = 0
    tokenize_end: int = 0
    queued: int = 0
    first_scheduled: int = 0
    finished: int = 0
    detokenize_ns: int = 0
    tokens: array[int] = field(default_factory=lambda: array("q"))
    """When each output token was there."""

    @property
    def first_token(self) -> int:
        return self.tokens[0] if self.tokens else 0

    @property
    def last_token(self) -> int:
        return self.tokens[-1] if self.tokens else 0

    def span_ms(self, start: str, stop: str) -> float | None:
        """Milliseconds between two stamps; None when either has not happened."""
        first, last = getattr(self, start), getattr(self, stop)
        return (last - first) / 1e6 if first and last else None

    @property
    def stages_ms(self) -> tuple[float, ...]:
        """Milliseconds of each of STAGES of a finished request; in all received → finished.

        Waiting for a tokenizer is tokenizing, not queueing.
        """
        tokenized = self.tokenize_end > self.received
        decode = self.span_ms("first_token", "last_token") or 0.0
        detokenize = min(self.detokenize_ns / 1e6, decode)
        return (
            self.span_ms("tokenize_end" if tokenized else "received", "first_scheduled") or 0.0,
            (self.span_ms("received", "tokenize_end") or 0.0) if tokenized else 0.0,
            self.span_ms("first_scheduled", "first_token") or 0.0,
            decode - detokenize,
            detokenize,
            self.span_ms("last_token", "finished") or 0.0,
        )

    @property
    def tpot_ms(self) -> float | None:
        """(E2E − TTFT) / (output tokens − 1); None below two tokens."""
        count = len(self.tokens)
        return (self.tokens[-1] - self.tokens[0]) / 1e6 / (count - 1) if count > 1 else None

    @property
    def itl_ms(self) -> list[float]:
        """Each gap between tokens."""
        times = self.tokens
        return [(b - a) / 1e6 for a, b in itertools.pairwise(times)]


@dataclass(eq=False)
class Request:
    """Owned by the engine thread from intake to finish."""

    id: str
    params: SamplingParams
    stream: Stream
    prompt_ids: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)
    status: Status = Status.NEW
    finish_reason: FinishReason | None = None
    num_tokens: int = 0
    """Tokens known, the prompt's and the sampled ones: set at intake, moved by `append`."""
    num_computed: int = 0
    """Tokens whose K and V are in the cache: this request's own position counter."""
    pages: list[int] = field(default_factory=list)
    """Block table, in token order."""
    life: int = 0
    """Which time of running this is, of all that its scheduler started: no two are the same."""
    slab: int = -1
    """Open slab held, -1 for none."""
    deadline: int = 0
    """Monotonic ns after which it ends with `timeout`; 0 for never."""
    ends_at: int = 0
    """Output tokens after which it ends with `length`; set at admission."""
    stop_ids: frozenset[int] = frozenset()
    """Tokens that end it with `stop`; set at admission."""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    """Of the newest tokens, from the sampler to the stream; only where they were asked for."""
    cancelled: bool = False
    """Set from any thread; read by the engine thread between steps."""
    priority: Priority = Priority.NORMAL
    preemptions: int = 0
    drafted: int = 0
    """Tokens that were drafted for it."""
    accepted: int = 0
    """Of them, those that were right."""
    passed: int = 0
    """Requests admitted past it while it was the head and did not fit."""
    prefix_pages: int = 0
    """Pages of the block table that were hits in the prefix index."""
    node: int = 0
    """The prefix index's name for what its sealed pages hold so far."""
    most_computed: int = 0
    """Highest position it ever had: computing below it again is recomputation."""
    number: int = 0
    """Order of submission."""
    source: str = "api"
    client: str = ""
    """Who asks, in the sender's own words; only ever compared."""
    length_class: int = 0
    """Where scheduling/lengths.py keeps how long outputs of its kind are; set when it queues."""
    expected: tuple[int, int] | None = None
    """Shortest and longest output that was expected of it when it first started."""
    stamps: Stamps = field(default_factory=Stamps)
    error: str | None = None

    def __post_init__(self) -> None:
        self.num_tokens = len(self.prompt_ids) + len(self.output_ids)

    def set_prompt(self, ids: list[int]) -> None:
        """What the tokenizer made of it."""
        self.prompt_ids = ids
        self.num_tokens = len(ids)

    def append(self, token: int) -> None:
        """A sampled token is known now, and not yet in the cache."""
        self.output_ids.append(token)
        self.num_tokens += 1

    @property
    def num_pending(self) -> int:
        """Tokens known but not in the cache: what a step can still compute."""
        return self.num_tokens - self.num_computed

    @property
    def is_prefilling(self) -> bool:
        """More than the newest token is missing from the cache."""
        return self.num_pending > 1 or not self.output_ids

    def token_ids(self, start: int, stop: int) -> list[int]:
        """Known tokens start … stop-1, across prompt and output."""
        prompt = len(self.prompt_ids)
        if stop <= prompt:
            return self.prompt_ids[start:stop]
        if start >= prompt:
            return self.output_ids[start - prompt : stop - prompt]
        return self.prompt_ids[start:] + self.output_ids[: stop - prompt]
