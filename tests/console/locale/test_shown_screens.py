"""A walk through the whole console in Chinese, at both sizes: every screen, every dialog, with
something in them. No word of English stays but names, and nothing is wider than its place."""

import threading
from dataclasses import replace

import httpx
import pytest
from textual.screen import Screen
from textual.widgets import Input
from textual.widgets._toast import Toast

from console.app import build_app
from console.locale import lang
from console.panels.lineview import LineView
from console.recording.replay import Replay
from console.renderables.lines import Verbatim, cells, width_of
from console.renderables.screen_state import EnginePhase
from console.screens.checklists import ChecklistScreen
from console.screens.fleet import FleetScreen
from console.screens.forecast import ForecastScreen
from console.screens.forecast_question import MeasureQuestion
from console.screens.handover import HandoverScreen
from console.screens.log import RecordScreen
from console.screens.overview import Overview
from console.screens.requests import RequestScreen, RequestsScreen
from console.screens.run import RunScreen
from engine.observing.objectives import Objective
from engine.observing.watchable import MEASURE
from engine.remote.fleet.fleet import Fleet
from engine.remote.fleet.fleet_engine import FleetEngine
from engine.simulated.demo import DemoEngine
from engine.snapshot import GpuState, Source, SourceState
from english import english
from forecast_reports import forecast_report
from playbooks.alerts.file import load
from playbooks.alerts.watchkeeper import Watchkeeper
from playbooks.diagnosis.capacity import fragmentation, preemption_thrash
from playbooks.diagnosis.evidence import Evidence
from playbooks.objectives.book import Book
from playbooks.objectives.file import Objectives
from playbooks.optlog import Change, LogEffect, OptLog, Record
from playbooks.outside.announce import Announcement
from playbooks.reports import results
from playbooks.runs import events, spec
from playbooks.runs.gates import judge_all
from remote_stub import Server, page
from repository import ROOT
from screens import settle, text_of
from waiting import until_shown

PROMISED = Objectives(
    (
        Objective("ttft", 0.9, 1.0), Objective("tpot", 0.9, 0.06), Objective("e2e", 0.95, 30.0),
        Objective("availability", 0.999), Objective("reachable", 0.999),
    ),
    8 * 86_400.0,
)  # fmt: skip
ALERTS = """
group = "1s"
[[rules]]
name = "busy"
field = "batch.running"
above = 0
lasts = "2s"
"""
NAMES = {"demo", "busy", "pool", "smollm", "nix", "Hallo", "vllm", "embedded"}
NAMES |= {gate.metric for step in spec.load("quick_check").steps for gate in step.gates}
"""Of engines, rules and the like in this walk."""


class Demo(DemoEngine):
    """It starts when it is told to, and lets itself be measured."""

    def __init__(self, **options):
        super().__init__(**options)
        self.may_start = threading.Event()

    def start(self):
        self.may_start.wait()
        super().start()

    def stop(self):
        self.may_start.set()
        super().stop()

    def why_not(self, control):
        return "" if control == MEASURE else super().why_not(control)


class Still(DemoEngine):
    """It shows one Snapshot."""

    def __init__(self, snapshot, **options):
        super().__init__("idle", **options)
        self.still = snapshot

    def snapshot(self):
        return (
            replace(self.still, time=self._clock())
            if hasattr(self, "still")
            else super().snapshot()
        )


def said_in(view):
    """Its lines as one text, without what is shown as it was said, and without keys."""
    lines = view._lines[: view.size.height]
    return " ".join(
        "".join("|" if isinstance(span, Verbatim) or span.role == "key" else span.text
                for span in line).strip()
        for line in lines
    )  # fmt: skip


def said_beside(screen):
    """What its other widgets show: titles of dialogs, lines of input, notices, a palette."""
    skipped = LineView | Screen | Toast
    widgets = [w for w in screen._compositor.visible_widgets if not isinstance(w, skipped)]
    strips = [strip for w in widgets for strip in w.render_lines(w.region.reset_offset)]
    return "\n".join(strip.text for strip in strips)


