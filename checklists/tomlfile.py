"""The one way in which a TOML file becomes objects: parsed, held against a model, and what is
wrong said in one line with the file, the line, the key and what would be right.

It stands here because `checklists` is the lowest room with files of its own to read; playbooks
and commands read theirs with it. A model is a frozen dataclass; pydantic checks it, strictly:
a text is no number and a switch is no count.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import tomli

from checklists.tomllines import Lines
from engine.errors import ConfigError

Location = tuple[str | int, ...]
"""From the top of a file to a value: ("steps", 0, "with", "requests")."""
STRICT: Any = {"strict": True, "extra": "forbid", "allow_inf_nan": False}
"""What every model that is read from outside has as its `__pydantic_config__`."""
Model = TypeVar("Model")


class FieldError(ConfigError):
    """A value that does not fit its model: where in the data, and what is wrong with it."""

    def __init__(self, at: Location, what: str) -> None:
        super().__init__(sentence(at, what))
        self.at, self.what = at, what


def sentence(at: Location, what: str) -> str:
    """batches[1]: expected a whole number. An unknown key, or a text that names its key, is not
    named twice."""
    start = max((i for i, part in enumerate(at) if isinstance(part, str)), default=len(at))
    name = "".join(f"[{p}]" if isinstance(p, int) else p for p in at[start:])
    named = not name or what.startswith((f"{name}: ", "unknown "))
    return what if named else f"{name}: {what}"


class TomlFile:
    """A parsed file that knows its lines. Raises ConfigError for one that cannot be read."""

    def __init__(self, path: Path, what: str, text: str | None = None) -> None:
        """`what` names it in messages: playbook, experiment. `text`: it is read already."""
        self.path, self._what = path, what
        if text is None:
            try:
                text = path.read_text("utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{what} {path}: cannot be read ({error})") from error
        try:
            self.data: dict[str, Any] = tomli.loads(text)
        except tomli.TOMLDecodeError as error:
            raise ConfigError(f"{what} {path}: not valid TOML: {error}") from error
        self._lines = Lines(text)

    def wrong(self, at: Location, what: str) -> ConfigError:
        """The error to raise: file:line: what."""
        return ConfigError(f"{self.path}:{self.line(at)}: {what}")

    def line(self, at: Location) -> int:
        """Of a key, or of the table that is an entry of a list: ("steps", 0)."""
        last = max((i for i, part in enumerate(at) if isinstance(part, str)), default=None)
        if last is None or (last < len(at) - 1 and isinstance(self._at(at), dict)):
            return self._lines.of(at)
        return self._lines.of(at[:last], str(at[last]))

    def _at(self, at: Location) -> Any:
        found: Any = self.data
        for part in at:
            found = found[part]
        return found

    def read(self, model: type[Model], at: Location = ()) -> Model:
        """What stands at `at` as a `model`. Raises ConfigError with file and line."""
        try:
            return checked(model, self._at(at))
        except FieldError as error:
            raise self.wrong((*at, *error.at), sentence(error.at, error.what)) from None
        except ConfigError as error:  # values that contradict each other; the first is named
            key = str(error).partition(":")[0]
            place = (*at, key) if key in self._at(at) else at
            raise self.wrong(place, str(error)) from None


def checked(model: type[Model], given: Any) -> Model:
    """`given` as a `model`. Raises FieldError for the first value that does not fit, or the
    ConfigError with which the model refuses the values together."""
    from pydantic import ValidationError

    # JSON has no dates and no tuples of its own: tables and lists become what the model says.
    text = json.dumps(given, default=str)
    try:
        found: Model = adapter(model).validate_json(text)
    except ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda e: e["type"] in ABSENT)
        raise FieldError(tuple(first["loc"]), _words(dict(first), model)) from None
    return found


_adapters: dict[type[Any], Any] = {}


def adapter(model: type[Any]) -> Any:
    """pydantic's TypeAdapter; made once, since that takes a while."""
    if model not in _adapters:
        from pydantic import TypeAdapter

        _adapters[model] = TypeAdapter(model)
    return _adapters[model]


ABSENT = ("missing", "string_too_short")
"""Told last: what is there under a wrong name is missing under the right one."""


def _words(error: Mapping[str, Any], model: type[Any]) -> str:
    if error["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        known = known_keys(model, error["loc"][:-1])
        return unknown("key", error["loc"][-1], known)
    return misfit(error)


def misfit(error: Mapping[str, Any]) -> str:
    """An error of pydantic's in our own words; what a check of ours says stays as it is."""
    if error["type"] in ABSENT:
        return "is missing"
    shown = _shown(error.get("input"))
    match error.get("ctx"):
        case {"text": text}:  # playbooks/steps/fields.py
            return str(text)
        case {"ge": low}:
            return f"expected at least {low:g}, got {shown}"
        case {"gt": low}:
            return f"expected above {low:g}, got {shown}"
        case {"le": high}:
            return f"expected at most {high:g}, got {shown}"
        case {"lt": high}:
            return f"expected below {high:g}, got {shown}"
        case {"expected": str(known)}:
            names = known.replace(" or ", ", ").replace("'", "")
            many = ", " in names
            return f"expected {'one of ' if many else ''}{names}, got {shown}"
    return _mistyped(error["type"], shown)


def _mistyped(kind: str, shown: str) -> str:
    """`kind` is pydantic's name of what is wrong: int_type, int_parsing, list_type."""
    match kind.partition("_")[0]:
        case "int":
            return f"expected a whole number, got {shown}"
        case "float":
            return f"expected a number, got {shown}"
        case "finite":
            return f"expected a finite number, got {shown}"
        case "string":
            return f"expected a text, got {shown}"
        case "bool":
            return f"expected true or false, got {shown}"
        case "tuple" | "list":
            return f"expected a list, got {shown}"
        case "dict" | "dataclass":
            return f"expected a table, got {shown}"
        case "too":  # too_short: an empty list
            return f"expected one at least, got {shown}"
    return f"does not fit, got {shown}"


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and not math.isnan(value) else repr(value)


def known_keys(model: type[Any], at: Location) -> list[str]:
    """The keys of the table at `at` in a model."""
    schema: Any = adapter(model).json_schema()
    definitions, here = schema.get("$defs", {}), schema
    for part in (None, *at):
        if isinstance(part, str):
            here = here.get("properties", {}).get(part, {})
        elif isinstance(part, int):
            here = here.get("items", {})
        for way in here.get("anyOf", [here]):
            if "$ref" in way or "items" in way or "properties" in way:
                here = definitions[way["$ref"].rsplit("/", 1)[1]] if "$ref" in way else way
                break
    return list(here.get("properties", {}))


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """unknown key 'reqests'; did you mean 'requests'? known: …"""
    names = list(known)
    near = difflib.get_close_matches(str(name), names, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {name!r}; {hint}known: {', '.join(names) or 'none'}"
