"""A playbook's run: a line a step with its progress, its gates and evidence, the findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console.control.run_state import RUNNING, SKIPPED, WAITING, PlaybookRun, StepView
from console.renderables import format as fmt
from console.renderables.graphs import bar
from console.renderables.lines import (
    ALARM,
    BLANK,
    Line,
    Role,
    Span,
    Verbatim,
    fit,
    spread,
    text_line,
)
from console.renderables.pages import verdict_span, words

BAR = 24
SIGNS = {"healthy": "✓", "inconclusive": "?"}
"""Of a finding that is no trouble."""
# not shown
MARKS: dict[str, tuple[str, Role]] = {
    WAITING: ("·", "faint"),
    RUNNING: ("▶", "key"),
    SKIPPED: ("–", "faint"),
    "not available": ("–", "faint"),
    "not told": ("–", "faint"),
    "pass": ("✓", "good"),
    "warn": ("▲", "trouble"),
    "inconclusive": ("?", "trouble"),
    "fail": ("✗", "trouble"),
    "error": ("✗", "trouble"),
}


def run_page(run: PlaybookRun, now: float, width: int) -> list[Line]:
    lines = [_total(run, now, width), *words(run.announced, width, role="faint"), BLANK]
    for at, view in enumerate(run.steps, 1):
        lines += _step(at, view, now, width)
    if run.error:
        lines += [BLANK, *words(f"{ALARM} {run.error}", width, role="trouble")]
    if run.report is not None:
        lines += [BLANK, *_findings(run.report.get("findings") or [], width)]
    if run.note:
        lines += [BLANK, *words(run.note, width, role="faint")]
    return lines


def _total(run: PlaybookRun, now: float, width: int) -> Line:
    spent = fmt.duration(run.seconds(now))
    left = f" · about {fmt.duration(run.left(now))} left" if run.running else ""
    state = (Span(f"▶ {run.verdict}", "key"),) if run.running else (verdict_span(run.verdict),)
    return spread(state, text_line(f"{spent} so far{left}" if run.running else f"took {spent}"),
                  width)  # fmt: skip


def _step(at: int, view: StepView, now: float, width: int) -> Iterator[Line]:
    mark, role = MARKS.get(view.state, ("·", "text"))
    head: Line = (
        Span(f"{mark} ", role),
        Verbatim(f"{at}. {view.step.id:<14}", "value" if view.state != WAITING else "label"),
        Span(view.step.title, "text" if view.state != WAITING else "faint"),
    )
    yield spread(head, _state(view, now), width)
    if view.state == RUNNING:
        yield _progress(view, now, width)
    elif view.text:
        yield from _indented(words(view.text, width - 5))
    for judged in view.gates:
        yield fit(
            (Span("     "), verdict_span(judged.verdict), Span(f"  {judged.evidence}")), width
        )


def _state(view: StepView, now: float) -> Line:
    seconds = view.seconds(now)
    spent = "" if seconds is None else f"  {fmt.duration(seconds)}"
    _, role = MARKS.get(view.state, ("·", "text"))
    return (Span(view.state, role), Span(spent, "label"))


def _progress(view: StepView, now: float, width: int) -> Line:
    share = view.done / view.total if view.total > 0 else None
    left = view.left(now)
    full = bar(share, BAR)
    line: Line = (
        Span("     "),
        Span(full, "spark"),
        Span("·" * (BAR - len(full)), "faint"),
        Span(f"  {fmt.percent(share)}" if share is not None else "", "value"),
        Span(f"  about {fmt.duration(left)} left" if left is not None else "", "value"),
        Span(f"  {view.text}" if view.text else "", "label"),
    )
    return fit(line, width)


def _findings(findings: Sequence[dict[str, object]], width: int) -> Iterator[Line]:
    yield text_line("what was found", "title")
    if not findings:
        yield text_line("nothing that is known to be wrong", "faint")
    for row in findings:
        sign = SIGNS.get(str(row.get("cause")), ALARM)
        yield from words(_cause(row), width, f"{sign} ", role="value")
        evidence = row.get("evidence")
        for item in evidence if isinstance(evidence, list) else [evidence]:
            yield from _indented(words(str(item), width - 5))
        if row.get("remedy"):
            yield from _indented(words(f"→ {row['remedy']}", width - 5, role="key"))


def _cause(row: dict[str, object]) -> str:
    """ "kv_bound, 90 % sure, needs a restart"."""
    parts, sure = [str(row.get("cause"))], row.get("confidence")
    if isinstance(sure, float):
        parts.append(f"{sure:.0%} sure")
    match row.get("applies"):
        case "live":
            parts.append("can be changed live")
        case "restart":
            parts.append("needs a restart")
    return ", ".join(parts)


def _indented(lines: Sequence[Line]) -> Iterator[Line]:
    for line in lines:
        yield (Span("     "), *line)
