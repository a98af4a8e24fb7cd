"""Options that several commands share, each said once, and how a command gets them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer

from console.commands.output import Output
from engine.errors import ConfigError
from playbooks.steps.durations import seconds
from playbooks.steps.fields import fields_of
from playbooks.steps.models import LoadStep

Command = Callable[..., None]


def duration(flag: str, help: str, zero: bool = False) -> Any:
    """An option that takes 90s, 20m or 2h; the command gets seconds."""

    def parse(text: str | float) -> float:
        if zero and str(text).strip() in ("0", "0s", "0.0"):
            return 0.0
        try:
            return seconds(text)
        except ConfigError as error:
            raise ConfigError(f"{flag}: {error}") from None

    return typer.Option(flag, parser=parse, metavar="TIME", help=help)


ARRIVALS, LENGTHS, SEED = (
    next(field.help for field in fields_of(LoadStep) if field.name == name)
    for name in ("arrivals", "lengths", "seed")
)
Seed = Annotated[int, typer.Option(help="Of times, lengths and prompts.")]
Api = Annotated[str, typer.Option(help="Of an endpoint: completions or chat.")]
TokenIds = Annotated[bool, typer.Option(help="Send an endpoint token ids instead of text.")]
MaxContext = Annotated[int | None, typer.Option(help="Cut requests to an endpoint to this.")]
Target = Annotated[str, typer.Option(help="embedded, or the URL of an engine.")]
Readonly = Annotated[bool, typer.Option(help="Forbid everything that changes the engine.")]
Timeout = Annotated[float, duration("--timeout", "Until a request has failed.")]
ShippedOrFile = Annotated[str, typer.Argument(help="One that ships (see list), or a TOML file.")]


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    from engine.remote.address import read_token

    return read_token(variable)


def _token_option(**more: Any) -> Any:
    text = "Environment variable that holds the target's bearer token."
    return typer.Option("--token-env", metavar="VARIABLE", help=text, **more)


TokenVariable = Annotated[str | None, _token_option()]
Pid = Annotated[
    int | None,
    typer.Option("--pid", help="The target's process here, if its port does not tell."),
]
Guards = Annotated[
    list[str] | None,
    typer.Option(
        "--guard",
        metavar="NAME=VALUE",
        help="At a URL, stop beyond this: ttft_p99 (ms), error_rate (0-1), waiting; repeatable.",
    ),
]
MaxShare = Annotated[
    str | None,
    typer.Option("--max-share", help="Of what a URL runs, the own requests at most: 20%."),
]
Token = Annotated[str | None, _token_option(callback=_token)]
"""The command gets the token itself."""


def command_options(
    *, logs: bool = False, also: tuple[str, ...] = ()
) -> Callable[[Command], Command]:
    """Give a command the options of its parameters whose types are made of options: Output, and
    every class with OPTIONS, like EngineFlags.

    logs: it writes the optimization log, and --no-log stops that. also: what --out takes besides
    reports: .svg where there is a chart.
    """

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        bundles: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {}
        parameters = []
        for name, parameter in own.parameters.items():
            if parameter.annotation is Output:
                make = functools.partial(Output, also=also)
                bundles[name] = make, Output.options(logs, also)
            elif hasattr(parameter.annotation, "OPTIONS"):
                bundles[name] = parameter.annotation, parameter.annotation.OPTIONS
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        for _, options in bundles.values():
            parameters += [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=False if option.__origin__ is bool else None,
                    annotation=option,
                )
                for name, option in options.items()
            ]

        def fill(given: dict[str, Any]) -> None:
            for name, (make, options) in bundles.items():
                given[name] = make(**{option: given.pop(option) for option in options})

        return presented(command, own.replace(parameters=parameters), fill)

    return decorate


def presented(
    command: Command, signature: inspect.Signature, fill: Callable[[dict[str, Any]], None]
) -> Command:
    """The command as Typer is to see it; `fill` makes what it takes of what is given."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        fill(given)
        command(**given)

    for parameter in signature.parameters.values():
        kind, option = (*get_args(parameter.annotation), None, None)[:2]
        if kind is bool and option is not None and option.default is ...:
            option.param_decls = (f"--{parameter.name.replace('_', '-')}",)  # and no --no-name
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    return run
