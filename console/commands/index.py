"""Which commands there are, under four headings, and what has another name now.

A command is imported when it is called: `evewatch --help` reads this file and no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from console.commands.appearance import take_language
from console.commands.help_page import with_help_pages
from console.commands.streams import drop_output
from console.exits import Exit
from console.locale import lang
from engine.errors import ConfigError
from playbooks.reports.language import colon

HEADINGS = {
    "Run": {
        "up": "the console on the embedded engine, under load",
        "watch": "the console on engines that run elsewhere",
        "serve": "the OpenAI API on the embedded engine",
        "generate": "one streamed answer",
        "model": "what model files hold; calibrate one",
    },
    "Measure": {
        "bench": "a closed batch, beside this machine's limit",
        "load": "traffic, open or closed loop, on any target",
        "profile": "where the time goes",
        "sweep": "how large the batch should be",
        "compare": "what one change does",
        "quality": "whether rounding KV or products changes the answers",
        "forecast": "what the coming days will be like, in virtual time",
    },
    "Check": {
        "check": "run a playbook: steps, gates, diagnosis",
        "playbook": "list, show, write and test playbooks",
        "canary": "move traffic to a candidate, or back",
        "alerts": "who is told of what; silences",
        "checklist": "what must be so before a change",
        "env": "versions and machine, and whether they fit",
        "explain": "from a symptom to its cause; what could be done",
    },
    "Record": {
        "record": "an engine into a file, without a screen",
        "replay": "the console on a recording",
        "log": "the optimization log: what was changed, and why",
    },
}
COMMANDS = {name: line for lines in HEADINGS.values() for name, line in lines.items()}

OLD_COMMANDS = {  # not shown
    "soak": "check soak",
    "ledger": "check soak",
    "options": "explain --options",
    "calibrate": "model calibrate",
}
OLD_FLAGS = {  # not shown
    "--kernels": "--set kernels=NAME",
    "--require-triton": "--set require_triton=true",
    "--cuda-graphs": "--set cuda_graphs=true",
    "--no-cuda-graphs": "--set cuda_graphs=false",
    "--page-tokens": "--set page_tokens=N",
    "--outlier-channels": "--set outlier_channels=N",
    "--zero-point": "--set zero_point=true",
    "--symmetric": "--set zero_point=false",
    "--calibration": "--set calibration=FILE",
    "--token-budget": "--set token_budget=N",
    "--policy": "--set policy=NAME",
    "--allocator": "--set allocator=NAME",
    "--reserve": "--set reserve=NAME",
    "--prefix-cache": "--set prefix_cache=true",
    "--no-prefix-cache": "--set prefix_cache=false",
    "--dynamic": "--set dynamic_batch=true",
    "--fixed": "--set dynamic_batch=false",
    "--tpot-objective": "--set tpot_objective_ms=N",
    "--max-wait": "--set max_wait_ms=N",
    "--export": "--out FILE",
    "--report": "--folder DIR",
    "--seconds": "--duration TIME",
    "--self-test": "evewatch playbook selftest",
}
"""Of commands that have no such flag (any more)."""


class Commands(TyperGroup):
    """The commands by heading. Whatever is wrong with a command line is a ConfigError."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        with_help_pages(self)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _built(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in OLD_COMMANDS:
            raise ConfigError(f"`evewatch {args[0]}` is now `evewatch {OLD_COMMANDS[args[0]]}`")
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            for name in get_close_matches(args[0], COMMANDS, 1):
                raise ConfigError(f"there is no command {args[0]!r}; did you mean {name}?")
            raise ConfigError(f"there is no command {args[0]!r}; `evewatch --help` lists them")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, lines in HEADINGS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<9}", line) for name, line in lines.items()])

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **named: Any) -> Any:
        with _plain_errors():
            return super().make_context(info_name, take_language(args), *more, **named)

    def invoke(self, ctx: Any) -> Any:
        with _plain_errors():
            return super().invoke(ctx)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What is wrong with a command line in one line; a reader that has gone is no error."""
    try:
        yield
    except typer.TyperException as error:
        raise _refusal(error) from None
    except BrokenPipeError:
        drop_output()
        raise typer.Exit(Exit.PASSED) from None


@cache
def _built(name: str) -> Any:
    """The command, imported now."""
    module = import_module(f"console.commands.{name}")
    if hasattr(module, f"{name}_app"):
        return with_help_pages(typer.main.get_command(getattr(module, f"{name}_app")))
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    alone.command(name)(getattr(module, name))
    return with_help_pages(typer.main.get_command(alone))


def _refusal(error: typer.TyperException) -> Exception:
    """In one line; the help of a group that was called without a command stays as it is."""
    told = getattr(error.__cause__, "errors", None)  # of pydantic
    if told is not None:
        from checklists.tomlfile import misfit

        error.message = misfit(told(include_url=False)[0])
    text = error.format_message().strip()
    if "\n" in text:
        return error
    name = getattr(error, "option_name", None)
    if name in OLD_FLAGS:
        new = OLD_FLAGS[name]
        _, _, value = new.partition("=") if "=" in new else new.partition(" ")
        taken = f" {value}" if value.isupper() else ""
        return ConfigError(f"`{name}{taken}` is now `{new}`")
    context = getattr(error, "ctx", None)
    where = "" if context is None else context.command_path.partition(" ")[2]
    return ConfigError(f"{where}{colon()}{lang._(text)}" if where else text)
