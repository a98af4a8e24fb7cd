"""JSON Schemas of the reports, made from their types: python -m playbooks.reports.schemas FOLDER.

And the check of a value against one, for what the schemas here use of the standard.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from playbooks.reports.shapes import REPORTS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "null": (NoneType,), "array": (list,), "object": (dict,),
}  # fmt: skip


def schema_of(kind: str) -> dict[str, Any]:
    """Of the reports of this kind."""
    title = {"$schema": DIALECT, "title": f"evewatch {kind} report"}
    return title | _schema(REPORTS[kind])


def _schema(kind: Any) -> dict[str, Any]:
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        properties = {name: _schema(hint) for name, hint in hints.items()}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    arguments = get_args(kind)
    match get_origin(kind):
        case origin if origin is Literal:
            return {"enum": list(arguments)}
        case origin if origin in (Union, UnionType):
            return {"anyOf": [_schema(one) for one in arguments]}
        case origin if origin is list:
            return {"type": "array", "items": _schema(arguments[0])}
        case origin if origin is dict:
            return {"type": "object", "additionalProperties": _schema(arguments[1])}
    raise TypeError(f"no schema for {kind!r}")


def violations(value: Any, schema: dict[str, Any], where: str = "$") -> Iterator[str]:
    """What in `value` is not as the schema says, one line each."""
    if "anyOf" in schema:
        tries = [list(violations(value, one, where)) for one in schema["anyOf"]]
        if all(tries):
            yield from min(tries, key=len)
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not one of {schema['enum']}"
        return
    if "type" in schema:
        is_switch = isinstance(value, bool) and schema["type"] in ("integer", "number")
        if is_switch or not isinstance(value, _TYPES[schema["type"]]):
            yield f"{where}: {value!r} is no {schema['type']}"
            return
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            yield from violations(item, schema["items"], f"{where}[{i}]")
    if isinstance(value, dict):
        yield from _of_object(value, schema, where)


def _of_object(value: dict[str, Any], schema: dict[str, Any], where: str) -> Iterator[str]:
    known, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}: {name} is missing"
    for name, item in value.items():
        if name in known:
            yield from violations(item, known[name], f"{where}.{name}")
        elif rest is False:
            yield f"{where}: {name} is not known"
        else:
            yield from violations(item, rest, f"{where}.{name}")


def text_of(kind: str) -> str:
    return json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"


def write_all(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{kind}.json" for kind in REPORTS]
    for kind, path in zip(REPORTS, paths, strict=True):
        path.write_text(text_of(kind), "utf-8")
    return paths


if __name__ == "__main__":
    for written in write_all(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schemas")):
        print(written)
