"""Every role can be read in every theme, also where a terminal has sixteen colours or none."""

import pytest
from rich.color import Color, ColorSystem
from textual.app import App

from console import themes
from console.panels.lineview import LineView
from console.renderables.lines import ROLES

LEAST_CONTRAST = 1.6
"""Of frames and axes; WCAG's ratio."""
READABLE = 4.5
PROSE = ("text", "value", "trouble", "key", "operator", "title", "good")


class OneView(App):
    CSS_PATH = "../../console/theme.tcss"

    def __init__(self, theme):
        super().__init__()
        self._name = theme
        self.view = LineView()

    def get_theme_variable_defaults(self):
        return themes.INKS

    def compose(self):
        yield self.view

    def on_mount(self):
        for theme in themes.THEMES:
            self.register_theme(theme)
        self.theme = self._name


async def styles(theme):
    app = OneView(theme)
    async with app.run_test() as pilot:
        await pilot.pause()
        return {role: app.view.get_component_rich_style(f"role--{role}") for role in ROLES}


def luminance(color):
    parts = [v / 255 for v in color.get_truecolor()]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: Color, b: Color) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [t.name for t in themes.THEMES])
async def test_every_role_stands_out_from_the_background(theme):
    for role, style in (await styles(theme)).items():
        least = READABLE if role in PROSE else LEAST_CONTRAST
        assert contrast(style.color, style.bgcolor) >= least, role


@pytest.mark.parametrize("theme", ["evewatch-contrast", "evewatch-mono"])
async def test_sixteen_colours_hide_nothing(theme):
    for role, style in (await styles(theme)).items():
        ink, paper = (c.downgrade(ColorSystem.STANDARD) for c in (style.color, style.bgcolor))
        assert ink.number != paper.number, role
        assert contrast(ink, paper) >= 2.0, role


@pytest.mark.parametrize("theme", ["evewatch-contrast", "evewatch-mono"])
async def test_trouble_stands_out_without_a_colour(theme):
    found = await styles(theme)
    assert found["trouble"].reverse and not found["value"].reverse


@pytest.mark.parametrize(
    ("environment", "theme"),
    [
        ({"TERM": "xterm-256color"}, "evewatch"),
        ({"TERM": "screen", "COLORTERM": "truecolor"}, "evewatch"),
        ({"TERM": "xterm-direct"}, "evewatch"),
        ({"TERM": "linux"}, "evewatch-contrast"),
        ({"TERM": "xterm"}, "evewatch-contrast"),
        ({"TERM": "vt100"}, "evewatch-mono"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "evewatch-mono"),
        ({}, "evewatch"),
    ],
)
def test_a_terminal_gets_what_suits_it(environment, theme):
    assert themes.suits(environment) == theme
