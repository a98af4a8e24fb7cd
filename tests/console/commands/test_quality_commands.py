"""`evewatch quality` and `evewatch model calibrate`: output, exit codes, refusals."""

import json

import pytest

from builders import tiny_spec, tiny_tensors
from console.cli import main
from model_files import write_hf
from playbooks.reports.documents.quality import number
from playbooks.reports.text import one_line


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    spec = tiny_spec()
    return write_hf(tmp_path_factory.mktemp("hf") / "tiny", spec, tiny_tensors(spec))


@pytest.fixture
def cases(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "Count to ten and back again.", "max_tokens": 4}\n' * 1)
    return path


@pytest.fixture
def run(model, tmp_path, monkeypatch, capsys):
    """Runs a command on the tiny model: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))

    def call(*words):
        arguments = [
            "evewatch",
            *map(str, words),
            "--model",
            str(model),
            "--set",
            "kernels=reference",
        ]
        monkeypatch.setattr("sys.argv", arguments)
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return call


def test_too_little_evidence_is_inconclusive(run, cases):
    """One short case has fewer than a hundred positions: no 99 % quantile, no verdict."""
    code, out, err = run(
        "quality", "--cases", cases, "--no-golden", "--kv-format", "fp16", "--json"
    )
    report = json.loads(out)
    assert report["verdict"] == "inconclusive" and code == 3
    assert err.startswith("evewatch: logged as") and err.count("\n") == 1


def test_the_report_reads_well(run, cases, tmp_path):
    code, out, _ = run(
        "quality",
        "--cases",
        cases,
        "--no-golden",
        "--kv-format",
        "fp16",
        "--out",
        tmp_path / "r.json",
    )
    assert code == 3
    for words in ("mean KL divergence", "control", "injected", "own-1", "inconclusive"):
        assert words in out
    assert json.loads((tmp_path / "r.json").read_text())["kind"] == "quality"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--kv-format", "int8_static"], "evewatch model calibrate"),
        (["--kv-format", "int4"], "int4"),
        (["--baseline", "fp8"], "fp8"),
        (["--cases", "missing.toml"], "missing.toml: cannot be read"),
        (["--no-golden"], "no cases"),
        (["--set", "calibration=missing.json"], "missing.json: cannot be read"),
        (["--kv-format", "fp16", "--set", "zero_point=true"], "zero_point"),
    ],
)
def test_bad_input_is_one_line_and_code_2(run, flags, says):
    code, out, err = run("quality", *flags)
    assert code == 2 and out == ""
    assert says in err and err.count("\n") == 1


def test_calibrate_then_the_static_format_starts(run, cases):
    code, out, _ = run("model", "calibrate", "--json")
    report = json.loads(out)
    assert code == 0 and report["kind"] == "calibrate" and report["schema"] == 1
    code, out, _ = run(
        "quality", "--cases", cases, "--no-golden", "--kv-format", "int8_static", "--json"
    )
    assert code in (0, 1, 3) and json.loads(out)["format"] == "int8_static"


def test_calibrate_says_what_stands_out_and_where_it_wrote(run, tmp_path):
    prompts = tmp_path / "p.txt"
    prompts.write_text("One, two, three. " * 10)
    code, out, _ = run("model", "calibrate", "--prompts", prompts, "--save", tmp_path / "c.json")
    assert code == 0
    assert "their head's median" in out and "farthest out by layer" in out
    assert str(tmp_path / "c.json") in out.replace("\n", "")


@pytest.mark.parametrize(
    ("value", "percent", "text"),
    [(None, False, "–"), (0.00008, False, "0.00008"), (0.9956, True, "99.56%"), (2, False, "2")],
)
def test_numbers(value, percent, text):
    assert number(value, percent) == text


def test_a_long_prompt_keeps_both_ends():
    text = one_line("first " + "x " * 500 + "last", 40)
    assert text.startswith("first") and text.endswith("last") and " … " in text
    assert one_line("a\nb", 40) == "a b"
