"""Nothing that an operator sees stays English: screens, help, reports, errors."""

import re

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from console.app import build_app
from console.cli import app as command_line
from console.commands.index import COMMANDS
from console.locale import lang
from console.renderables.lines import cells
from console.renderables.screen_state import EnginePhase
from engine.simulated.demo import DemoEngine
from playbooks.optlog import OptLog
from playbooks.reports.text import markdown
from repository import ROOT
from screens import settle, text_of
from waiting import until_shown

TECHNICAL = re.compile(
    r"`[^`]*`|<[^>]*>|--?[a-z][\w-]*(=\S+)?|\b\w*[_\d./:=*\\@~]\w[\w./:=*,\\@~-]*|\[默认[^\]]*\]"
)
"""Commands, flags, addresses, files, keys, values: they follow no language."""
TYPED = re.compile(r"evewatch( [a-z]+)*")
PROSE = re.compile(r"(?<![\w-])[A-Za-z]{2,}(?: [a-z]{2,}){2,}(?![\w-])")
"""Three words in a row: names stand alone, sentences do not."""
KEPT = {
    "Dao et al",
    "Gong et al",
    "Input should be",
    "Leviathan et al",
    "Lin et al",
    "Liu et al",
    "Xiao et al",
    "Zheng et al",
    "unable to parse string as an integer",
}
"""Words of others: authors, and what a library says of a value."""
LEFT = {
    "is not supported by this server",
    "leave it out",
}
"""Still English. This list may only shrink."""


def few(shown):
    """No English prose but the words of others."""
    rest = TYPED.sub("|", TECHNICAL.sub("|", shown))
    found = {run for run in PROSE.findall(rest) if run not in KEPT | LEFT}
    assert not found, (sorted(found), shown)


@pytest.fixture
def chinese(monkeypatch, tmp_path):
    monkeypatch.setenv(lang.VARIABLE, "zh")
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))  # nobody's log and results
    lang.use("zh")
    yield
    lang.use("en")


KEYS = {
    "4": ["4"], "8": ["8"], "request": ["r", "enter"], "run": ["p", "enter"],
    "checklist": ["c", "enter"], "answer": ["c", "enter", "enter"], "entry": ["l", "n"],
    "ask a forecast": ["F", "n"], "help": ["question_mark"], "handover": ["H"], "overview": [],
}  # fmt: skip


async def screen(name, size, language, clock, folder):
    app = build_app(
        DemoEngine(clock=clock), clock=clock, refresh_hz=0.001, theme="evewatch",
        language=language, log=OptLog(folder / "log.jsonl"),
    )  # fmt: skip
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, lambda: app.bridge.phase is EnginePhase.UP)
        for _ in range(60):
            clock.now += 0.5
            app.history.push(app.bridge.poll())
        app.draw(app.bridge.poll())
        await settle(pilot, app)
        for key in KEYS[name]:
            await pilot.press(key)
            await settle(pilot, app)
        return text_of(app)


@pytest.mark.parametrize("name", KEYS)
async def test_screens(name, clock, tmp_path, chinese):
    size = (80, 24)
    shown = await screen(name, size, "zh", clock, tmp_path)
    few(shown)
    assert all(cells(row) <= size[0] for row in shown.splitlines())


FRAME = "│╭╮╰╯"


def frames(shown):
    """Row by row, the cells at which a frame stands."""
    return [
        [cells(row[:at]) for at, letter in enumerate(row) if letter in FRAME]
        for row in shown.splitlines()
    ]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_panels_have_their_frames_where_the_english_ones_have_them(size, clock, tmp_path):
    try:
        chinese = frames(await screen("overview", size, "zh", clock, tmp_path))
    finally:
        lang.use("en")
    clock.now -= 30.0
    outer = [[row[0], row[-1]] for row in frames(await screen("overview", size, "en", clock,
                                                              tmp_path)) if row]  # fmt: skip
    assert [[row[0], row[-1]] for row in chinese if row] == outer


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
def test_what_commands_show(words, chinese):
    shown = CliRunner().invoke(command_line, ["--lang", "zh", *words]).output
    assert re.search("[一-鿿]", shown)
    few(shown)


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "examples").glob("*.md")), ids=str)
def test_reports(path, chinese):
    """The reports that docs show, each of their texts as it is written for a reader of Chinese."""
    english = re.split(r"\n(?:> |#+ |\s*- )*|(?<!\\)\||\*\*:? ", path.read_text("utf-8"))
    shown = "\n".join(markdown(text.strip()) for text in english)
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
