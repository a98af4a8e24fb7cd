"""What the product says to people, for babel: English stands in the code unmarked.

A text is found by where it stands in the syntax tree (docs/translating.md has the rules): prose
wherever it is no docstring, key, comparison or name; a single word only where labels stand. A line
with `# not shown` is left out. Of TOML files the keys say which values are prose.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import tomli

from console.locale.held import is_load, texts_held
from console.locale.sentences import Locals, Place, Sentence, messages, sentences

Message = tuple[int, str | None, str | tuple[str, ...], list[str]]
"""Line, function, (plural) message and comments, as babel wants them."""
NOT_SHOWN = "# not shown"

PROSE = re.compile(r"(?<![\w.{/_=-])[A-Za-z]{2,}(?![\w(/_=])")
MARKUP = re.compile(r"</|/>|<!|^<\w")
"""Pages and drawings: the texts in them are translated on their way in."""
_PLACES = re.compile(r"\{\w+(?::n)?\}")
_QUOTED = re.compile(r"`[^`]*`")
WORD = re.compile(r"(?=.*[A-Za-z]{2})[A-Za-z][A-Za-z\d /-]*\.?")

LABELS: Mapping[str, Sequence[int | str] | None] = {
    "Action": None, "Bars": (0,), "Bullets": None, "Chart": (0, 1), "Column": (0,),
    "Document": (0,), "Facts": None, "Grade": (3,), "Sign": (2,), "Field": (0, "label"),
    "Heading": (0,), "Line": (0,), "PanelSpec": (2,), "RequestColumn": (0,), "Paragraph": (0,),
    "Span": (0,), "Table": (0,), "chart": (0,), "in_column": (0,),
    "columns": (0,), "histogram": (0,), "say": (0,), "share_line": (0,), "spark": (0,),
    "text_line": (0,), "_": (0,), "_replace": ("label",), "FormField": (1, 3, "label", "hint"),
    "Typer": ("help",), "Option": (0,),
}  # fmt: skip
"""Whose arguments (None: all) are shown even where they are a single word."""
KEYWORDS = {"title", "yes", "label", "help", "footer", "note", "question"}
"""The same of arguments by their name, of anything that is called."""
TABLES = {
    "HEADINGS": "keys", "WORDS": "values", "NAMES": "values", "NAMES_OF_PLACES": "values",
    "_ENTER": "values", "BOUNDS": "values",
}  # fmt: skip
"""Module constants that are tables of labels."""

WHOLE = "said"
"""Its first argument is a text with named places."""
SHOWN_FROM = 2
"""Of the rows of console/actions.py: what is before are keys and a name."""

UNSHOWN_CALLS = {
    "compile", "sub", "search", "match", "fullmatch", "findall", "finditer", "split", "rsplit",
    "partition", "rpartition", "startswith", "endswith", "strip", "lstrip", "rstrip", "encode",
    "removeprefix", "removesuffix", "replace", "get", "pop", "getattr", "hasattr", "setattr",
    "getLogger", "TypeVar", "NewType", "strftime", "strptime", "debug", "info", "warning",
    "error", "exception", "import_module", "find_library", "getenv", "Reads", "find", "index",
    "run_action", "query_one", "NamedTuple", "namedtuple", "StrEnum",
    "ThreadPoolExecutor", "AssertionError", "NotImplementedError", "TypeError", "AttributeError",
    "KeyError", "bindings", "Binding", "TimedCall", "GaugeMetricFamily", "CounterMetricFamily",
}  # fmt: skip
UNSHOWN_KEYWORDS = {
    "classes", "encoding", "errors", "flag", "fmt", "format", "metavar", "mode", "pattern",
    "prefix", "prog", "style",
}  # fmt: skip
PROOF = "check_integrity"
"""Functions whose assertions are shown: a soak says what does not add up."""
COMMANDS = re.compile(r"command|callback|options")
"""In the decorators of functions whose docstrings are help."""

TOML_KEYS = {
    "about", "cost_note", "elsewhere", "gain", "likely", "look_for", "note", "owner", "question",
    "regime", "remedy", "risk_note", "rollback", "source", "symptom", "text", "title", "undo",
    "unmeasured", "what", "why",
}  # fmt: skip


def extract_python(
    fileobj: IO[bytes], keywords: Any, comment_tags: Any, options: Mapping[str, str]
) -> Iterator[Message]:
    """Babel's method for our Python files."""
    source = fileobj.read().decode()
    unshown = {
        n + line.strip().startswith(NOT_SHOWN)  # alone on its line: of the next one
        for n, line in enumerate(source.splitlines(), 1)
        if NOT_SHOWN in line
    }
    seen = _Reader(unshown, "pairs" in options)
    seen.block(ast.parse(source).body)
    yield from sorted(seen.found, key=lambda message: message[0])


