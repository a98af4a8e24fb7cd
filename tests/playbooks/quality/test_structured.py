"""Structured tasks: what is valid, and when a format has lost so much that it is none of chance."""

import json

import pytest

from playbooks.quality.answers import ModelAnswer
from playbooks.quality.structured import EACH, END, EXAMPLES, MAKERS, form, structured_tasks

ALL = structured_tasks()
ONE = {task.kind: task for task in reversed(ALL)}
"""The first of every kind."""


def test_every_kind_has_tasks_and_they_are_the_same_every_time():
    assert [task.kind for task in ALL] == [kind for kind in MAKERS for _ in range(EACH)]
    assert structured_tasks() == ALL
    assert len({task.prompt for task in ALL}) == len({task.id for task in ALL}) == len(ALL)
    quick = structured_tasks(quick=True)
    assert {task.kind for task in quick} == set(MAKERS) and set(quick) < set(ALL)
    for task in ALL:
        assert task.prompt.count("Q: ") == EXAMPLES + 1 and task.prompt.endswith("\nA:")
        assert END not in task.answer


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.id)
def test_the_right_answer_is_valid_and_no_example_is(task):
    assert task.valid(f" {task.answer}\n")
    assert not task.valid("") and not task.valid(task.answer[:-2])
    for worked in task.prompt.split("A: ")[1:]:
        assert not task.valid(worked.partition(END)[0])


@pytest.mark.parametrize(
    ("kind", "change", "valid"),
    [
        ("json", lambda text: f" {json.dumps(json.loads(text), indent=2)}\n", True),
        ("json", lambda text: f"```json\n{text}\n```", True),
        ("json", lambda text: text.replace('"count": ', '"count": 1'), False),
        ("json", lambda text: text.replace("}", ""), False),
        ("json", lambda text: f"Here it is: {text}", False),
        ("json", lambda text: "[" * 100_000, False),
        ("json", lambda text: text.replace("item", "thing"), False),
        ("tool_calls", lambda text: text.replace("\n", "\n\n"), True),
        ("tool_calls", lambda text: "\n".join(reversed(text.split("\n"))), False),
        ("tool_calls", lambda text: text.rpartition("\n")[0], False),
        ("tool_calls", lambda text: text.replace("arguments", "args"), False),
        ("tool_calls", lambda text: text + "}", False),
        ("copying", lambda text: f" {text}\n", True),
        ("copying", lambda text: text[:-1], False),
        ("copying", lambda text: text.replace("-", " "), False),
        ("tables", lambda text: text.replace(" ", ""), True),
        ("tables", lambda text: text.replace("= ", "= 1"), False),
        ("tables", lambda text: f"{text}\n5) 20 + 4 = 24", False),
    ],
)
def test_what_a_program_could_use_is_valid(kind, change, valid):
    assert ONE[kind].valid(change(ONE[kind].answer)) is valid


def became(before, after):
    """`form` of tasks whose answers are right (+) or not (-), on both sides."""
    asked = ALL[: len(before)]
    sides = [
        [
            ModelAnswer((1,), task.answer if mark == "+" else "?", True)
            for task, mark in zip(asked, side, strict=True)
        ]
        for side in (before, after)
    ]
    return form(asked, *sides)


@pytest.mark.parametrize(
    ("before", "after", "up", "chance"),
    [
        ("++++++++", "++++++++", 0, 1.0),
        ("++++++++", "+++++-++", 1, 1 / 2),
        ("++++++++", "+++-----", 5, 1 / 32),
        ("+-++++++", "-+++++++", 0, 3 / 4),
        ("--++++++", "++++++++", -2, 1.0),
        ("---+++++", "--------", 5, 1 / 32),
        ("----++++", "--------", 4, None),
        ("--------", "----++++", -4, None),
        ("", "", 0, None),
    ],
)
def test_fewer_valid_answers_are_judged_by_their_chance(before, after, up, chance):
    assert became(before, after) == {"invalid_up": up, "structure_p": chance}
