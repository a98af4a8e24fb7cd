"""Gates: a missing number never passes, whatever the operator."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playbooks.runs.gates import OPERATORS, Gate, judge, worst

REFERENCE = {
    "<": lambda a, b: not a >= b, "<=": lambda a, b: not a > b, ">": lambda a, b: not a <= b,
    ">=": lambda a, b: not a < b, "==": lambda a, b: not (a < b or a > b),
    "!=": lambda a, b: a < b or a > b,
}  # fmt: skip
NUMBERS = st.floats(-1e6, 1e6) | st.integers(-5, 5)


@given(st.sampled_from(sorted(OPERATORS)), NUMBERS, NUMBERS, st.sampled_from(["fail", "warn"]))
def test_a_gate_compares(op, value, limit, severity):
    judged = judge(Gate("m", op, limit, severity), {"m": value})
    assert judged.verdict == ("pass" if REFERENCE[op](value, limit) else severity)
    assert judged.value == value


@pytest.mark.parametrize("metrics", [{}, {"m": None}, {"m": math.nan}, {"m": math.inf},
                                     {"m": "3"}, {"m": True}])  # fmt: skip
@pytest.mark.parametrize("op", sorted(OPERATORS))
def test_what_is_missing_is_inconclusive(op, metrics):
    judged = judge(Gate("m", op, 0.0, "warn"), metrics)
    assert judged.verdict == "inconclusive"
    assert judged.value is None
    assert "not measured" in judged.evidence


def test_the_worst_verdict():
    assert worst(["pass", "warn", "inconclusive", "fail"]) == "fail"
    assert worst(["pass", "warn", "inconclusive"]) == "inconclusive"
    assert worst(["warn", "pass"]) == "warn"
    assert worst(["pass"]) == "pass"
    assert worst([]) == "inconclusive"