def extract_toml(
    fileobj: IO[bytes], keywords: Any, comment_tags: Any, options: Mapping[str, str]
) -> Iterator[Message]:
    """Babel's method for playbooks, checklists and the like."""
    text = fileobj.read().decode()
    for value in _prose(tomli.loads(text)):
        for paragraph in paragraphs(value):
            if paragraph.startswith("--") and not is_prose(paragraph):
                continue  # a flag to give, alone
            yield 1, None, paragraph.replace("{", "{{").replace("}", "}}"), []


def _prose(data: Any, key: str = "") -> Iterator[str]:
    if isinstance(data, str) and key in TOML_KEYS:
        yield data
    for name, value in data.items() if isinstance(data, dict) else ():
        yield from _prose(value, name)
    for value in data if isinstance(data, list) else ():
        yield from _prose(value, key)


def paragraphs(text: str) -> Iterator[str]:
    """Each in one line: how its lines were broken says nothing."""
    for part in re.split(r"\n\s*\n", text):
        if joined := " ".join(part.split()):
            yield joined


def is_prose(text: str) -> bool:
    """Words of English, at least two of them or one beside a place."""
    if MARKUP.search(text):
        return False
    said = _QUOTED.sub("", _PLACES.sub(" ", text))
    return " " in text.strip() and bool(PROSE.search(said))


