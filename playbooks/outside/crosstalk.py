"""Cross-talk from outside: clients with marks of their own, alone and all at once.

Each client's prompt repeats its mark, a word and a number that no other has, so that any model
goes on with it. An answer with another client's mark is cross-talk. A model that does not follow
its prompt is told apart by its answers: one that says word for word what another client gets, and
not what its own client gets at other times, is cross-talk too. That an answer differs from the
one alone is none: other engines' answers depend on the batch. Clients are asked in another order
each round, so that a mix-up of neighbours is not the same in every one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from playbooks.load.prompts import fresh_seed
from playbooks.outside.asking import Answer, Question, ask
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint

CLIENTS = 6
OUTPUT = 24
TIMES = 6
"""A mark in its prompt."""
ROUNDS = (1, CLIENTS, CLIENTS, 1)
"""Clients at once."""
ANIMALS = (
    "heron",
    "otter",
    "badger",
    "falcon",
    "lynx",
    "walrus",
    "gecko",
    "bison",
    "marten",
    "ibis",
)
LEAST_COMMON = 16
"""Characters at the beginning that two answers share by chance at most."""
NUMBERS = (10_000, 99_999)


@dataclass(frozen=True)
class Client:
    word: str
    number: str

    @property
    def prompt(self) -> str:
        return f"{self.word} {self.number}, " * TIMES + self.word

    def marked(self, text: str) -> bool:
        """Its mark is in the text: the number, whole."""
        return re.search(rf"(?<!\d){self.number}(?!\d)", text) is not None


@dataclass(frozen=True)
class CrossTalk:
    mixed: tuple[str, ...]
    """What was found, a line a client."""
    told_apart: bool
    """Answers differ by client: a mix-up would have been seen."""
    answered: int
    asked: int
    repeats: float | None
    """Share of the answers alone that come again word for word: the floor of all comparisons."""
    emptied: int = 0
    """Answers without text to clients that got one at other times."""


def cross_talk(site: UrlSite, seed: int | None = None) -> tuple[CrossTalk, GuardedEndpoint]:
    rng = np.random.default_rng(fresh_seed() if seed is None else seed)
    clients = _clients(rng)
    answers: list[list[Answer]] = [[] for _ in clients]
    endpoint = GuardedEndpoint(site)
    for at_once in ROUNDS:
        endpoint.next_phase()
        order = rng.permutation(len(clients))
        questions = [Question(clients[i].prompt, OUTPUT) for i in order]
        for i, answer in zip(order, ask(endpoint, questions, at_once), strict=True):
            answers[i].append(answer)
    return judge(clients, answers), endpoint


def judge(clients: Sequence[Client], answers: Sequence[Sequence[Answer]]) -> CrossTalk:
    """`answers`: of each client, one a round."""
    texts = [[a.text for a in row if a.error is None] for row in answers]
    mixed = [line for i in range(len(clients)) if (line := _mixed(i, clients, texts))]
    own = sum(client.marked(text) for client, row in zip(clients, texts, strict=True)
              for text in row)  # fmt: skip
    total = sum(map(len, texts))
    alone = [(row[0].text, row[-1].text) for row in answers
             if row[0].error is None and row[-1].error is None]  # fmt: skip
    return CrossTalk(
        tuple(mixed), bool(mixed) or 2 * own >= total > 0 or _differ(texts), total,
        sum(map(len, answers)), sum(a == b for a, b in alone) / len(alone) if alone else None,
        sum(not text for row in texts if any(len(t) >= LEAST_COMMON for t in row) for text in row),
    )  # fmt: skip


def _mixed(i: int, clients: Sequence[Client], texts: Sequence[Sequence[str]]) -> str | None:
    """Why the answers of client i are not all its own."""
    for j, other in enumerate(clients):
        if j != i and any(other.marked(text) for text in texts[i]):
            return f"client {i + 1} was told the mark of client {j + 1}"
    for n, text in enumerate(texts[i]):
        own = max((_common(text, o) for m, o in enumerate(texts[i]) if m != n), default=0)
        for j, row in enumerate(texts):
            foreign = max((_common(text, o) for o in row), default=0) if j != i else 0
            if foreign >= LEAST_COMMON and foreign > 2 * own:
                return f"client {i + 1} was told what client {j + 1} is told"
    return None


def _differ(texts: Sequence[Sequence[str]]) -> bool:
    """Most clients are told what no other is, as far as the first answers go."""
    first = [row[0] for row in texts if row]
    pairs = [_common(a, b) < LEAST_COMMON for k, a in enumerate(first) for b in first[k + 1 :]]
    return 2 * sum(pairs) > len(pairs)


def _common(a: str, b: str) -> int:
    """Characters that two texts begin with alike."""
    for n, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return n
    return min(len(a), len(b))


def _clients(rng: np.random.Generator) -> list[Client]:
    words = rng.permutation(ANIMALS)[:CLIENTS]
    numbers = rng.choice(np.arange(*NUMBERS, 97), CLIENTS, replace=False)
    return [Client(str(word), str(number)) for word, number in zip(words, numbers, strict=True)]
