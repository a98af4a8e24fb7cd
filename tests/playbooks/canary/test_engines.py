"""Whole canaries on two tiny engines in virtual time: each thing that goes wrong is rolled back
where it should be, and a healthy candidate gets everybody."""

import signal
from dataclasses import replace

import pytest

from builders import MemoryCheckpoint, tiny_spec, tiny_tensors, tiny_tokenizer
from canary_rig import CONFIG, OPS, PLAN, Rig
from engine.errors import EngineError
from engine.models import assemble
from engine.models.surgery import WithOutliers
from playbooks.canary import probes
from playbooks.canary.events import Decided, Phase, StageBegan
from playbooks.canary.router import BASELINE, CANDIDATE
from playbooks.optlog import OptLog
from playbooks.quality.controls import choose_pairs, plain_arm, ranges_of
from playbooks.quality.scoring import Text
from playbooks.reports.document import Document
from playbooks.reports.documents import document
from report_schemas import violations


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))


def rolled_back(report, rule):
    """The stage at which `rule` rolled it back."""
    last = report["decisions"][-1]
    assert (report["verdict"], last["action"]) == ("fail", "roll_back"), report["why"]
    assert rule in last["rules"], report["why"]
    back = report["rollback"]
    assert back["routed_after"] == 0
    assert back["last_request_ms"] == 0
    assert back["finished"] + back["retried"] == back["in_flight"]
    return last["stage"]


def check_shape(report):
    assert violations(report, "canary") == []
    assert isinstance(document(report), Document)


# --- a healthy one ----------------------------------------------------------------------


def test_a_healthy_candidate_gets_everybody_and_all_of_it_is_logged():
    rig = Rig(log=True)
    report = rig.run()
    check_shape(report)
    assert (report["verdict"], report["outcome"]) == ("pass", "promoted")
    assert [s["share"] for s in report["stages"]] == [0.0, 0.2, 0.5, 1.0]
    moves = [d["action"] for d in report["decisions"] if d["action"] != "hold"]
    assert moves == ["advance"] * 3 + ["promote"]
    assert report["rollback"] is None
    for stage in report["stages"][1:]:
        assert stage["ended_s"] - stage["began_s"] >= PLAN.least_s
        assert stage["candidate"]["answered"] >= PLAN.min_samples
        assert {r["call"] for r in stage["rulings"]} <= {"pass", "waived"}
    shares = [s["candidate"]["requests"] / (s["candidate"]["requests"] + s["baseline"]["requests"])
              for s in report["stages"]]  # fmt: skip
    assert shares[0] == 0 and shares[3] == 1
    assert shares[1] == pytest.approx(0.2, abs=0.08)

    records = OptLog().read().records
    assert [r.title for r in records] == [f"Canary: {d['title']}" for d in report["decisions"]]
    assert records[-1].decision == "adopt"
    assert records[0].what[0].key == "max_waiting"
    assert len([e for e in rig.events if isinstance(e, StageBegan)]) == 3
    assert len([e for e in rig.events if isinstance(e, Decided)]) == len(records)


def test_the_same_seed_gives_the_same_canary():
    """Times come out to the nanosecond, once what the first request builds is there."""

    def course(report):
        return [(s["looks"], s["action"], s["candidate"]["requests"], s["candidate"]["latency"])
                for s in report["stages"]]  # fmt: skip

    plan = replace(PLAN, stages="50")
    assert course(Rig(plan=plan).run()) == course(Rig(plan=plan).run())


# --- and those that are not ---------------------------------------------------------------


def test_refused_requests_are_an_error_rate():
    """The candidate's context is too short for some of what the baseline serves."""
    report = Rig(changes={"max_model_len": 20}).run()
    check_shape(report)
    assert rolled_back(report, "errors") == 1
    assert set(report["stages"][-1]["candidate"]["errors"]) == {"rejected"}
    assert report["stages"][-1]["baseline"]["failed"] == 0


def test_a_tail_that_is_higher():
    report = Rig(factor=5.0).run()
    assert rolled_back(report, "tail") == 1
    ruling = next(r for r in report["stages"][-1]["rulings"] if r["rule"] == "tail")
    assert ruling["numbers"]["low"] > PLAN.tail_ratio


