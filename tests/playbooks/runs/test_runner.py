"""The runner: it goes on, it stops when told to, and it always leaves its report."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from checkups import tiny_config, tiny_folder
from engine.errors import ConfigError, EngineError
from engine.execution.load import load_model
from engine.observing.host.witness import silent
from playbooks.checkup.site import Alteration, Site
from playbooks.optlog import OptLog
from playbooks.outside.site import UrlSite
from playbooks.runs import events, procedures, spec
from playbooks.runs.options import CheckOptions
from playbooks.runs.outcome import StepOutcome
from playbooks.runs.runner import run_playbook
from quiet import undisturbed
from report_schemas import violations
from repository import ROOT
from waiting import CEILING_S

TINY = """
title = "Tiny"
[[steps]]
kind = "environment"
[[steps]]
kind = "load"
[steps.with]
lengths = "lognormal:14,10,0.3"
requests = 30
shared_prefix = 8
[[steps.gates]]
metric = "error_rate"
op = "<="
value = 0
[[steps]]
kind = "quality"
with = { size = "probe" }
[[steps.gates]]
metric = "mixed_answers"
op = "=="
value = 0
[[steps]]
kind = "soak"
with = { requests = 48, waves = 6 }
[[steps.gates]]
metric = "left"
op = "=="
value = 0
"""
FOUR = """
[[steps]]
id = "a"
kind = "soak"
[[steps.gates]]
metric = "left"
op = "=="
value = 0
[[steps]]
id = "b"
kind = "profile"
[[steps]]
id = "c"
kind = "sweep"
when = "steps.a.verdict == 'pass'"
[[steps]]
id = "d"
kind = "compare"
when = "steps.a.grew > 0"
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def site(model):
    """On a host that tells nothing: what else this machine does is blamed for nothing."""
    config = tiny_config(model)
    return Site(config, load_model(config), Alteration(look=silent))


def book(text=FOUR):
    return spec.read(text, Path("mine.toml"))


def on_disk(report):
    return json.loads(Path(report["folder"], "report.json").read_text())


def stub(monkeypatch, **steps):
    """Procedures in place of the real ones: the runner itself is what is tried here."""
    plain = {kind: lambda site, params, clock: StepOutcome({}) for kind in ("profile", "sweep")}
    for kind, run in {**plain, **steps}.items():
        monkeypatch.setattr(procedures, f"run_{kind}", run)


def soak_leaves(count):
    return lambda site, params, clock: StepOutcome({"left": count, "growth": ()})


# --- on a real engine -------------------------------------------------------------------------


def test_a_healthy_engine_passes(site, tmp_path):
    seen = []

    def run():
        seen.clear()
        shutil.rmtree(tmp_path / "r", ignore_errors=True)
        OptLog().path.unlink(missing_ok=True)
        return run_playbook(book(TINY), site, CheckOptions(folder=tmp_path / "r"), seen.append)

    report = undisturbed(run, lambda report: report["findings"][0]["cause"] == "healthy")
    assert report["verdict"] == "pass", report["findings"]
    assert report["state"] == "done"
    assert [row["verdict"] for row in report["steps"]] == ["pass"] * 4
    assert [f["cause"] for f in report["findings"]] == ["healthy"]
    assert {path.name for path in (tmp_path / "r").iterdir()} == {
        "report.json", "report.md", "report.html",
    }  # fmt: skip
    assert violations(report, "check") == []
    saved = on_disk(report)
    assert saved["verdict"] == "pass"
    assert violations(saved, "check") == []
    assert saved["steps"][1]["metrics"]["requests"] == 30
    kinds = [type(event) for event in seen]
    assert kinds.count(events.StepStarted) == kinds.count(events.StepEnded) == 4
    assert kinds.count(events.GateJudged) == 3
    assert kinds[-1] is events.PlaybookEnded
    moves = [e for e in seen if isinstance(e, events.StepProgress) and e.id == "soak"]
    assert moves[-1].done <= moves[-1].total
    (record,) = OptLog().read().records
    assert record.title == "Check mine: pass"
    assert str(tmp_path / "r" / "report.json") in record.artifacts


