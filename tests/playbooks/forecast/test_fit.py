"""From steps to what they cost: on made-up steps, on a simulated engine, on a tiny real one."""

import json
import random
from array import array
from dataclasses import replace

import numpy as np
import pytest

from builders import tiny_loaded
from engine.config import EngineConfig
from engine.errors import ConfigError, EngineError
from engine.scheduling.plan import ModelFacts
from engine.simulated.cost import kv_facts
from engine.simulated.fitted import CostCoefficients, FittedCost
from engine.simulated.work import StepWork, work_of
from engine.snapshot import BatchState, KvState, Snapshot
from kernels import dispatch
from playbooks.forecast import fit_file, fit_url, fitting
from playbooks.forecast.fit import run_fit
from playbooks.forecast.fit_file import Fingerprint, Fit, HeldOut
from playbooks.forecast.fit_record import of_fit
from playbooks.forecast.fit_url import Asked, counted_steps, run_fit_url
from playbooks.forecast.fitting import fit_cost, predict, slowness_of, step_times
from playbooks.forecast.ladder import rungs
from playbooks.forecast.step_log import StepLog
from playbooks.forecast.streamed_steps import lone_prompts, streamed_steps
from playbooks.forecast.virtual_load import run_virtual_load
from playbooks.load.arrivals import Gamma
from playbooks.load.mix import parse_mix
from playbooks.load.summary import summarize
from playbooks.load.workload import LoadSpec
from playbooks.outside.site import UrlSite
from playbooks.reports.document import Document
from playbooks.reports.documents import document
from playbooks.steps.models import FitWork
from report_schemas import violations
from served import serving

TRUE = CostCoefficients(
    ((1, 12e6), (4, 14e6), (16, 30e6), (64, 110e6), (256, 420e6)), 2e5, 150.0, 40.0, 3e5
)
CONFIG = EngineConfig(max_batch=8, token_budget=64, kv_memory=1 << 20)
FACTS = ModelFacts("tiny", "cpu", "cpu", 300, 1000, kv_facts(400, 16, 100.0, 200.0, 8))


def a_fit(**changes):
    fingerprint = Fingerprint("evewatch", "0.1.0", "tiny", "int8_channel", "cpu", "a machine")
    return replace(Fit(fingerprint, CONFIG.to_dict(), FACTS, 400, 512, TRUE), **changes)


