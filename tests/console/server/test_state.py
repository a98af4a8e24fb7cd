"""Health, snapshot, shutdown, and what must not be told."""

import json
import logging
import threading

import httpx
import openai
import pytest

from console.server import ServerSettings
from console.server.warn import INTERVAL_S, Limited, OncePerMinute
from engine.request import SamplingParams
from engine.snapshot import Snapshot, SourceState
from served import serving
from waiting import CEILING_S, until

SECRET = "my password is xyzzy"


# --- health ------------------------------------------------------------------------------


def test_health_fails_while_work_waits_and_nothing_is_computed():
    """K21: the cap is lost, say; the process looks well and nobody is served."""
    with serving(stall_s=0.1) as served:
        assert served.post(prompt="the", max_tokens=2).status_code == 200
        assert served.get("/health").json() == {"status": "ok"}
        served.engine.scheduler.cap = 0
        stream = served.engine.submit([5, 6], SamplingParams(max_tokens=2))
        until(lambda: served.get("/health").status_code == 503)
        assert "cap is 0" in served.get("/health").json()["reason"]
        until(lambda: Snapshot.from_json(served.get("/snapshot").text).engine.alarm)
        served.engine.set_cap(8)
        assert stream.result(CEILING_S).token_ids
        until(lambda: served.get("/health").status_code == 200)


def test_health_fails_while_the_thread_hangs_in_a_step():
    with serving(stall_s=0.1) as served:
        stuck, free = threading.Event(), threading.Event()
        run = served.engine.runner.run

        def hang(batch):
            stuck.set()
            free.wait(CEILING_S)
            return run(batch)

        served.engine.runner.run = hang
        stream = served.engine.submit([5, 6], SamplingParams(max_tokens=2))
        assert stuck.wait(CEILING_S)
        until(lambda: served.get("/health").status_code == 503)
        assert "in one step" in served.get("/health").json()["reason"]
        free.set()
        assert stream.result(CEILING_S).token_ids
        until(lambda: served.get("/health").status_code == 200)


def test_the_snapshot_is_the_engines(served):
    served.post(prompt="the", max_tokens=2)
    total = served.engine.telemetry.totals["requests"]

    def taken():
        return Snapshot.from_json(served.get("/snapshot").text)

    until(lambda: taken().queue.requests_total == total)  # at most half a second old
    found = taken()
    assert found.source.state is SourceState.LIVE
    assert found.source.age_s < 5
    assert found.engine.model == "tiny-llama"
    assert found.kv.total == served.engine.pool.total


# --- the end ------------------------------------------------------------------------------


def in_thread(work):
    """Runs `work` at once; call the result to wait for what it returned or raised."""
    done = []

    def run():
        try:
            done.append(work())
        except Exception as error:
            done.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def join():
        thread.join(CEILING_S)
        return done[0]

    return join


@pytest.mark.parametrize("stream", [False, True])
def test_the_end_waits_for_what_runs_and_takes_nothing_new(stream):
    with serving(started=False, settings=ServerSettings(port=0, drain_s=20)) as served:
        asked = in_thread(lambda: served.post(prompt=[5, 6], max_tokens=40, stream=stream,
                                              ignore_eos=True))  # fmt: skip
        until(lambda: len(served.engine._open) == 1)
        served.engine.step()
        ended = in_thread(served.server.stop)
        until(lambda: served.server.app.admission.closing)
        until(lambda: _refuses(served))
        while served.engine.step():
            pass
        answer = asked()
        ended()
        assert answer.status_code == 200
        assert "[DONE]" in answer.text if stream else answer.json()["usage"]["total_tokens"] == 42
        assert served.engine.telemetry.finished == {"length": 1}


def _refuses(served):
    try:
        served.get("/health")
    except httpx.ConnectError:
        return True
    return False


