"""Top log probabilities: what a target tells of them, and how far two runs are apart.

They show a change before it shows in the words. Of each token of an answer the likeliest few are
known. As long as two answers are word for word the same, their tokens follow the same text, and the
distributions belong beside each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from playbooks.load.endpoint import EndpointSpec

TOP, TOKENS = 5, 16
"""Candidates of each token, and tokens of each answer."""
LEAST = 1e-9
"""Probability that what is not told has at least."""
Tokens = Sequence[tuple[str, Mapping[str, float]]]
"""Of an answer: each token, and log probabilities of the likeliest in its place."""


def request(spec: EndpointSpec, prompt: str) -> dict[str, Any]:
    """Fields of its API."""
    told = {"logprobs": True, "top_logprobs": TOP} if spec.chat else {"logprobs": TOP}
    return spec.prompt(prompt) | told | {"max_tokens": TOKENS}


def told_by(choice: Mapping[str, Any]) -> list[tuple[str, dict[str, float]]]:
    """Of a choice of either API; empty where it tells none."""
    told = choice.get("logprobs")
    if not isinstance(told, dict):
        return []
    try:
        if isinstance(told.get("content"), list):
            return [(row["token"], {top["token"]: float(top["logprob"])
                                    for top in row["top_logprobs"]})
                    for row in told["content"]]  # fmt: skip
        tops = [{name: float(p) for name, p in (top or {}).items()} for top in told["top_logprobs"]]
        return list(zip(told["tokens"], tops, strict=True))
    except (LookupError, TypeError, ValueError, AttributeError):
        return []


def divergence(a: Mapping[str, Tokens], b: Mapping[str, Tokens]) -> float | None:
    """Mean KL divergence of b from a in nats, over the answers to the cases that both have: about,
    because only the likeliest are told. None where nothing can be compared."""
    found = [kl for case in a.keys() & b.keys() for kl in _along(a[case], b[case])]
    return sum(found) / len(found) if found else None


def _along(a: Tokens, b: Tokens) -> list[float]:
    found = []
    for (one, p), (other, q) in zip(a, b, strict=False):
        if p and q:
            found.append(_kl(p, q))
        if one != other:
            break
    return found


def _kl(p: Mapping[str, float], q: Mapping[str, float]) -> float:
    """Over the tokens that either tells, and all others together. The probability of one that is
    not told is taken from what is left, and is no more than the least that is told."""
    tokens = sorted(p.keys() | q.keys())
    pairs = list(zip(_filled(p, tokens), _filled(q, tokens), strict=True))
    return max(sum(x * math.log(x / y) for x, y in pairs), 0.0)


def _filled(told: Mapping[str, float], tokens: Sequence[str]) -> list[float]:
    """Probabilities of the tokens, and of all others; none is 0."""
    known = {token: math.exp(value) for token, value in told.items()}
    left = max(1.0 - sum(known.values()), 0.0)
    missing = sum(token not in known for token in tokens)
    guess = min(min(known.values()), left / (missing + 1))
    found = [known.get(token, guess) for token in tokens]
    return [max(x, LEAST) for x in (*found, left - missing * guess)]