def test_a_fault_fails_and_is_named_first(site):
    report = run_playbook(book(TINY), site, CheckOptions(inject="leak_pages", log=False))
    assert report["verdict"] == "fail"
    assert report["fault"] == "leak_pages"
    first = report["findings"][0]
    assert (first["cause"], first["applies"]) == ("leak", "restart")
    assert "pages" in first["evidence"][0]
    assert site.alteration.touch is None
    assert "leak" in Path(report["folder"], "report.md").read_text()
    page = Path(report["folder"], "report.html").read_text()
    assert "put into the engine on purpose" in page
    assert "src=" not in page


@pytest.mark.parametrize("name", ["kv_limited_share", "growth", "error_rate", "mixed_answers"])
def test_a_withheld_metric_makes_it_inconclusive(site, name):
    def run():
        return run_playbook(book(TINY), site, CheckOptions(withheld=(name,), log=False))

    report = undisturbed(run, lambda report: report["verdict"] == "inconclusive")
    assert report["verdict"] == "inconclusive"
    gates = {g["metric"]: g["verdict"] for row in report["steps"] for g in row["gates"]}
    missing = [name for f in report["findings"] for name in f["missing"]]
    assert gates.get(name) == "inconclusive" or name in missing
    assert "healthy" not in [finding["cause"] for finding in report["findings"]] or name in gates


def test_what_nothing_looks_at_cannot_be_withheld(site):
    with pytest.raises(ConfigError, match="nothing in mine looks at it"):
        run_playbook(book(TINY), site, CheckOptions(withheld=("ttft_p99_ms",)))
    with pytest.raises(ConfigError, match="embedded engine only"):
        run_playbook(book(), UrlSite("http://localhost:9"), CheckOptions(inject="leak_pages"))


def test_evidence_that_is_missing_says_which_step_lacks_it_and_why(site, monkeypatch):
    stub(monkeypatch, soak=soak_leaves(0))
    text = """
        [[steps]]
        kind = "profile"
        [[steps]]
        kind = "soak"
        when = "steps.profile.step_ms > 0"
    """
    report = run_playbook(book(text), site, CheckOptions(log=False))
    (finding,) = report["findings"]
    assert finding["missing"] == ["growth"]
    assert finding["evidence"] == [
        "soak measured nothing: its condition cannot be known: steps.profile.step_ms > 0"
    ]


# --- going on and stopping -------------------------------------------------------------------


def test_a_failed_step_stops_nothing_unless_told_to(site, monkeypatch):
    stub(monkeypatch, soak=soak_leaves(3))
    report = run_playbook(book(), site, CheckOptions(log=False))
    assert [row["verdict"] for row in report["steps"]] == [
        "fail", "pass", "skipped", "inconclusive",
    ]  # fmt: skip
    assert report["verdict"] == "fail"
    gate = report["steps"][0]["gates"][0]
    assert (gate["value"], gate["verdict"]) == (3, "fail")
    stopped = run_playbook(book(), site, CheckOptions(log=False, keep_going=False))
    assert [row["verdict"] for row in stopped["steps"]] == ["fail", *["skipped"] * 3]
    assert "a failed" in stopped["steps"][1]["reason"]


