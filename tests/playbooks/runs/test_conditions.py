"""Conditions: what may be written, and three answers."""

import pytest

from engine.errors import ConfigError
from playbooks.runs.conditions import parse

RESULTS = {"load": {"verdict": "pass", "error_rate": 0.02, "knee": None}}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("steps.load.verdict == 'pass'", True),
        ("steps.load.verdict != 'pass'", False),
        ("steps.load.error_rate < 0.01", False),
        ("0.01 <= steps.load.error_rate", True),
        ("steps.load.error_rate > -1", True),
        ("not steps.load.verdict == 'pass'", False),
        ("steps.load.knee > 8", None),
        ("not steps.load.knee > 8", None),
        ("steps.load.knee > 8 or steps.load.verdict == 'pass'", True),
        ("steps.load.knee > 8 and steps.load.verdict == 'pass'", None),
        ("steps.load.knee > 8 and steps.load.verdict == 'fail'", False),
        ("steps.load.knee > 8 or steps.load.verdict == 'fail'", None),
        ("steps.load.verdict < 3", None),
    ],
)
def test_true_false_and_not_known(text, answer):
    assert parse(text).holds(RESULTS) is answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "True",
        "steps.load.verdict",
        "steps.load.verdict == 'pass' or 1",
        "__import__('os').system('true')",
        "steps.load.verdict == open('x')",
        "steps['load'].verdict == 'pass'",
        "steps.load.verdict == 'pass' == 'pass'",
        "steps.load.verdict in ('pass',)",
        "load.verdict == 'pass'",
        "steps.load.error_rate + 1 < 3",
        "(lambda: 1)() == 1",
        "steps.load.verdict == b'pass'",
        "steps.load.verdict == -'pass'",
        "a" * 4 + "(",
    ],
)
def test_nothing_else_is_read(text):
    with pytest.raises(ConfigError, match="condition"):
        parse(text)


def test_what_it_asks_for():
    condition = parse("steps.a.verdict == 'pass' and not steps.b.knee > 3")
    assert sorted(condition.references) == [("a", "verdict"), ("b", "knee")]
