"""Any terminal, any pipe: encodings, readers that have gone, nothing secret, nothing steering."""

import io
import json
import os
import subprocess
import sys

import pytest

from console.cli import main
from console.commands.streams import StatusLine
from remote_stub import SocketServer
from repository import ROOT

NAME = "名前-7b\x1b[2J[bold]"
PAGE = f'''vllm:num_requests_running{{engine="0",model_name="{NAME}"}} 3.0
vllm:num_requests_waiting{{engine="0",model_name="{NAME}"}} 12345678.0
vllm:kv_cache_usage_perc{{engine="0",model_name="{NAME}"}} 0.25
vllm:generation_tokens_total{{engine="0",model_name="{NAME}"}} 400.0
'''


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(monkeypatch):
    """A command as a process with standard streams of this encoding: code, stdout, stderr."""

    def call(*arguments, encoding="utf-8"):
        raw = io.BytesIO(), io.BytesIO()
        out, err = (io.TextIOWrapper(one, encoding=encoding) for one in raw)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["evewatch", *map(str, arguments)])
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit) as ended:
                main()
            out.flush()
            err.flush()
        return ended.value.code or 0, *(one.getvalue().decode(encoding) for one in raw)

    return call


@pytest.fixture
def server():
    models = json.dumps({"data": [{"id": NAME}]}).encode()
    with SocketServer({"/metrics": PAGE.encode(), "/v1/models": models}) as started:
        yield started


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk"])
@pytest.mark.parametrize(
    "command",
    [("explain", "--options"), ("checklist", "show", "pre_holiday"), ("env",),
     ("load", "--target", "null", "--requests", "2", "--quiet"), ("checklist", "list")],
)  # fmt: skip
def test_text_in_any_encoding(run, command, encoding):
    code, out, err = run(*command, encoding=encoding)
    assert code in (0, 3) and out and err == ""
    assert "\x1b" not in out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_whole_in_any_encoding(run, server, encoding):
    code, out, _ = run("watch", "--once", "--json", server.url, encoding=encoding)
    assert code == 0
    (target,) = json.loads(out)["targets"]
    assert target["snapshot"]["engine"]["model"] == NAME
    assert target["snapshot"]["queue"]["waiting"] == 12345678
    assert "\x1b" not in out


def test_numbers_are_whole_and_names_steer_nothing(run, server):
    code, out, _ = run("watch", "--once", server.url, encoding="ascii")
    assert code == 0
    assert "12,345,678" in out and "[bold]" in out and "\x1b" not in out


def test_an_error_in_any_encoding_is_one_line(run):
    code, out, err = run("generate", "x", "--set", "–=1", encoding="ascii")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and "unknown setting '-'" in err


def test_a_reader_that_has_gone_changes_no_exit_code(tmp_path):
    """1 would be read as a failed gate."""
    for command, code in ((["explain", "--options"], 0), (["explain", "xyzzy"], 3)):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([sys.executable, "main.py", *command], cwd=ROOT, stdout=writing,
                              stderr=subprocess.PIPE, text=True)  # fmt: skip
        os.close(writing)
        assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
@pytest.mark.parametrize("command", [["explain", "p99 up"], ["--version"], ["--help"]])
def test_a_full_disk_is_one_line_and_no_failed_gate(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "main.py", *command], cwd=ROOT, stdout=full,
                              stderr=subprocess.PIPE, text=True)  # fmt: skip
        mute = subprocess.run([sys.executable, "main.py", *command], cwd=ROOT, stdout=full,
                              stderr=full)  # fmt: skip
    why = "evewatch: standard output cannot be written (No space left on device)\n"
    assert (done.returncode, done.stderr, mute.returncode) == (2, why, 2)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed_before_change_nothing(closed, tmp_path):
    """Nor does a file that is written then take the place of one of them."""
    out = tmp_path / "rows.json"
    line = f"{sys.executable} main.py load --target null --requests 2 --out {out} {closed}"
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    assert json.loads(out.read_text())["kind"] == "load"
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "variables",
    [{"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}, {"CI": "true"},
     {"CLICOLOR_FORCE": "1", "COLORTERM": "truecolor"}, {"COLUMNS": "0"}, {"COLUMNS": "-5"},
     {"TERM": "dumb", "NO_COLOR": ""}],
)  # fmt: skip
def test_no_variable_puts_escape_codes_into_a_pipe_or_cuts_it(run, monkeypatch, variables):
    def seen():
        from console.commands.terminal import show_document
        from playbooks.reports.document import Document, Facts

        show_document(Document("t", facts=[Facts("f", [("a name", "pass " * 60), ("b", "fail")])]))
        return sys.stdout.getvalue()

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.StringIO())
        plain = seen()
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdout", io.StringIO())
        assert seen() == plain and "\x1b" not in plain and "pass " * 59 in plain