def test_a_condition_that_cannot_be_known_is_inconclusive(site, monkeypatch):
    stub(monkeypatch, soak=soak_leaves(0))
    report = run_playbook(book(), site, CheckOptions(log=False))
    assert [row["verdict"] for row in report["steps"]] == [
        "pass", "pass", "pass", "inconclusive",
    ]  # fmt: skip
    assert "cannot be known" in report["steps"][3]["reason"]
    assert report["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("error", "verdict"),
    [(EngineError("the engine died"), "error"), (ZeroDivisionError("oops"), "error"),
     (ConfigError("cannot be"), "error")],
)  # fmt: skip
def test_a_step_that_breaks_is_reported_and_the_others_run(site, monkeypatch, error, verdict):
    def broken(site, params, clock):
        raise error

    stub(monkeypatch, soak=soak_leaves(0), profile=broken)
    report = run_playbook(book(), site, CheckOptions(log=False))
    assert report["steps"][1]["verdict"] == verdict
    assert str(error) in report["steps"][1]["reason"]
    assert len(report["steps"]) == 4
    assert report["verdict"] == "error"
    assert on_disk(report)["verdict"] == "error"


def test_an_interrupt_ends_it_with_a_report(site, monkeypatch):
    def interrupted(site, params, clock):
        raise KeyboardInterrupt("ended by SIGTERM")

    stub(monkeypatch, soak=soak_leaves(0), profile=interrupted)
    report = run_playbook(book(), site, CheckOptions())
    assert report["state"] == "interrupted"
    assert report["verdict"] == "inconclusive"
    assert [row["verdict"] for row in report["steps"]] == ["pass", "interrupted"]
    assert report["not_run"] == ["c", "d"]
    assert on_disk(report)["problem"] == "ended by SIGTERM"
    assert Path(report["folder"], "report.html").exists()
    assert len(OptLog().read().records) == 1


def test_a_real_interrupt_in_the_middle_of_a_load(site):
    """SIGINT to this very process, while requests are under way."""
    text = TINY.replace("requests = 30", "requests = 100000\nduration_s = 600")
    timers = []

    def listener(event):
        if isinstance(event, events.StepProgress) and event.done and not timers:
            timers.append(threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)))
            timers[0].start()

    report = run_playbook(book(text), site, CheckOptions(log=False), listener)
    assert report["state"] == "interrupted"
    assert report["steps"][1]["verdict"] == "interrupted"
    assert 0 < report["steps"][1]["metrics"]["requests"] < 100_000


def test_the_time_budget_is_kept(site, monkeypatch):
    def slow(site, params, clock):
        for done in range(1000):
            time.sleep(0.02)
            clock.check(done, 1000)
        raise AssertionError("nobody stopped it")

    stub(monkeypatch, soak=slow)
    report = run_playbook(book(), site, CheckOptions(time_budget_s=0.2, log=False))
    assert "time is over after" in report["steps"][0]["reason"]
    assert report["steps"][0]["verdict"] == "inconclusive"
    assert report["steps"][1]["reason"] == "the time budget is spent"
    assert report["verdict"] == "inconclusive"


def test_a_load_is_cut_to_its_budget(site):
    text = TINY.replace("requests = 30", 'requests = 1000000\narrivals = "closed:2,0.05"')
    report = run_playbook(book(text), site, CheckOptions(time_budget_s=3, log=False))
    load = report["steps"][1]
    assert load["verdict"] == "pass"
    assert load["seconds"] < CEILING_S


CANARY = """
[[steps]]
kind = "canary"
gates = [{ metric = "rolled_back", op = "==", value = 0 }]
[steps.with]
candidate = ["token_budget=128"]
arrivals = "poisson:20"
lengths = "lognormal:8,4"
time_scale = 0.02
[[steps]]
id = "after"
kind = "environment"
"""


def test_a_canary_ends_with_its_budget_undecided(site):
    report = run_playbook(book(CANARY), site, CheckOptions(time_budget_s=4, log=False))
    canary = report["steps"][0]
    assert canary["reason"] == "undecided: its time is over"
    assert canary["verdict"] == canary["gates"][0]["verdict"] == "inconclusive"
    assert canary["report"]["outcome"] == "undecided"
    assert report["state"] == "done"
    assert report["seconds"] < CEILING_S


