"""Where the time goes: of a request's life, and of the engine's steps."""

from __future__ import annotations

from console.renderables import format as fmt
from console.renderables import told
from console.renderables.graphs import share_line
from console.renderables.lines import BLANK, Field, Line, fit, flow, grid, text_line
from console.renderables.screen_state import ScreenState
from engine.snapshot import Snapshot, StageShares, StepShares

Shares = list[tuple[str, str, float | None]]
"""A short name, the whole one, and the share."""


def of_request(stages: StageShares) -> Shares:
    return [
        ("queue", "queue", stages.queue),
        ("tok", "tokenize", stages.tokenize),
        ("prefill", "prefill", stages.prefill),
        ("decode", "decode", stages.decode),
        ("detok", "detokenize", stages.detokenize),
        ("return", "return", stages.return_),
    ]


def of_step(steps: StepShares) -> Shares:
    return [
        ("plan", "plan", steps.plan),
        ("build", "build", steps.build),
        ("fwd-p", "fwd prefill", steps.forward_prefill),
        ("fwd-d", "fwd decode", steps.forward_decode),
        *(
            [("draft", "draft", steps.draft), ("verify", "verify", steps.verify)]
            if steps.draft is not None
            else []
        ),
        ("sample", "sample", steps.sample),
        ("apply", "apply", steps.apply),
        ("telem", "telemetry", steps.telemetry),
    ]


def bars(title: str, shares: Shares, width: int) -> list[Line]:
    """A heading and one bar a share."""
    lines = [fit(text_line(title, "label"), width)]
    return lines + [share_line(f" {name}", share, width, 13) for _, name, share in shares]


def overview(state: ScreenState, width: int, height: int) -> list[Line]:
    request, step = of_request(state.snapshot.stages), of_step(state.snapshot.steps)
    if state.watched and not _known(step):
        return _outside(state.snapshot, width, height)
    if height < len(request) + len(step) + 2:
        return _words(request, step, width, height)
    lines = [*bars("of a request", request, width), *bars("of a step", step, width)]
    return lines[:height]


def _known(shares: Shares) -> Shares:
    return [row for row in shares if row[-1] is not None]


def _outside(snapshot: Snapshot, width: int, height: int) -> list[Line]:
    """Of a watched engine the stages that it tells, how long its requests are, how they end."""
    request = _known(of_request(snapshot.stages))
    if height < 10:
        lines = _words(request, [], width, height)
        return [*lines, *told.table(snapshot.lengths, width)][:height]
    lines = bars("of a request", request, width) if request else []
    lines = told.below(lines, told.table(snapshot.lengths, width), height)
    room = height - len(lines) - 1
    return told.below(lines, told.end_bars(snapshot.finished, width, room), height)


def _words(request: Shares, step: Shares, width: int, height: int) -> list[Line]:
    """The same in words, the request's shares first."""
    parts = [[Field(name, _short(share)) for name, _, share in part] for part in (request, step)]
    lines = [line for part in parts if part for line in grid(part, width, columns=3, gap=2)]
    return lines if len(lines) <= height else flow([*parts[0], *parts[1]], width, height)


def _short(share: float | None) -> str:
    """Whole percent."""
    if share is None or not fmt.known(share):
        return fmt.MISSING
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"


def detail(state: ScreenState, width: int, height: int) -> list[Line]:
    request, step = of_request(state.snapshot.stages), of_step(state.snapshot.steps)
    width = min(width, 100)
    if state.watched and not _known(step):
        return _outside(state.snapshot, width, height)
    lines = [
        *bars("share of the life of requests that finished lately", request, width),
        BLANK,
        *bars("share of the engine's recent steps", step, width),
    ]
    return lines[:height]
