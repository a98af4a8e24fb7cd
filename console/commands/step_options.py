"""The options of a command from the model of its step: said once, in playbooks/steps/models.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any, get_args

import typer

from console.commands.options import Command, presented
from engine.errors import ConfigError
from playbooks.steps.fields import StepField, fields_of


def step_options(
    model: type[Any], omit: Collection[str] = (), **defaults: Any
) -> Callable[[Command], Command]:
    """Give a command the fields of `model` as options, in the place of its parameter `step`.

    The command gets a checked `model` as `step`. `omit`: fields that are not asked for;
    `defaults`: where the command's own differ from the model's. Raises ConfigError naming the
    flag.
    """
    fields = [field for field in fields_of(model) if field.name not in omit]
    options = [_parameter(field, defaults.get(field.name, field.default)) for field in fields]

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        parameters = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, given in own.parameters.items()
            for p in (options if name == "step" else [given])
        ]

        def fill(given: dict[str, Any]) -> None:
            values = {field.name: given.pop(field.name) for field in fields}
            given["step"] = _checked(model, fields, values)

        return presented(command, own.replace(parameters=parameters), fill)

    return decorate


def _parameter(field: StepField, default: Any) -> inspect.Parameter:
    annotation: Any = Annotated[_shell_type(field), typer.Option(field.flag, help=field.help)]
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=_as_text(field, default),
        annotation=annotation,
    )


def _shell_type(field: StepField) -> Any:
    """What Typer reads: texts and repeated texts, numbers, switches. The model checks the rest."""
    kind: Any = str
    if field.is_list:
        kind = list[str] if _repeats(field) else str
    elif not field.is_time:
        plain = [one for one in get_args(field.type) if one is not type(None)] or [field.type]
        kind = plain[0] if plain[0] in (int, float, bool) else str
    return kind | None


def _repeats(field: StepField) -> bool:
    """Texts are repeated, since one may have a comma in it; numbers and names of a choice stand
    in one text with commas."""
    return get_args(field.type)[0] is str


def _as_text(field: StepField, value: Any) -> Any:
    if field.is_list:
        return None if _repeats(field) else ",".join(map(str, value))
    return f"{value:g}s" if field.is_time and value is not None else value


def _checked(model: type[Any], fields: list[StepField], given: dict[str, Any]) -> Any:
    from checklists.tomlfile import FieldError, checked

    values = {f.name: _value(f, given[f.name]) for f in fields}
    try:
        return checked(model, values)
    except FieldError as error:
        flag = next(f.flag for f in fields if f.name == error.at[0]).partition("/")[0]
        raise ConfigError(f"{flag}: {error.what.removeprefix(f'{error.at[0]}: ')}") from None


def _value(field: StepField, value: Any) -> Any:
    if not field.is_list or not isinstance(value, str):
        return [] if field.is_list and value is None else value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if get_args(field.type)[0] is not int:
        return parts
    try:
        return [int(part) for part in parts]
    except ValueError:
        raise ConfigError(
            f"{field.flag}: {value!r}: expected whole numbers with commas, like 1,2,4,8"
        ) from None
