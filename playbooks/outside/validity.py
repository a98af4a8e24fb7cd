"""Cases whose answers are judged by their form: JSON, and calls of tools.

An answer is good when it can be used: it parses, has the keys and types that were asked for, and a
call names a tool that there is. What it says is no matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.remote.answer import text_of
from playbooks.quality.structured import without_fence

Schema = Mapping[str, Any]
"""Of JSON Schema: type, enum, properties, required, items, and what these say of what is inside."""
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,),
    "number": (int, float), "boolean": (bool,),
}  # fmt: skip
TOKENS = 64
"""Of an answer; a call with its arguments has room in it."""


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


@dataclass(frozen=True)
class JsonCase:
    id: str
    prompt: str
    schema: Schema


JSON_CASES = (
    JsonCase("json-order", "Write only JSON with the keys product (text) and quantity (number) "
             "for: forty folding tables.", _object(product=TEXT, quantity=NUMBER)),
    JsonCase("json-person", "Write only JSON with the keys name and city for: Renata lives in "
             "Oslo.", _object(name=TEXT, city=TEXT)),
    JsonCase("json-list", "Write only a JSON list of the names of the three primary colours.",
             {"type": "array", "items": TEXT}),
    JsonCase("json-nested", 'Write only JSON with the key items, a list of objects with the keys '
             'name (text) and price (number), for: a cup at 4 and a plate at 7.',
             _object(items={"type": "array", "items": _object(name=TEXT, price=NUMBER)})),
)  # fmt: skip


@dataclass(frozen=True)
class ToolCase:
    id: str
    prompt: str


def _tool(name: str, about: str, parameters: Schema) -> dict[str, Any]:
    return {"type": "function",
            "function": {"name": name, "description": about, "parameters": parameters}}  # fmt: skip


TOOLS = (
    _tool("get_weather", "The weather of a city now.",
          _object(city=TEXT, unit={"type": "string", "enum": ["celsius", "fahrenheit"]})),
    _tool("add_numbers", "The sum of two numbers.", _object(a=NUMBER, b=NUMBER)),
    _tool("order", "Order a product.", _object(product=TEXT, quantity={"type": "integer"})),
)  # fmt: skip
TOOL_CASES = (
    ToolCase("tool-weather", "What is the weather in Oslo now, in celsius? Use the tool."),
    ToolCase("tool-sum", "Add 4871 and 1290 with the tool."),
    ToolCase("tool-order", "Order forty folding tables with the tool."),
    ToolCase("tool-choice", "Is it warmer than 70 fahrenheit in Madrid now? Use a tool."),
)


def tool_request(case: ToolCase) -> dict[str, Any]:
    """Fields of the chat API."""
    return {"messages": [{"role": "user", "content": case.prompt}], "max_tokens": TOKENS,
            "tools": list(TOOLS), "tool_choice": "auto"}  # fmt: skip


def valid_json(text: str, schema: Schema) -> bool:
    """The answer, or what stands in it between fences."""
    return _fits_text(without_fence(text), schema)


def valid_call(choice: Mapping[str, Any]) -> bool:
    """Calls a tool that there is, each time with arguments that parse and fit."""
    message = choice.get("message")
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return isinstance(calls, list) and bool(calls) and all(map(_is_valid, calls))


def said(choice: Mapping[str, Any]) -> str:
    """The first call, or the text in its place: for a report."""
    message = choice.get("message")
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return json.dumps(calls[0], ensure_ascii=False) if calls else text_of(dict(choice))


def _is_valid(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return False
    known = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
    schema, given = known.get(function.get("name")), function.get("arguments")
    return schema is not None and isinstance(given, str) and _fits_text(given, schema)


def _fits_text(text: str, schema: Schema) -> bool:
    try:
        return fits(json.loads(text), schema)
    except (ValueError, RecursionError):
        return False


def fits(value: Any, schema: Schema) -> bool:
    kind = schema.get("type")
    if kind is not None:
        is_bool = isinstance(value, bool)
        if not isinstance(value, TYPES[kind]) or is_bool is not (kind == "boolean"):
            return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, dict):
        inside = schema.get("properties", {})
        return all(name in value for name in schema.get("required", ())) and all(
            fits(value[name], part) for name, part in inside.items() if name in value
        )
    if isinstance(value, list) and "items" in schema:
        return all(fits(one, schema["items"]) for one in value)
    return True
