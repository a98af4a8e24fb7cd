"""The Chinese console: catalogue, columns, and that nothing an operator needs stays English."""

import re
import shutil
import subprocess

import pytest
from babel.messages.pofile import read_po
from rich.cells import cell_len
from typer.testing import CliRunner

from console.actions import ACTIONS
from console.app import build_app
from console.cli import app as command_line
from console.locale import lang
from console.panels.specs import PANELS
from console.renderables.header import WORDS
from console.renderables.lines import Span, in_column, localized, plain, width_of
from console.renderables.screen_state import EnginePhase
from console.screens.help import NAMES_OF_PLACES
from engine.errors import ConfigError
from engine.simulated.demo import DemoEngine
from journeys import Console
from playbooks.optlog import OptLog
from playbooks.reports.documents.listed import playbooks_document

PO = sorted(lang.FOLDER.glob("zh/*.po"))
LATIN = re.compile(r"[A-Za-z]{4,}")
KEPT = {"EveWatch", "SmolLM", "int8_channel", "channel", "TTFT", "TPOT", "tokens", "token", "fp16"}
"""Names that are names in Chinese too."""


@pytest.fixture
def chinese():
    lang.use("zh")
    yield
    lang.use("en")


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW"}, "zh"),
        ({"LANG": "en_US.UTF-8"}, "en"),
        ({"LANG": "de_DE"}, "en"),
        ({"LANG": "zh_CN", "LC_ALL": "C"}, "en"),
        ({"LANG": "C", "LC_MESSAGES": "zh_CN"}, "zh"),
        ({}, "en"),
    ],
)
def test_the_environment_names_the_language(environment, language):
    assert lang.wanted(environment) == language


def test_an_unknown_language_is_refused():
    with pytest.raises(ConfigError, match="--lang: 'xx' is not one of en, zh"):
        lang.use("xx")


def test_english_is_left_alone():
    line = (Span("waiting "), Span("12"))
    assert localized(line) is line and lang._("waiting") == "waiting"


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs GNU gettext")
@pytest.mark.parametrize("path", PO, ids=lambda path: path.stem)
def test_gnu_gettext_takes_the_catalogues_too(path, tmp_path):
    done = subprocess.run(["msgfmt", "-o", str(tmp_path / "x.mo"), str(path)], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_every_action_is_translated(action, chinese):
    for text in (action.footer, action.title, action.help):
        assert lang._(text) != text


def test_titles_and_states_are_translated(chinese):
    for text in (*(p.title for p in PANELS), *NAMES_OF_PLACES.values(), *WORDS.values()):
        assert lang._(text) != text


def test_labels_need_no_more_cells_than_their_originals():
    """Columns are as wide as the English asks for; a cell more is taken from the blanks after."""
    with (lang.FOLDER / "zh" / "console.po").open("rb") as file:
        labels = [m for m in read_po(file) if m.string and isinstance(m.id, str)]
    for message in labels:
        spare = 1 if len(message.id) > 3 else 3
        if "{" not in message.id and message.id.islower():
            assert cell_len(message.string) <= cell_len(message.id) + spare, message.id


@pytest.mark.parametrize("text", ["waiting", " prefill", "TTFT", "max 12 in 64 s", "用"])
@pytest.mark.parametrize("width", [9, -9, 16])
def test_a_column_has_its_cells(text, width, chinese):
    assert width_of((in_column(text, width),)) == abs(width)


def test_blanks_around_a_text_stay(chinese):
    assert plain(localized((Span("  waiting "),))) == f"  {lang._('waiting')} "


def test_numbers_are_put_where_they_belong(chinese):
    assert lang._("max 12 in 64 s") == "64 s 内最大 12"
    assert lang._("Cap 32 → 4?") == "上限 32 → 4？"
    assert lang._("12.5 ms") == "12.5 ms"
    assert lang._("") == ""


SCREENS = {"overview": [], "kv": ["3"], "requests": ["r"], "request": ["r", "enter"],
           "checklists": ["c"], "log": ["l"], "help": ["question_mark"], "cap": ["b"],
           "pause": ["a"], "drain": ["D"]}  # fmt: skip


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("name", SCREENS)
async def test_screens_are_chinese_and_their_columns_hold(name, size, clock, tmp_path, chinese):
    app = build_app(
        DemoEngine(clock=clock), clock=clock, refresh_hz=0.001, theme="evewatch",
        language="zh", log=OptLog(tmp_path / "log.jsonl"),
    )  # fmt: skip
    async with app.run_test(size=size) as pilot:
        c = Console(app, pilot, clock)
        await c.until(lambda: app.bridge.phase is EnginePhase.UP)
        await c.pass_time()
        await c.press(*SCREENS[name])
        await c.pass_time()
        rows = c.screen.splitlines()
        footer = app.top_screen.footer.text
    assert all(cell_len(row) == size[0] for row in rows)
    assert any("一" <= letter <= "鿿" for letter in "".join(rows))
    assert "帮助" in footer and "退出" in footer


async def test_little_of_the_overview_stays_english(clock, chinese):
    app = build_app(DemoEngine(clock=clock), clock=clock, refresh_hz=0.001, language="zh")
    async with app.run_test(size=(120, 40)) as pilot:
        c = Console(app, pilot, clock)
        await c.until(lambda: app.bridge.phase is EnginePhase.UP)
        await c.pass_time()
        texts = [p.text for p in app.overview.panels if p.spec.title != "Events"]
        left = {word for text in texts for word in LATIN.findall(text)}  # events: as told
        left |= set(LATIN.findall(plain(app.overview.header._lines[0])))
    assert left <= KEPT | {"space"}


def test_names_in_reports_stay_as_they_are_typed(chinese):
    report = {"playbooks": [{"name": "soak", "title": "Soak", "steps": ["soak", "load"]}]}
    table = playbooks_document(report).tables[0]
    said = [lang._(cell) for cell in table.texts()[0]]
    assert said[0] == "soak" and said[2] == "soak, load" and not LATIN.search(said[1])


@pytest.mark.parametrize(
    ("english", "said"),
    [
        ("Thu 24 Dec 00:00", "12月24日周四 00:00"),
        ("Thu 24 Dec 2026 00:00", "2026年12月24日周四 00:00"),
        ("Mon 30 Nov", "11月30日周一"),
        ("Fri 09:30", "周五 09:30"),
        ("saturates Fri 09:30", "饱和 周五 09:30"),
        ("Forecast Thu 24 Dec 00:00, 24 h", "预测 12月24日周四 00:00 起 24 h"),
        ("Sun", "Sun"),
        ("45 MiB of 2.0 GiB", "45 MiB/2.0 GiB"),
        ("142 of 200 %", "142/200 %"),
        ("9% of 512", "512 的 9%"),
    ],
)
def test_dates_and_parts_of_a_whole(english, said, chinese):
    assert lang._(english) == said


def test_a_groups_page_says_what_its_commands_do_in_chinese(chinese, monkeypatch):
    monkeypatch.setenv(lang.VARIABLE, "zh")
    shown = CliRunner().invoke(command_line, ["--lang", "zh", "playbook", "--help"]).output
    commands = [row for row in shown.splitlines() if re.match("  [a-z]+ ", row)]
    assert len(commands) == 7 and all(re.search("[一-鿿]", row) for row in commands)
    assert not [row for row in commands if row.endswith("...")]
