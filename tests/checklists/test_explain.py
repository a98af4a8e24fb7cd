"""The quick reference: symptoms in anybody's words, and commands that really are there."""

import re

import pytest

from checklists.book import load, names
from checklists.explain import load_entries, search, suggest, tokens
from command_lines import parse
from engine.errors import ConfigError

ENTRIES = load_entries()


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("p99 up", "latency_up_with_throughput"),
        ("P99 went up!", "latency_up_with_throughput"),
        ("latency spikes under load", "latency_up_with_throughput"),
        ("ttft high", "queue_long"),
        ("memory leak", "memory_grows"),
        ("GPU memory keeps growing", "memory_grows"),
        ("oom after hours", "out_of_memory"),
        ("out of memory", "out_of_memory"),
        ("garbled answers after int8", "quality_unseen"),
        ("quality drop", "quality_unseen"),
        ("user got somebody else's answer", "mixed_answers"),
        ("crosstalk", "mixed_answers"),
        ("preempted requests", "preempting"),
        ("low GPU utilization", "gpu_idle"),
        ("hang", "nothing_moves"),
        ("429", "timeouts"),
        ("slow since the driver update", "slow_after_upgrade"),
        ("cut off answer", "cut_answers"),
        ("kv cache full", "kv_full"),
        ("tokenizer slow", "tokenizer_slow"),
        ("fragmentation", "out_of_memory"),
        ("preemption_thrash", "preempting"),
        ("leak", "memory_grows"),
        ("显存泄漏", "memory_grows"),
        ("串味", "mixed_answers"),
        ("P99升高", "latency_up_with_throughput"),
        ("升级后变慢", "slow_after_upgrade"),
    ],
)
def test_symptoms_find_their_entry_first(query, first):
    hits = search(query, ENTRIES)
    assert hits and hits[0].entry.id == first, [(h.entry.id, h.score) for h in hits]


def test_every_entry_is_found_by_its_own_words():
    for entry in ENTRIES:
        assert search(entry.symptom, ENTRIES)[0].entry.id == entry.id
        for word in entry.also:
            assert entry.id in [h.entry.id for h in search(word, ENTRIES)], word


@pytest.mark.parametrize("query", ["xyzzy", "", "   ", "the and of", "!!!", "🙂"])
def test_what_fits_nothing_finds_nothing_and_suggests(query):
    assert search(query, ENTRIES) == []
    assert len(suggest(query, ENTRIES)) == 5


def test_a_misspelled_word_is_understood_in_the_suggestions():
    assert "start over" in suggest("preemptoin", ENTRIES)[0]


def test_no_more_than_asked_for_and_the_best_first():
    hits = search("slow", ENTRIES, most=2)
    assert len(hits) == 2
    assert hits[0].score >= hits[1].score
    assert search("slow", [], 3) == []


def test_words_by_their_root():
    assert list(tokens("Requests are waiting")) == list(tokens("request queued"))
    assert list(tokens("显存泄漏")) == ["显存", "存泄", "泄漏"]
    assert list(tokens("漏")) == ["漏"]


def test_causes_are_those_of_the_diagnosis():
    from playbooks.diagnosis.causes import CAUSES

    known = {cause.name for cause in CAUSES}
    assert {entry.cause for entry in ENTRIES if entry.cause} <= known
    assert all(entry.undo and entry.look_for for entry in ENTRIES)


# --- commands -------------------------------------------------------------------------------


def commands():
    for entry in ENTRIES:
        yield from ((entry.id, command) for command in entry.confirm)
    for name in names():
        for item in load(name).items:
            if item.command:
                yield f"{name}.{item.id}", item.command.split(",")[0]
        for item in load(name).items:
            for found in re.findall(r"`(evewatch [^`]*)`", f"{item.remedy} {item.undo}"):
                yield f"{name}.{item.id}", found.split(",")[0]


@pytest.mark.parametrize(("where", "text"), sorted(set(commands())))
def test_every_command_that_is_named_is_there_with_its_options(where, text):
    parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[entry]]\nid = 'a'", "own.toml:1: symptom: is missing"),
        ("[[entry]]\nluck = 'a'", "unknown key"),
        ("x = [", "not valid TOML"),
    ],
)
def test_a_reference_that_is_wrong_is_refused(tmp_path, text, why):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        load_entries(path)
