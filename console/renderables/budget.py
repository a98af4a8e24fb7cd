"""Budgets: what the objectives allow to be missed, how much is spent, and when it is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console.renderables import format as fmt
from console.renderables.graphs import bar
from console.renderables.lines import (
    ALARM,
    BLANK,
    Field,
    Line,
    Role,
    Span,
    columns_line,
    fit,
    flow,
    in_column,
    text_line,
)
from console.renderables.screen_state import ScreenState
from playbooks.objectives.budget import Budget, Burn

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "availability": "served", "reachable": "up"}
NAME, COLUMNS = 8, (("spent", 8), ("pace", 9), ("gone in", 10))
NONE_SET = "no objectives are set: table [objectives] of evewatch.toml"


def overview(state: ScreenState, width: int, height: int) -> list[Line]:
    """A row each, and a bar below it where there is room."""
    if not state.budgets:
        return [fit(text_line(NONE_SET, "faint"), width)][:height]
    lines = [fit((Span(" " * NAME), *_cells([name for name, _ in COLUMNS], "label")), width)]
    with_bars = height >= 1 + 3 * len(state.budgets)
    for budget in state.budgets:
        lines.append(fit(_row(budget), width))
        if with_bars:
            lines += [fit(_bar(budget, width), width), BLANK]
    return lines[:height]


def detail(state: ScreenState, width: int, height: int) -> list[Line]:
    """All that is known of each, and how it was counted."""
    if not state.budgets:
        return overview(state, width, height)
    lines: list[Line] = []
    for budget in state.budgets:
        lines += [(Span(promise(budget), "title"),), *_facts(budget, width), BLANK]
    return [fit(line, width) for line in lines[:height]]


def promise(budget: Budget) -> str:
    """99 % of requests: first token within 500 ms; over 8 d"""
    within, window = fmt.duration(budget.objective.within_s), fmt.span(budget.window_s)
    share = budget.objective.share * 100
    match budget.objective.name:
        case "ttft":
            return f"{share:g} % of requests: first token within {within}; over {window}"
        case "tpot":
            return f"{share:g} % of requests: a token within {within}; over {window}"
        case "e2e":
            return f"{share:g} % of requests: last token within {within}; over {window}"
        case "reachable":
            return f"{share:g} % of the time: somebody answers; over {window}"
        case _:
            return f"{share:g} % of requests: served; over {window}"


def gone(budget: Budget) -> str:
    """When nothing is left of it, at the pace of the last while."""
    if budget.gone_s == 0:
        return "gone"
    if budget.lasts is None:
        return fmt.MISSING
    return "lasts" if budget.lasts or budget.gone_s is None else fmt.span(budget.gone_s)


def _row(budget: Budget) -> Line:
    cells = (fmt.percent(budget.spent), _times(budget.pace), gone(budget))
    sign = f"{ALARM} " if budget.trouble else ""
    role: Role = "trouble" if budget.trouble else "value"
    name = f"{sign}{NAMES[budget.objective.name]}"
    return (in_column(name, -NAME, "trouble" if budget.trouble else "label"), *_cells(cells, role))


def _cells(texts: Sequence[str], role: Role) -> Line:
    sizes = (size for _, size in COLUMNS)
    return columns_line(zip(texts, sizes, strict=True), role)


def _bar(budget: Budget, width: int) -> Line:
    ink = bar(budget.spent, width)
    return (
        Span(ink, "trouble" if budget.trouble else "spark"),
        Span("·" * (width - len(ink)), "free"),
    )


def _facts(budget: Budget, width: int) -> Iterator[Line]:
    share, least, most = map(fmt.percent, (budget.spent, budget.least, budget.most))
    spent = share if budget.bounds_ms is None else f"{share} ({least} to {most})"
    fields = [
        *_counted(budget),
        Field("spent", spent, trouble=budget.gone_s == 0),
        Field("pace", _times(budget.pace)),
        Field("gone in", gone(budget)),
        *(Field(name, _burn(burn), trouble=burn.told) for name, burn in
          (("fast", budget.fast), ("slow", budget.slow))),
    ]  # fmt: skip
    if budget.left_s is not None:
        fields.append(Field("window left", fmt.span(budget.left_s)))
    if budget.unseen_s >= 1:
        fields.append(Field("not seen", fmt.span(budget.unseen_s)))
    yield from flow(fields, width, 4)
    if budget.bounds_ms is not None:
        yield text_line(_doubt(budget), "faint")


def _counted(budget: Budget) -> tuple[Field, Field]:
    tally = budget.tally
    total, missed = (tally.total, tally.missed) if tally.total else (None, None)
    if budget.of_time:
        return Field("looked", fmt.span(total)), Field("no answer", fmt.span(missed))
    return Field("requests", fmt.count(total)), Field("missed", fmt.count(missed))


def _burn(burn: Burn) -> str:
    """0.8 × in 16 min, 1.2 × in 80 s"""
    in_long, in_short = _times(burn.over_long), _times(burn.over_short)
    return f"{in_long} in {fmt.span(burn.long_s)}, {in_short} in {fmt.span(burn.short_s)}"


def _doubt(budget: Budget) -> str:
    low, high = budget.bounds_ms or (None, None)
    end = fmt.millis(high) if high is not None else "no end"
    return (
        f"this engine counts in buckets, and the limit lies in the one from {fmt.millis(low)} to "
        f"{end}: how many in it kept to the limit is estimated"
    )


def _times(rate: float | None) -> str:
    return f"{fmt.decimal(rate)} ×" if fmt.known(rate) else fmt.MISSING