class Walk:
    """Goes from screen to screen, and remembers what should not be there."""

    def __init__(self, app, pilot, clock):
        self.app, self.pilot, self.clock = app, pilot, clock
        self.wrong = {}

    async def press(self, *keys):
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, true):
        await until_shown(self.pilot, true)

    def is_on(self, kind):
        """It has not lost its way."""
        assert type(self.app.screen) is kind, text_of(self.app)

    async def see(self, name, *keys, until=None):
        await self.press(*keys)
        if until is not None:
            await self.until(until)
        await settle(self.pilot, self.app)
        self.look(name)
        self.app.clear_notifications()

    async def with_help(self, name, *keys, **more):
        """A screen, and the keys that it says it has."""
        await self.see(name, *keys, **more)
        await self.see(f"help of {name}", "question_mark")
        await self.see(f"more help of {name}", "pagedown", "pagedown", "pagedown")
        await self.press("escape")

    def look(self, name):
        views = [view for view in self.app.screen.query(LineView) if view.is_on_screen]
        rest = said_beside(self.app.screen)
        typed = [line.value for line in self.app.screen.query(Input)]
        words = english(rest, NAMES, typed, self.app.available_themes)
        for notice in self.app._notifications:
            words |= english(notice.message, NAMES)
        for view in views:
            words |= english(said_in(view), NAMES)
        if words:
            self.wrong[name] = sorted(words), text_of(self.app)
        for view in views:
            for line in view._lines[: view.size.height]:
                if width_of(line) > view.size.width:
                    self.wrong[f"{name}: too wide"] = view.id, "".join(s.text for s in line)

    async def pass_time(self, seconds, step=0.5):
        for _ in range(round(seconds / step)):
            self.clock.now += step
            self.app.history.push(self.app.bridge.poll())
            if self.app.keeper is not None:
                self.app.keeper.look(self.clock.now)
        self.app.draw(self.app.bridge.poll())
        await self.pilot.pause()

    async def type_into(self, text, *keys):
        """Over what stands in the first line of a form."""
        line = self.app.screen._inputs[0]
        await self.until(lambda: line.has_focus)
        line.value = text
        await self.press(*(keys or ("ctrl+s",)))


# --- what is walked through ------------------------------------------------------------------


async def overview(w):
    await w.see("loading")
    w.app.bridge.engine.may_start.set()
    await w.until(lambda: w.app.bridge.phase is EnginePhase.UP)
    await w.pass_time(60)
    await w.with_help("overview")
    for key in "12345678":
        await w.see(f"panel {key}", key)
        await w.press(key)


async def answers(w):
    await w.with_help("prompt", "i")
    await w.press("i", *"Hallo", "enter")
    await w.until(lambda: w.app.talk.request_id is not None)
    await w.pass_time(6)
    await w.see("answer", until=lambda: w.app.talk.request_id is None)
    w.is_on(Overview)
    w.app.ask("x" * 40_000)
    await w.see("refused answer", until=lambda: w.app.talk.request_id is None)
    await w.press("escape", "n", "escape")


async def changes(w):
    await w.see("cap", "b")
    await w.type_into("0")
    await w.see("wrong cap")
    await w.type_into("4")
    await w.see("cap far below", until=lambda: not hasattr(w.app.screen, "_inputs"))
    await w.see("cap lowered", "y")
    await w.see("max wait", "w")
    await w.type_into("250")
    await w.see("max wait set", "d")
    await w.see("pause admission", "a")
    await w.see("admission paused", "y")
    await w.see("drain", "D")
    await w.see("draining", "y")
    await w.see("display paused", "space")
    await w.press("space", "a", "D")
    await w.pass_time(12)
    await w.see("log a change", "L")
    await w.press("escape")


async def requests(w):
    await w.with_help("requests", "r")
    await w.see("requests by state", "s", "s", "o")
    await w.see("filter", "slash")
    await w.see("requests filtered", *"nix")
    await w.press("escape")
    w.is_on(RequestsScreen)
    await w.with_help("request", "enter")
    w.is_on(RequestScreen)
    await w.see("request cancelled", "x")
    await w.pass_time(1)
    await w.see("request ended")
    await w.press("escape", "escape")


