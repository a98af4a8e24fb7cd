"""vLLM's server as a child: started, found healthy, watched, and always ended."""

import signal

import pytest

from engine.errors import ConfigError, EngineError
from engine.remote import child
from engine.remote.child import ChildEngine, VllmSpec, find_vllm
from engine.snapshot import SourceState
from remote_stub import FIXTURES
from vllm_stub import alive, install
from waiting import CEILING_S, until


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Call it with a behaviour and get the engine."""
    install(tmp_path / "bin", FIXTURES / "vllm" / "busy.prom")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    started = []

    def start(mode="", **spec):
        monkeypatch.setenv("VLLM_STUB", mode)
        engine = ChildEngine(VllmSpec("some/model", **spec), interval_s=0.05, start_s=CEILING_S)
        started.append(engine)
        return engine

    yield start
    for engine in started:
        engine.stop()


def test_it_starts_is_watched_and_ends_in_order(stub):
    engine = stub(max_batch=16, tensor_parallel=2)
    engine.start()
    pid = engine._process.pid
    snapshot = engine.snapshot()
    assert snapshot.source.state is SourceState.LIVE
    assert (snapshot.batch.running, snapshot.batch.cap) == (11, 16)
    assert engine.model == "smollm2"
    assert any("startup complete" in event.text for event in snapshot.events)
    engine.stop()
    assert not alive(pid)
    assert engine.tail(1) == ["shut down in order"]
    engine.stop()  # idempotent


def test_what_it_is_given_is_passed_on(stub):
    extra = ("--distributed-executor-backend", "ray", "--nnodes", "2")
    engine = stub("late", tensor_parallel=8, pipeline_parallel=2, extra=extra)
    engine.start()
    arguments = next(line for line in engine.tail(50) if line.startswith("arguments:"))
    assert arguments.endswith(
        "--tensor-parallel-size 8 --pipeline-parallel-size 2 "
        "--distributed-executor-backend ray --nnodes 2"
    )
    assert " serve some/model --host 127.0.0.1 --port " in arguments


def test_one_that_dies_while_it_loads_says_its_last_lines(stub):
    engine = stub("die")
    with pytest.raises(EngineError, match=r"ended with code 3(.|\n)*CUDA out of memory"):
        engine.start()


def test_one_that_dies_later_is_unreachable_and_says_why(stub):
    engine = stub()
    engine.start()
    engine._process.send_signal(signal.SIGKILL)
    until(lambda: engine.snapshot().source.state is SourceState.UNREACHABLE)
    until(lambda: "ended with code -9" in engine.snapshot().source.reason)


def test_one_that_does_not_listen_is_killed(stub, monkeypatch):
    quick = tuple((number, 0.1) for number, _ in child.GRACE_S)
    monkeypatch.setattr(child, "GRACE_S", quick)
    engine = stub("deaf")
    engine.start()
    pid = engine._process.pid
    engine.stop()
    assert not alive(pid)


def test_its_workers_end_with_it(stub, monkeypatch):
    quick = tuple((number, 0.3) for number, _ in child.GRACE_S)
    monkeypatch.setattr(child, "GRACE_S", quick)
    engine = stub("fork")
    engine.start()
    worker = int(next(x for x in engine.tail(50) if x.startswith("worker:")).split()[1])
    assert alive(worker)
    engine.stop()
    until(lambda: not alive(worker))


def test_stopped_while_it_loads_it_is_ended(stub):
    import threading

    engine = stub("late")
    failed = []

    def start():
        try:
            engine.start()
        except EngineError as error:
            failed.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    until(lambda: engine._process is not None)
    pid = engine._process.pid
    engine.stop()
    thread.join(CEILING_S)
    assert not alive(pid)
    assert failed == ["stopped before vLLM was up"]


def test_without_vllm_one_line_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="pip install vllm") as caught:
        find_vllm()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [({"tensor_parallel": 0}, "tensor-parallel: expected at least 1"),
     ({"extra": ("--port", "1")}, "--port: is set by EveWatch"),
     ({"extra": ("--host=0.0.0.0",)}, "--host: is set by EveWatch")],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(options, why):
    with pytest.raises(ConfigError, match=why):
        VllmSpec("m", **options)
