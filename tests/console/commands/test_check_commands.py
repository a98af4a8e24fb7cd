"""check and playbook: exit codes, data on standard output, bad input in one line."""

import json

import pytest
from typer.testing import CliRunner

from checkups import tiny_folder
from console import cli
from console.exits import Exit
from engine.errors import ConfigError, ModelError
from kernels import dispatch
from playbooks.optlog import OptLog
from playbooks.runs import spec

TINY = """
[[steps]]
kind = "soak"
with = { requests = 48, waves = 6 }
[[steps.gates]]
metric = "left"
op = "=="
value = 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    dispatch.select("cpu")  # built, if it must be, before the tests have a home of their own
    return tiny_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY)


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def tiny(folder):
    return ("--model", folder, "--set", "kernels=cpu", "--max-batch", 16, "--kv-memory", "8M")


def test_a_check_that_passes(folder, tmp_path):
    done = run("check", "tiny.toml", *tiny(folder), "--json", "--folder", "r")
    assert done.exit_code == Exit.PASSED, done.output
    report = json.loads(done.stdout)
    assert (report["kind"], report["verdict"]) == ("check", "pass")
    assert [step["id"] for step in report["steps"]] == ["soak"]
    assert report["steps"][0]["gates"][0]["verdict"] == "pass"
    assert report["findings"][0]["cause"] == "healthy"
    assert {p.name for p in (tmp_path / "r").iterdir()} == {
        "report.json", "report.md", "report.html",
    }  # fmt: skip
    assert "[1/1] soak" in done.stderr
    assert len(OptLog().read().records) == 1


@pytest.mark.parametrize(
    ("options", "code", "first"),
    [
        (("--inject", "leak_pages"), Exit.GATE_FAILED, "leak"),
        (("--withhold", "growth"), Exit.INCONCLUSIVE, "inconclusive"),
        (("--time-budget", "1ms"), Exit.INCONCLUSIVE, None),
    ],
)
def test_exit_codes(folder, options, code, first):
    done = run("check", "tiny.toml", *tiny(folder), *options, "--json", "--quiet", "--no-log")
    assert done.exit_code == code, done.output
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert first is None or report["findings"][0]["cause"] == first
    assert not OptLog().path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check",), "name a playbook"),
        (("check", "nix"), "there are batch_tuning"),
        (("check", "tiny.toml", "--inject", "nix"), "fault 'nix' is not known"),
        (("check", "tiny.toml", "--withhold", "nix"), "nothing in tiny looks at it"),
        (("check", "tiny.toml", "--time-budget", "soon"), "is not a time"),
        (("check", "tiny.toml", "--target", "ftp://x"), "expected embedded"),
        (("check", "tiny.toml", "--target", "http://localhost:9", "--max-batch", "3"),
         "sets the embedded engine"),
        (("check", "tiny.toml", "--model", "nowhere"), "nowhere"),
        (("playbook", "show", "nix"), "there are batch_tuning"),
        (("playbook", "new", "x.txt"), "ending in .toml"),
        (("playbook", "new", "tiny.toml"), "exists already"),
        (("check", "tiny.toml", "--with", "waves=2"), "waves: expected at least 4"),
        (("check", "tiny.toml", "--with", "duration_s=x"), "is not a time"),
        (("check", "tiny.toml", "--with", "waves"), "expected step.parameter=value"),
        (("check", "tiny.toml", "--with", "soak.speed=2"), "known: soak.requests"),
        (("check", "soak", "--with", "requests=2"), "say which: soak.requests, load.requests"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(arguments, message):
    done = run(*arguments)
    assert isinstance(done.exception, ConfigError | ModelError)
    assert message in str(done.exception)
    assert done.stdout == ""


def test_a_target_that_is_not_there(tmp_path):
    (tmp_path / "load.toml").write_text('[[steps]]\nkind = "load"\nwith = { requests = 2 }\n')
    done = run("check", "load.toml", "--target", "http://localhost:9", "--json", "--quiet",
               "--no-log")  # fmt: skip
    assert done.exit_code == Exit.UNREACHABLE
    assert json.loads(done.stdout)["steps"][0]["verdict"] == "error"


def test_playbooks_are_listed_shown_validated_and_made(tmp_path):
    rows = json.loads(run("playbook", "list", "--json").stdout)["playbooks"]
    assert {row["name"] for row in rows} == set(spec.names())
    shown = json.loads(run("playbook", "show", "pre_holiday", "--json").stdout)
    assert {step["kind"] for step in shown["steps"]} >= {"environment", "sweep", "soak"}
    assert "gate   " in run("playbook", "show", "quick_check").stdout
    assert run("playbook", "new", "mine.toml", "--from", "soak").exit_code == Exit.PASSED
    assert run("playbook", "validate", "mine.toml").exit_code == Exit.PASSED
    text = (tmp_path / "mine.toml").read_text().replace('kind = "soak"', 'kind = "saok"')
    (tmp_path / "mine.toml").write_text(text)
    wrong = run("playbook", "validate", "mine.toml")
    line = text.splitlines().index('kind = "saok"') + 1
    assert f"mine.toml:{line}: kind 'saok'" in str(wrong.exception)


def test_the_faults_are_listed():
    rows = json.loads(run("check", "--list-faults", "--json").stdout)["faults"]
    assert {"fault": "leak_pages", "cause": "leak"}.items() <= rows[0].items()


def test_a_self_test_prints_its_table(folder):
    done = run("playbook", "selftest", "--inject", "leak_pages", "--seeds", 0, *tiny(folder),
               "--set", "token_budget=256", "--quiet")  # fmt: skip
    assert done.exit_code == Exit.PASSED, done.output
    assert "leak_pages" in done.stdout
    assert "confidence" in done.stdout
    (record,) = OptLog().read().records
    assert record.title == "Self-test of the diagnosis: pass"


def test_a_soak_says_what_requests_held(folder):
    """Before, during and after: what the ledger counts, and nothing is left of it."""
    command = ("check", "tiny.toml", *tiny(folder), "--with", "soak.storms=false")
    done = run(*command, "--json", "--quiet", "--no-log")
    assert done.exit_code == Exit.PASSED, done.output
    (step,) = json.loads(done.stdout)["steps"]
    assert step["parameters"]["storms"] is False
    held = step["report"]["held"]
    assert held["during"]["requests"] > 0
    assert held["after"] == held["before"]
    text = run(*command, "--quiet", "--no-log").stdout
    assert "soak: per request served" in text and "soak: held by requests" in text


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--guard", "ttft=1", "--target", "http://127.0.0.1:9"), "--guard 'ttft=1': expected"),
        (("--max-share", "half", "--target", "http://127.0.0.1:9"), "--max-share: 'half'"),
        (("--disruptive",), "--disruptive: is of a target that others use"),
        (("--guard", "waiting=3"), "--guard: is of a target that others use"),
    ],
)
def test_care_that_cannot_be_taken_is_refused(flags, what):
    done = run("check", "quick_check", "--no-log", *flags)
    assert isinstance(done.exception, ConfigError)
    assert what in str(done.exception)


def test_a_check_of_an_engine_at_a_url(folder, tmp_path):
    """The load runs there and its metrics are read; what is inside stays unknown."""
    from checkups import tiny_site
    from console.server import ServerSettings, serve_in_thread

    text = '[[steps]]\nkind = "load"\n[steps.with]\nlengths = "lognormal:8,6,0.2"\nrequests = 24\n'
    gate = '[[steps.gates]]\nmetric = "error_rate"\nop = "=="\nvalue = 0\n'
    (tmp_path / "url.toml").write_text(text + gate + '[[steps]]\nkind = "compare"\n')
    with (
        tiny_site(folder).engine() as engine,
        serve_in_thread(engine, ServerSettings(port=0, drain_s=0)) as server,
    ):
        command = ("check", "url.toml", "--target", server.url, "--json", "--quiet", "--no-log")
        done, strict = run(*command), run(*command, "--require", "inside")
    report = json.loads(done.stdout)
    load, compare = report["steps"]
    assert (load["verdict"], compare["verdict"]) == ("pass", "not available")
    assert load["metrics"]["requests"] == 24
    assert load["metrics"]["output_tok_s"] > 0
    assert load["metrics"]["logging_share"] is None
    assert (done.exit_code, report["view"]) == (Exit.PASSED, "outside")
    assert "logging_overhead" in report["blind_spots"][-1]
    assert strict.exit_code == Exit.INCONCLUSIVE, json.loads(strict.stdout)["findings"]
    assert "logging_share" in json.loads(strict.stdout)["findings"][-1]["missing"]