async def playbooks(w):
    await w.with_help("playbooks", "p")
    for at in range(len(w.app.screen.pane.items)):
        w.app.screen.pane.choose(at)
        await w.see(f"playbook {at}")
    w.app.screen.pane.choose([c.name for c in w.app.screen.pane.items].index("quick_check"))
    await w.see("run a playbook", "enter")
    await w.see("terms", "c")
    await w.press("escape", "y")
    run = w.app.runs.last
    await w.until(lambda: run.steps[1].gates)
    w.clock.now += 3
    await w.with_help("run")
    w.is_on(RunScreen)
    await w.see("quit while a playbook runs", "q")
    await w.press("n")
    await w.see("no report yet", "e")
    await w.see("cancelling", "x")
    w.app.may_end.set()
    await w.see("run that has ended", until=lambda: not run.running)
    await w.see("end of the run", "end")
    await w.see("export a report", "e")
    await w.type_into("report.doc")
    await w.see("wrong name of a file")
    await w.type_into(str(w.home / "there.md"))
    await w.see("replace a file", until=lambda: not hasattr(w.app.screen, "_inputs"))
    await w.press("n", "escape", "escape")


async def checklists(w):
    await w.with_help("checklists", "c")
    for at in range(len(w.app.screen.pane.items)):
        w.app.screen.pane.choose(at)
        await w.see(f"checklist {at}")
    at = [f.checklist.name for f in w.app.screen.pane.items].index("pre_holiday")
    w.app.screen.pane.choose(at)
    await w.press("enter")
    await w.until(lambda: w.app.screen.filled.automatic)
    await w.with_help("checklist")
    w.is_on(ChecklistScreen)
    for at in range(len(w.app.screen.pane.items)):
        w.app.screen.pane.choose(at)
        await w.see(f"checklist item {at}")
    await w.see("answer an item", "end", "enter")
    await w.type_into("x")
    await w.see("wrong answer")
    await w.type_into("n/a")
    await w.see("answer without a note", until=lambda: not hasattr(w.app.screen, "_inputs"))
    await w.press("enter")
    await w.type_into("no")
    await w.see("answered item")
    await w.see("sign a checklist off", "S")
    await w.press("escape")
    await w.see("export a checklist", "e")
    await w.press("escape", "escape", "escape")


async def log(w):
    await w.with_help("log", "l", until=lambda: w.app.screen.items())
    await w.see("export the log", "e")
    await w.press("escape")
    await w.see("new entry", "n")
    await w.press("ctrl+s")
    await w.see("new entry without a title")
    await w.press("escape")
    await w.with_help("entry", "enter")
    w.is_on(RecordScreen)
    await w.press("escape", "escape")


async def handover(w):
    await w.press("H")
    await w.until(lambda: w.app.screen._report is not None)
    await w.with_help("handover")
    w.is_on(HandoverScreen)
    for at in range(3):
        await w.see(f"handover, page {at}", "pagedown")
    await w.see("export the handover", "e")
    await w.press("escape", "escape")


async def forecast(w):
    await w.see("no forecast", "F", until=lambda: not w.app.forecasts.is_reading)
    await w.see("open a forecast", "o")
    await w.type_into("none.json")
    await w.see("open no file")
    await w.press("escape")
    results.save(forecast_report())
    await w.press("escape", "F")
    await w.until(lambda: w.app.forecasts.view is not None)
    await w.pass_time(0.5)
    await w.with_help("forecast")
    w.is_on(ForecastScreen)
    await w.see("last hour", "end")
    await w.see("scenario", "s")
    await w.see("what-ifs", "w")
    await w.see("more of what-ifs", "pagedown", "pagedown")
    await w.see("nothing to cancel", "w", "x")
    await w.see("ask for a forecast", "n")
    await w.press("ctrl+s")
    await w.see("a forecast of nothing")
    await w.press("escape")
    w.app.push_screen(
        MeasureQuestion(
            "there is no fit of embedded with int8_channel pages: make one with "
            "`evewatch forecast fit` and the same flags"
        )
    )
    await w.see("measure first")
    await w.press("n", "escape")