def steps(count, seed, noise=0.0):
    """Works of steps of many kinds, and what they cost."""
    rng = random.Random(seed)
    works = []
    for _ in range(count):
        rows = rng.choice((1, 2, 4, 8, 16, 32))
        chunk = rng.choice((0, 0, 0, rng.randint(2, 200)))
        held = rows * rng.randint(10, 800)
        works.append(
            StepWork(rows + chunk, rows + (chunk > 0), rows, held + chunk, held,
                     chunk * (chunk + 1) // 2, rng.randint(0, rows))
        )  # fmt: skip
    ns = [TRUE.of(work) * rng.uniform(1 - noise, 1 + noise) for work in works]
    return np.array(works, dtype=float), np.array(ns)


def test_the_cost_of_steps_is_found_again():
    cost = fit_cost(*steps(1500, seed=1))
    works, ns = steps(400, seed=2)
    assert np.abs(predict(cost, works) / ns - 1).max() < 0.02
    assert [cost.of(StepWork(*map(int, w))) for w in works] == pytest.approx(predict(cost, works))


def test_noise_and_outliers_move_the_fit_little_and_time_stays_time():
    works, ns = steps(1500, seed=1, noise=0.1)
    ns[::50] *= 8
    cost = fit_cost(works, ns)
    assert predict(cost, works).sum() == pytest.approx(ns.sum())
    shape = predict(cost, works) / np.array([TRUE.of(StepWork(*map(int, w))) for w in works])
    assert np.std(shape) / np.mean(shape) < 0.03
    slow = slowness_of(ns, predict(cost, works))
    assert 1 / np.mean(1 / np.array(slow)) == pytest.approx(1, abs=1e-3) and max(slow) > 2


def test_slowness_is_that_of_equal_times_in_their_order():
    """Short steps and long ones; three of the short ones took four times as long."""
    fitted = np.array([5e6] * 11 + [50e6] * 4)
    ns = fitted * np.array([1, 1, 4, 4, 4] + [1] * 10)
    slow = np.array(slowness_of(ns, fitted))
    assert len(slow) == 30  # 300 ms
    assert slow[1:7] == pytest.approx(slow[2], rel=1e-3) and slow[0] < slow[2] / 3.9
    assert np.ptp(slow[7:]) < 0.01
    long = np.full(20_000, 2e7)
    assert len(slowness_of(long, long)) == 8000


def test_a_machine_that_is_slow_for_a_while_is_so_in_virtual_time():
    slow = (*[0.9] * 5000, *[1.4] * 1250)
    cost, work = FittedCost(TRUE, slow, seed=1), StepWork(1, 1, 1, 20, 20, 0, 0)
    drawn = np.array([cost(work) for _ in range(100_000)]) / TRUE.of(work)
    assert 1 / drawn.mean() == pytest.approx(np.mean(1 / np.array(slow)), rel=0.05)
    changes = (np.abs(np.diff(drawn)) > 0.01).mean()
    assert 0 < changes < 0.02
    assert min(drawn) * TRUE.of(work) >= cost.least


def test_what_others_take_is_as_long_for_long_steps_as_for_short_ones():
    """A tenth of a second, ten times slower, in a second: 90 ms more whatever the steps are."""
    slow = (*[10.0] * 10, *[1.0] * 90)
    for tokens in (1, 64):
        work = StepWork(tokens, 1, 0, 20, 20, 0, 0)
        cost, fitted = FittedCost(TRUE, slow), TRUE.of(work)
        spent = done = 0.0
        while spent < 60e9:
            spent += cost(work)
            done += fitted
        assert (spent - done) / spent == pytest.approx(0.09, rel=0.1)


def test_more_work_is_never_faster():
    rng = np.random.default_rng(0)
    works, _ = steps(300, seed=3)
    cost = fit_cost(works, rng.uniform(1e6, 9e6, len(works)))  # nothing to be found in it
    curve = [ns for _, ns in cost.tokens]
    assert curve == sorted(curve) and curve[0] >= 0
    assert min(cost.row, cost.context, cost.chunk_context, cost.sealed) >= 0


def test_errors_are_of_rounds_that_the_fit_has_not_seen():
    log = StepLog()
    for turn, factor in ((0, 1.0), (1, 1.1), (2, 0.9)):
        for work, ns in zip(*steps(200, seed=turn), strict=True):
            log.add(StepWork(*map(int, work)), ns * factor, turn, turn)
    times = step_times(log)
    assert times.held_out.steps == 600
    assert 0.05 < times.held_out.p50 < 0.2 and 0.05 < times.drift < 0.2
    assert abs(times.held_out.total) < 0.05 < abs(times.held_out.worst_block)


def test_few_steps_are_no_fit():
    with pytest.raises(EngineError, match="3 steps were measured and a fit needs 200: give it a"):
        step_times(StepLog([StepWork(1, 1, 1, 1, 1, 0, 0)] * 3, [1.0] * 3, [0] * 3, [0] * 3))


# --- the file -----------------------------------------------------------------------------------


def test_a_fit_comes_back_from_its_file(tmp_path):
    held_out = HeldOut(10, 0.01, 0.02, -0.001, 0.03)
    fit = a_fit(slowness=(0.9, 1.1), drift=0.01, held_out=held_out, when=3.5, notes=("a note",))
    fit.save(tmp_path / "new" / "fit.json")
    assert fit_file.load(tmp_path / "new" / "fit.json") == fit


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("\x00", "is not JSON"),
        ("[]", "is no fit"),
        ('{"kind": "load"}', "is no fit"),
        ('{"kind": "fit", "schema": 9}', "another version of the format"),
        ('{"kind": "fit", "schema": 2, "pages": "many"}', "pages: expected a whole number"),
        ('{"kind": "fit", "schema": 2}', "is missing"),
    ],
)
def test_what_is_no_fit_is_told_in_a_line(tmp_path, text, why):
    path = tmp_path / "fit.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        fit_file.load(path)
    assert why in str(caught.value) and str(path) in str(caught.value)
    assert "evewatch forecast fit" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (("pages",), 0, "pages: expected at least 1, got 0"),
        (("slowness",), [1.0, -1.0], "slowness"),
        (("drift",), float("nan"), "drift: expected a finite number, got nan"),
        (("cost", "tokens"), [], "can be of no engine"),
        (("cost", "tokens"), [[4, 2e6], [1, 3e6]], "can be of no engine"),
        (("cost", "context"), -1.0, "can be of no engine"),
        (("facts", "kv", "page_bytes"), 0, "can be of no engine"),
        (("fingerprint",), None, "fingerprint"),
    ],
)
def test_a_fit_of_no_engine_is_refused_in_a_line(tmp_path, place, value, why):
    path = tmp_path / "fit.json"
    a_fit().save(path)
    data = part = json.loads(path.read_text())
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=why) as caught:
        fit_file.load(path)
    assert "\n" not in str(caught.value)