@pytest.mark.parametrize("width", [20, 60])
def test_a_narrow_terminal_cuts_no_number(monkeypatch, capsys, width):
    from rich.console import Console

    from console.commands import terminal
    from playbooks.reports.document import Column, Document, Table, whole

    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    monkeypatch.setenv("COLUMNS", str(width))
    columns = [Column("a name of some length"), *(Column(n, whole, True) for n in "abcdef")]
    row = ["words that may be folded where there is no room for them",
           *(1234567.0 * n for n in range(1, 7))]  # fmt: skip
    terminal.show_document(Document("t", tables=[Table("T", columns, [row])]))
    out = capsys.readouterr().out
    assert all(f"{1234567 * n:,}" in out for n in range(1, 7))
    assert "…" not in out and all(word in "".join(out.split()) for word in ("folded", "room"))


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("term", "quiet", "written"),
    [
        ("xterm", False, "\r\x1b[Kgoing\r\x1b[Kdone\n\r\x1b[K"),
        ("dumb", False, "done\n"),
        ("xterm", True, ""),
    ],
)
def test_a_line_is_written_over_only_where_that_can_be(monkeypatch, term, quiet, written):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", term)
    with StatusLine(quiet) as line:
        line.pass_by("going")
        line.stay("done")
    assert screen.getvalue() == written


# --- secrets ---------------------------------------------------------------------------------

QUERY, PASSWORD = "http://127.0.0.1:9/v1?api_key=hush", "http://me:hush@127.0.0.1:9"


@pytest.mark.parametrize("url", [QUERY, PASSWORD])
@pytest.mark.parametrize(
    "command",
    [
        ("load", "--requests", "1", "--model", "m", "--target"),
        ("load", "--max-batch", "2", "--target"),
        ("check", "own.toml", "--folder", "r", "--target"),
        ("check", "own.toml", "--set", "seed=1", "--target"),
        ("canary", "--candidate", "http://127.0.0.1:8", "--baseline"),
        ("checklist", "run", "own_list.toml", "--no-ask", "--sign-off", "Ana", "--duration",
         "0.1s", "--out", "c.md", "--target"),
        ("record", "--duration", "1s"),
        ("watch", "--once", "--json"),
        ("up", "--engine"),
    ],
)  # fmt: skip
def test_what_is_secret_in_an_address_is_nowhere(run, tmp_path, monkeypatch, command, url):
    monkeypatch.setenv("EVEWATCH_API_KEY", "hush-hush")
    (tmp_path / "own.toml").write_text('[[steps]]\nkind = "load"\nwith = { requests = 1 }\n')
    (tmp_path / "own_list.toml").write_text(
        'title = "Own"\n[[item]]\nid = "live"\ntext = "t"\nowner = "o"\nwhy = "w"\n'
        'kind = "auto"\nlook = "snapshot.source.state"\nexpect = "== live"\n'
    )
    code, out, err = run(*command, url)
    assert code in (1, 2, 4)
    assert "hush" not in out + err
    written = [p for p in tmp_path.rglob("*") if p.is_file() and b"hush" in p.read_bytes()]
    assert written == []


def test_the_key_of_our_own_server_is_sent_to_nobody(run, server, monkeypatch):
    monkeypatch.setenv("EVEWATCH_API_KEY", "hush-hush")
    monkeypatch.setenv("THEIRS", "a-token")
    run("load", "--target", server.url, "--requests", "1", "--json")
    assert server.asked and not any("hush" in str(dict(h)) for h in server.asked)
    run("load", "--target", server.url, "--requests", "1", "--json", "--token-env", "THEIRS")
    assert any(h.get("Authorization") == "Bearer a-token" for h in server.asked)


def test_a_measurement_outlives_a_terminal_that_fails(run, tmp_path, monkeypatch):
    def broken(report):
        raise RuntimeError("no terminal")

    monkeypatch.setattr("console.commands.terminal.show_report", broken)
    with pytest.raises(RuntimeError):
        run("load", "--target", "null", "--requests", "2", "--out", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["kind"] == "load"
    assert len(list((tmp_path / "home" / "results").glob("load-*.json"))) == 1
