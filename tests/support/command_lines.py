"""Command lines as documentation writes them, parsed and not run."""

import re
import shlex

import typer.main

from console import cli

PLACES = {"URL": "http://host:8000", "N": "3", "PID": "1"}
"""What stands for a value that the reader fills in."""
BLOCK = re.compile(r"^(?:```\w*\n.*?^```|(?: {4}[^\n]*\n)+)", re.S | re.M)
"""A block of code in Markdown: fenced, or indented by four."""


def parse(text):
    """Parse one line; raises ConfigError where the command, an option or a value is not there."""
    words = [PLACES.get(word, word) for word in shlex.split(re.sub(r"[\[\]…]", "", text))]
    assert words[0] == "evewatch", text
    command, rest = typer.main.get_command(cli.app), words[1:]
    context = command.make_context("evewatch", rest)
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(
            context, context._protected_args + context.args
        )
        context = command.make_context(name, rest, parent=context)
    return context


def lines_of(markdown):
    """Every `evewatch …` of a page: inline, and in code blocks up to two blanks or a comment."""
    for block in BLOCK.findall(markdown):
        for line in re.sub(r"\\\n\s+", "", block).splitlines():
            if line.strip().startswith("evewatch "):
                yield re.split(r"\s{2,}|\s#", line.strip())[0]
    for found in re.findall(r"`(evewatch [^`]*)`", BLOCK.sub("", markdown)):
        yield " ".join(found.split())
