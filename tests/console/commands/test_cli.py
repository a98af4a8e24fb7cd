"""The command line as a script sees it: standard output, standard error, exit code."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from builders import tiny_spec, tiny_tensors
from console.cli import main
from model_files import write_hf
from repository import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    spec = tiny_spec()
    return str(write_hf(tmp_path_factory.mktemp("model"), spec, tiny_tensors(spec)))


@pytest.fixture
def short_roofline(monkeypatch):
    """Three passes: the least that a limit of the machine is measured with."""
    monkeypatch.setattr("playbooks.measure.machine_limits.LOOK_S", 0)


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def evewatch(monkeypatch, tmp_path):
    """Run a command in this process, as the console script does."""

    def run(*arguments, cwd=tmp_path, stdin="", **environment):
        monkeypatch.setattr(sys, "argv", ["evewatch", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        monkeypatch.chdir(cwd)
        out, err = io.StringIO(), io.StringIO()
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
                main()
        return Done(ended.value.code or 0, out.getvalue(), err.getvalue())

    return run


def assert_refused(done, *words):
    """Exit 2, one line on standard error, nothing on standard output."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


def test_the_program_runs_from_the_checkout():
    done = subprocess.run(
        [sys.executable, "main.py", "--version"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout.startswith("evewatch ")


def test_help_and_version(evewatch):
    assert "bench" in evewatch("--help").stdout
    assert evewatch("--version").stdout.startswith("evewatch ")


def test_generate_streams_text_and_nothing_else(evewatch, folder):
    done = evewatch("generate", "the world", "--model", folder, "--max-tokens", "5", "--raw")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n")


def test_generate_json_is_one_object(evewatch, folder, tmp_path):
    out = tmp_path / "answer.json"
    done = evewatch(
        "generate", "-", "--model", folder, "--max-tokens", "5", "--json", "--out", str(out),
        stdin="the world",
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["output_tokens"] <= 5
    assert json.loads(out.read_text()) == report


def test_bench_json_on_stdout_only(evewatch, folder, short_roofline):
    done = evewatch(
        "bench", "--model", folder, "--requests", "4", "--prompt-mean", "10", "--output-mean", "5",
        "--max-batch", "4", "--set", "token_budget=16", "--kv-memory", "4M", "--json",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["kind"] == "bench"
    assert {"throughput", "latency", "kv", "machine", "roofline_fraction", "memory"} <= set(report)


def test_bench_for_people(evewatch, folder, short_roofline):
    done = evewatch(
        "bench", "--model", folder, "--requests", "2", "--prompt-mean", "8", "--output-mean", "4",
        "--kv-memory", "16M", "--set", "kernels=reference",
    )  # fmt: skip
    assert done.returncode == 0
    assert "roofline" in done.stdout


def test_model_info(evewatch, folder):
    report = json.loads(evewatch("model", "info", folder, "--json").stdout)
    assert (report["layers"], report["eos_ids"]) == (2, [2])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "x", "--model", "/no/such"], ["/no/such", "does not exist"]),
        (["generate", "  "], ["prompt"]),
        (["generate", "x", "--max-tokens", "0"], ["max_tokens"]),
        (["generate", "x", "--temperature", "nan"], ["temperature"]),
        (["generate", "x", "--kv-format", "int7"], ["kv_format", "int7", "fp16"]),
        (["bench", "--kv-memory", "lots"], ["lots", "512M"]),
        (["bench", "--max-batch", "0"], ["max_batch"]),
        (["bench", "--sigma", "-1"], ["--sigma"]),
        (["bench", "--workload", "/no/such.json"], ["/no/such.json"]),
        (["up", "--rate", "0"], ["--rate"]),
        (["up"], ["terminal"]),
    ],
)
def test_bad_input_gets_one_line_and_exit_2(evewatch, arguments, words):
    assert_refused(evewatch(*arguments), *words)


