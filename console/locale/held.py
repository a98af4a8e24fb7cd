"""Which local variables of a function hold nothing but texts, and how each comes to its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from console.locale.sentences import Held, Locals, sentences

Function = ast.FunctionDef | ast.AsyncFunctionDef


def texts_held(function: Function) -> dict[str, Held]:
    """A variable is given a text (`=`), and texts may be added to it (`+=`), the ones in a block
    below its own only sometimes. What is given anything else is left out."""
    held: dict[str, Held] = {}
    home: dict[str, int] = {}
    texts: set[str] = set()
    other = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    for block, node in _statements(function.body):
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value):
                if value is not None:
                    held.setdefault(name, Held()).first.append(value)
                    home.setdefault(name, block)
                    texts |= {name} if sentences(value, Locals()) else set()
            case ast.AugAssign(ast.Name(name), ast.Add(), value) if name in held:
                if sentences(value, Locals()):
                    held[name].added.append((value, block != home[name]))
                    texts.add(name)
                else:
                    other.add(name)
            case ast.Global(names) | ast.Nonlocal(names):
                other.update(names)
    stores = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _stores(n)]
    return {
        name: one
        for name, one in held.items()
        if name in texts - other and stores.count(name) == len(one.all) and _is_text(one)
    }


def _is_text(one: Held) -> bool:
    """Whatever it begins with, if texts are added to it; else all that it is given are texts."""
    return bool(one.added) or all(sentences(value, Locals()) for value in one.first)


def _statements(body: Sequence[ast.stmt]) -> Iterator[tuple[int, ast.stmt]]:
    """All of them in their order, with a number for the block in which they stand."""
    for node in body:
        yield id(body), node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, name, None)
            if isinstance(below, list) and below:
                if isinstance(below[0], ast.ExceptHandler | ast.match_case):
                    for part in below:
                        yield from _statements(part.body)
                else:
                    yield from _statements(below)


def is_load(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _stores(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del)