def test_a_fit_is_of_one_engine_and_one_machine():
    fit = a_fit()
    fit.replica(CONFIG.with_(max_batch=4, dynamic_batch=True, token_budget=32), seed=0)
    for change in ({"kv_format": "fp16"}, {"model": "another"}, {"page_tokens": 32}):
        with pytest.raises(ConfigError, match=f"{next(iter(change))}: the fit is of"):
            fit.replica(CONFIG.with_(**change), seed=0)
    with pytest.raises(ConfigError, match="speculate: prompt: how many drafts"):
        fit.replica(CONFIG.with_(speculate="prompt"), seed=0)
    with pytest.raises(ConfigError, match="another machine"):
        fit.refuse_elsewhere()
    replace(fit, fingerprint=replace(fit.fingerprint, url="http://x")).refuse_elsewhere()


def test_the_pool_follows_memory_and_batch():
    fit = a_fit()
    kv = FACTS.kv
    assert fit.pages_of(CONFIG) == 400
    assert fit.pages_of(CONFIG.with_(max_batch=12)) == (400 * kv.page_bytes - 4 * kv.slab_bytes) // kv.page_bytes  # fmt: skip  # noqa: E501
    assert fit.pages_of(CONFIG.with_(kv_memory=200_000)) < 120
    with pytest.raises(ConfigError, match="rows need a page each"):
        fit.pages_of(CONFIG.with_(kv_memory=30_000))


# --- loads on a fit, and what their clients see of the steps ------------------------------------


def a_load(fit, rate=6.0, seconds=20.0, **more):
    spec = LoadSpec(
        Gamma(rate), parse_mix("lognormal:40,12"), duration_s=seconds, seed=3, ignore_eos=True
    )
    return run_virtual_load(fit, CONFIG, spec, **more)


def test_a_load_on_a_fit_is_the_same_every_time_and_can_be_summarized():
    fit = a_fit(slowness=(0.8, 0.9, 1.0, 1.3))
    first, again, other = a_load(fit, seed=1), a_load(fit, seed=1), a_load(fit, seed=2)
    assert [r.events for r in first.records] == [r.events for r in again.records]
    assert [r.events for r in first.records] != [r.events for r in other.records]
    summary = summarize(first)
    assert summary["requests"]["completed"] == len(first.records) > 80
    assert summary["latency"]["ttft_ms"]["p50"] > 0
    faster = summarize(a_load(fit, seed=1, speed=1.5))
    assert faster["latency"]["e2e_ms"]["p50"] < summary["latency"]["e2e_ms"]["p50"]


def test_clients_see_the_steps_of_an_engine():
    """What streams show is what the loop did, and a fit of it predicts the engine."""
    made = []
    fit = a_fit()
    replica = fit.replica

    def watched(*args, **more):
        twin = replica(*args, **more)
        twin.loop.on_step = lambda plan, record: made.append((work_of(plan.items, 16), record))
        return twin

    object.__setattr__(fit, "replica", watched)
    records = a_load(fit, rate=8.0, seconds=60.0).records
    seen = list(streamed_steps(records, 16))
    known = {(work, round(record.total_ms * 1e6)) for work, record in made}
    assert len(seen) > 0.5 * len(made)
    right = sum((step.work, step.ns) in known for step in seen)
    assert right > 0.98 * len(seen)
    works, ns = np.array([s.work for s in seen], float), np.array([s.ns for s in seen], float)
    cost = fit_cost(works, ns)
    truth = np.array([TRUE.of(work) for work, _ in made])
    assert predict(cost, np.array([work for work, _ in made], float)).sum() == pytest.approx(
        truth.sum(), rel=0.05
    )
    lone = list(lone_prompts(records))
    assert lone and all(ns >= TRUE.of_tokens(1) for _, ns in lone)