@pytest.mark.parametrize("stream", [False, True])
def test_what_runs_too_long_at_the_end_is_told_so(stream):
    with serving(settings=ServerSettings(port=0, drain_s=0.2), max_positions=50_000,
                 pages=4096) as served, served.client() as client:  # fmt: skip

        def ask():
            made = client.completions.create(
                model="tiny-llama", prompt=[5, 6], max_tokens=49_000, stream=stream,
                extra_body={"ignore_eos": True},
            )  # fmt: skip
            return sum(1 for _ in made) if stream else made

        asked = in_thread(ask)
        until(lambda: served.engine.scheduler.running)
        served.server.stop()
        error = asked()
        assert isinstance(error, openai.APIError)
        assert "shutting down" in str(error)
        served.until_idle()


def test_the_engines_end_is_told_too():
    with serving(max_positions=50_000, pages=4096) as served:
        asked = in_thread(lambda: served.post(prompt=[5], max_tokens=49_000, ignore_eos=True))
        until(lambda: served.engine.scheduler.running)
        served.engine.stop()
        assert asked().status_code == 503
        assert served.get("/health").status_code == 503
        assert served.post(prompt="a").status_code == 503


def test_a_step_that_breaks_is_a_server_error_and_the_next_request_is_served(caplog):
    with serving() as served:
        run = served.engine.runner.run

        def broken(batch):
            served.engine.runner.run = run
            raise RuntimeError(f"kernel: {SECRET}")

        served.engine.runner.run = broken
        made = served.post(prompt=SECRET, max_tokens=2)
        assert made.status_code == 500
        assert "kernel" not in made.text
        assert served.post(prompt="the", max_tokens=2).status_code == 200
        served.until_idle()


# --- what is not told ------------------------------------------------------------------------


def test_k39_a_thousand_bad_requests_are_a_line_and_no_prompt_is_anywhere(served, caplog):
    for theirs in ("httpx", "httpcore", "asyncio"):
        caplog.set_level(logging.WARNING, theirs)
    with caplog.at_level(logging.DEBUG), httpx.Client(base_url=served.url) as client:
        for i in range(1000):
            body = {"prompt": SECRET, "max_tokens": 1, "user": SECRET}
            body |= ({}, {"temperature": -1}, {"xyzzy_field": SECRET}, {SECRET: "xyzzy"})[i % 4]
            client.post("/v1/completions", json=body)
        served.post(path="/v1/chat/completions", messages=[{"role": "user", "content": SECRET}],
                    stream=True, max_tokens=2)  # fmt: skip
        looks = [served.get(path).text for path in ("/metrics", "/snapshot", "/v1/models")]
    assert len(caplog.records) <= 1
    for text in (*looks, caplog.text):
        assert "xyzzy" not in text


def test_warnings_come_once_a_minute_with_their_number(caplog):
    now = [0.0]
    limited = Limited(logging.getLogger("evewatch.test"), lambda: now[0])
    for _ in range(1000):
        limited.warn("kind", "something odd")
        limited.warn("other", "something else")
    assert [r.getMessage() for r in caplog.records] == ["something odd", "something else"]
    now[0] += INTERVAL_S
    limited.warn("kind", "something odd")
    assert "999 more" in caplog.records[-1].getMessage()


def test_a_foreign_loggers_lines_come_once_a_minute():
    now = [0.0]
    once = OncePerMinute(lambda: now[0])
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "bad request", (), None)
    assert [once.filter(record) for _ in range(3)] == [True, False, False]
    now[0] += INTERVAL_S
    assert once.filter(record)


def test_errors_echo_no_text_of_a_request(served):
    for body in (
        {"prompt": [SECRET, 5]},
        {"prompt": SECRET, "stop": [SECRET, 5]},
        {"prompt": "a", "temperature": SECRET},
        {"prompt": "a", "model": SECRET},
    ):
        made = served.post(**body)
        assert made.status_code in (400, 404)
        assert "xyzzy" not in made.text
    raw = served.http.post(
        served.url + "/v1/completions", content=json.dumps({"prompt": SECRET})[:-1],
        headers={"content-type": "application/json"},
    )  # fmt: skip
    assert raw.status_code == 400
    assert "xyzzy" not in raw.text
