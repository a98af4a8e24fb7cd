"""`evewatch quality --target URL`: answers are recorded, and held against others."""

import json
import signal

import pytest
from typer.testing import CliRunner

from console import cli
from console.exits import Exit
from engine.errors import ConfigError
from playbooks.outside import quality
from served import serving

CASES = "".join(
    json.dumps({"id": f"c{i}", "prompt": f"red {i} green blue", "max_tokens": 12}) + "\n"
    for i in range(12)
)


@pytest.fixture(scope="module")
def url():
    with serving(max_positions=1024) as served:
        yield served.url


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases.jsonl").write_text(CASES)


def run(*arguments):
    return CliRunner().invoke(cli.app, ["quality", *map(str, arguments)])


def ask(url, *flags):
    done = run("--target", url, "--quick", "--no-golden", "--cases", "cases.jsonl", "--json",
               "--quiet", "--no-log", *flags)  # fmt: skip
    return done, json.loads(done.stdout)


def gates(report):
    return {gate["metric"]: gate["verdict"] for gate in report["steps"][0]["gates"]}


def test_answers_recorded_are_kept_by_the_same_target(url, tmp_path):
    done, report = ask(url, "--record", "a.json")
    assert done.exit_code == Exit.PASSED, (report["steps"][0]["reason"], report["findings"])
    assert gates(report) == {"mixed_answers": "pass", "failed_limits": "not told",
                             "unclear": "pass"}  # fmt: skip
    assert len(json.loads((tmp_path / "a.json").read_text())["texts"]) == 12
    done, report = ask(url, "--against", "a.json")
    assert done.exit_code == Exit.PASSED, (report["steps"][0]["reason"], report["findings"])
    assert gates(report)["failed_limits"] == "pass"


def test_other_answers_fail(url, tmp_path):
    ask(url, "--record", "a.json")
    kept = json.loads((tmp_path / "a.json").read_text())
    kept["texts"] = dict.fromkeys(kept["texts"], "quite another answer than before")
    (tmp_path / "b.json").write_text(json.dumps(kept))
    done, report = ask(url, "--against", "b.json")
    assert done.exit_code == Exit.GATE_FAILED
    assert gates(report)["failed_limits"] == "fail"


def test_a_second_url_stands_for_a_file(url):
    done, report = ask(url, "--against", url)
    assert (done.exit_code, gates(report)["failed_limits"]) == (Exit.PASSED, "pass")


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--record", "a.json"), "of --target URL"),
        (("--target", "http://127.0.0.1:9", "--against", "none.json"), "cannot be read"),
        (("--target", "http://127.0.0.1:9", "--record", "no/a.json"), "its folder is not there"),
        (("--target", "http://127.0.0.1:9", "--kv-format", "fp16"), "sets the embedded engine"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(flags, what):
    done = run(*flags)
    assert isinstance(done.exception, ConfigError)
    assert what in str(done.exception)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_report_and_is_told_by_the_exit_code(url, monkeypatch, kind):
    def ended(site, params, clock):
        signal.raise_signal(kind)

    monkeypatch.setattr(quality, "run_quality", ended)
    done, report = ask(url, "--record", "a.json")
    assert done.exit_code == Exit.INTERRUPTED
    assert report["state"] == report["steps"][0]["verdict"] == "interrupted"