def test_an_interrupt_in_a_canary_ends_the_run(site):
    timers = []

    def listener(event):
        if isinstance(event, events.StepProgress) and not timers:
            timers.append(threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)))
            timers[0].start()

    report = run_playbook(book(CANARY), site, CheckOptions(log=False), listener)
    assert timers
    assert report["state"] == "interrupted"
    assert report["steps"][0]["verdict"] == "interrupted"
    assert report["not_run"] == ["after"]


def test_a_report_folder_that_cannot_be_written_is_refused_at_once(site, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="report folder"):
        run_playbook(book(), site, CheckOptions(folder=tmp_path / "file" / "r"))


def test_numbers_that_are_none_do_not_reach_the_json(site, monkeypatch):
    def odd(site, params, clock):
        return StepOutcome({"left": float("nan"), "growth": ()}, report={"x": float("inf")})

    stub(monkeypatch, soak=odd)
    report = run_playbook(book(), site, CheckOptions(log=False))
    assert report["steps"][0]["verdict"] == "inconclusive"
    assert on_disk(report)["steps"][0]["report"] == {"x": None}


# --- against a URL, and killed ------------------------------------------------------------------


INNER = """
[[steps]]
kind = "compare"
[[steps.gates]]
metric = "worse"
op = "=="
value = 0
[[steps]]
kind = "faults"
"""


@pytest.mark.parametrize(("require", "gate"), [("outside", "not told"), ("inside", "inconclusive")])
def test_steps_inside_the_engine_are_not_available_at_a_url(require, gate):
    options = CheckOptions(log=False, require=require)
    report = run_playbook(book(INNER), UrlSite("http://localhost:9"), options)
    assert [row["verdict"] for row in report["steps"]] == ["not available"] * 2
    assert report["steps"][0]["gates"][0]["verdict"] == gate
    assert report["verdict"] == "inconclusive"  # nothing was seen in either view


def test_a_target_that_is_not_there_is_an_error():
    text = '[[steps]]\nkind = "load"\nwith = { requests = 3 }'
    report = run_playbook(book(text), UrlSite("http://localhost:9"), CheckOptions(log=False))
    assert report["steps"][0]["verdict"] == "error"
    assert report["verdict"] == "error"


BUILT_IN = dict(os.environ)
"""Where the kernels are built already: not this test's own home."""
KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from checkups import tiny_site
from playbooks.runs import spec
from playbooks.runs.events import StepStarted
from playbooks.runs.options import CheckOptions
from playbooks.runs.runner import run_playbook

def tell(event):
    if isinstance(event, StepStarted):
        print(event.id, flush=True)

book, site = spec.load(Path(sys.argv[1])), tiny_site(Path(sys.argv[2]))
run_playbook(book, site, CheckOptions(folder=Path(sys.argv[4]), log=False), tell)
"""


def test_kill_9_leaves_what_was_done_and_the_next_run_works(model, site, tmp_path, home):
    text = TINY.replace("requests = 48, waves = 6", "requests = 800, waves = 8, duration_s = 60")
    playbook, folder = tmp_path / "mine.toml", tmp_path / "r"
    playbook.write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, playbook, model, ROOT / "tests" / "support", folder],
        stdout=subprocess.PIPE, text=True, env=BUILT_IN, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    assert [process.stdout.readline().strip() for _ in range(4)] == [
        "environment", "load", "quality", "soak",
    ]  # fmt: skip
    process.kill()
    process.wait()
    process.stdout.close()
    left = json.loads((folder / "report.json").read_text())
    assert left["state"] == "running"
    assert [row["id"] for row in left["steps"]] == ["environment", "load", "quality"]
    assert left["steps"][1]["metrics"]["requests"] == 30
    report = run_playbook(book("diagnose = false\n" + TINY), site, CheckOptions(folder=folder))
    assert report["verdict"] == "pass"
    assert json.loads((folder / "report.json").read_text())["state"] == "done"