class _Reader:
    def __init__(self, unshown: set[int], pairs: bool) -> None:
        self.found: list[Message] = []
        self._unshown, self._pairs, self._proves = unshown, pairs, False
        self._scope = Locals()

    # --- statements ---------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if statement.lineno not in self._unshown:
                self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(ast.Constant()):  # a docstring
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.ClassDef():
                self.expressions([*node.decorator_list])
                self.block(node.body)
            case ast.Assign([ast.Name(name)], ast.Dict() as table) if name in TABLES:
                shown = table.keys if TABLES[name] == "keys" else table.values
                for item in shown:
                    self.expression(item, label=True)
                self.expression(table)
            case ast.Assign([ast.Name(name)], value) if self._keeps(name, value):
                return
            case ast.AnnAssign(ast.Name(name), note, value) if self._keeps(name, value):
                self._annotation(note)
            case ast.AugAssign(ast.Name(name), ast.Add(), value) if self._keeps(name, value):
                return
            case ast.AnnAssign(_, note, value):
                self._annotation(note)
                self.expression(value)
            case ast.Match(subject, cases):
                self.expression(subject)
                for case in cases:
                    self.expression(case.guard)
                    self.block(case.body)
            case ast.Assert(test, message):
                self.expression(test)
                if self._proves:
                    self.expression(message)
            case _:
                self._parts(node)

    def _parts(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self.block([child])
            elif isinstance(child, ast.expr):
                self.expression(child)
            elif isinstance(child, ast.ExceptHandler | ast.withitem | ast.match_case):
                self._parts(child)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.expressions(node.decorator_list)
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            self._annotation(argument.annotation)
        self.expressions([*node.args.defaults, *(d for d in node.args.kw_defaults if d)])
        if any(COMMANDS.search(ast.unparse(one)) for one in node.decorator_list):
            for text in paragraphs(inspect.cleandoc(ast.get_docstring(node) or "")):
                self._add(node.lineno, (text,))
        self._proves = node.name == PROOF
        outer, self._scope = self._scope, Locals(texts_held(node))
        self.block(node.body)
        self._leftovers(node)
        self._scope = outer

    def _leftovers(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Texts of local variables that are used otherwise than in a sentence."""
        for name in self._scope.texts:  # which of them others are made of
            sentences(ast.Name(name, ast.Load()), self._scope)
        for name, held in self._scope.texts.items():
            uses = [n for n in ast.walk(node) if is_load(n, name)]
            if any(id(n) not in self._scope.used for n in uses):
                said = sentences(ast.Name(name, ast.Load()), self._scope)
                if said and held.added:
                    self._said(held.first[0], said, label=False)
                else:
                    self.expressions(held.all)

    def _keeps(self, name: str, value: ast.expr | None) -> bool:
        held = self._scope.texts.get(name)
        return held is not None and value in held.all

    # --- expressions --------------------------------------------------------------------------

    def expressions(self, nodes: Sequence[ast.expr]) -> None:
        for node in nodes:
            self.expression(node)

    def expression(self, node: ast.expr | None, label: bool = False) -> None:
        if node is None or node.lineno in self._unshown:
            return
        said = None if isinstance(node, ast.Name) else sentences(node, self._scope)
        if said:
            self._said(node, said, label)
            self._columns(node)
            return
        match node:
            case ast.Call():
                self._call(node)
            case ast.Dict(keys, values):
                self.expressions([key for key in keys if not isinstance(key, ast.Constant | None)])
                for value in values:
                    self.expression(value, label)
            case ast.Compare():
                return
            case ast.Subscript(value, _):
                self.expression(value)
                if isinstance(value, ast.Name) and value.id == "Annotated":
                    self._annotation(node)
            case ast.Lambda(_, body):
                self.expression(body)
            case ast.Tuple([ast.Constant(), _, *_] as elements) if self._pairs:
                for element in elements:
                    self.expression(element, label=True)
            case ast.Tuple(elements) | ast.List(elements) | ast.Set(elements):
                for element in elements:
                    self.expression(element, label)
            case ast.BoolOp(_, values):
                for value in values:
                    self.expression(value, label)
            case ast.IfExp(_, body, orelse):
                self.expression(body, label)
                self.expression(orelse, label)
            case ast.JoinedStr(values):  # more sentences than can be told apart
                for part in values:
                    self.expression(part)
            case ast.GeneratorExp(element, generators) | ast.ListComp(element, generators):
                self.expression(element, label)
                for generator in generators:
                    self.expression(generator.iter)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.expression(child)
                    elif isinstance(child, ast.comprehension):
                        self.expression(child.iter)

    def _said(self, node: ast.expr, said: Sequence[Sentence], label: bool) -> None:
        for message in messages(said):
            if is_prose(message[0]) or (label and WORD.fullmatch(message[0])):
                self._add(node.lineno, message)
        for one in said:
            for place in one.parts:
                if isinstance(place, Place) and hasattr(place.node, "lineno"):
                    self.expression(place.node)

    def _columns(self, node: ast.expr) -> None:
        """Words that are set into columns: `f"{'running':>9}"`."""
        for part in ast.walk(node):
            if isinstance(part, ast.FormattedValue) and part.format_spec is not None:
                self.expression(part.value, label=True)

    def _call(self, node: ast.Call) -> None:
        name = _called(node.func)
        whole = name == WHOLE
        if whole and isinstance(node.args[0], ast.Constant):
            self._add(node.lineno, (str(node.args[0].value),))
        if name == "_rows":  # keys and an action's name, then what is shown of it
            for row in ast.walk(node):
                if isinstance(row, ast.Tuple) and not isinstance(row.elts[0], ast.Tuple):
                    for element in row.elts[SHOWN_FROM:]:
                        self.expression(element, label=True)
            return
        if isinstance(node.func, ast.Attribute):
            self.expression(node.func.value)
        unshown = name in UNSHOWN_CALLS
        shown = LABELS.get(name, ())
        for at, argument in enumerate(node.args):
            if not (
                (unshown or whole)
                and isinstance(argument, ast.Constant | ast.JoinedStr | ast.Tuple)
            ):
                self.expression(argument, shown is None or at in shown)
        for keyword in node.keywords:
            if keyword.arg not in UNSHOWN_KEYWORDS and not unshown:
                labels = shown is None or keyword.arg in shown or keyword.arg in KEYWORDS
                self.expression(keyword.value, labels)

    def _annotation(self, node: ast.expr | None) -> None:
        """Of types only what is called in them: options with their help."""
        for part in ast.walk(node) if node is not None else ():
            if isinstance(part, ast.Call):
                self._call(part)

    def _add(self, line: int, message: tuple[str, ...]) -> None:
        if len(message) == 1:
            self.found.append((line, None, message[0], []))
        else:
            self.found.append((line, "ngettext", message, []))


def _called(function: ast.expr) -> str:
    match function:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
    return ""
