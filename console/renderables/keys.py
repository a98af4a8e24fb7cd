"""The keys of a place as a line at the bottom of the screen, and as the lines of the help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from console.actions import FILTER, PROMPT, Action, Scope
from console.locale.lang import _, said
from console.renderables.lines import Line, Span, pad, spread, width_of
from console.renderables.wrapping import wrap

COLUMN, KEYS = 74, 14
"""Cells of a line of the help, and of the keys in it."""
BETWEEN = Span("  ")
_ENTER = {PROMPT: "send", FILTER: "keep"}


def footer(scope: Scope, width: int) -> Line:
    """As many entries as fit, those of the right end always; a click runs the action."""
    actions = scope.actions()
    entries = list(_entries([a for a in actions if not a.right], scope))
    right: Line = ()
    for entry in _entries([a for a in actions if a.right], scope):
        right = (*right, *entry, BETWEEN)
    if scope.where in _ENTER:
        entries.insert(0, _entry("enter", _(_ENTER[scope.where]), "", False))
    left: Line = ()
    for entry in entries:
        longer = (*left, BETWEEN if left else Span(" "), *entry)
        if width_of((*longer, BETWEEN, *right)) > width:
            break
        left = longer
    return spread(left, right, width) if right else left


def _entries(actions: Iterable[Action], scope: Scope) -> Iterator[Line]:
    for several in neighbours(actions):
        first = several[0]
        yield _entry(keys_of(several), _(first.footer), first.name, bool(scope.forbidden(first)))


def neighbours(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """Neighbours with the same words are one entry."""
    for __, group in groupby(actions, key=lambda action: action.footer):
        yield list(group)


def keys_of(several: list[Action]) -> str:
    """ "1-6", "-/+", or the one key."""
    first, last = several[0].shown, several[-1].shown
    if first == last:
        return first
    return f"{first}-{last}" if first.isdigit() else f"{first}/{last}"


def _entry(shown: str, words: str, link: str, dimmed: bool) -> Line:
    if dimmed:
        return (Span(f"({shown} {words})", "faint"),)
    return (Span(shown, "key", link), Span(f" {words}", "label", link))


def help_lines(scope: Scope) -> list[Line]:
    """One line an entry: its keys and what they do, or why not."""
    return [line for several in neighbours(scope.actions()) for line in _help(several, scope)]


def _help(several: list[Action], scope: Scope) -> Iterator[Line]:
    first = several[0]
    why = scope.forbidden(first)
    also = (k for k in first.keys[1:] if len(several) == 1)
    keys = " ".join([keys_of(several), *also])
    text = said("{help} ({why})", help=first.help, why=why) if why else _(first.help)
    for at, row in enumerate(wrap(text, COLUMN - KEYS)):
        head = Span(f" {keys}" if at == 0 else "", "faint" if why else "key")
        yield (*pad((head,), KEYS), Span(row, "faint" if why else "text"))
