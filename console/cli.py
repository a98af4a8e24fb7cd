"""The command line: which commands there are, and how errors end. Each is in console/commands.

Heavy imports (torch, textual, rich) stay inside the commands, so that help answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from console.commands.bench import bench
from console.commands.calibrate import calibrate
from console.commands.canary import canary
from console.commands.check import check
from console.commands.checklist import checklist_app
from console.commands.compare import compare
from console.commands.env import env
from console.commands.explain import explain
from console.commands.generate import generate
from console.commands.ledger import ledger
from console.commands.load import load
from console.commands.log import log_app
from console.commands.model import model_app
from console.commands.options import options
from console.commands.playbook import playbook_app
from console.commands.profile import profile
from console.commands.quality import quality
from console.commands.record import record
from console.commands.replay import replay
from console.commands.serve import serve
from console.commands.soak import soak
from console.commands.sweep import sweep
from console.commands.up import up
from console.commands.watch import watch
from console.exits import Exit
from engine.errors import ConfigError, EngineError, ModelError, RequestError

app = typer.Typer(
    name="evewatch",
    help="Watch an LLM inference engine at work, health-check it, and write down what you changed.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"evewatch {installed('evewatch')}")
        raise typer.Exit


COMMANDS = (
    up, serve, watch, generate, bench, load, profile, sweep, compare, quality, options,
    calibrate, ledger, env, explain, canary, record, replay,
    check, soak,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)
app.add_typer(model_app, name="model")
app.add_typer(playbook_app, name="playbook")
app.add_typer(log_app, name="log")
app.add_typer(checklist_app, name="checklist")


def fail(text: str, code: Exit) -> NoReturn:
    typer.echo(f"evewatch: {text}", err=True)
    sys.exit(code)


def main() -> None:
    """Run a command; errors become one line on standard error and an exit code."""
    try:
        app()
    except (ConfigError, ModelError, RequestError) as error:
        fail(str(error), Exit.USAGE)
    except EngineError as error:
        fail(str(error), Exit.UNREACHABLE)
    except KeyboardInterrupt:
        fail("interrupted", Exit.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; nobody is left to tell
        sys.exit(Exit.PASSED)
