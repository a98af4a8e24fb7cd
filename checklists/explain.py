"""The quick reference: from a symptom in anybody's words to entries of troubleshooting.toml.

Words are weighed by how rare they are among the entries (BM25 over fields, those of the symptom
counting more), after synonyms; Chinese is cut into pairs of letters.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from checklists.tomlfile import STRICT, TomlFile

PATH = Path(__file__).with_name("troubleshooting.toml")
K1, B = 1.2, 0.5
"""BM25: how soon repeats stop to count, and how much long entries are held back."""
WEIGHTS = {"symptom": 3, "also": 3, "id": 2, "cause": 2, "likely": 1, "remedy": 1, "look_for": 1}
LEAST_SHARE = 0.25
"""Of the best score; weaker entries are noise."""
STOP = frozenset(
    ("a", "an", "and", "are", "as", "at", "be", "but", "by", "do", "does", "for", "from", "get",
     "gets", "got", "has", "have", "how", "i", "in", "is", "it", "its", "my", "not", "of", "on",
     "or", "our", "so", "than", "that", "the", "their", "them", "then", "there", "they", "this",
     "to", "too", "was", "we", "what", "when", "while", "why", "with", "you", "your", "after",
     "before", "into", "since", "some", "s")
)  # fmt: skip
SYNONYMS = (
    ("up", "high", "higher", "rise", "rises", "rose", "increase", "increased", "increases", "worse",
     "spike", "spikes", "jump", "jumped", "climb", "climbs", "large"),
    ("down", "low", "lower", "drop", "drops", "dropped", "fall", "falls", "fell", "collapse",
     "collapses", "decrease", "decreased", "less", "bad"),
    ("latency", "p99", "p95", "p90", "p50", "tail", "delay", "e2e", "response"),
    ("slow", "slower", "sluggish", "lag", "laggy"),
    ("memory", "ram", "vram", "rss", "hbm"),
    ("grow", "grows", "growing", "leak", "leaks", "leaking"),
    ("oom", "killed", "exhausted"),
    ("queue", "queued", "queueing", "wait", "waits", "waiting", "backlog"),
    ("ttft", "first"),
    ("itl", "stutter", "jitter", "stall", "stalls", "spikes"),
    ("quality", "accuracy"),
    ("answer", "answers", "output", "outputs"),
    ("gibberish", "garbage", "nonsense", "wrong"),
    ("quantisation", "quantization", "quantised", "quantized", "quantise", "quantize", "int8"),
    ("preemption", "preempt", "preempted", "preempting", "recompute", "evict", "evicted"),
    ("tokenizer", "tokenise", "tokenize", "tokenizing", "detokenize", "tokenization"),
    ("log", "logs", "logging", "logged"),
    ("hang", "hangs", "hung", "stuck", "frozen", "deadlock", "freeze"),
    ("upgrade", "upgraded", "update", "updated", "version", "versions"),
    ("crosstalk", "mixed", "swapped", "串味"),
    ("timeout", "timeouts", "timed"),
    ("rejected", "refused", "429", "503", "overload", "overloaded"),
    ("utilisation", "utilization", "idle", "busy"),
    ("throughput", "tps", "qps"),
    ("cut", "truncated", "incomplete"),
)  # fmt: skip
_TO_ROOT = {word: group[0] for group in reversed(SYNONYMS) for word in group}


@dataclass(frozen=True)
class Entry:
    __pydantic_config__ = STRICT
    id: str
    symptom: str
    likely: str
    """The likely cause, in words."""
    confirm: tuple[str, ...]
    """Commands of this tool."""
    look_for: str
    remedy: str
    applies: Literal["live", "restart"]
    undo: str
    also: tuple[str, ...] = ()
    """Other words for the symptom."""
    cause: str = ""
    """The diagnosis' name for it, where it has one."""


@dataclass(frozen=True)
class Hit:
    entry: Entry
    score: float