def test_one_that_is_slow_only_under_load_is_found_when_it_gets_it():
    """Its step costs grow with the rows: at few users nothing is to be seen."""

    def crowded(engine):
        runner, build = engine.runner, engine.runner.build

        def slow(plan):
            return [build(plan) for _ in range(1 if len(plan.items) < 3 else 12)][-1]

        runner.build = slow  # each build moves the clock by a step's cost

    report = Rig(sabotage=crowded, rate=20.0, plan=replace(PLAN, stages="10,100")).run()
    assert rolled_back(report, "tail") == 2


def test_a_leak_of_pages():
    def leak(engine):
        finish = engine.scheduler.finish

        def forgetful(request, reason):
            if len(request.pages) > 1 and request.number % 2:
                request.pages.pop(0)  # nobody gives it back
            finish(request, reason)

        engine.scheduler.finish = forgetful

    report = Rig(sabotage=leak, lengths="lognormal:20,5,0.3").run()
    assert rolled_back(report, "memory") == 1
    ruling = next(r for r in report["stages"][-1]["rulings"] if r["rule"] == "memory")
    assert ruling["numbers"]["gauge"] == "KV memory that nobody owns"
    assert 0 < ruling["numbers"]["runs_out_s"] < PLAN.horizon_s
    assert report["rollback"]["left"] > 0  # what it has lost, it still holds


def test_mixed_rows_are_cross_talk():
    def mix(engine):
        sampler, sample = engine.sampler, engine.sampler.sample

        def swapped(logits, requests, *ahead):
            tokens = list(sample(logits, requests, *ahead))
            return tokens[1:] + tokens[:1]  # alone, a row is its own neighbour

        sampler.sample = swapped

    report = Rig(sabotage=mix).run()
    assert rolled_back(report, "crosstalk") == 1
    assert report["probes"][CANDIDATE]["differing"] > report["probes"][BASELINE]["differing"]
    assert report["rollback"]["finished"] == 0  # what it still says is not to be trusted


def test_the_third_fault_of_the_engine_ends_it_at_once():
    def break_down(event, rig):
        if not (isinstance(event, StageBegan) and event.number == 2):
            return
        runner, run, steps = rig.engines[CANDIDATE].runner, None, [0]
        run = runner.run

        def faulty(batch):
            steps[0] += 1
            if steps[0] % 5 == 0:
                raise RuntimeError("an illegal memory access")
            return run(batch)

        runner.run = faulty

    report = Rig(act=break_down).run()
    assert rolled_back(report, "faults") == 2
    assert report["decisions"][-1]["look"] == 1
    stage = report["stages"][-1]
    assert stage["ended_s"] - stage["began_s"] < PLAN.least_s / 2
    assert report["faults"][CANDIDATE] >= 3
    assert report["faults"][BASELINE] == 0


def test_an_engine_that_dies_takes_nobody_with_it():
    def die(event, rig):
        if isinstance(event, StageBegan) and event.number == 1:
            rig.engines[CANDIDATE].scheduler.plan = None  # calling it raises

    report = Rig(act=die).run()
    assert rolled_back(report, "faults") == 1
    assert report["faults"] == {BASELINE: 0, CANDIDATE: 3}
    assert report["stages"][-1]["baseline"]["failed"] == 0


def test_one_that_hangs_is_not_taken_for_idle_and_its_requests_are_asked_again():
    def hang(event, rig):
        if isinstance(event, StageBegan) and event.number == 1:
            rig.engines[CANDIDATE].set_paused(True)

    report = Rig(act=hang).run()
    assert rolled_back(report, "tail") == 1
    back = report["rollback"]
    assert back["retried"] == back["in_flight"] > 30
    assert back["idle_ms"] >= PLAN.drain_s * 1000  # they had their time to end there
    assert back["left"] == 0


# --- quality ----------------------------------------------------------------------------


def with_outliers(tmp_path):
    """A model with outlier channels, and a calibration that lets int8_tensor run on it."""
    ops, spec = OPS, tiny_spec(max_positions=2048)
    tensors = tiny_tensors(spec)
    for name in tensors:
        if "q_proj" in name or "k_proj" in name:
            tensors[name] *= 3.0
    texts = [Text("t", "own", list(range(3, 200)))]
    checkpoint = MemoryCheckpoint(spec, tensors)
    plain = assemble(checkpoint, ops, tiny_tokenizer(), "plain")
    pairs, factor = choose_pairs(ranges_of(plain_arm(CONFIG, plain, 256), texts))
    marked = WithOutliers(checkpoint, pairs, factor)
    loaded = assemble(marked, ops, tiny_tokenizer(), "outliers")
    ranges = ranges_of(plain_arm(CONFIG, loaded, 256), texts)
    path = tmp_path / "calibration.json"
    ranges.calibration(loaded.spec.name, loaded.identity, 0).save(path)
    return loaded, str(path), pairs


