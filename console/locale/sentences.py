"""From an expression that makes a text to the whole sentences that it can say.

`f"{n} request{'s' * (n != 1)} failed{f' at {where}' if where else ''}"` says four sentences. A
place is a named field, `{n}`; one that can only hold a number is `{n:n}`. Texts that a local
variable holds are put in where the variable is used, so that no sentence is left in pieces.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

MOST = 24
"""Sentences of one expression; of what says more each part is a text of its own."""
_NUMBER = re.compile(r"[-+ ,_.#\d]*[,bdeEfFgGn%]")
_PADDED = re.compile(r".?[<>^=]")
_COUNTING = {"_rounded", "len", "round", "int", "sum", "abs", "float"}


@dataclass(frozen=True)
class Place:
    """What is only known when the text is made."""

    node: ast.expr
    number: bool = False


BREAK = Place(ast.Constant("column"))
"""Between two columns of a row: what is left and right of it are different texts."""
Choice = tuple[str, object]
"""What decides between alternatives, and how it decided."""


@dataclass(frozen=True)
class Sentence:
    choices: frozenset[Choice] = frozenset()
    parts: tuple[str | Place, ...] = ()

    def __add__(self, other: Sentence) -> Sentence:
        return Sentence(self.choices | other.choices, self.parts + other.parts)

    def agrees(self, other: Sentence) -> bool:
        decided = dict(self.choices)
        return all(decided.get(key, value) == value for key, value in other.choices)


@dataclass
class Held:
    """What a local variable is given: one of `first`, and what is added to it, always or not."""

    first: list[ast.expr] = field(default_factory=list)
    added: list[tuple[ast.expr, bool]] = field(default_factory=list)
    """With whether it may be left out."""

    @property
    def all(self) -> list[ast.expr]:
        return [*self.first, *(value for value, _ in self.added)]


@dataclass
class Locals:
    """Local variables of a function that hold nothing but texts."""

    texts: Mapping[str, Held] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    """ids of the nodes where such a variable was put into a sentence."""


def sentences(node: ast.expr, scope: Locals) -> list[Sentence] | None:
    """Everything that it can say; None for what is no text."""
    match node:
        case ast.Constant(str(value)):
            return [Sentence(parts=(value,))]
        case ast.JoinedStr(values):
            return _product([_formatted(value, scope) for value in values])
        case ast.BinOp(left, ast.Add(), right):
            sides = sentences(left, scope), sentences(right, scope)
            if sides == (None, None):
                return None
            return _product([s or [_place(n)] for s, n in zip(sides, (left, right), strict=True)])
        case ast.BinOp(ast.Constant(str(value)), ast.Mult(), test) if _is_test(test):
            return _either(test, [Sentence(parts=(value,))], [Sentence()])
        case ast.IfExp(test, body, orelse):
            yes, no = sentences(body, scope), sentences(orelse, scope)
            if yes is None and no is None:
                return None
            return _either(test, yes or [_place(body)], no or [_place(orelse)])
        case ast.Name(name) if name in scope.texts:
            return _held(node, name, scope)
    return None


def _held(node: ast.expr, name: str, scope: Locals) -> list[Sentence] | None:
    outer = Locals({k: v for k, v in scope.texts.items() if k != name}, scope.used)
    held = scope.texts[name]
    first = [
        _chosen(f"={name}", at if len(held.first) > 1 else None, one)
        for at, value in enumerate(held.first)
        for one in sentences(value, outer) or [_place(value)]
    ]
    rest = [
        [_chosen(f"+{name}{at}", True if optional else None, _clause(one))
         for one in sentences(value, outer) or [_place(value)]]
        + [_chosen(f"+{name}{at}", False, Sentence())] * optional
        for at, (value, optional) in enumerate(held.added)
    ]  # fmt: skip
    said = _product([first, *rest])
    if not said:
        return None
    scope.used.add(id(node))
    return said


def _clause(one: Sentence) -> Sentence:
    """What is added with "; " is a sentence of its own, and joined to the others as such."""
    match one.parts:
        case (str(first), *rest) if first.startswith("; "):
            return Sentence(one.choices, (BREAK, first[2:], *rest))
    return one


def _chosen(key: str, value: object, one: Sentence) -> Sentence:
    """The same where this was decided; None: there was nothing to decide."""
    return one if value is None else Sentence(frozenset({(key, value)})) + one


def _formatted(value: ast.expr, scope: Locals) -> list[Sentence]:
    if not isinstance(value, ast.FormattedValue):
        return sentences(value, scope) or [_place(value)]
    spec = _spec(value.format_spec)
    if value.conversion == -1 and not spec:
        return sentences(value.value, scope) or [_place(value.value)]
    if _PADDED.match(spec):
        return [Sentence(parts=(BREAK,))]
    return [_place(value.value, bool(_NUMBER.fullmatch(spec)))]


def _spec(node: ast.expr | None) -> str:
    if not isinstance(node, ast.JoinedStr):
        return ""
    return "".join(str(v.value) if isinstance(v, ast.Constant) else "1" for v in node.values)


def _place(node: ast.expr, number: bool = False) -> Sentence:
    counted = isinstance(node, ast.Call) and _name(node.func) in _COUNTING
    counted = counted or (isinstance(node, ast.Constant) and not isinstance(node.value, str))
    return Sentence(parts=(Place(node, number or counted),))


def _product(several: Iterable[list[Sentence]]) -> list[Sentence]:
    found = [Sentence()]
    for options in several:
        longer = [a + b for a, b in itertools.product(found, options) if a.agrees(b)]
        if len(longer) > MOST:
            return []
        found = longer
    return found


def _either(test: ast.expr, yes: list[Sentence], no: list[Sentence]) -> list[Sentence]:
    key, turned = _test(test)
    sides = ((not turned, yes), (turned, no))
    return [
        Sentence(frozenset({(key, value)})) + one
        for value, several in sides
        for one in several
        if Sentence(frozenset({(key, value)})).agrees(one)
    ]


PLURAL = "one:"


def _is_test(node: ast.expr) -> bool:
    return isinstance(node, ast.Compare | ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def _test(node: ast.expr) -> tuple[str, bool]:
    """A name for what is asked, and whether the answer is the other way round."""
    match node:
        case ast.UnaryOp(ast.Not(), asked):
            key, turned = _test(asked)
            return key, not turned
        case ast.Compare(left, [op], [ast.Constant(1)]) if isinstance(op, ast.Eq | ast.LtE):
            return PLURAL + ast.dump(left), False
        case ast.Compare(left, [op], [ast.Constant(1)]) if isinstance(op, ast.NotEq | ast.Gt):
            return PLURAL + ast.dump(left), True
        case ast.Compare(left, [ast.NotEq()], [right]):
            return f"{ast.dump(left)} is {ast.dump(right)}", True
        case ast.Compare(left, [ast.IsNot()], [right]):
            return f"{ast.dump(left)} is {ast.dump(right)}", True
        case ast.Compare(left, [ast.Eq() | ast.Is()], [right]):
            return f"{ast.dump(left)} is {ast.dump(right)}", False
    return ast.dump(node), False


# --- as message ids ----------------------------------------------------------------------------


def texts(parts: Sequence[str | Place]) -> Iterator[str]:
    """The message ids: one a line of the text and a column of a row."""
    names: dict[str, int] = {}
    written = ""
    for part in parts:
        if part is BREAK:
            written += "\n"
        elif isinstance(part, str):
            written += part.replace("{", "{{").replace("}", "}}")
        else:
            name = name_of(part.node)
            names[name] = names.get(name, 0) + 1
            numbered = name if names[name] == 1 else f"{name}{names[name]}"
            written += f"{{{numbered}:n}}" if part.number else f"{{{numbered}}}"
    for line in written.split("\n"):
        if text := " ".join(line.split()):
            yield text


def name_of(node: ast.expr) -> str:
    """The last name of an expression: `report["state"]` is "state"."""
    return (re.sub(r"\W+", "_", _name(node)).strip("_0123456789") or "value").lower()


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
        case ast.Subscript(_, ast.Constant(str(key))):
            return key
        case ast.Call(_, [argument, *_]) if found := _name(argument):
            return found
        case ast.Call(function, _):
            return _name(function)
        case ast.Subscript(value, _) | ast.Starred(value):
            return _name(value)
        case ast.BinOp(left, _, right):
            return _name(left) or _name(right)
        case ast.BoolOp(_, [first, *_]):
            return _name(first)
        case ast.IfExp(_, body, orelse):
            return _name(body) or _name(orelse)
        case ast.UnaryOp(_, operand) | ast.Await(operand):
            return _name(operand)
        case ast.GeneratorExp(element, _) | ast.ListComp(element, _):
            return _name(element)
        case ast.FormattedValue(value, _, _):
            return _name(value)
    return ""


def messages(said: Iterable[Sentence]) -> Iterator[tuple[str, ...]]:
    """(msgid,) of each line of the sentences; (msgid, msgid_plural) of two lines with the same
    places, one for a number of 1 and one for all others."""
    found = [(one.choices, list(texts(one.parts))) for one in said]
    plurals: dict[str, str] = {}
    for choices, lines in found:
        for key in sorted(key for key, value in choices if key.startswith(PLURAL) and value):
            others = choices - {(key, True)} | {(key, False)}
            many = next((lines for chosen, lines in found if chosen == others), [])
            for one, two in zip(lines, many, strict=False):
                if one != two and _places(one) == _places(two):
                    plurals.setdefault(one, two)
    for line in dict.fromkeys(line for _, lines in found for line in lines):
        if line not in plurals.values():
            yield (line, plurals[line]) if line in plurals else (line,)


def _places(text: str) -> list[str]:
    return sorted(re.findall(r"(?<!{){(\w+)(?::n)?}", text))
