"""Conditions of steps: `steps.load.verdict == 'pass' and steps.load.error_rate < 0.01`.

A tiny language with the looks of Python and nothing of its power: results of earlier steps,
texts, numbers, comparisons, and, or, not. What is not known makes the answer not known.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ConfigError

COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
FORM = "steps.ID.verdict == 'pass', steps.ID.METRIC < 5, and, or, not"
Results = Mapping[str, Mapping[str, Any]]
"""Of each step: its verdict and its metrics."""


@dataclass(frozen=True)
class Condition:
    text: str
    tree: ast.expr

    @property
    def references(self) -> list[tuple[str, str]]:
        """(step, name) of everything that it asks for."""
        return [found for node in ast.walk(self.tree) if (found := _reference(node))]

    def holds(self, results: Results) -> bool | None:
        """None when something that it asks for is not known."""
        return _truth(self.tree, results)


def parse(text: str) -> Condition:
    """Raises ConfigError for anything that is not of the form."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"condition {text!r}: cannot be read; write {FORM}") from error
    _check(tree, text)
    return Condition(text, tree)


def _check(node: ast.expr, text: str) -> None:
    match node:
        case ast.BoolOp(values=values):
            for value in values:
                _check(value, text)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _check(operand, text)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE:
            for side in (left, right):
                if _reference(side) is None and not _is_value(side):
                    raise ConfigError(
                        f"condition {text!r}: {ast.unparse(side)!r} is neither a step's result "
                        f"nor a value; write {FORM}"
                    )
        case _:
            raise ConfigError(
                f"condition {text!r}: {ast.unparse(node)!r} is not allowed; write {FORM}"
            )


def _is_value(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
        return isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return isinstance(node, ast.Constant) and isinstance(node.value, str | int | float)


def _reference(node: ast.AST) -> tuple[str, str] | None:
    match node:
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="steps"), attr=step), attr=name):
            return step, name
    return None


def _truth(node: ast.expr, results: Results) -> bool | None:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            found = [_truth(value, results) for value in values]
            return False if False in found else None if None in found else True
        case ast.BoolOp(values=values):
            found = [_truth(value, results) for value in values]
            return True if True in found else None if None in found else False
        case ast.UnaryOp(operand=operand):
            inner = _truth(operand, results)
            return None if inner is None else not inner
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            a, b = _value(left, results), _value(right, results)
            if a is None or b is None:
                return None
            try:
                return bool(COMPARE[type(op)](a, b))
            except TypeError:
                return None  # a text is neither more nor less than a number
    raise AssertionError("checked when it was read")


def _value(node: ast.expr, results: Results) -> Any:
    reference = _reference(node)
    if reference is None:
        return ast.literal_eval(node)
    step, name = reference
    return results.get(step, {}).get(name)