def search(query: str, entries: Sequence[Entry], most: int = 3) -> list[Hit]:
    """The entries that fit, the best first. Empty: none does."""
    wanted = list(dict.fromkeys(tokens(query)))
    bags = [_bag(entry) for entry in entries]
    mean = sum(bag.total() for bag in bags) / max(len(bags), 1)
    rare = {word: _rarity(word, bags) for word in wanted}
    scored = []
    for entry, bag in zip(entries, bags, strict=True):
        long = 1 - B + B * bag.total() / mean
        score = sum(rare[word] * bag[word] * (K1 + 1) / (bag[word] + K1 * long) for word in wanted)
        scored.append(Hit(entry, score + _exact(query, entry)))
    best = max((hit.score for hit in scored), default=0.0)
    fitting = [hit for hit in scored if hit.score > 0 and hit.score >= LEAST_SHARE * best]
    return sorted(fitting, key=lambda hit: -hit.score)[:most]


def suggest(query: str, entries: Sequence[Entry], most: int = 5) -> list[str]:
    """Symptoms to choose from when nothing fits: those spelled alike, else the first ones."""
    known = {word: entry for entry in entries for word in (entry.symptom, *entry.also)}
    close = difflib.get_close_matches(query, known, most, 0.4)
    words = {word: entry for entry in entries for name in (entry.symptom, *entry.also)
             for word in _words(name) if len(word) > 3}  # fmt: skip
    for word in _words(query):
        close += [words[match].symptom for match in difflib.get_close_matches(word, words, 2, 0.75)]
    found = [known[name].symptom if name in known else name for name in close]
    return list(dict.fromkeys(found or [entry.symptom for entry in entries]))[:most]


@cache
def _bag(entry: Entry) -> Counter[str]:
    bag: Counter[str] = Counter()
    for name, weight in WEIGHTS.items():
        value = getattr(entry, name)
        for token in tokens(" ".join(value) if isinstance(value, tuple) else value):
            bag[token] += weight
    return bag


def _rarity(word: str, bags: Sequence[Counter[str]]) -> float:
    having = sum(word in bag for bag in bags)
    return math.log(1 + (len(bags) - having + 0.5) / (having + 0.5)) if having else 0.0


def _exact(query: str, entry: Entry) -> float:
    """A name that is asked for as it stands comes first."""
    asked = " ".join(query.lower().split())
    names = (entry.id, entry.cause, entry.symptom.lower(), *(word.lower() for word in entry.also))
    if not asked:
        return 0.0
    return 10.0 if asked in names or asked.replace(" ", "_") in names else 0.0


def tokens(text: str) -> Iterator[str]:
    """Words by their root, without the small ones; Chinese by pairs of letters."""
    for word in _words(text):
        if word not in STOP:
            yield _TO_ROOT.get(word) or _TO_ROOT.get(_stem(word)) or _stem(word)
    for run in re.findall(r"[\u4e00-\u9fff]+", text):
        yield from (run[i : i + 2] for i in range(max(len(run) - 1, 1)))


def _words(text: str) -> list[str]:
    text = text.lower().replace("out of memory", "oom").replace("cross talk", "crosstalk")
    return re.findall(r"[a-z0-9]+", text.replace("_", " "))


def _stem(word: str) -> str:
    """Enough of English for this: requests, stalls, waiting, timed, memories."""
    for ending, keep in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)] + keep
    return word


@dataclass(frozen=True)
class Reference:
    """The whole file."""

    __pydantic_config__ = STRICT
    schema: Literal[1] = 1
    entry: tuple[Entry, ...] = ()


def load_entries(path: Path = PATH) -> list[Entry]:
    """Raises ConfigError."""
    file = TomlFile(path, "reference")
    entries = file.read(Reference).entry
    for i, entry in enumerate(entries):
        if entry.id in (other.id for other in entries[:i]):
            raise file.wrong(("entry", i, "id"), f"id {entry.id!r} is there twice")
    return list(entries)
