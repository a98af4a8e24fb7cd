"""The registry feeds bindings, footer, help and palette; nothing may be missing from one."""

import pytest
from textual.app import App

from console import actions
from console.actions import ACTIONS, OVERVIEW, PROMPT
from console.app import Console, build_app
from console.renderables.lines import plain, width_of
from console.screens.overview import Overview
from console.screens.palette import ActionCommands
from engine.fake import FakeEngine

EVERY = pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)


def shows(keys, action):
    return action.shown in keys or (action.shown in "2345" and "1-6" in keys)


@EVERY
def test_has_a_method_where_its_name_says(action):
    home = Overview if action.name.startswith("screen.") else Console
    assert callable(getattr(home, f"action_{action.method}"))


@EVERY
def test_is_bound(action):
    bound = {binding.action: binding.key.split(",") for binding in actions.bindings()}
    assert bound[action.name] == list(action.keys)


@EVERY
def test_is_in_the_footer_of_every_place_it_works_in(action):
    for where in action.where:
        text = plain(actions.footer(where, readonly=False, width=400))
        assert shows(text.split(f" {action.footer}")[0].split("  ")[-1], action)


@EVERY
def test_is_in_the_help(action):
    line = next(
        plain(line) for line in actions.help_lines(readonly=False) if action.help in plain(line)
    )
    assert shows(line.split(action.help)[0], action)


async def test_all_are_in_the_palette(clock):
    app = build_app(FakeEngine(clock=clock), clock=clock)
    async with app.run_test():
        provider = ActionCommands(app.screen)
        found = [hit.display async for hit in provider.discover()]
    assert found == [action.title for action in ACTIONS]


async def test_the_palette_leaves_out_what_readonly_forbids(clock):
    app = build_app(FakeEngine(clock=clock), clock=clock, readonly=True)
    async with app.run_test():
        found = [hit.display async for hit in ActionCommands(app.screen).discover()]
    assert found == [action.title for action in ACTIONS if not action.changes_engine]


def test_no_key_means_two_things():
    keys = [key for action in ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))


def test_keys_do_not_hide_what_textual_needs():
    taken = {key for action in ACTIONS for key in action.keys}
    system = {binding.key for binding in App.BINDINGS if getattr(binding, "system", False)}
    assert not taken & system


@pytest.mark.parametrize("width", [62, 80, 120, 200])
@pytest.mark.parametrize("where", [OVERVIEW, PROMPT])
def test_footer_fits_and_always_offers_help_and_quit(where, width):
    line = actions.footer(where, readonly=False, width=width)
    assert width_of(line) <= width
    if where == OVERVIEW:
        assert plain(line).rstrip().endswith("? help  q quit")


def test_readonly_dims_in_footer_and_help():
    assert "(i ask)" in plain(actions.footer(OVERVIEW, readonly=True, width=200))
    forbidden = [plain(line) for line in actions.help_lines(True) if "read-only" in plain(line)]
    assert len(forbidden) == 5
    assert not actions.allowed("change_cap", readonly=True)
    assert actions.allowed("change_cap", readonly=False)
    assert actions.allowed("pause_display", readonly=True)
