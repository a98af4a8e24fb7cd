"""Answers of before and of now: the floor, what changed, and the file between."""

import json
import math

import pytest

from engine.errors import ConfigError
from playbooks.outside.answers import AnswerSet, compared, read, write

WORDS = [f"w{i}" for i in range(24)]


def answers(texts, **more):
    texts = {str(i): text for i, text in enumerate(texts)}
    base = {"passkeys": 3, "cells": 3, "json_valid": {"a": True, "b": True, "c": True}}
    return AnswerSet("http://h", "m", texts, {i: f"p{i}" for i in texts},
                     dict.fromkeys(texts, False), **base | more)  # fmt: skip


SAME = answers([" ".join([f"a{i}", *WORDS]) for i in range(12)])


def test_the_same_answers_pass_against_the_file(tmp_path):
    write(SAME, tmp_path / "a.json")
    found = compared(read(tmp_path / "a.json"), SAME, SAME)
    assert (found.metrics["failed_limits"], found.floor) == (0, 1.0)


def test_other_answers_fail_where_the_target_repeats_its_own():
    other = answers([" ".join([f"b{i}", *WORDS]) for i in range(12)])
    found = compared(SAME, other, other)
    assert found.metrics["failed_limits"] == 1
    assert "first divergence" in found.text


def test_a_target_that_does_not_repeat_itself_is_not_blamed_for_a_change():
    now = answers([" ".join([f"a{i}", *WORDS[:11], "x"]) for i in range(12)])
    again = answers([" ".join([f"a{i}", *WORDS[:11], "y"]) for i in range(12)])
    assert compared(SAME, now, again).metrics["failed_limits"] <= 1
    assert compared(SAME, now, again).floor < 1.0


def test_lost_passkeys_and_json_fail():
    lost = answers(
        [SAME.texts[i] for i in SAME.texts], passkeys=1, json_valid={"a": True, "b": False}
    )
    found = compared(SAME, lost, lost)
    assert found.metrics["failed_limits"] == 2
    assert found.metrics["passkey_misses"] == 2


def test_without_answers_of_before_nothing_is_judged():
    found = compared(None, SAME, SAME)
    assert found.metrics == {"json_valid": 1.0, "calls_valid": None}
    assert "no answers of before" in found.text


def test_answers_to_other_prompts_are_refused():
    other = AnswerSet("u", "m", SAME.texts, dict.fromkeys(SAME.texts, "another"), SAME.stopped)
    with pytest.raises(ConfigError, match="other prompts"):
        compared(other, SAME, SAME)


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "load", "schema": 1}', '{"kind": "answers"}'])
def test_a_file_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ConfigError, match="no file that quality --record wrote"):
        read(tmp_path / "a.json")


def test_calls_that_were_valid_and_are_refused_now_are_lost():
    calls = {"a": True, "b": True, "c": False}
    before = answers(list(SAME.texts.values()), calls_valid=calls)
    assert compared(before, before, before).metrics["failed_limits"] == 0
    refused = compared(before, SAME, SAME)
    assert refused.metrics["failed_limits"] == 1
    assert "fewer tool calls are valid" in refused.text
    half = answers(list(SAME.texts.values()), calls_valid={"a": True, "b": False})
    other = answers(list(SAME.texts.values()), calls_valid={"a": False, "b": True})
    assert compared(before, half, other).metrics["failed_limits"] == 0  # each was valid once


def likely(p):
    tops = {"0": [("a", {"a": math.log(p), "b": math.log(0.99 - p)})]}
    return answers(list(SAME.texts.values()), tops=tops)


def test_likelihoods_that_moved_further_than_by_themselves_fail():
    moved = compared(likely(0.6), likely(0.75), likely(0.75))
    assert moved.metrics["failed_limits"] == 1 and moved.metrics["top_kld"] > 0.01
    noisy = compared(likely(0.6), likely(0.75), likely(0.62))
    assert (noisy.metrics["failed_limits"], noisy.metrics["top_kld"]) == (0, 0.0)
    assert compared(SAME, likely(0.6), likely(0.6)).metrics["top_kld"] is None


def test_a_file_of_before_is_read_without_its_counts(tmp_path):
    write(SAME, tmp_path / "a.json")
    old = json.loads((tmp_path / "a.json").read_text())
    for new in ("calls_valid", "tops", "untold"):
        del old[new]
    (tmp_path / "a.json").write_text(json.dumps(old | {"schema": 1, "json_valid": 3}))
    assert read(tmp_path / "a.json").json_valid == {}
