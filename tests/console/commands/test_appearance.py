import pytest
from typer.testing import CliRunner

from console import themes
from console.cli import app
from console.locale import lang
from engine.errors import ConfigError


@pytest.mark.parametrize("command", [["up", "--demo"], ["watch", "http://x"], ["replay", "x"]])
@pytest.mark.parametrize(
    ("option", "value", "known"),
    [("--lang", "xx", "en, zh"), ("--theme", "pink", "dark, light, contrast, mono")],
)
def test_every_console_takes_its_looks_and_refuses_what_there_is_not(command, option, value, known):
    done = CliRunner().invoke(app, [*command, option, value])
    assert isinstance(done.exception, ConfigError)
    assert f"{option}: {value!r} is not one of {known}" in str(done.exception)


def test_what_was_chosen_wins_over_what_the_terminal_says(monkeypatch):
    assert lang.wanted({lang.VARIABLE: "zh", "LC_ALL": "C"}) == "zh"
    assert themes.suits({themes.VARIABLE: "light", "NO_COLOR": "1"}) == "evewatch-light"
    assert themes.suits({themes.VARIABLE: "pink", "TERM": "vt100"}) == "evewatch-mono"
