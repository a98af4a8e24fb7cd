"""`evewatch serve` and `evewatch up --port` as an operator runs them."""

import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from builders import tiny_spec, tiny_tensors
from console.cli import main
from model_files import write_hf
from repository import ROOT
from waiting import CEILING_S, until


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_and_ends_in_order(tmp_path, kind):
    spec = tiny_spec()
    folder = write_hf(tmp_path / "tiny", spec, tiny_tensors(spec))
    port = free_port()
    command = [
        sys.executable, "main.py", "serve", "--model", str(folder), "--port", str(port),
        "--set", "kernels=reference", "--kv-memory", "8M", "--served-model-name", "mine",
    ]  # fmt: skip
    environment = os.environ | {"EVEWATCH_HOME": str(tmp_path), "EVEWATCH_API_KEY": "long-enough"}
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}"
    http = httpx.Client(verify=False, timeout=CEILING_S)

    def is_up():
        assert server.poll() is None, server.stderr.read()
        try:
            return http.get(url + "/health").status_code == 200
        except httpx.ConnectError:
            return False

    try:
        until(is_up)
        made = http.post(
            url + "/v1/chat/completions",
            json={"model": "mine", "messages": [{"role": "user", "content": "a"}], "max_tokens": 3},
            headers={"authorization": "Bearer long-enough"},
        )
        assert made.status_code == 200
        assert made.json()["model"] == "mine"
        assert http.get(url + "/v1/models").status_code == 401
        server.send_signal(kind)
        _, text = server.communicate(timeout=CEILING_S)
    finally:
        server.kill()
    assert server.returncode == (130 if kind == signal.SIGINT else 0)
    assert f"mine at {url}/v1" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", "--host", "0.0.0.0"], ["--api-key", "--insecure"]),
        (["serve", "--port", "99999"], ["port", "99999"]),
        (["serve", "--max-body", "many"], ["many"]),
        (["serve", "--api-key", "short"], ["api_key"]),
        (["serve", "--drain", "-1"], ["drain"]),
    ],
)
def test_what_cannot_be_served_is_one_line(monkeypatch, capsys, arguments, words):
    monkeypatch.delenv("EVEWATCH_API_KEY", raising=False)
    monkeypatch.setattr(sys, "argv", ["evewatch", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert all(word in text for word in words)


def test_a_taken_port_is_known_before_the_model_loads(monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        monkeypatch.setattr(sys, "argv", ["evewatch", "serve", "--port", port, "--model", "none"])
        with pytest.raises(SystemExit) as caught:
            main()
    assert caught.value.code == 2
    assert f"{port}: cannot listen" in capsys.readouterr().err


def test_the_console_serves_while_it_is_open():
    from console.commands.up import serving as beside
    from served import serving

    port = free_port()
    with serving() as served:
        with beside(served.engine, port, {"host": "127.0.0.1"}):
            url = f"http://127.0.0.1:{port}"
            assert httpx.get(url + "/health").status_code == 200
            made = httpx.post(url + "/v1/completions", json={"prompt": "a", "max_tokens": 2})
            assert made.json()["usage"]["completion_tokens"] == 2
        with pytest.raises(httpx.ConnectError):
            httpx.get(url + "/health")
        served.until_idle()
