"""`evewatch alerts`: test, show, silence."""

import json
import sys
import time
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from console.cli import app
from console.commands.alerting import alone, keeping
from console.commands.settings import alerts_file, engine_config
from console.commands.watch import _snapshots as watched
from engine.errors import ConfigError
from engine.remote.fleet.fleet import FleetTarget, attach_all
from engine.snapshot import Snapshot, Source, SourceState
from playbooks.optlog import OptLog
from remote_stub import SocketServer
from report_schemas import violations


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))


def run(*args):
    return CliRunner().invoke(app, ["alerts", *args])


def way(tmp_path, code):
    file = tmp_path / "a.toml"
    file.write_text(
        f'[[ways]]\nkind = "command"\nargv = [{sys.executable!r}, "-c", {code!r}]\nlimit = "20s"\n'
    )
    return str(file)


def test_a_test_alert_goes_out_on_every_way(tmp_path):
    out = tmp_path / "out"
    code = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())"
    done = run("test", way(tmp_path, code))
    assert done.exit_code == 0 and "all took it" in done.stdout
    assert json.loads(out.read_text())["text"] == "nothing is wrong"


def test_a_way_that_does_not_take_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("console.commands.alerts.TRY_S", 2.0)
    file = tmp_path / "a.toml"
    file.write_text('[[ways]]\nkind = "command"\nargv = ["sh", "-c", "echo full >&2; exit 1"]\n')
    done = run("test", str(file))
    assert done.exit_code == 1 and "ended with 1: full" in done.stdout


def test_a_file_without_ways_tells_nobody(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text("")
    with pytest.raises(ConfigError, match="names no"):
        raise run("test", str(file)).exception


def test_a_silence_is_kept_shown_and_logged():
    assert "is silent until" in run("silence", "queue*", "--for", "2h", "--reason", "test").stdout
    shown = json.loads(run("show", "--json").stdout)
    assert violations(shown, "alerts") == []
    (one,) = shown["silences"]
    assert (one["rule"], one["target"], one["reason"]) == ("queue*", "*", "test")
    assert OptLog().read().records[-1].title == "Alert silence: queue*"
    with pytest.raises(ConfigError, match="--reason"):
        raise run("silence", "queue*", "--for", "2h", "--reason", " ").exception


def test_nobody_has_kept_watch_yet():
    assert "nobody has kept watch here yet" in run("show").stdout


def test_settings_may_name_the_file_of_alerts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert alerts_file(environment={}) is None
    settings = tmp_path / "evewatch.toml"
    settings.write_text('[engine]\nmax_batch = 8\n[alerts]\nfile = "a.toml"\n')
    assert alerts_file(environment={}) == tmp_path / "a.toml"
    assert engine_config({}, environment={}).max_batch == 8
    with pytest.raises(ConfigError, match=r"a\.toml: cannot be read"), keeping(None, dict):
        pass
    settings.write_text('[alerts]\nfiel = "a.toml"\n')
    with pytest.raises(ConfigError, match=r"evewatch.toml:2: .*did you mean 'file'"):
        alerts_file(environment={})


def test_a_target_that_never_answered_is_looked_after_too():
    dead = SocketServer({}).start()
    dead.kill()
    fleet = attach_all([FleetTarget(dead.url, name="a")])
    assert watched(fleet)["a"].source.state is SourceState.STALE
    fleet.poll()
    assert watched(fleet)["a"].source.state is SourceState.UNREACHABLE
    fleet.stop()


def test_an_engine_whose_thread_hangs_is_no_live_one():
    """Nothing says so but the age of what it showed last."""
    engine = SimpleNamespace(
        stale_after_s=5.0,
        snapshot=lambda: Snapshot(seq=1, time=time.time() - 60, source=Source(target="a")),
    )
    (seen,) = alone(engine)().values()
    assert seen.source.state is SourceState.STALE and "hung" in (seen.source.reason or "")
