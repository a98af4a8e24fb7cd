"""The console beside an engine, as `bench --with-console` measures it."""

import pytest

from console.commands.headless_console import SIZE, HeadlessConsole, KeyPresser
from engine.simulated.demo import DemoEngine
from playbooks.measure.bench import cost_of


@pytest.fixture
def engine():
    engine = DemoEngine("full")
    engine.start()
    yield engine
    engine.stop()


def test_it_draws_answers_keys_and_leaves_the_engine_alone(engine):
    with HeadlessConsole(engine) as console:
        assert console.app.size == SIZE
        milliseconds = console.press("3")
        assert 0 < milliseconds < 20_000
        assert console.app.overview.maximised.id == "kv"
        written = console.driver.written
        assert console.press("3") > 0
        assert console.driver.written > written
    assert not console._thread.is_alive()
    assert not engine._stopped.is_set()
    assert engine.submit("still there?", _params()).request_id


def _params():
    from engine.request import SamplingParams

    return SamplingParams(4)


def test_keys_are_pressed_for_as_long_as_it_lasts(engine):
    presser = KeyPresser()
    with presser.beside(engine) as console:
        while len(presser.milliseconds) < 2:
            console._thread.join(0.01)
    assert all(ms > 0 for ms in presser.milliseconds)


def test_a_console_that_fails_says_so(engine, monkeypatch):
    from engine.errors import EngineError

    def broken(*_, **__):
        raise ValueError("no colours")

    monkeypatch.setattr("console.commands.headless_console.build_app", broken)
    with (
        pytest.raises(EngineError, match="the console failed: no colours"),
        HeadlessConsole(engine),
    ):
        pass


def test_the_cost_is_the_median_share_of_the_cpu_time_and_not_of_tokens():
    def runs(*rows):
        return [
            {
                "throughput": {"output_tok_s": rate},
                "cpu": {"ms_per_token": ms, "guest_share": share},
            }
            for rate, ms, share in rows
        ]

    alone = runs((100.0, 10.0, None), (200.0, 5.0, None), (400.0, 2.0, None))
    others = runs((98.0, 10.1, 0.02), (90.0, 5.2, 0.03), (404.0, 2.1, 0.01))
    cost = cost_of(alone, others)
    assert cost["console_overhead"] == pytest.approx(0.02)
    assert (cost["console"]["lowest"], cost["console"]["highest"]) == (0.01, 0.03)
    assert cost["console"]["cpu_per_token"] == pytest.approx(0.04)
    untold = cost_of(alone, runs((98.0, 10.1, None), (90.0, 5.2, None), (404.0, 2.1, None)))
    assert untold["console_overhead"] is None
    assert untold["console"]["cpu_per_token"] == pytest.approx(0.04)


def test_a_console_knows_its_threads_cpu_time(engine):
    with HeadlessConsole(engine) as console:
        first = console.cpu_s()
        console.press("3")
        assert first is None or console.cpu_s() > first > 0
    assert console.cpu_s() is None