@pytest.mark.parametrize(
    ("arguments", "now"),
    [
        (["soak"], "`evewatch check soak`"),
        (["ledger", "--json"], "`evewatch check soak`"),
        (["options", "--sort", "gain"], "`evewatch explain --options`"),
        (["calibrate", "--out", "c.json"], "`evewatch model calibrate`"),
        (["check", "--self-test"], "`--self-test` is now `evewatch playbook selftest`"),
        (["check", "quick_check", "--report", "r"], "`--report DIR` is now `--folder DIR`"),
        (["compare", "--export", "c.md"], "`--export FILE` is now `--out FILE`"),
        (["bench", "--token-budget", "64"], "`--token-budget N` is now `--set token_budget=N`"),
        (["serve", "--dynamic"], "`--dynamic` is now `--set dynamic_batch=true`"),
        (["quality", "--page-tokens=32"], "`--page-tokens N` is now `--set page_tokens=N`"),
        (["checklist", "run", "x", "--seconds", "3"], "`--duration TIME`"),
        (["up", "--engine", "http://h:1"], "`evewatch watch http://h:1`"),
    ],
)
def test_an_old_name_says_the_new_one(evewatch, arguments, now):
    assert_refused(evewatch(*arguments), now)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "--set", "token_bugdet=64"], ["token_bugdet", "did you mean token_budget"]),
        (["bench", "--set", "token_budget"], ["expected setting=value"]),
        (["bench", "--set", "token_budget=lots"], ["token_budget", "not a number"]),
        (["bench", "--set", "max_batch=4", "--max-batch", "8"], ["--max-batch and with --set"]),
        (["bench", "--sead", "1"], ["bench", "--sead", "--seed"]),
        (["bnech"], ["bnech", "bench"]),
        (["load", "--duration", "soon"], ["--duration", "90s"]),
        (["load", "--target", "http://h:1", "--token-env", "NOT_SET"], ["--token-env", "NOT_SET"]),
        (["env", "--out", "e.svg"], ["--out e.svg", ".json"]),
        (["sweep", "--out", "no/such/s.svg"], ["no folder"]),
        (["load", "--requests", "many"], ["--requests", "whole number"]),
        (["explain", "p99", "--options"], ["--options"]),
    ],
)
def test_what_is_misspelt_is_one_line_and_a_suggestion(evewatch, arguments, words):
    assert_refused(evewatch(*arguments), *words)


def test_every_command_stands_in_help_under_its_heading(evewatch):
    from console.commands.index import COMMANDS, HEADINGS

    lines = evewatch("--help").stdout.splitlines()
    for heading in HEADINGS:
        assert f"{heading}:" in lines
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= set(COMMANDS)
    for name in COMMANDS:
        assert "Usage" in evewatch(name, "--help").stdout


def test_settings_come_from_file_environment_and_flags(evewatch, folder, tmp_path, short_roofline):
    (tmp_path / "evewatch.toml").write_text(
        f'[engine]\nmodel = "{folder}"\nmax_batch = 3\nkv_memory = "4M"\ntoken_budget = 16\n'
    )
    small = ["--requests", "2", "--prompt-mean", "8", "--output-mean", "4", "--json"]
    report = json.loads(evewatch("bench", *small, cwd=tmp_path).stdout)
    assert (report["config"]["max_batch"], report["config"]["kv_memory"]) == (3, 4 << 20)
    done = evewatch("bench", *small, cwd=tmp_path, EVEWATCH_MAX_BATCH="4")
    assert json.loads(done.stdout)["config"]["max_batch"] == 4
    done = evewatch("bench", *small, "--max-batch", "5", cwd=tmp_path, EVEWATCH_MAX_BATCH="4")
    assert json.loads(done.stdout)["config"]["max_batch"] == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[engine]\nbatch = 3\n", ["evewatch.toml", "batch", "known"]),
        ("[motor]\n", ["evewatch.toml", "motor"]),
        ("engine = 3\n", ["evewatch.toml", "table"]),
        ("[engine\n", ["evewatch.toml", "TOML"]),
        ('[engine]\nmax_batch = "many"\n', ["max_batch", "many"]),
    ],
)
def test_a_bad_settings_file_gets_one_line(evewatch, tmp_path, text, words):
    (tmp_path / "evewatch.toml").write_text(text)
    assert_refused(evewatch("generate", "x", cwd=tmp_path), *words)


@pytest.mark.parametrize(
    ("name", "value"), [("EVEWATCH_BATCH", "3"), ("EVEWATCH_MAX_BATCH", "three")]
)
def test_a_bad_environment_variable_is_named(evewatch, name, value):
    assert_refused(evewatch("generate", "x", **{name: value}), name)