async def commands(w):
    await w.see("palette", "ctrl+p")
    await w.see("palette without a match", *"xyz")
    await w.press("escape")
    await w.see("themes", "t")
    await w.press("escape")
    await w.press("R")
    await w.see("recording")
    await w.see("recorded", "R")
    await w.see("copied", "y")


async def states(w):
    """What engines can be, the numbers dim or not."""
    typical = DemoEngine(clock=w.clock).snapshot()
    gpu = GpuState(0, "H200", 0.9, 0.5, 1 << 36, 1 << 37, 500.0, 700.0, 1200, 1980, None, 71.0,
                   ("power cap", "too hot"))  # fmt: skip
    shown = {
        **{state.value: replace(typical, source=Source(state, "evewatch", "demo", 9.0, "timed out"))
           for state in SourceState if state is not SourceState.LIVE},
        "gpu": replace(typical, gpus=(gpu,)),
        "speculating": replace(typical, batch=replace(
            typical.batch, draft_accepted_ratio=0.7, draft_tokens=3.0, draft_gain=0.9,
            predicting=True, length_coverage=0.8)),
        "empty": replace(typical, requests=(), queue=type(typical.queue)(),
                         latency=type(typical.latency)()),
    }  # fmt: skip
    for name, snapshot in shown.items():
        w.app.bridge.visit(Still(snapshot, clock=w.clock), w.clock)
        await w.pass_time(0.5)
        await w.see(name)
        for key in "12347":
            await w.see(f"{name}: panel {key}", key)
            await w.press(key)
    w.app.bridge.come_home()
    w.app.readonly = True
    await w.with_help("read-only", "i")
    w.app.readonly = False


async def elsewhere(w):
    bodies = [page("vllm/busy"), page("vllm/after"), page("vllm/after"),
              httpx.ConnectError("Connection refused"), b"nonsense"]  # fmt: skip
    fleet = Fleet([
        Server(body).attach(f"http://10.0.0.{i}:8000", name=f"r{i}", group="pool",
                            interval_s=600.0, clock=w.clock)
        for i, body in enumerate(bodies)
    ])  # fmt: skip
    fleet.poll()
    w.app.bridge.visit(FleetEngine(fleet), w.clock)
    await w.press("f")
    await w.pass_time(0.5)
    await w.with_help("fleet")
    w.is_on(FleetScreen)
    await w.press("home", "enter")
    await w.pass_time(1)
    for key in " 12345678":
        await w.see(f"group: panel {key}", *key.strip())
        await w.press(*key.strip())
    await w.see("requests elsewhere", "r")
    await w.see("a group is not measured", "escape", "p", "enter")
    w.app.bridge.engine.choose(target="r0")
    w.app.screen.pane.choose([c.name for c in w.app.screen.pane.items].index("quick_check"))
    await w.see("run elsewhere", "enter", until=lambda: w.app.screen._will_send)
    await w.see("terms elsewhere", "c")
    await w.press("escape", "n", "escape")
    await w.see("out of reach", "plus")
    fleet.stop()
    w.app.bridge.come_home()


async def recordings(w):
    player = Replay.open(ROOT / "docs" / "overview.everec", w.clock)
    w.app.visit(player)
    await w.pass_time(5)
    await w.with_help("replay")
    await w.see("go to a time", "S")
    await w.type_into("x")
    await w.see("wrong time")
    await w.press("escape")
    await w.see("no event", "e", "e", until=lambda: not w.app._moving)
    await w.see("forbidden", "plus")
    w.app.come_home()


PARTS = (overview, answers, requests, changes, playbooks, checklists, log, handover, forecast,
         commands, states, elsewhere, recordings)  # fmt: skip


