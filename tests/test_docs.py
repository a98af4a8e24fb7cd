"""Documentation is true: its command lines are there, and README has every command."""

import re
import shlex

import pytest
import typer
from typer.testing import CliRunner

from command_lines import lines_of, parse
from console import cli
from console.commands.index import COMMANDS, HEADINGS
from playbooks.runs.overrides import with_parameters
from playbooks.runs.spec import load
from repository import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINES = sorted({(page.name, line) for page in PAGES for line in lines_of(page.read_text("utf-8"))})
QUICK = ("checklist list", "checklist show", "checklist export", "env", "explain", "log list",
         "log verify", "log export", "model list", "playbook list", "playbook show")  # fmt: skip
"""Commands that need neither a model nor a target, and are run as they stand."""


@pytest.mark.parametrize(("page", "line"), LINES)
def test_every_command_line_is_there(page, line, monkeypatch):
    monkeypatch.setenv("TOKEN", "a-token")
    if len(line.split()) == 2:  # a command is mentioned, without what it needs
        with pytest.raises(typer.Exit):
            parse(f"{line} --help")
    elif parse(line).command.name == "check":
        given = parse(line).params
        with_parameters(load(given["playbook"]), given["parameters"] or [])


QUICK_LINES = sorted(
    {line for _, line in LINES if line.removeprefix("evewatch ").startswith(QUICK)}
)


@pytest.mark.parametrize("line", QUICK_LINES)
def test_what_needs_no_model_runs(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    done = CliRunner().invoke(cli.app, shlex.split(line)[1:])
    assert done.exit_code == 0, (done.output, done.exception)


def test_readme_lists_every_command_under_its_heading():
    text = (ROOT / "README.md").read_text("utf-8")
    places = [text.index(f"\n{heading}\n") for heading in HEADINGS]
    assert places == sorted(places)
    for heading, begin, end in zip(HEADINGS, places, [*places[1:], len(text)], strict=True):
        listed = {line.split()[1] for line in lines_of(f"```\n{text[begin:end].strip()}\n```")}
        assert set(HEADINGS[heading]) == listed
    assert all(name in text for name in COMMANDS)


WALKS = re.findall(r"`([\w/]+\.(?:py|c))` → `([\w]+)`", (ROOT / "docs/architecture.md").read_text())


@pytest.mark.parametrize(("path", "name"), WALKS)
def test_the_walks_through_the_house_lead_somewhere(path, name):
    assert len(WALKS) >= 12
    assert re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8"))
