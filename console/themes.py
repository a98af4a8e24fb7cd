"""The console's own colours: dark, light, high contrast, monochrome; and which suit a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from textual.theme import Theme

INKS = {
    "ink-text": "85%",
    "ink-label": "55%",
    "ink-faint": "40%",
    "ink-frame": "25%",
    "ink-free": "35%",
    "trouble-style": "bold",
}
"""How much of the foreground each role of text gets, and how trouble is marked."""
_STRONG = {
    "ink-text": "100%",
    "ink-label": "85%",
    "ink-faint": "75%",
    "ink-frame": "60%",
    "ink-free": "60%",
    "trouble-style": "bold reverse",  # not shown
}

DARK = Theme(
    name="evewatch",
    primary="#7d9fc0",
    secondary="#8f8fb5",
    accent="#e3a857",
    warning="#e3a857",
    error="#e3a857",
    success="#86b38a",
    foreground="#ced3da",
    background="#12151a",
    surface="#171b21",
    panel="#1f242c",
)
LIGHT = Theme(
    name="evewatch-light",
    primary="#2c5d8f",
    secondary="#5b5b9a",
    accent="#9a5b00",
    warning="#9a4d00",
    error="#9a4d00",
    success="#2d6b34",
    foreground="#1d2126",
    background="#f7f6f2",
    surface="#efede6",
    panel="#e4e1d8",
    dark=False,
    variables=INKS | {"ink-text": "95%", "ink-label": "70%", "ink-faint": "60%"},
)
HIGH_CONTRAST = Theme(
    name="evewatch-contrast",
    primary="#00ffff",
    secondary="#ff88ff",
    accent="#ffff00",
    warning="#ffff00",
    error="#ffff00",
    success="#00ff00",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#000000",
    variables=_STRONG,
)
MONOCHROME = Theme(
    name="evewatch-mono",
    primary="#ffffff",
    secondary="#ffffff",
    accent="#ffffff",
    warning="#ffffff",
    error="#ffffff",
    success="#ffffff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#000000",
    variables=_STRONG,
)
THEMES = (DARK, LIGHT, HIGH_CONTRAST, MONOCHROME)
NAMES = {
    "dark": DARK.name, "light": LIGHT.name, "contrast": HIGH_CONTRAST.name,
    "mono": MONOCHROME.name,
}  # fmt: skip
"""As the command line and EVEWATCH_THEME say them."""
VARIABLE = "EVEWATCH_THEME"


def suits(environment: Mapping[str, str]) -> str:
    """The theme for a terminal: without colours, with sixteen, or with more."""
    if (chosen := environment.get(VARIABLE)) in NAMES:
        return NAMES[chosen]
    if "NO_COLOR" in environment or environment.get("TERM") in ("dumb", "vt100", "vt220"):
        return MONOCHROME.name
    many = environment.get("COLORTERM", "") in ("truecolor", "24bit")
    if many or any(word in environment.get("TERM", "256color") for word in ("256color", "direct")):
        return DARK.name
    return HIGH_CONTRAST.name
