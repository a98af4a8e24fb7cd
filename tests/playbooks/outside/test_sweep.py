"""Steps against a URL: no run meets what another left in the target's prefix cache."""

import itertools

import pytest

from engine.errors import EngineError
from engine.observing.host import HostEvidence
from engine.snapshot import BatchState, Snapshot, Source, SourceState
from load_stub import DONE, ScriptedTransport, event, run_virtual, token
from playbooks.load.client import LoadRun
from playbooks.outside import sweep as procedure
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.outside.watch import Watch
from playbooks.runs.outcome import StepClock
from playbooks.steps.models import SweepStep

TWO_RUNGS = {"batches": (1, 2, 4, 8), "repeats": 1, "lengths": "fixed:200,8", "least_requests": 8,
             "requests_per_user": 2}  # fmt: skip


class CachingServer:
    """Keeps every prompt that it has seen, and tells how many tokens of the next it knows."""

    def __init__(self):
        self.known: set[str] = set()
        self.hits: list[int] = []
        self.ends_at_once = lambda number: False
        self.transport = ScriptedTransport(self.answer)

    def answer(self, body):
        prompt = body["prompt"]
        cached = 200 if prompt in self.known else 0
        self.known.add(prompt)
        self.hits.append(cached)
        if self.ends_at_once(len(self.hits)):
            return [0.01, token("", "stop"), DONE]
        usage = {"prompt_tokens": 200, "completion_tokens": 8,
                 "prompt_tokens_details": {"cached_tokens": cached}}  # fmt: skip
        tokens = [piece for _ in range(7) for piece in (0.01, token())]
        return [*tokens, 0.01, token(finish="length"), event({"choices": [], "usage": usage}), DONE]


@pytest.fixture
def server(monkeypatch):
    found = CachingServer()
    made = GuardedEndpoint
    monkeypatch.setattr(procedure, "GuardedEndpoint", lambda site: made(site, found.transport))
    monkeypatch.setattr(
        procedure.client, "run_load",
        lambda target, spec, *rest: run_virtual(LoadRun(target, spec).run()),
    )  # fmt: skip
    monkeypatch.setattr(UrlSite, "spec", property(_spec))
    return found


def _spec(site):
    from playbooks.load.endpoint import EndpointSpec

    return EndpointSpec(site.url, model="m")


def sweep(**changes):
    step = SweepStep(**TWO_RUNGS | changes)
    return procedure.run_sweep(UrlSite("http://h"), step, StepClock())


@pytest.mark.parametrize("seed", [None, 3])
def test_no_rung_hits_what_another_left(server, seed):
    outcome = sweep(seed=seed)
    assert not any(server.hits)
    assert outcome.report["prompt_cached"] == 0
    assert outcome.metrics["peak_tok_s"] > 0


def test_two_runs_differ_unless_a_seed_was_given(server):
    sweep()
    sweep()
    assert not any(server.hits)
    first = len(server.hits)
    sweep(seed=7)
    assert not any(server.hits[first:])
    again = len(server.hits)
    outcome = sweep(seed=7)
    assert all(server.hits[again:])
    assert outcome.metrics["knee"] is None
    assert outcome.metrics["recommended_cap"] is None
    assert "prefix cache had up to 100% of a run's prompts" in outcome.note


def test_a_model_that_ends_at_once_now_and_then_spoils_no_sweep(server):
    server.ends_at_once = lambda number: number % 8 == 0
    assert sweep().metrics["peak_tok_s"] > 0
    server.ends_at_once = lambda number: True
    with pytest.raises(EngineError, match="none of 8 requests of 1 users was answered"):
        sweep()


def loop(users, rate, late=False, lost=0.0):
    summary = {"throughput": {"output_tok_s": rate}, "generator_bound": late,
               "tokens": {"prompt": 100, "prompt_cached": None}}  # fmt: skip
    host = HostEvidence(seconds=1.0, steal_share=lost)
    return procedure.Loop(summary, (host,))


def climbed(monkeypatch, make=loop, cap=None, **changes):
    """A sweep whose throughput rises up to two users; `make(users, rate)` is each loop."""

    def one(site, params, users, repeat, seed):
        return make(users, 100.0 * min(users, 2) * (1 + 0.001 * repeat))

    seen = Snapshot(source=Source(SourceState.LIVE), batch=BatchState(cap_max=cap))
    monkeypatch.setattr(procedure, "_loop", one)
    monkeypatch.setattr(Watch, "look", lambda watch: seen)
    return sweep(**{"batches": (1, 2, 4, 8, 16), "repeats": 2} | changes)


def test_a_generator_that_was_late_has_found_no_knee(monkeypatch):
    assert climbed(monkeypatch).metrics["knee"] is not None
    outcome = climbed(monkeypatch, lambda users, rate: loop(users, rate, late=True))
    assert outcome.metrics["knee"] is None
    assert outcome.note == "no knee: the load generator was the limit"


def test_the_caps_place_is_known_where_the_target_tells_its_cap(monkeypatch):
    """More users than that wait for each other: a plateau of theirs is none of the batch's."""
    outcome = climbed(monkeypatch, cap=8)
    assert outcome.metrics["cap_over_recommended"] == 8 / outcome.metrics["recommended_cap"]
    assert not outcome.not_told
    assert outcome.note.endswith("users beyond its cap of 8 are left out")
    outcome = climbed(monkeypatch, cap=2)
    assert outcome.metrics["knee"] is None and outcome.note.startswith("2 points count")
    assert climbed(monkeypatch).not_told == {"cap_over_recommended"}


def test_what_the_machine_took_unevenly_shows_no_knee(monkeypatch):
    def uneven(users, rate):
        return loop(users, rate, lost=0.4 if users == 8 else 0.0)

    outcome = climbed(monkeypatch, uneven)
    assert outcome.metrics["knee"] is None and "took 40% more" in outcome.note


def test_throughput_that_is_not_known_well_enough_shows_no_knee(monkeypatch):
    swings = itertools.cycle((0.7, 1.0, 1.3))
    outcome = climbed(monkeypatch, lambda users, rate: loop(users, rate * next(swings)))
    assert outcome.metrics["knee"] is None and outcome.note.startswith("too noisy")


def test_what_was_disturbed_is_measured_again_with_other_prompts(monkeypatch):
    seeds = []

    def disturbed(site, params, users, repeat, seed):
        seeds.append(seed)
        return loop(users, 100.0, lost=0.5 if len(seeds) % 2 else 0.0)

    monkeypatch.setattr(procedure, "_loop", disturbed)
    outcome = sweep(batches=(1, 2, 4, 8), repeats=1)
    assert len(seeds) == 8 == len(set(seeds))
    assert [point["lost"] for point in outcome.report["points"]] == [0.0] * 4
