"""Playbooks and checklists on the screen; the real runner, on a tiny engine."""

import re

import pytest

from builders import tiny_loaded
from console.app import build_app
from console.commands.watch import build_watch
from console.renderables.screen_state import EnginePhase
from console.screens.checklists import ChecklistScreen, ChecklistsScreen
from console.screens.playbooks import PlaybooksScreen
from console.screens.run import RunScreen
from engine.config import EngineConfig
from engine.core import Engine
from engine.remote import attach
from engine.remote.fleet.fleet import Fleet
from engine.simulated.demo import DemoEngine
from journeys import Console, journey
from kernels import dispatch
from playbooks.optlog import OptLog
from served import serving

QUICK = """
title = "Tiny check"
about = "For tests."
[[steps]]
id = "machine"
kind = "environment"
[[steps.gates]]
metric = "failures"
op = "<="
value = 99
[[steps]]
id = "small"
kind = "load"
[steps.with]
arrivals = "closed:2"
lengths = "lognormal:8,4"
requests = 6
[[steps.gates]]
metric = "error_rate"
op = "<="
value = 0
"""
LONG = (
    QUICK.replace("requests = 6", "requests = 100000")
    .replace("closed:2", "poisson:20")
    .replace("Tiny", "Long")
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    folder = tmp_path / "playbooks"
    folder.mkdir()
    (folder / "aa_tiny.toml").write_text(QUICK, "utf-8")
    (folder / "ab_long.toml").write_text(LONG, "utf-8")
    (folder / "zz_broken.toml").write_text("steps = 3", "utf-8")
    return tmp_path


class Running:
    """A console on an engine of random weights, or on the scripted one."""

    def __init__(self, clock, engine=None, size=(120, 40), fleet=None):
        looks = {"clock": clock, "refresh_hz": 0.001, "theme": "evewatch", "language": "en"}
        self.app = build_watch(fleet, **looks) if fleet else build_app(engine, **looks)
        self.context = self.app.run_test(size=size, notifications=True)
        self.clock = clock

    async def __aenter__(self):
        pilot = await self.context.__aenter__()
        running = Console(self.app, pilot, self.clock)
        await running.until(lambda: self.app.bridge.phase is EnginePhase.UP)
        return running

    async def __aexit__(self, *error):
        if self.app._runs is not None and self.app.runs.current is not None:
            self.app.runs.current.stop.set()
        await self.context.__aexit__(*error)
        self.app.bridge.engine.stop()


def tiny():
    config = EngineConfig(
        kernels="reference", max_batch=4, token_budget=32, kv_memory=2**22, max_model_len=256
    )
    return Engine(config, tiny_loaded(dispatch.select("reference").ops))


async def choose(c, name):
    pane = c.app.screen.pane
    pane.choose([choice.name for choice in pane.items].index(name))
    await c.pilot.pause()


async def start_long(c):
    """The long playbook, amid its second step."""
    await c.press("p")
    await choose(c, "ab_long")
    await c.press("enter", "y")
    run = c.app.runs.last
    await c.until(lambda: run.steps[1].state == "running" and run.steps[1].done > 0)
    return run


@journey("app.show_playbooks", "screen.run_playbook")
async def test_a_playbook_runs_while_its_screen_is_left_and_come_back_to(clock, home):
    async with Running(clock, tiny()) as c:
        await c.press("p")
        assert isinstance(c.app.screen, PlaybooksScreen)
        await choose(c, "aa_tiny")
        assert "Tiny check" in c.screen and "1. environment" in c.screen
        await c.press("enter")
        await c.until(lambda: "Run aa_tiny?" in c.screen)
        await c.press("y")
        assert isinstance(c.app.screen, RunScreen)
        run = c.app.runs.last
        await c.press("escape", "escape")
        assert c.app.screen is c.app.overview
        for _ in range(6000):
            await c.pass_time(0.01)
            if run.running:
                assert "▶ aa_tiny" in c.screen.splitlines()[0]
            else:
                break
        assert run.report is not None, run.error
        assert [row["verdict"] for row in run.report["steps"]][1:] == ["pass"]
        await c.press("p")
        await choose(c, "aa_tiny")
        assert run.verdict in c.screen
        (record,) = OptLog().read().records
        assert "aa_tiny" in record.title or "Tiny" in record.title


@journey("screen.cancel_run")
async def test_a_playbook_can_be_cancelled_and_has_a_report(clock, home):
    async with Running(clock, tiny()) as c:
        run = await start_long(c)
        await c.pass_time(2.0)
        assert "▶ 2. small" in c.screen and "✓ pass  failures = 0" in c.screen
        await c.press("x")
        await c.until(lambda: not run.running)
        assert run.report["state"] == "interrupted"
        assert run.report["steps"][0]["verdict"] == "pass"
        assert run.verdict != "pass"
        await c.pass_time()
        await c.press("e")
        await c.replace(str(home / "report.md"))
        await c.until(lambda: (home / "report.md").exists())


async def test_quitting_waits_for_the_report_of_a_cancelled_playbook(clock, home):
    async with Running(clock, tiny()) as c:
        run = await start_long(c)
        await c.press("x", "q")
        await c.until(lambda: c.app._exit)
        assert run.report["state"] == "interrupted"


async def test_one_playbook_at_a_time_and_quitting_asks(clock, home):
    async with Running(clock, tiny()) as c:
        await c.press("p")
        await choose(c, "ab_long")
        await c.press("enter", "y", "escape")
        run = c.app.runs.last
        said = []
        c.app.screen.notify = lambda text, **_: said.append(text)
        await choose(c, "aa_tiny")
        await c.press("enter")
        assert said == ["ab_long runs; one at a time"]
        await choose(c, "ab_long")
        await c.press("enter")
        assert isinstance(c.app.screen, RunScreen) and c.app.screen.run_shown is run
        await c.press("q")
        await c.until(lambda: "Quit while a playbook runs?" in c.screen)
        await c.press("n")
        assert run.running and c.app.bridge.phase is EnginePhase.UP
        await c.press("q", "y")
        await c.until(lambda: c.app._exit)
        assert run.report["state"] == "interrupted"


async def test_the_panels_show_the_engine_that_a_playbook_runs_on(clock, home):
    async with Running(clock, tiny()) as c:
        run = await start_long(c)
        bridge = c.app.bridge
        assert bridge.shown is not bridge.engine
        await c.until(lambda: bridge.poll().queue.requests_total)
        assert bridge.engine.snapshot().queue.requests_total == 0  # the console's own is idle
        await c.press("escape", "escape", "plus")
        await c.until(lambda: "a playbook measures it" in c.screen)
        await c.press("p")
        c.app.runs.cancel()
        await c.until(lambda: not run.running)
        await c.pass_time()
        assert bridge.shown is bridge.engine and bridge.refusal("set_cap") == ""


async def test_on_a_watched_engine_a_playbook_runs_against_its_url(clock, home):
    with serving() as served:
        fleet = Fleet([attach(served.url)])
        async with Running(clock, fleet=fleet) as c:
            await c.press("p")
            await choose(c, "aa_tiny")
            await c.press("enter")
            await c.until(lambda: "will send about 6" in c.screen)
            assert served.url in c.screen and "blind spot" in c.screen.replace("\n", " ")
            before = served.engine.snapshot().queue.requests_total or 0
            await c.press("y")
            run, bridge = c.app.runs.last, c.app.bridge
            assert bridge.shown is bridge.engine and bridge.settings is None
            await c.until(lambda: not run.running)
            assert run.report is not None, run.error
            assert run.report["target"]["url"] == served.url
            assert served.engine.snapshot().queue.requests_total >= before + 6


async def test_terms_hold_for_a_run_and_are_kept_for_the_next(clock, home):
    """The words of `check`: a guard ends the step, and `accept` is of one run."""
    many = QUICK.replace("requests = 6", "requests = 40")
    (home / "playbooks" / "ac_many.toml").write_text(many, "utf-8")
    with serving() as served:
        async with Running(clock, fleet=Fleet([attach(served.url)])) as c:
            await c.press("p")
            await choose(c, "ac_many")
            await c.press("enter")
            await c.until(lambda: "will send about 40 requests" in c.screen.replace("\n", " "))
            await c.press("c")
            await c.until(lambda: "On what terms" in c.screen)
            guard, *_, accept = c.app.screen._inputs
            guard.value = "ttft=3"
            await c.press("ctrl+s")
            await c.until(lambda: "expected one of ttft_p99=VALUE" in c.screen)
            guard.value, accept.value = "ttft_p99=0", "yes"
            await c.press("ctrl+s")
            await c.until(lambda: "guards ttft_p99=0" in c.screen and "usual from now" in c.screen)
            await c.press("y")
            run = c.app.runs.last
            await c.until(lambda: not run.running)
            assert run.report["steps"][1]["reason"].startswith("stopped by the guard ttft_p99")
            assert "will send about 40 requests" in run.announced
            assert c.app.runs.terms.guards == ("ttft_p99=0",) and not c.app.runs.terms.accept
            assert len(list((home / "usual").glob("*.json"))) == 1
            await c.pass_time()
            assert "will send about 40 requests" in c.screen


async def test_without_an_address_only_what_is_usual_can_be_said(clock, home):
    async with Running(clock, tiny()) as c:
        await c.press("p")
        await choose(c, "aa_tiny")
        await c.press("enter", "c")
        await c.until(lambda: "On what terms" in c.screen)
        assert len(c.app.screen._inputs) == 2
        await c.replace("none")
        await c.until(lambda: "held against nothing" in c.screen)
        await c.press("n")
        assert c.app.runs.last is None


async def test_a_file_that_cannot_be_read_says_why(clock, home):
    async with Running(clock, DemoEngine(clock=clock)) as c:
        await c.press("p", "end")
        # Where the line breaks depends on the length of the temporary folder's name.
        await c.until(lambda: re.search(r"steps:\W+expected\W+a\W+list", c.screen))


async def test_without_a_model_no_playbook_runs(clock, home):
    async with Running(clock, DemoEngine(clock=clock)) as c:
        await c.press("p", "enter")
        await c.until(lambda: "needs an engine with a model" in c.screen)
        assert "(enter run)" in c.screen


# --- checklists --------------------------------------------------------------------------------


@journey("app.show_checklists", "screen.update_answers", "screen.answer_item")
async def test_automatic_items_answer_themselves_and_human_ones_ask(clock, home):
    async with Running(clock, DemoEngine(clock=clock)) as c:
        await c.pass_time(1.0)
        await c.press("c")
        assert isinstance(c.app.screen, ChecklistsScreen)
        await choose_list(c, "pre_holiday")
        await c.press("enter")
        assert isinstance(c.app.screen, ChecklistScreen)
        filled = c.app.screen.filled
        await c.until(lambda: filled.automatic)
        assert filled.automatic["live"].verdict == "pass"
        pane = c.app.screen.pane
        human = next(line for line in pane.items if line.item.kind == "human")
        pane.choose(pane.items.index(human))
        assert human.result.verdict == "unknown" and human.item.severity == "must"
        await c.press("enter")
        await c.until(lambda: "Is it so?" in c.screen)
        await c.replace("maybe")
        await c.until(lambda: "one of yes, no, n/a" in c.screen)
        await c.replace("no")
        assert filled.outcome.verdict == "fail"
        await c.press("escape", "enter")
        assert c.app.screen.filled.answers[human.item.id].answer == "no"
        clock.now += 100.0
        c.app.bridge.engine.set_paused(True)
        await c.press("u")
        await c.until(lambda: filled.outcome.counts()["fail"] >= 2)


async def test_an_item_that_answers_itself_takes_no_answer(clock, home):
    async with Running(clock, DemoEngine(clock=clock)) as c:
        await c.pass_time(1.0)
        await c.press("c")
        await choose_list(c, "pre_holiday")
        await c.press("enter")
        await c.until(lambda: c.app.screen.filled.automatic)
        pane = c.app.screen.pane
        pane.choose([line.item.id for line in pane.items].index("live"))
        await c.press("enter")
        await c.until(lambda: "this item answers itself" in c.screen)


async def test_not_applicable_needs_a_note(clock, home):
    async with Running(clock, DemoEngine(clock=clock)) as c:
        await c.press("c", "enter", "end", "enter")
        await c.replace("n/a")
        await c.until(lambda: "say in `note` why" in c.screen)


async def test_a_checklist_is_exported(clock, home):
    async with Running(clock, DemoEngine(clock=clock)) as c:
        await c.press("c", "enter")
        await c.until(lambda: c.app.screen.filled.automatic or True)
        await c.press("e")
        await c.replace(str(home / "list.md"))
        await c.until(lambda: (home / "list.md").exists())
        await c.press("e")
        await c.replace(str(home / "list.md"))
        await c.until(lambda: "Replace list.md?" in c.screen)


@journey("screen.sign_off")
async def test_a_list_that_is_signed_off_goes_into_the_log(clock, home):
    async with Running(clock, DemoEngine(clock=clock)) as c:
        await c.pass_time(1.0)
        await c.press("c", "enter", "S")
        await c.until(lambda: "items are open" in c.screen)
        await c.replace("eve")
        await c.until(lambda: c.app.log_book.read().records)
        (record,) = c.app.log_book.read().records
        assert record.operator == "eve" and record.problems
        assert "signed off" in record.title and record.decision == "hold"


async def choose_list(c, name):
    pane = c.app.screen.pane
    pane.choose([filled.checklist.name for filled in pane.items].index(name))
    await c.pilot.pause()