def test_a_network_that_is_late_by_chance_hides_no_step():
    """Each token comes up to 2 ms late, and tokens of a stream in their order."""
    records = a_load(a_fit(), rate=8.0, seconds=40.0).records
    exact = {step.work for step in streamed_steps(records, 16)}
    rng = random.Random(1)
    for record in records:
        late = [at + rng.randint(0, 2_000_000) for at in record.events]
        record.events = array("q", sorted(late))
    seen = list(streamed_steps(records, 16))
    assert sum(step.work in exact for step in seen) > 0.97 * len(seen)
    off = [step.ns / TRUE.of(step.work) - 1 for step in seen]
    assert abs(np.median(off)) < 0.02 and np.quantile(np.abs(off), 0.9) < 0.1


def test_counters_give_mean_steps_where_streams_do_not():
    def look(steps, prompt, output, time, running=4):
        batch = BatchState(
            running=running, steps_total=steps, prompt_tokens_total=prompt,
            output_tokens_total=output,
        )  # fmt: skip
        return Snapshot(time=time, batch=batch, kv=KvState(usage=0.5, total=100))

    looks = [look(0, 0, 0, 10.0), look(20, 100, 80, 11.0), look(20, 100, 80, 12.0),
             look(30, 100, 100, 13.0, running=0),
             look(40, 100, 100, 13.5, running=0), look(None, 0, 0, 14.0)]  # fmt: skip
    (work, ns), (last, _) = counted_steps(looks, 16)
    assert (work.tokens, work.rows, work.context, ns) == (9, 4, 800, 5e7)
    assert (last.tokens, last.rows) == (2, 2)


# --- the ladder, and whole fits -------------------------------------------------------------------


def test_every_round_has_the_same_loads():
    ladder = rungs(FitWork(duration_s=60, rounds=3), 12)
    one = [(rung.users, rung.lengths) for rung in ladder if rung.round == 0]
    assert [users for users, _ in one] == [1, 2, 4, 8, 12, 2, 4]
    assert len(ladder) == 3 * len(one) == len({rung.number for rung in ladder})
    assert sum(rung.seconds for rung in ladder) == pytest.approx(60)
    assert {users for users, _ in [(r.users, 0) for r in rungs(FitWork(), 1)]} == {1}


def test_a_real_engine_is_fitted_and_its_report_can_be_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "LEAST_MEASURED", 10)
    config = EngineConfig(kernels="reference", max_batch=4, token_budget=32, kv_memory=1 << 20)
    loaded = tiny_loaded(dispatch.select("reference").ops, layers=1)
    fit, report = run_fit(config, FitWork(duration_s=1.0, rounds=2), loaded=loaded)
    assert fit.held_out is not None and fit.held_out.steps >= 10
    assert fit.cost.of(StepWork(1, 1, 1, 20, 20, 0, 0)) > 0
    assert fit.pages > 4 and fit.fingerprint.model == loaded.identity
    assert violations(report, "forecast_fit") == []
    (record,) = of_fit(report, ("fit.json",))
    assert record.artifacts == ("fit.json",) and record.effect[0].after == fit.held_out.p50
    shown = document(report)
    assert isinstance(shown, Document) and "What a step costs" in shown.title
    fit.save(tmp_path / "fit.json")
    records = a_load(
        replace(fit_file.load(tmp_path / "fit.json"), settings=CONFIG.to_dict())
    ).records
    assert records and all(r.completed for r in records)


def test_an_engine_at_a_url_is_fitted_from_outside(monkeypatch):
    """The tiny model's tokens are pieces of letters, so that its events have several; here that is
    no matter."""
    monkeypatch.setattr(fitting, "LEAST_MEASURED", 10)
    monkeypatch.setattr(fit_url, "one_token_each", lambda records: True)
    with serving(kernels="reference", max_batch=4, token_budget=64) as served:
        site = UrlSite(served.url)
        fit, report = run_fit_url(site, Asked(), FitWork(duration_s=2.0, rounds=2))
        assert fit.pages == served.engine.pool.total
        assert fit.config.max_batch == 4 and fit.max_model_len == 512
    assert fit.fingerprint.url and fit.fingerprint.machine is None
    assert fit.held_out is not None and fit.arrival_ns >= 0
    assert any("token_budget" in note for note in fit.notes)
    assert document(report).warnings and violations(report, "forecast_fit") == []
    assert served.url in of_fit(report)[0].title


def test_what_a_page_does_not_tell_is_asked_for():
    with pytest.raises(ConfigError, match="give --pages"):
        run_fit_url(UrlSite("http://127.0.0.1:9"), Asked(max_batch=4), FitWork())
    with pytest.raises(ConfigError, match="give --max-batch"):
        run_fit_url(UrlSite("http://127.0.0.1:9"), Asked(pages=4), FitWork())
