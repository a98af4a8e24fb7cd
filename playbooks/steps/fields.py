"""What a field of a step's model says about itself, and how its value is read.

A model is a frozen dataclass whose fields are `Annotated[type, Option(help), limits …]`. Files
and command lines are checked against it by pydantic (`checklists.tomlfile.checked`), which is
imported only then: `evewatch --help` reads the models and not pydantic.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_args, get_origin, get_type_hints

from engine.errors import ConfigError
from playbooks.steps.durations import seconds


@dataclass(frozen=True)
class Option:
    """For people: the help text, the unit, and the flag where it is not the field's name."""

    help: str
    unit: str | None = None
    flag: str | None = None
    """--duration; None: --field-name. A switch has two: --storms/--no-storms."""

    @property
    def text(self) -> str:
        return f"{self.help} ({self.unit})" if self.unit else self.help

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(core) | {"description": self.text}


@dataclass(frozen=True)
class Reads:
    """The function that will read the text, as "module:function": what it refuses is refused.

    Named instead of imported, so that a model costs nothing until it is used.
    """

    function: str

    def __call__(self, value: Any) -> object:
        return resolve(self.function)(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import PydanticCustomError, core_schema

        def check(value: Any) -> Any:
            try:
                if value is not None:
                    self(value)
            except ConfigError as error:
                raise PydanticCustomError("unreadable", "{text}", {"text": str(error)}) from None
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))


@dataclass(frozen=True)
class Time:
    """Of a number of seconds: it may be written as a text, like 90s or 20m, too.

    It stands after the limits, which are of the number.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import PydanticCustomError, core_schema

        def read(value: Any) -> Any:
            try:
                return seconds(value) if isinstance(value, str) else value
            except ConfigError as error:
                raise PydanticCustomError("unreadable", "{text}", {"text": str(error)}) from None

        return core_schema.no_info_before_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], Any]) -> Any:
        return {"anyOf": [handler(core), {"type": "string"}]}


def resolve(name: str) -> Callable[..., Any]:
    """The function that "module:function" names."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


@dataclass(frozen=True)
class StepField:
    """One field of a model, as `playbook show` and the commands need it."""

    name: str
    type: Any
    """Without its annotations: int, str | None, tuple[int, ...]"""
    default: Any
    option: Option
    is_time: bool = False

    @property
    def is_list(self) -> bool:
        return get_origin(self.type) is tuple

    @property
    def flag(self) -> str:
        return self.option.flag or f"--{self.name.replace('_', '-')}"

    @property
    def help(self) -> str:
        return f"{self.option.text}."


def fields_of(model: type[Any]) -> list[StepField]:
    """In their order. Every field has an Option and a default."""
    hints = get_type_hints(model, include_extras=True)
    plain = get_type_hints(model)
    found = []
    for field in fields(model):
        notes = get_args(hints[field.name])[1:]
        option = next((note for note in notes if isinstance(note, Option)), None)
        if option is None:
            continue  # set by code alone
        default = field.default if field.default_factory is MISSING else field.default_factory()
        is_time = any(isinstance(note, Time) for note in notes)
        found.append(StepField(field.name, plain[field.name], default, option, is_time))
    return found
