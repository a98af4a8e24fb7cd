"""Playbook files: what ships is right, and whatever is wrong is named with its line."""

from pathlib import Path

import pytest

from engine.errors import ConfigError
from playbooks.runs import spec
from playbooks.steps.models import LoadStep
from playbooks.steps.registry import STEP_TYPES

SHIPPED = {"pre_holiday", "quick_check", "quant_change", "batch_tuning", "soak", "canary"}


def test_the_shipped_ones_are_right():
    assert set(spec.names()) == SHIPPED
    for name in spec.names():
        book = spec.load(name)
        assert book.steps
        assert book.title
        assert book.about
        assert all(step.gates for step in book.steps if step.kind in ("quality", "soak"))


def test_a_playbook_is_read_whole():
    text = """
title = "Mine"
time_budget = "1.5m"
continue_on_fail = false

[[steps]]
id = "one"
kind = "load"
budget = 20

[steps.with]
requests = 5
duration_s = 3

[[steps.gates]]
metric = "error_rate"
op = "<="
value = 0
severity = "warn"

[[steps]]
kind = "soak"
when = "steps.one.verdict == 'pass' and steps.one.error_rate < 1"
stop_on_fail = true
"""
    book = spec.read(text, Path("mine.toml"))
    one, two = book.steps
    assert (book.name, book.title, book.time_budget_s) == ("mine", "Mine", 90.0)
    assert not book.continue_on_fail
    assert (one.id, one.kind, one.budget_s) == ("one", "load", 20.0)
    assert one.parameters == LoadStep(requests=5, duration_s=3.0)
    assert str(one.gates[0]) == "error_rate <= 0"
    assert one.gates[0].severity == "warn"
    assert (two.id, two.stop_on_fail) == ("soak", True)
    assert two.when is not None
    assert two.when.holds({"one": {"verdict": "pass", "error_rate": 0.5}}) is True


HEAD = '[[steps]]\nid = "a"\nkind = "load"\n'
SWEEP = "[[steps]]\nkind = 'sweep'\n[steps.with]\n"
WRONG = [
    ("title = 3\n[[steps]]\nkind = 'load'", 1, "title: expected a text"),
    ("\nbudget = '3m'\n[[steps]]\nkind = 'load'", 2, "unknown key 'budget'"),
    ("title = 'x'", 1, "one at least"),
    ("[[steps]]\nid = 'a'", 1, "kind: is missing"),
    ("[[steps]]\n\nkind = 'lod'", 3, "kind 'lod' is not known"),
    (HEAD + "wehn = 'x'", 4, "unknown key 'wehn'"),
    ("[[steps]]\nkind = 'load'\nid = 'A b'", 3, "id 'A b'"),
    (HEAD + HEAD, 5, "id 'a'"),
    (HEAD + "[steps.with]\nseed = 1\nreqests = 3", 6, "key 'reqests'; did you mean 'requests'?"),
    (HEAD + "[steps.with]\nrequests = 0", 5, "requests: expected at least 1"),
    (HEAD + "[steps.with]\nrequests = 2.5", 5, "requests: expected a whole number"),
    (HEAD + "[steps.with]\nduration_s = nan", 5, "duration_s: expected a finite number"),
    (HEAD + "[steps.with]\narrivals = 'poison:5'", 5, "'poison:5' is not known"),
    (HEAD + "[steps.with]\nlengths = 'chart'", 5, "lengths: "),
    (HEAD + "[steps.with]\nslo = 'fast'", 5, "slo: "),
    (SWEEP + "batches = [4, 'x']", 4, "batches[1]: expected a whole number"),
    (SWEEP + "batches = [4, 2]", 4, "sizes that rise"),
    (SWEEP + "p99_of = 'itl'", 4, "one of e2e, ttft, tpot"),
    (HEAD + "with = { lengths = 'chat', requests = true }", 4, "requests: expected a whole"),
    (HEAD + "[[steps.gates]]\nmetric = 'p99'\nop = '<'\nvalue = 1", 5, "'p99' is none of load"),
    (HEAD + "[[steps.gates]]\nmetric = 'kv_door'\nop = '<'\nvalue = 1", 5,
     "is called 'kv_limited_share'"),
    (HEAD + "[[steps.gates]]\nmetric = 'curve'\nop = '<'\nvalue = 1", 5, "is no number"),
    (HEAD + "[[steps.gates]]\nmetric = 'knee'\nop = '=<'\nvalue = 1", 6,
     "op: expected one of <, <=, >, >=, ==, !=, got '=<'"),
    (HEAD + "[[steps.gates]]\nmetric = 'knee'\nop = '<'\nvalue = '1'", 7, "expected a number"),
    (HEAD + "[[steps.gates]]\nmetric = 'knee'\nop = '<'\nvalue = nan", 7, "finite"),
    (HEAD + "[[steps.gates]]\nmetric = 'knee'\nop = '<'\nvalue = 1\nsevere = 1", 8, "'severe'"),
    (HEAD + "gates = [\n{ metric = 'knee', op = '<', value = 1 },\n"
     "{ metric = 'nee', op = '<', value = 1 },\n]", 6, "'nee' is none"),
    (HEAD + "when = 'steps.b.verdict == \"pass\"'", 4, "'b' is no step before"),
    (HEAD + "when = 'steps.a.verdict == \"pass\"'", 4, "'a' is no step before"),
    (HEAD + "[[steps]]\nkind = 'soak'\nwhen = 'steps.a.nix > 1'", 6,
     "when: metric 'nix' is none of load"),
    (HEAD + "[[steps]]\nkind = 'soak'\nwhen = 'exit()'", 6, "is not allowed"),
    (HEAD + "budget = 'soon'", 4, "budget: 'soon' is not a time"),
    (HEAD + "budget = 0", 4, "budget: 0 is not a time"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), WRONG)
def test_what_is_wrong_is_named_with_its_line(text, line, message):
    with pytest.raises(ConfigError) as caught:
        spec.read(text, Path("x.toml"))
    assert str(caught.value).startswith(f"x.toml:{line}: ")
    assert message in str(caught.value)


def test_files_and_names_that_are_not_there(tmp_path):
    with pytest.raises(ConfigError, match="there are batch_tuning"):
        spec.load("nix")
    with pytest.raises(ConfigError, match="cannot be read"):
        spec.load(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[[steps]\n")
    with pytest.raises(ConfigError, match="line 1"):
        spec.load(broken)


@pytest.mark.parametrize(
    ("text", "value"),
    [("90s", 90), ("20m", 1200), ("1.5h", 5400), ("500ms", 0.5), ("7", 7), (3, 3)],
)
def test_times(text, value):
    assert spec.seconds(text) == value


def test_every_fact_is_a_metric_and_belongs_to_the_diagnosis():
    from playbooks.diagnosis import FACTS, facts_needed

    for kind in STEP_TYPES.values():
        assert set(kind.facts) <= set(kind.metrics)
        assert set(kind.facts) <= set(FACTS)
    assert facts_needed() == {fact for kind in STEP_TYPES.values() for fact in kind.facts}
