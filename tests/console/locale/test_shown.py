"""No word of English stays in help, lists, reports and errors."""

import re
from html import unescape

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from console.cli import app as command_line
from console.commands.index import COMMANDS
from console.locale import lang
from english import english, typed
from playbooks.reports.language import Name
from playbooks.reports.text import markdown
from repository import ROOT

CAPITALS = re.compile(r"(?<![\w-])[A-Z][A-Z_-]*[A-Z](?![\w-])")
"""What stands for a value: FILE, [OPTIONS], closed:USERS[,THINK_S]."""


def few(shown, names=()):
    """No English but what is typed, and what stays."""
    found = english(CAPITALS.sub("|", shown), typed(), names)
    assert not found, (sorted(found), shown)


@pytest.fixture
def names(monkeypatch):
    """What is shown as a name while a test runs."""
    told = []

    def name(kind, text):
        told.append(str(text))
        return str.__new__(kind, text)

    monkeypatch.setattr(Name, "__new__", name)
    return told


@pytest.fixture
def chinese(monkeypatch, tmp_path):
    monkeypatch.setenv(lang.VARIABLE, "zh")
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))  # nobody's log and results
    lang.use("zh")
    yield
    lang.use("en")


def paths():
    """Every command, as one types it."""
    root = get_command(command_line)
    for name in COMMANDS:
        command = root.get_command(None, name)
        yield [name]
        for below in getattr(command, "commands", {}):
            yield [name, below]


@pytest.mark.parametrize("path", [[], *paths()], ids=" ".join)
def test_help(path, chinese):
    shown = CliRunner().invoke(command_line, ["--lang", "zh", *path, "--help"]).output
    assert "用法" in shown
    few(shown)


@pytest.mark.parametrize(
    "words",
    [["explain", "--options"], ["explain"], ["playbook", "list"], ["playbook", "types"],
     ["playbook", "show", "pre_holiday"], ["checklist", "list"],
     ["checklist", "show", "pre_holiday"], ["check", "--list-faults"], ["model", "list"]],
    ids=" ".join,
)  # fmt: skip
def test_what_commands_show(words, chinese, names):
    shown = CliRunner().invoke(command_line, ["--lang", "zh", *words]).output
    assert re.search("[一-鿿]", shown)
    few(shown, names)


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "examples").glob("*.md")), ids=str)
def test_reports(path, chinese):
    """The reports that docs show, each of their texts as it is written for a reader of Chinese."""
    texts = re.split(r"\n(?:> |#+ |\s*- )*|(?<!\\)\||\*\*:? ", path.read_text("utf-8"))
    shown = "\n".join(unescape(unescape(markdown(text.strip()))) for text in texts)
    few(shown)


@pytest.mark.parametrize(
    "words",
    [["nothing"], ["check"], ["check", "nothing"], ["load", "--nothing"], ["env", "--pid", "x"],
     ["canary", "--baseline", "http://x"], ["replay", "nothing.everec"],
     ["up", "--set", "max_batch=x"], ["up", "--set", "nothing=1"], ["playbook", "show", "nothing"],
     ["log", "show", "nothing"], ["watch"], ["explain", "--most", "0"], ["log", "diff"],
     ["alerts", "silence", "x"]],
    ids=" ".join,
)  # fmt: skip
def test_errors(words, chinese):
    error = CliRunner().invoke(command_line, words, env={"EVEWATCH_LANG": "zh"}).exception
    shown = lang._(f"evewatch: {error}")
    few(shown)