def test_quantised_outliers_are_found_before_any_user_sees_them(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "CASES", 4)
    loaded, path, pairs = with_outliers(tmp_path)
    config = CONFIG.with_(kv_format="fp16", kv_memory=1 << 23)
    changes = {"kv_format": "int8_tensor", "calibration": path}
    report = Rig(changes, config=config, loaded=loaded, plan=replace(PLAN, waive=())).run()
    check_shape(report)
    assert rolled_back(report, "quality") == 1
    assert report["routed"] == {BASELINE: 0, CANDIDATE: 0}
    assert report["quality"]["verdict"] == "fail"
    named = {(s["layer"], s["channel"]) for s in report["quality"]["suspects"]}
    assert any((p.layer, c) in named for p in pairs for c in p.channels(16))


def test_an_equal_candidate_passes_the_quality_check(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "CASES", 4)
    loaded, *_ = with_outliers(tmp_path)
    plan = replace(PLAN, waive=(), stages="50", tail_ratio=3.0)
    report = Rig(config=CONFIG.with_(kv_memory=1 << 23), loaded=loaded, plan=plan).run()
    assert report["outcome"] == "promoted", report["why"]
    assert report["quality"]["verdict"] == "pass"
    kld = next(g for g in report["quality"]["gates"] if g["metric"] == "mean_kld")
    assert kld["value"] == 0.0


# --- undecided --------------------------------------------------------------------------


def test_what_stays_undecided_ends_with_all_traffic_on_the_baseline():
    """A tail ratio that so few samples cannot decide."""
    plan = replace(PLAN, tail_ratio=1.01, hold_s=12.0, stages="50,100")
    report = Rig(plan=plan).run()
    check_shape(report)
    assert (report["verdict"], report["outcome"]) == ("inconclusive", "undecided")
    assert "straddles" in report["why"]
    assert report["rollback"]["routed_after"] == 0
    assert sum(d["action"] == "hold" for d in report["decisions"]) <= 2  # not one for each look


def test_missing_evidence_is_never_a_pass():
    """No quality check can be made: no golden prompt fits. It is not waived."""
    plan = replace(PLAN, waive=(), hold_s=7.0)
    report = Rig(plan=plan, config=CONFIG.with_(max_model_len=64)).run()
    assert report["verdict"] == "inconclusive"
    assert "too long" in report["why"]


def test_an_interrupt_gives_everything_back_and_still_reports():
    def interrupt(event, rig):
        if isinstance(event, StageBegan) and event.number == 2:
            signal.raise_signal(signal.SIGINT)

    report = Rig(act=interrupt).run()
    check_shape(report)
    assert report["interrupted"] is True
    assert (report["verdict"], report["why"]) == ("inconclusive", "interrupted")
    assert report["decisions"][-1]["action"] == "inconclusive"


def test_whoever_runs_it_can_stop_it():
    rig = Rig(stop=lambda: any(isinstance(e, StageBegan) for e in rig.events))
    report = rig.run()
    assert report["interrupted"] is True
    assert report["outcome"] == "undecided"
    assert report["rollback"]["left"] == 0
    assert len(report["stages"]) == 2


def test_a_baseline_that_fails_itself_proves_nothing():
    def break_both(event, rig):
        if isinstance(event, StageBegan):
            rig.engines[BASELINE].scheduler.plan = None

    report = Rig(act=break_both).run()
    assert report["verdict"] == "inconclusive"
    assert "baseline itself" in report["why"]


def test_a_log_that_cannot_be_written_is_said_and_costs_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "file"))
    rig = Rig(log=True, plan=replace(PLAN, stages="50", tail_ratio=3.0))
    assert rig.run()["outcome"] == "promoted"
    assert any(isinstance(e, Phase) and e.name == "log" for e in rig.events)


def test_the_same_on_both_sides_is_no_canary():
    from playbooks.canary.step import run_canary
    from playbooks.load.workload import make_spec

    with pytest.raises(EngineError, match="nothing to try"):
        run_canary(PLAN, CONFIG, CONFIG, make_spec("poisson:1", "chat", duration_s=9.0))
