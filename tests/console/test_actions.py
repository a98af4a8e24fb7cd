"""The registry feeds bindings, footer, help and palette; nothing may be missing from one."""

import ast
from functools import cache

import pytest
from textual.app import App

from console import actions
from console.actions import ACTIONS, FILTER, OVERVIEW, PROMPT, SCREENS, Scope
from console.app import Console, build_app
from console.panels.specs import PANELS
from console.renderables.keys import COLUMN, footer, help_lines
from console.renderables.lines import plain, width_of
from console.screens.base_screen import BaseScreen
from console.screens.palette import ActionCommands
from engine.simulated.demo import DemoEngine
from places import SCREENS_OF, open_place
from repository import ROOT

EVERY = pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
PLACES = (*SCREENS, PROMPT, FILTER)
READONLY = "read-only"


def shows(keys, action):
    first, last = PANELS[0].key, PANELS[-1].key
    return action.shown in keys or (first < action.shown < last and f"{first}-{last}" in keys)


def readonly(where):
    return Scope(where, lambda control: READONLY)


@EVERY
def test_has_a_method_where_its_name_says(action):
    kinds = {SCREENS_OF[where] for where in action.where}
    homes = kinds if action.name.startswith("screen.") else {Console}
    for home in homes:
        assert callable(getattr(home, f"action_{action.method}", None)), home


@EVERY
def test_is_bound_in_every_place_it_works_in(action):
    for where in action.where:
        bound = {
            binding.action: binding.key.split(",")
            for binding in SCREENS_OF[where].BINDINGS
            if not isinstance(binding, tuple)
        }
        assert bound[action.name] == list(action.keys)


def test_a_screen_binds_what_its_places_have_and_nothing_else():
    for kind in set(SCREENS_OF.values()):
        places = {where for where, screen in SCREENS_OF.items() if screen is kind}
        wanted = {a.name for a in ACTIONS if places & set(a.where)}
        if FILTER in places:
            wanted = {a.name for a in ACTIONS if {kind.PLACE, FILTER} & set(a.where)}
        assert {binding.action for binding in kind.BINDINGS} == wanted


@EVERY
def test_is_in_the_footer_of_every_place_it_works_in(action):
    for where in action.where:
        text = plain(footer(Scope(where), width=600))
        entries = [e.strip() for e in text.split("  ") if e.strip().endswith(action.footer)]
        assert any(shows(entry, action) for entry in entries), where


@EVERY
def test_is_in_the_help_of_every_place_it_works_in(action):
    for where in action.where:
        lines = [plain(line) for line in help_lines(Scope(where))]
        line = next(line for line in lines if action.help in line)
        assert shows(line.split(action.help)[0], action)
        assert width_of(((line, "text", ""),)) <= COLUMN and "…" not in line


@pytest.mark.parametrize("where", SCREENS)
async def test_all_of_a_place_are_in_its_palette(where, clock):
    app = build_app(DemoEngine(clock=clock), clock=clock, refresh_hz=0.001)
    async with app.run_test() as pilot:
        await open_place(app, pilot, where)
        found = [hit.display async for hit in ActionCommands(app.screen).discover()]
    no_model = [a.title for a in ACTIONS if a.control == "measure"]
    wanted = [a.title for a in ACTIONS if where in a.where and not a.needs]
    assert found == [title for title in wanted if title not in no_model]


async def test_the_palette_leaves_out_what_readonly_forbids(clock):
    app = build_app(DemoEngine(clock=clock), clock=clock, readonly=True, refresh_hz=0.001)
    async with app.run_test():
        found = [hit.display async for hit in ActionCommands(app.screen).discover()]
    wanted = [a for a in ACTIONS if OVERVIEW in a.where and not a.control and not a.needs]
    assert found == [action.title for action in wanted]


@pytest.mark.parametrize("where", PLACES)
def test_no_key_means_two_things_in_one_place(where):
    keys = [key for action in ACTIONS if where in action.where for key in action.keys]
    assert len(keys) == len(set(keys))


def test_keys_do_not_hide_what_textual_needs():
    taken = {key for action in ACTIONS for key in action.keys}
    system = {binding.key for binding in App.BINDINGS if getattr(binding, "system", False)}
    assert not taken & system


def test_every_place_has_a_screen_and_a_name():
    from console.screens.help import NAMES_OF_PLACES

    assert set(NAMES_OF_PLACES) == set(PLACES) == set(SCREENS_OF)
    assert all(issubclass(kind, BaseScreen) for kind in SCREENS_OF.values())


@pytest.mark.parametrize("width", [62, 80, 120, 200])
@pytest.mark.parametrize("where", PLACES)
def test_footer_fits_and_always_offers_help_and_quit(where, width):
    line = footer(Scope(where), width=width)
    assert width_of(line) <= width
    if where in SCREENS:
        assert plain(line).rstrip().endswith("? help  q quit")


@pytest.mark.parametrize("where", PLACES)
def test_no_entry_of_the_footer_is_cut(where):
    whole = plain(footer(Scope(where), width=600))
    for width in range(62, 200):
        shown = plain(footer(Scope(where), width=width)).removesuffix("? help  q quit  ").rstrip()
        assert whole.startswith(shown), width


def test_what_is_forbidden_is_dimmed_in_footer_and_help_with_the_reason():
    assert "(i ask)" in plain(footer(readonly(OVERVIEW), width=300))
    forbidden = [plain(line) for line in help_lines(readonly(OVERVIEW)) if READONLY in plain(line)]
    controls = {a.footer for a in ACTIONS if a.control and OVERVIEW in a.where}
    assert len(forbidden) == len(controls)
    assert "(enter run)" in plain(footer(readonly(actions.PLAYBOOKS), width=300))


def test_what_an_engine_lacks_is_not_there():
    extra = actions.Action("app.x", ("f9",), "x", "X", "Do x", needs="seek")
    assert extra not in Scope(OVERVIEW, has=lambda attribute: False).actions()
    every = [a for a in ACTIONS if OVERVIEW in a.where]
    assert Scope(OVERVIEW, has=lambda attribute: True).actions() == every


@cache
def journeys():
    """What the journeys in the tests beside this one say they are of."""
    found = set()
    for path in (ROOT / "tests" / "console").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "journey":
                found.update(a.value for a in node.args if isinstance(a, ast.Constant))
    return found


@EVERY
def test_has_a_journey(action):
    assert {action.name, action.name.partition("(")[0]} & journeys()
