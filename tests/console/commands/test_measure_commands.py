"""The measuring commands: data on standard output, exit codes, exports, bad input in one line."""

import json

import pytest
import typer
from typer.testing import CliRunner

from builders import tiny_spec, tiny_tensors
from console import cli
from console.commands.engine_flags import parse_change
from console.exits import Exit
from engine.errors import ConfigError
from model_files import write_hf
from playbooks.reports import results
from report_schemas import violations


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    spec = tiny_spec()
    return write_hf(tmp_path_factory.mktemp("model"), spec, tiny_tensors(spec))


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def tiny(folder):
    return ("--model", folder, "--max-batch", 8, "--set", "token_budget=32", "--kv-memory", "4M")


def test_profile_writes_data_and_every_export(folder, tmp_path):
    done = run(
        "profile", *tiny(folder), "--arrivals", "closed:4", "--lengths",
        "lognormal:10,6", "--requests", 12, "--json", "--quiet",
        "--out", tmp_path / "p.html", "--out", tmp_path / "p.csv",
    )  # fmt: skip
    assert done.exit_code == Exit.PASSED, done.output
    report = json.loads(done.stdout)
    assert violations(report, "profile") == []
    assert "<svg" in (tmp_path / "p.html").read_text("utf-8")
    assert (tmp_path / "p.csv").read_text("utf-8").startswith("stage,share")
    assert next(results.saved("profile"))["seconds"] == report["seconds"]


def test_profile_for_people_says_what_is_hot(folder):
    done = run("profile", *tiny(folder), "--arrivals", "closed:2", "--lengths", "fixed:8,6",
               "--requests", 4, "--quiet")  # fmt: skip
    assert done.exit_code == Exit.PASSED, done.output
    assert "of request time" in done.stdout
    assert "4 requests" in done.stdout  # the warning
    assert "█" in done.stdout


def test_a_sweep_that_cannot_tell_ends_with_inconclusive(folder):
    size = ("--repeats", 2, "--least-requests", 4, "--requests-per-user", 2)
    work = ("--batches", "1,2,4", "--lengths", "lognormal:8,8")
    done = run("sweep", *tiny(folder), *work, *size, "--json", "--quiet")
    assert done.exit_code == Exit.INCONCLUSIVE, done.output
    report = json.loads(done.stdout)
    assert report["abstained"] is True
    assert report["reasons"]
    assert [p["batch"] for p in report["points"]] == [1, 2, 4]


def test_a_comparison_from_flags_is_kept_for_the_option_matrix(folder):
    done = run("compare", *tiny(folder), "--change", "kv_format=fp16", "--requests", 6,
               "--repeats", 2, "--prompt-mean", 8, "--output-mean", 5,
               "--json", "--quiet")  # fmt: skip
    assert done.exit_code == Exit.PASSED, done.output
    report = json.loads(done.stdout)
    assert [arm["name"] for arm in report["arms"]] == ["base", "kv_format=fp16"]
    options = json.loads(run("explain", "--options", "--json").stdout)
    row = next(r for r in options["options"] if r["id"] == "kv_quantisation")
    assert row["claim"] == "measured here"
    assert row["measured"]["change"] < 0  # switching it off was turned round


def test_a_goal_that_is_missed_ends_with_its_code(folder, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        'kv_rows = 4\n[work]\nprompt_mean = 8\noutput_mean = 5\nlongest = 64\n'
        "[size]\nrepeats = 2\nbatch_requests = 6\n[base]\nmax_batch = 4\n"
        '[[arm]]\nname = "a"\nchanges = { kv_format = "fp16" }\n[[arm]]\nname = "b"\n'
        'changes = { kv_format = "int8_channel" }\n'
        '[[goal]]\nmetric = "kv_bytes_per_token"\nat_most = 0.1\n',
        "utf-8",
    )  # fmt: skip
    done = run("compare", *tiny(folder), "--experiment", path, "--quiet", "--no-quality")
    assert done.exit_code == Exit.GATE_FAILED, done.output
    assert "fail" in done.stdout


def test_base_settings_come_from_a_file(folder, tmp_path):
    (tmp_path / "base.toml").write_text(
        f'[engine]\nmodel = "{folder}"\nmax_batch = 4\ntoken_budget = 32\nkv_memory = "4M"\n'
    )
    size = ("--requests", 4, "--repeats", 2, "--prompt-mean", 8, "--output-mean", 5)
    base = ("--base", tmp_path / "base.toml")
    done = run("compare", *base, "--change", "max_batch=2", *size, "--json", "--quiet")
    assert done.exit_code == Exit.PASSED, done.output
    assert [a["config"]["max_batch"] for a in json.loads(done.stdout)["arms"]] == [4, 2]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("compare",), "nothing to compare"),
        (("compare", "--change", "policy=static,kv_format=fp16"), "at once"),
        (("compare", "--change", "kv_format"), "expected setting=value"),
        (("compare", "--change", "speed=9"), "unknown setting"),
        (("compare", "--experiment", "nobody"), "those that ship"),
        (("compare", "--change", "seed=1", "--repeats", "1"), "--repeats: expected at least 2"),
        (("sweep", "--batches", "4,2"), "sizes that rise"),
        (("sweep", "--batches", "a"), "whole numbers"),
        (("sweep", "--p99-of", "luck"), "--p99-of"),
        (("profile", "--requests", "0"), "--requests"),
        (("profile", "--out", "x.pdf"), "ending in"),
        (("explain", "--options", "--sort", "luck"), "--sort"),
        (("explain", "--options", "--out", "none/x.md"), "no folder"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(arguments, why):
    done = run(*arguments)
    assert isinstance(done.exception, ConfigError)
    assert why in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_result_that_cannot_be_kept_is_still_shown(tmp_path, monkeypatch, folder):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "file"))
    done = run("profile", *tiny(folder), "--arrivals", "closed:2", "--lengths", "fixed:8,6",
               "--requests", 4, "--json")  # fmt: skip
    assert done.exit_code == Exit.PASSED
    assert json.loads(done.stdout)["kind"] == "profile"
    assert "not kept" in done.stderr


def test_settings_from_text():
    assert parse_change("policy=static, max_batch=4") == {"policy": "static", "max_batch": 4}


def test_every_measuring_command_has_help():
    for name in ("profile", "sweep", "compare", "quality"):
        assert run(name, "--help").exit_code == 0
    assert typer.main.get_command(cli.app)
