"""`evewatch canary`: data on standard output, exit codes, and bad input in one line."""

import json

import pytest
from typer.testing import CliRunner

from builders import tiny_spec, tiny_tensors
from console import cli
from console.commands.canary import event_text
from console.exits import Exit
from engine.errors import ConfigError
from model_files import write_hf
from playbooks.canary.events import Beat, Decided, Phase, StageBegan
from playbooks.optlog import OptLog
from report_schemas import violations
from served import serving


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    spec = tiny_spec()
    return write_hf(tmp_path_factory.mktemp("model"), spec, tiny_tensors(spec))


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def tiny(folder, *more):
    return ("canary", "--model", folder, "--set", "kernels=reference", "--max-batch", 8,
            "--set", "token_budget=64", "--kv-memory", "4M", "--lengths", "lognormal:8,3,0.3",
            "--arrivals", "poisson:60", "--waive", "quality,memory", "--min-samples", 30,
            *more)  # fmt: skip


def test_two_engines_on_real_time(folder):
    """The candidate cannot serve most requests: it goes back, and the log says so."""
    times = ("--least", 1, "--hold", 30, "--stages", "30,100", "--json", "--quiet")
    done = run(*tiny(folder, "--change", "max_model_len=9", *times))
    assert done.exit_code == Exit.GATE_FAILED, done.output
    report = json.loads(done.stdout)
    assert violations(report, "canary") == []
    assert report["decisions"][-1]["rules"] == ["errors"]
    assert report["rollback"]["routed_after"] == 0
    assert report["rollback"]["left"] == 0
    records = OptLog().read().records
    assert records[-1].decision == "rolled_back"
    assert records[-1].what[0].after == 9


def test_undecided_has_its_own_code_and_nothing_is_logged_when_not_wanted(folder, tmp_path):
    times = ("--least", 0.5, "--hold", 1, "--stages", "50", "--tail-ratio", 1.001, "--no-log")
    done = run(*tiny(folder, "--change", "max_waiting=99", *times, "--out", tmp_path / "c.json"))
    assert done.exit_code == Exit.INCONCLUSIVE, done.output
    assert "undecided" in done.stdout
    assert "canary: 50 % of the users to the candidate" in done.stderr
    assert json.loads((tmp_path / "c.json").read_text())["outcome"] == "undecided"
    assert not OptLog().read().records


def test_care_for_two_urls_is_that_of_a_check(monkeypatch):
    """A share that cannot be kept ends it before any traffic, and it says what it will send."""
    monkeypatch.setattr("playbooks.outside.traffic.ROOM_WAIT_S", 0.2)
    with serving() as one, serving() as other:
        done = run("canary", "--baseline", one.url, "--candidate", other.url, "--max-share", "50%",
                   "--stages", "50", "--least", 1, "--hold", 9, "--no-log", "--json")  # fmt: skip
    assert done.exit_code == Exit.INCONCLUSIVE, done.output
    report = json.loads(done.stdout)
    assert violations(report, "canary") == []
    assert "runs too little else for a share of 50%" in report["why"]
    assert report["routed"] == {"baseline": 0, "candidate": 0}
    assert "canary: will send about" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "nothing to try"),
        (("--change", "max_batch"), "expected setting=value"),
        (("--change", "speed=9"), "unknown setting"),
        (("--change", "max_batch=32"), "are the same"),
        (("--change", "max_batch=8", "--stages", "50,10"), "rising"),
        (("--change", "max_batch=8", "--stages", "a"), "percentages"),
        (("--change", "max_batch=8", "--time-scale", "0"), "--time-scale"),
        (("--change", "max_batch=8", "--min-samples", "5"), "--min-samples"),
        (("--change", "max_batch=8", "--waive", "luck"), "waive"),
        (("--change", "max_batch=8", "--out", "x.pdf"), "ending in"),
        (("--change", "max_batch=8", "--arrivals", "luck:1"), "arrivals"),
        (("--baseline", "http://a"), "--candidate URL is missing"),
        (("--candidate", "http://a"), "--baseline URL is missing"),
        (("--baseline", "http://a", "--candidate", "http://a"), "are the same"),
        (("--baseline", "http://a", "--candidate", "b"), "expected embedded"),
        (
            ("--baseline", "http://a", "--candidate", "http://b", "--change", "max_batch=8"),
            "--change",
        ),
        (("--baseline", "http://a", "--candidate", "http://b", "--max-batch", "8"), "--max-batch"),
        (("--change", "max_batch=8", "--guard", "waiting=3"), "for --baseline URL"),
        (("--change", "max_batch=8", "--max-share", "20%"), "for --baseline URL"),
        (("--baseline", "http://a", "--candidate", "http://b", "--guard", "speed=3"), "--guard"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(arguments, why):
    done = run("canary", *arguments)
    assert isinstance(done.exception, ConfigError), done.output
    assert why in str(done.exception)
    assert "\n" not in str(done.exception)


def test_what_is_told_while_it_runs():
    beat = Beat(0.1, 12.0, 60.0, 7, 70, 30, 1, 4)
    text, lasting = event_text(beat)
    assert text.startswith("10 % · 12 of at least 60 s · candidate 7 of 30")
    assert "1 failed" in text and not lasting
    decided = Decided({"title": "hold at 10 %", "why": "too few"})
    assert event_text(decided) == ("canary: hold at 10 %: too few", True)
    assert event_text(Phase("load", "both sides"))[1]
    assert event_text(StageBegan(1, 0.1, 4)) == ("", False)
