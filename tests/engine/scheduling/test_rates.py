"""Rates that are known to come, from a file, and the cap that opens before they do."""

import random

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.request import SamplingParams
from engine.scheduling.plan import ModelFacts
from engine.scheduling.rates import RatesAhead
from engine.simulated.clock import VirtualClock
from engine.simulated.cost import LinearCost, kv_facts
from engine.simulated.replica import Replica

EVENING = "time,rate\n2026-12-24T18:00+01:00,2.5\n\n2026-12-24T17:30:00Z, 6\n"


def load(tmp_path, text):
    path = tmp_path / "rates.csv"
    path.write_text(text, encoding="utf-8")
    return RatesAhead.load(path)


def test_a_rate_holds_until_the_next(tmp_path):
    rates = load(tmp_path, EVENING)
    six = 1_798_131_600.0  # 18:00 +01:00
    assert rates.highest(six - 120, six - 60) == 0
    assert rates.highest(six - 120, six) == 2.5
    assert rates.highest(six + 60, six + 120) == 2.5
    assert rates.highest(six + 60, six + 1800) == 6
    assert rates.highest(six + 10**6, six + 2 * 10**6) == 6
    assert load(tmp_path, "time,rate\n100,3\n200,1\n").highest(150, 250) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "first line must be time,rate"),
        ("at,count\n1,2\n", "first line must be time,rate"),
        ("time,rate\n", "no line below"),
        ("time,rate\n1,2,3\n", ":2: expected a time and a rate, got 3 fields"),
        ("time,rate\n1,-2\n", ":2: the rate '-2' is not a number of requests a second"),
        ("time,rate\n1,nan\n", ":2: the rate 'nan'"),
        ("time,rate\n1,many\n", ":2: the rate 'many'"),
        ("time,rate\n5,1\n\n5,2\n", ":4: the time is not after the one before"),
        ("time,rate\ninf,1\n", ":2: 'inf' is no time"),
        ("time,rate\nat noon,1\n", ":2: 'at noon' is no time; write it like"),
        ("time,rate\n2026-12-24T18:00,1\n", "has no offset; write it like 2026-12-24T18:00+01:00"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(tmp_path, text, problem):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    assert problem in str(error.value)
    assert str(error.value).startswith("rate_schedule: ")
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_stops_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"rate_schedule: .* cannot be read"):
        evening(tmp_path / "none.csv")


def evening(schedule=None, **settings):
    """A quiet hour of one short request in 2 s, then 8 requests a second; ms that each waited."""
    config = EngineConfig(
        max_batch=64, token_budget=128, dynamic_batch=True, min_batch=2,
        rate_schedule=str(schedule) if schedule else None, **settings,
    )  # fmt: skip
    facts = ModelFacts("simulated", "none", "none", 300, 1000, kv_facts(900, 16, 1.0, 2.0, 64))
    replica = Replica(
        config, facts, LinearCost(20e6, 0.05e6, 0.2e6), pages=900, max_model_len=512,
        clock=VirtualClock(1, 0.0),
    )  # fmt: skip
    rng, at, requests = random.Random(0), 0.0, []
    while at < 330:
        at += rng.expovariate(0.5 if at < 300 else 8.0)
        params = SamplingParams(rng.randint(20, 120), ignore_eos=True)
        requests.append(replica.submit([7] * 20, params, at=int(at * 1e9)))
    replica.run_until(299 * 10**9)
    before = replica.loop.scheduler.cap
    replica.run()
    waits = [r.stamps.span_ms("queued", "first_scheduled") for r in requests
             if r.stamps.arrival >= 300 * 10**9]  # fmt: skip
    return before, max(waits), replica.loop.telemetry.events


def test_the_cap_is_open_when_the_rate_that_was_known_comes(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text("time,rate\n0,0.5\n300,8\n")
    cold, cold_wait, _ = evening()
    warm, warm_wait, events = evening(path)
    assert cold < 6
    assert warm > 12
    assert warm_wait < cold_wait / 2
    assert any("8 requests/s are due" in event.text for event in events)


def test_the_objective_comes_before_the_rate(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text("time,rate\n0,0.5\n300,8\n")
    *_, events = evening(path, tpot_objective_ms=21.5)
    assert any("is over 22 ms" in event.text or "is over 21" in event.text for event in events)
