"""Who may ask, how much, and how long: every refusal in OpenAI's shape, the engine untouched."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time

import httpx
import pytest

from console.server import ServerSettings, openfiles
from engine.errors import ConfigError
from repository import ROOT
from served import serving
from waiting import CEILING_S, until

SHORT = {"prompt": [5, 6], "max_tokens": 2, "temperature": 0}


def settings(**changes):
    return ServerSettings(port=0, **{"drain_s": 1.0} | changes)


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def head(path="/v1/completions", length=0, **headers):
    lines = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": length}
    given = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in (lines | headers).items())
    return f"POST {path} HTTP/1.1\r\n{given}\r\n".encode()


def answer_of(wire):
    """Status and body of the one answer on a socket that the server then closes."""
    data = b""
    while chunk := wire.recv(65536):
        data += chunk
    top, _, body = data.partition(b"\r\n\r\n")
    return int(top.split()[1]), json.loads(body)["error"]


def untouched(served):
    return served.engine.telemetry.totals["requests"] == 0 and served.engine.ledger().is_zero


@pytest.fixture(scope="module")
def strict():
    """Small limits, so that tests need not wait."""
    limits = settings(max_body=2000, max_header=2000, head_s=0.3, body_s=0.3, max_prompt_tokens=20)
    with serving(settings=limits) as served:
        yield served


@pytest.mark.parametrize("whole", [True, False])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(strict, whole):
    with strict.wire() as wire:
        if whole:
            wire.sendall(head(length=2001))
        else:  # no length given: refused at the byte that is too many
            chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
            top = head(Transfer_Encoding="chunked").replace(b"Content-Length: 0\r\n", b"")
            wire.sendall(top + chunk * 2)
        status, error = answer_of(wire)
    assert (status, error["code"]) == (413, "request_too_large")
    assert untouched(strict)


def test_a_body_that_comes_too_slowly_ends(strict):
    with strict.wire() as wire:
        wire.sendall(head(length=100) + b"{")
        status, error = answer_of(wire)
    assert (status, error["code"]) == (408, "timeout")
    assert untouched(strict)


@pytest.mark.parametrize("first", [b"", b"POST /v1/comp", b"GET /health HTTP/1.1\r\nHost: a\r\n"])
def test_slow_loris_a_head_that_is_never_complete_ends(strict, first):
    with strict.wire() as wire:
        wire.sendall(first)
        status, error = answer_of(wire)
    assert (status, error["code"]) == (408, "timeout")


def test_slow_loris_further_bytes_buy_no_further_time(strict):
    with strict.wire() as wire:
        end = time.monotonic() + CEILING_S
        wire.settimeout(0.05)
        wire.sendall(b"GET /health HTTP/1.1\r\n")
        data = b""
        while not data and time.monotonic() < end:
            wire.sendall(b"X-A: b\r\n")
            try:
                data = wire.recv(100)
            except TimeoutError:
                continue
        assert b" 408 " in data


def test_a_second_request_on_a_kept_connection_must_come_in_time_too(strict):
    with strict.wire() as wire:
        wire.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in wire.recv(1000)
        wire.sendall(b"GET /hea")
        assert answer_of(wire)[0] == 408


@pytest.mark.parametrize("whole", [True, False])
def test_a_head_that_is_too_large_is_refused(strict, whole):
    top = head(X_Long="a" * 3000, Connection="close")
    with strict.wire() as wire:
        wire.sendall(top if whole else top[:-2])
        assert answer_of(wire)[0] == 431


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"nonsense\r\n\r\n"])
def test_what_is_no_http_is_answered_and_closed(strict, data):
    with strict.wire() as wire:
        wire.sendall(data)
        status, error = answer_of(wire)
    assert (status, error["code"]) == (400, "bad_http")
    assert untouched(strict)


def test_only_json_is_read(strict):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        made = strict.http.post(
            strict.url + "/v1/completions",
            content=json.dumps(SHORT),
            headers={"content-type": kind},
        )
        assert made.status_code == 415
    packed = strict.http.post(
        strict.url + "/v1/completions", content=b"x",
        headers={"content-type": "application/json", "content-encoding": "gzip"},
    )  # fmt: skip
    assert packed.status_code == 400
    assert untouched(strict)


def test_a_prompt_that_is_too_long_is_refused(strict):
    made = strict.post(prompt=[5] * 21)
    assert made.status_code == 400
    assert made.json()["error"]["code"] == "context_length_exceeded"
    assert untouched(strict)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/completions", 405), ("POST", "/health", 405), ("GET", "/v2", 404),
     ("DELETE", "/v1/models", 405), ("GET", "/health/", 404), ("GET", "/v1/../etc/passwd", 404)],
)  # fmt: skip
def test_other_paths_and_methods(strict, method, path, status):
    made = strict.http.request(method, strict.url + path)
    assert made.status_code == status
    assert made.json()["error"]["message"]
    if status == 405:
        assert made.headers["allow"]


# --- who ---------------------------------------------------------------------------------


def test_a_key_is_asked_for_everywhere_but_for_health():
    with serving(settings=settings(api_key="correct-horse")) as served:
        for path in ("/v1/models", "/metrics", "/snapshot", "/openapi.json", "/nothing"):
            for headers in ({}, {"authorization": "Bearer wrong-horse"},
                            {"authorization": "Basic correct-horse"},
                            {"authorization": "Bearer correct-hors"}):  # fmt: skip
                made = served.http.get(served.url + path, headers=headers)
                assert made.status_code == 401
                assert made.json()["error"]["code"] == "invalid_api_key"
                assert "horse" not in made.text
            allowed = served.http.get(
                served.url + path, headers={"authorization": "Bearer correct-horse"}
            )
            assert allowed.status_code in (200, 404)
        assert served.post(**SHORT).status_code == 401
        assert served.get("/health").status_code == 200
        with served.client(api_key="correct-horse") as client:
            assert client.completions.create(model="tiny-llama", **SHORT).choices
        foreign = served.http.get(
            served.url + "/v1/models",
            headers={"authorization": "Bearer correct-horse", "host": "example.org"},
        )
        assert foreign.status_code == 200  # the key is enough


def test_a_web_page_cannot_ask_through_a_name_of_its_own():
    with serving(settings=settings(allowed_hosts=("proxy.example",))) as served:

        def status(host):
            return served.http.get(served.url + "/v1/models", headers={"host": host}).status_code

        assert status("evil.example") == status("evil.example:8000") == 403
        assert status("127.0.0.1.evil.example") == status("[::1].evil.example") == 403
        assert status("localhost:8000") == status("127.0.0.1") == status("[::1]:80") == 200
        assert status("proxy.example") == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org", ""])
def test_a_public_address_needs_a_key(host):
    with pytest.raises(ConfigError, match=r"--api-key.*--insecure"):
        ServerSettings(host=host)
    ServerSettings(host=host, api_key="long-enough")
    ServerSettings(host=host, insecure=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_a_loopback_address_does_not(host):
    ServerSettings(host=host)


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"port": 70000}, "port"), ({"port": -1}, "port"), ({"max_body": 0}, "max_body"),
     ({"api_key": "short"}, "api_key"), ({"api_key": "with space"}, "api_key"),
     ({"api_key": "schlüssel"}, "api_key"), ({"head_s": 0}, "head_s"),
     ({"drain_s": float("nan")}, "drain_s"), ({"request_s": -1}, "request_s")],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused_by_name(changes, name):
    with pytest.raises(ConfigError, match=name):
        ServerSettings(**changes)


def test_a_taken_port_is_a_clear_error(served):
    from console.server import serve_in_thread

    with pytest.raises(ConfigError, match=f"{served.server.port}: cannot listen"):
        serve_in_thread(served.engine, ServerSettings(port=served.server.port))


# --- how many ------------------------------------------------------------------------------


def test_a_full_queue_says_when_to_come_again():
    with serving(started=False, max_batch=2, settings=settings(max_queue=1)) as served:
        wires = [served.wire() for _ in range(3)]
        content = json.dumps(SHORT).encode()
        for wire in wires:
            wire.sendall(head(length=len(content)) + content)
        admission = served.server.app.admission
        until(lambda: admission.choices == 3)
        refused = served.post(**SHORT)
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        until(lambda: len(served.engine._open) == 3)
        while served.engine.step():
            pass
        for wire in wires:
            assert b" 200 " in wire.recv(1000)
            wire.close()
        until(lambda: admission.choices == 0)


def test_the_engines_own_full_queue_is_429_and_its_drain_503(served):
    with serving(started=False, max_batch=1, max_waiting=1) as small:
        small.engine.set_paused(True)
        small.engine.step()
        with small.wire() as wire:
            content = json.dumps(SHORT).encode()
            wire.sendall(head(length=len(content)) + content)
            until(lambda: len(small.engine._open) == 1)
            small.engine.step()
            with small.wire() as second:
                second.sendall(head(length=len(content), Connection="close") + content)
                until(lambda: len(small.engine._open) == 2)
                small.engine.step()
                status, error = answer_of(second)
        assert (status, error["code"]) == (429, "queue_full")
    served.engine.set_draining(True)
    until(lambda: served.engine.loop.controls.draining)
    refused = served.post(**SHORT)
    served.engine.set_draining(False)
    assert refused.status_code == 503
    assert refused.headers["retry-after"]


def test_a_kept_connection_answers_at_once(served):
    """Without TCP_NODELAY the body waits for the acknowledgement of the head: 40 ms."""
    with httpx.Client(base_url=served.url) as client:
        client.get("/health")
        times = []
        for _ in range(60):
            start = time.monotonic()
            client.get("/health")
            times.append(time.monotonic() - start)
    assert min(times[20:]) < 0.03  # the first ones are acknowledged at once in any case


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_offers_http_2_is_answered_in_http_1(served, chunked):
    """As Java's does with every request; parsers that take the offer for a change of protocol lose
    the body."""
    content = json.dumps(SHORT).encode()
    offer = {"Upgrade": "h2c", "HTTP2_Settings": "AAMA", "Connection": "Upgrade, HTTP2-Settings"}
    if chunked:
        top = head(Transfer_Encoding="chunked", **offer).replace(b"Content-Length: 0\r\n", b"")
        content = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
    else:
        top = head(length=len(content), **offer)
    with served.wire() as wire:
        wire.sendall(top)
        wire.sendall(content)
        assert wire.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_only_so_many_connections():
    with serving(settings=settings(max_connections=2)) as served:
        wires = [served.wire() for _ in range(2)]
        for wire in wires:
            wire.sendall(head(length=100) + b"{")  # under way
        until(lambda: served.server.app.http.open == 2)
        with served.wire() as third:
            third.sendall(HEALTH)
            status, error = answer_of(third)
            assert (status, error["type"]) == (503, "server_error")
        for wire in wires:
            wire.close()
        until(lambda: served.get("/health").status_code == 200)


@pytest.mark.parametrize("first", [b"", b"GET /hea", HEALTH])
def test_a_connection_without_a_request_gives_its_place_to_a_new_one(first):
    with serving(settings=settings(max_connections=1)) as served, served.wire() as idle:
        idle.sendall(first)
        until(lambda: served.get("/health").status_code == 200)
        data = b""
        while chunk := idle.recv(65536):
            data += chunk
        assert b" 200 " in data if first == HEALTH else b" 503 " in data


OF_FEW_FILES = """
import os, resource, sys
from repository import ROOT
from served import serving
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 48, used + 48))
with serving() as found:
    print(found.server.port, found.server._server.max_connections, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc as Linux has them")
def test_with_few_files_everybody_is_answered_or_refused_and_service_comes_back():
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))
    process = subprocess.Popen(
        [sys.executable, "-c", OF_FEW_FILES], env=os.environ | {"PYTHONPATH": paths}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    port, most = map(int, process.stdout.readline().split())
    assert 1 <= most < 48
    took = []
    content = json.dumps(SHORT | {"stream": True}).encode()
    whole = head(length=len(content)) + content
    with contextlib.ExitStack() as held:
        for number in range(150):
            wire = socket.create_connection(("127.0.0.1", port), timeout=10)
            if number % 4:
                held.callback(wire.close)
            with contextlib.suppress(ConnectionError):  # refused already
                wire.sendall((whole[:20], whole[:-3], whole, b"")[number % 4])
            if number % 10 == 0:
                start = time.monotonic()
                assert asked(port) in (200, 503)
                took.append(time.monotonic() - start)
    until(lambda: asked(port) == 200)
    assert max(took) < 1.0
    assert asked(port, whole) == 200
    _, said = process.communicate("", timeout=60)
    assert process.returncode == 0 and said == ""


def asked(port, request=HEALTH):
    """The status of an answer, None when the connection was refused."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as wire:
            wire.sendall(request)
            return int(wire.recv(1000).split()[1])
    except (ConnectionError, IndexError):
        return None


def test_no_room_for_a_connection_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(openfiles, "_raised", lambda more: openfiles._open_now() + 5)
    with pytest.raises(ConfigError, match=r"the limit of open files is .*ulimit -n"):
        openfiles.within_open_files(settings())


def test_a_request_that_takes_too_long_is_504():
    with serving(started=False, settings=settings(request_s=0.05), max_positions=4096) as served:
        content = json.dumps(SHORT | {"max_tokens": 4000, "ignore_eos": True}).encode()
        with served.wire() as wire:
            wire.sendall(head(length=len(content), Connection="close") + content)
            until(lambda: len(served.engine._open) == 1)
            time.sleep(0.06)
            served.engine.step()
            status, error = answer_of(wire)
        assert (status, error["code"]) == (504, "timeout")
        served.until_idle()


# --- a reader that does not read --------------------------------------------------------------


def test_a_client_that_does_not_read_stalls_nobody_and_is_dropped():
    with serving(settings=settings(write_s=0.3), max_positions=4096, max_batch=32) as served:
        wire = served.wire()
        big = {"logprobs": 20, "ignore_eos": True, "stream": True, "max_tokens": 4000, "n": 24}
        content = json.dumps(SHORT | big).encode()
        wire.sendall(head(length=len(content)) + content)
        for _ in range(5):  # the others are served meanwhile
            assert served.post(**SHORT).json()["usage"]["completion_tokens"] == 2
        until(lambda: served.engine.telemetry.finished["cancelled"] == 24)
        wire.close()
        served.until_idle()


def test_a_key_is_in_no_text_of_its_settings():
    from console.server.settings import ServerSettings
    from playbooks.load.endpoint import EndpointSpec

    secret = "sk-0123456789abcdef"
    assert secret not in repr(ServerSettings(api_key=secret))
    assert secret not in repr(EndpointSpec("http://127.0.0.1:1", key=secret))
