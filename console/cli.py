"""The command line: where it begins, and how errors end. Commands are in console/commands/."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from console.commands.appearance import Lang
from console.commands.index import Commands
from console.commands.streams import say, take_any, whole_output
from console.exits import Exit
from engine.errors import ConfigError, EngineError, ModelError, RequestError

app = typer.Typer(
    name="evewatch",
    cls=Commands,
    help="Watch an LLM inference engine at work, health-check it, and write down what you changed.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    lang: Lang = None,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"evewatch {installed('evewatch')}")
        raise typer.Exit


def fail(text: str, code: Exit) -> NoReturn:
    say(f"evewatch: {text}")
    sys.exit(code)


def main() -> None:
    """Run a command; errors become one line on standard error and an exit code."""
    take_any()
    try:
        with whole_output():
            app()
    except (ConfigError, ModelError, RequestError) as error:
        fail(str(error), Exit.USAGE)
    except EngineError as error:
        fail(str(error), Exit.UNREACHABLE)
    except KeyboardInterrupt:
        fail("interrupted", Exit.INTERRUPTED)