# --- the walk ----------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    monkeypatch.setenv(lang.VARIABLE, "zh")
    (tmp_path / "there.md").touch()
    yield tmp_path
    lang.use("en")


def opened(clock, home):
    """A console whose engine is promised something, and watched by a rule."""
    engine = Demo(clock=clock, objectives=PROMISED.each)
    rules = home / "alerts.toml"
    rules.write_text(ALERTS)
    keeper = Watchkeeper(load(rules, {}), (), lambda: {"demo": engine.snapshot()},
                         book=Book(PROMISED, home / "objectives.json"))  # fmt: skip
    log = OptLog(home / "log.jsonl")
    log.append(Record(
        "上限 48 → 24", (Change("cap", 48, 24),), "P99 太高", {"seed": 7},
        (LogEffect("e2e_p99_ms", 812.5, 430.0, 5, -0.5, -0.4, "better"),),
        ("太慢",), "adopt", "上限改回 48", operator="安",
    ))  # fmt: skip
    app = build_app(engine, clock=clock, refresh_hz=0.001, theme="evewatch", language="zh",
                    log=log, keeper=keeper)  # fmt: skip
    app.talk.clock = clock
    return app


def run_in_words(ended, book, site, options, listen):
    """A playbook's run, told event by event; the report when it may end."""
    first, second, *rest = book.steps
    listen(events.Announced(f"{Announcement(40, 2_000, 8).text(180.0)}."))
    for at, (step, value) in enumerate(((first, 0.0), (second, 1e6)), 1):
        listen(events.StepStarted(step.id, step.kind, step.title, at, len(book.steps)))
        listen(events.StepProgress(step.id, 12, 40))
        for one in judge_all(step.gates, {gate.metric: value for gate in step.gates[1:]}):
            listen(events.GateJudged(step.id, one.gate.metric, one.verdict, one.evidence))
        if step is first:
            listen(events.StepEnded(step.id, "inconclusive", 0.4, ""))
    ended.wait()
    listen(events.StepEnded(second.id, "fail", 9.0, "interrupted"))
    for step in rest:
        listen(events.StepEnded(step.id, "skipped", 0.0, "not run: cancelled in the console"))
    found = [preemption_thrash(Evidence(preemption_tax=0.5)), fragmentation(
        Evidence(kv_limited_share=0.5, kv_waste=0.7))]  # fmt: skip
    return {"schema": 1, "kind": "playbook", "verdict": "fail", "folder": "/tmp/report",
            "findings": [one.to_dict() for one in found], "state": "interrupted"}  # fmt: skip


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_nothing_stays_english_and_nothing_is_too_wide(size, clock, home, monkeypatch):
    app = opened(clock, home)
    app.may_end = threading.Event()
    monkeypatch.setattr("playbooks.runs.runner.run_playbook",
                        lambda *given: run_in_words(app.may_end, *given))  # fmt: skip
    monkeypatch.setattr("console.control.run_manager._until_idle", lambda *given: None)
    async with app.run_test(size=size, notifications=True) as pilot:
        walk = Walk(app, pilot, clock)
        walk.home = home
        for part in PARTS:
            await part(walk)
    assert not walk.wrong, "\n".join(
        f"{name}: {words}\n{shown}" for name, (words, shown) in walk.wrong.items()
    )


FRAME = "│╭╮╰╯"


async def frames(size, language, clock):
    """Of the overview: the cells at which each row's first and last frame stand."""
    app = build_app(DemoEngine(clock=clock), clock=clock, refresh_hz=0.001, language=language)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, lambda: app.bridge.phase is EnginePhase.UP)
        app.draw(app.bridge.poll())
        await settle(pilot, app)
        rows = text_of(app).splitlines()
    found = [[cells(row[:at]) for at, sign in enumerate(row) if sign in FRAME] for row in rows]
    return [[row[0], row[-1]] for row in found if row]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_panels_have_their_frames_where_the_english_ones_have_them(size, clock, home):
    assert await frames(size, "zh", clock) == await frames(size, "en", clock)
