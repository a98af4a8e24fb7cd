"""The table [objectives]: read, or refused in one line that says where and what."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from console.commands.settings import engine_config, objectives
from engine.errors import ConfigError
from engine.observing.objectives import Objective
from engine.remote.fleet.fleet import read_fleet
from playbooks.objectives.file import load

TEXT = """
[engine]
max_batch = 8
[objectives]
window = "8d"
ttft = { within = "500ms", share = 0.99 }
[objectives.e2e]
within = 30
share = 0.95
[objectives.availability]
share = 0.999
"""


def write(tmp_path: Path, text: str = TEXT, name: str = "evewatch.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_objectives_are_read(tmp_path):
    found = load(write(tmp_path))
    assert found is not None and found.window_s == 8 * 86_400 and found.begins is None
    assert found.each == (
        Objective("ttft", 0.99, 0.5), Objective("e2e", 0.95, 30.0),
        Objective("availability", 0.999, None),
    )  # fmt: skip
    assert load(write(tmp_path, "[engine]\n")) is None


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-12-24", datetime(2026, 12, 24)),
        ("2026-12-24T18:00:00", datetime(2026, 12, 24, 18)),
        ('"2026-12-24 18:00"', datetime(2026, 12, 24, 18)),
        ("2026-12-24T18:00:00+08:00", datetime.fromisoformat("2026-12-24T18:00:00+08:00")),
    ],
)
def test_a_window_may_begin_at_a_time(tmp_path, text, at):
    found = load(write(tmp_path, TEXT.replace('"8d"', f'"8d"\nbegins = {text}')))
    assert found is not None and found.begins == at.timestamp()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('window = "8d"', ""), "evewatch.toml:4: window: is missing"),
        (('window = "8d"', 'window = "soon"'), "evewatch.toml:5: window: .*not a time"),
        (('window = "8d"', 'window = "8d"\nbegins = "noon"'), ":6: begins: .*no time"),
        (("share = 0.99 ", "share = 1.0 "), "evewatch.toml:6: share: expected below 1, got 1"),
        (("share = 0.999", "share = 0"), ":11: share: expected above 0"),
        (("share = 0.999", "share = 0.9\nwithin = 3"), "unknown key 'within'"),
        (("[objectives.e2e]", "[objectives.e2ee]"), "did you mean 'e2e'"),
        (("ttft = {", "ttft_p99 = {"), "did you mean 'ttft'"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, change, words):
    with pytest.raises(ConfigError, match=words) as error:
        load(write(tmp_path, TEXT.replace(*change)))
    assert "\n" not in str(error.value)


def test_a_window_alone_promises_nothing(tmp_path):
    with pytest.raises(ConfigError, match="no objective beside it"):
        load(write(tmp_path, '[objectives]\nwindow = "8d"\n'))


def test_settings_of_the_engine_stand_beside_them(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert engine_config({}, environment={}).max_batch == 8
    found = objectives(environment={})
    assert found is not None and len(found.each) == 3


def test_those_of_a_fleet_file_come_first(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    fleet = write(tmp_path, '[[target]]\nurl = "http://a:1"\n', "fleet.toml")
    assert objectives(fleet, {}) == load(tmp_path / "evewatch.toml")
    own = '[objectives]\nwindow = "1d"\navailability = { share = 0.9 }\n'
    fleet.write_text(fleet.read_text() + own)
    found = objectives(fleet, {})
    assert found is not None and found.window_s == 86_400 and len(found.each) == 1
    targets, _ = read_fleet(fleet)
    assert [one.url for one in targets] == ["http://a:1"]
