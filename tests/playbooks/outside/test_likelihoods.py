"""Top log probabilities, as both APIs give them, and how far two runs are apart."""

import math

import pytest

from playbooks.load.endpoint import EndpointSpec
from playbooks.outside.likelihoods import divergence, request, told_by


def tops(*tokens, **shift):
    """Of each token, it and two others; `shift` moves the probability of the first one."""
    p = 0.6 + shift.get("by", 0.0)
    return [(token, {token: math.log(p), "x": math.log(0.9 - p), "y": math.log(0.05)})
            for token in tokens]  # fmt: skip


def test_both_apis_are_read():
    plain = {"text": " a b", "logprobs": {
        "tokens": [" a", " b"],
        "top_logprobs": [{" a": -0.1, " c": -3}, None],
    }}  # fmt: skip
    assert told_by(plain) == [(" a", {" a": -0.1, " c": -3.0}), (" b", {})]
    chat = {"message": {"content": "a"}, "logprobs": {"content": [
        {"token": "a", "logprob": -0.1, "top_logprobs": [
            {"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -2.5}]},
    ]}}  # fmt: skip
    assert told_by(chat) == [("a", {"a": -0.1, "b": -2.5})]


@pytest.mark.parametrize(
    "told", [None, {}, {"content": None}, {"content": [{}]}, {"tokens": ["a"], "top_logprobs": []},
             {"tokens": ["a"], "top_logprobs": [3]}, {"content": [{"token": "a"}]}, "none"]
)  # fmt: skip
def test_what_is_not_told_is_nothing(told):
    assert told_by({"logprobs": told}) == []


def test_it_is_asked_for_in_the_words_of_each_api():
    plain, chat = (EndpointSpec("http://h", api=api) for api in ("completions", "chat"))
    assert request(plain, "a")["logprobs"] == 5 and "messages" not in request(plain, "a")
    assert request(chat, "a")["top_logprobs"] == 5 and request(chat, "a")["logprobs"] is True


def test_the_same_is_no_change_and_a_shift_is_its_divergence():
    before = {"1": tops("a", "b", "c"), "2": tops("d")}
    assert divergence(before, before) == 0.0
    moved = divergence(before, {"1": tops("a", "b", "c", by=0.1), "2": tops("d", by=0.1)})
    assert moved == pytest.approx(0.6 * math.log(0.6 / 0.7) + 0.3 * math.log(0.3 / 0.2), abs=1e-9)


def test_only_what_follows_the_same_text_is_compared():
    """At the first token that differs the distributions still are of one text; after it not."""
    a = {"1": tops("a", "b", "c", "d")}
    b = {"1": [*tops("a"), *tops("z"), *tops("q", "r", by=0.29)]}
    b["1"][1] = ("z", a["1"][1][1])
    assert divergence(a, b) == 0.0
    assert divergence({"1": tops("a")}, {"2": tops("a")}) is None
    assert divergence({}, {}) is None


def test_other_candidates_altogether_are_far_away():
    a, b = {"1": [("a", {"a": -0.01, "b": -6.0})]}, {"1": [("c", {"c": -0.01, "d": -6.0})]}
    assert divergence(a, b) > 1.0
