"""`evewatch watch` and `up --engine` as a shell sees them: stdout, stderr, exit codes."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest
from typer.testing import CliRunner

from console.cli import app
from console.recording.file import Recording
from engine.errors import ConfigError
from remote_stub import FIXTURES, SocketServer, page
from repository import ROOT
from vllm_stub import install
from waiting import CEILING_S, until

MODELS = b'{"data":[{"id":"smollm2","max_model_len":2048}]}'


def run(*args, **options):
    return CliRunner().invoke(app, ["watch", *args], **options)


@pytest.fixture
def server():
    with SocketServer({"/metrics": page("vllm/busy"), "/v1/models": MODELS}) as started:
        yield started


def test_once_as_json(server):
    done = run("--once", "--json", server.url)
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert (report["schema"], report["kind"]) == (1, "watch")
    (target,) = report["targets"]
    assert (target["url"], target["engine"], target["state"]) == (server.url, "vllm", "live")
    assert target["reason"] is None and 0 <= target["age_s"] < 5
    assert target["snapshot"]["queue"]["waiting"] == 13
    assert target["snapshot"]["kv"]["usage"] == pytest.approx(0.08839779005524862)
    assert target["snapshot"]["batch"]["output_tok_s"] is None  # one look knows no rate
    assert "the batch cap" in target["cannot_know"]
    assert [group["name"] for group in report["groups"]] == ["smollm2"]


def test_once_with_an_interval_looks_twice_and_knows_rates(server):
    done = run("--once", "--json", "--interval", "0.05", server.url)
    batch = json.loads(done.stdout)["targets"][0]["snapshot"]["batch"]
    assert batch["output_tok_s"] == 0.0


def test_once_for_people_names_each_target(server):
    dead = SocketServer({}).start()
    dead.kill()
    done = run("--once", server.url, dead.url)
    assert done.exit_code == 4
    first, second = done.stdout.splitlines()[-2:]
    assert first.split()[1:7] == ["vllm", "live", "smollm2", "11", "13", "8.8%"]
    assert second.split()[:3] == [dead.url.removeprefix("http://"), "unknown", "engine"]
    assert "unreachable" in second and "refused" in second


@pytest.mark.parametrize("name", ["empty", "html", "truncated", "binary"])
def test_a_damaged_page_is_no_pass(name):
    with SocketServer({"/metrics": page(f"damaged/{name}")}) as server:
        done = run("--once", "--json", server.url)
    assert done.exit_code == 4
    (target,) = json.loads(done.stdout)["targets"]
    assert target["state"] == "unparsable" and target["reason"] and target["snapshot"] is None


def test_the_engine_expected_is_held_to(server):
    done = run("--once", "--json", "--engine", "sglang", server.url)
    assert done.exit_code == 4
    assert json.loads(done.stdout)["targets"][0]["state"] == "wrong_engine"


def test_a_fleet_file_and_its_tokens(server, tmp_path, monkeypatch):
    file = tmp_path / "fleet.toml"
    file.write_text(f'[[target]]\nname = "a"\nurl = "{server.url}"\ntoken_env = "FLEET_KEY"\n')
    monkeypatch.setenv("FLEET_KEY", "sk-secret")
    done = run("--once", "--json", "--fleet", str(file))
    assert json.loads(done.stdout)["targets"][0]["name"] == "a"
    assert server.asked[0]["Authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in done.output


def test_the_report_goes_to_a_file(server, tmp_path):
    out = tmp_path / "watch.json"
    assert run("--once", "--out", str(out), server.url).exit_code == 0
    assert json.loads(out.read_text())["kind"] == "watch"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((), "name at least one URL"),
        (("nonsense",), "expected the address"),
        (("http://h:1",), "needs a terminal"),
        (("--json", "http://h:1"), "need --once"),
        (("--once", "--record", "x", "http://h:1"), "drop --once"),
        (("--once", "--interval", "0", "http://h:1"), "interval"),
        (("--once", "--token-env", "NO_SUCH_KEY", "http://h:1"), "NO_SUCH_KEY"),
        (("--once", "--engine", "gpt", "http://h:1"), "expected one of"),
        (("--prometheus-port", "70000", "http://h:1"), "expected a port"),
    ],
)
def test_what_cannot_be_is_refused(args, why):
    done = run(*args)
    assert isinstance(done.exception, ConfigError)
    assert why in str(done.exception)


# --- without a screen --------------------------------------------------------------------


def start(*args, **environment):
    return subprocess.Popen(
        [sys.executable, "main.py", "watch", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


def test_headless_it_tells_states_records_and_exports(server, tmp_path):
    """Killing and restarting the target under it."""
    file = tmp_path / "night.everec"
    free = SocketServer({}).start()
    free.kill()
    process = start(
        "--interval", "0.1", "--record", str(file), "--prometheus-port", str(free.port), server.url
    )  # fmt: skip
    told = []

    def metrics():
        try:
            with urllib.request.urlopen(f"{free.url}/metrics", timeout=2) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    try:
        until(lambda: "evewatch:target_up{" in metrics() and " 1.0" in metrics())
        text = metrics()
        assert 'evewatch:fleet_requests_waiting{group="smollm2"} 13.0' in text
        assert 'evewatch:fleet_output_tokens_total{group="smollm2"} 177.0' in text
        assert 'fleet_time_to_first_token_seconds_count{group="smollm2"} 17.0' in text
        server.kill()
        until(lambda: 'state="unreachable"' in metrics())
        server.start()
        until(lambda: 'state="live"' in metrics())
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=CEILING_S)
        told = [line.split(": ", 2)[2] for line in err.splitlines() if "evewatch: 127" in line]
    assert process.returncode == 130
    assert out == ""
    assert told[0].startswith("found vLLM at") and told[1].startswith("it does not tell")
    assert told[2].startswith("unreachable: ")
    assert "refused" in told[2] or "reset" in told[2]  # one that was under way when it fell
    assert told[3].startswith("live again after")
    recording = Recording(file)
    assert recording.segments


def test_a_recording_that_exists_is_not_written_over(server, tmp_path):
    file = tmp_path / "old.everec"
    file.write_bytes(b"precious")
    done = run("--record", str(file), server.url)
    assert isinstance(done.exception, ConfigError) and "exists already" in str(done.exception)
    assert file.read_bytes() == b"precious"


# --- up --engine -------------------------------------------------------------------------


def up(*args):
    done = CliRunner().invoke(app, ["up", *args])
    assert isinstance(done.exception, ConfigError), done.exception
    return str(done.exception)


def test_up_without_vllm_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "pip install vllm" in up("--engine", "vllm", "--model", "m")


def test_up_refuses_what_only_the_embedded_engine_has(tmp_path, monkeypatch):
    install(tmp_path, FIXTURES / "vllm" / "busy.prom")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert "--kv-format" in up("--engine", "vllm", "--model", "m", "--kv-format", "fp16")
    assert "--load" in up("--engine", "vllm", "--model", "m", "--load", "chat")
    assert "evewatch watch http://h:1" in up("--engine", "http://h:1")
    assert "--tensor-parallel" in up("--tensor-parallel", "2")
    assert "'--enforce-eager'" in up("--", "--enforce-eager")
    assert "name the model" in up("--engine", "vllm")
    assert "expected vllm" in up("--engine", "sglang")
    assert "needs a terminal" in up("--engine", "vllm", "--model", "m", "--", "--enforce-eager")


def test_alerts_are_kept_without_a_screen(tmp_path, server, monkeypatch):
    """A rule that holds from the start: its alert goes out, is written down and can be shown."""
    home, out, file = tmp_path / "home", tmp_path / "out", tmp_path / "alerts.toml"
    code = f"import sys; open({str(out)!r}, 'a').write(sys.stdin.read() + chr(10))"
    file.write_text(
        f'group = "1s"\n[[rules]]\nname = "busy"\nfield = "batch.running"\nabove = 0\n'
        f'lasts = "1s"\n[[ways]]\nkind = "command"\nargv = [{sys.executable!r}, "-c", {code!r}]\n'
    )
    process = subprocess.Popen(
        [sys.executable, "main.py", "watch", server.url, "--alerts", str(file)],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"EVEWATCH_HOME": str(home)},
    )  # fmt: skip
    try:
        until(lambda: out.exists() and out.read_text().endswith("\n"))
    finally:
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=CEILING_S)
    message = json.loads(out.read_text().splitlines()[0])
    assert (message["rule"], message["state"]) == ("busy", "firing")
    assert "busy: batch.running above 0" in told
    monkeypatch.setenv("EVEWATCH_HOME", str(home))
    shown = CliRunner().invoke(app, ["alerts", "show"]).stdout
    assert "1 firing" in shown and "command" in shown


def test_a_file_of_alerts_that_is_wrong_is_known_before_anything_runs(tmp_path, server):
    file = tmp_path / "alerts.toml"
    file.write_text('[[rules]]\nname = "x"\nfield = "nothing"\nabove = 1\n')
    with pytest.raises(ConfigError, match=r"alerts.toml:3: field: unknown field 'nothing'"):
        raise run(server.url, "--alerts", str(file)).exception
    assert isinstance(run(server.url, "--once", "--alerts", str(file)).exception, ConfigError)
