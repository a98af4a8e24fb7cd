"""One request: where its time went so far, as one bar, and what it holds."""

from __future__ import annotations

from typing import NamedTuple

from console.renderables import format as fmt
from console.renderables.lines import BLANK, Field, Line, Span, fit, grid, in_column, text_line
from engine.snapshot import RequestRow

GLYPHS = {"queue": "░", "tokenize": "▚", "prefill": "▒", "decode": "█", "detokenize": "▞"}
"""Of the stages in a bar: it is read without colours."""
TYPICAL_TTFT = 2.0
"""So many times the usual TTFT is worth a sign."""


class RequestStage(NamedTuple):
    name: str
    ms: float | None


def stages(row: RequestRow) -> list[RequestStage]:
    """What the request's life went to up to now, in milliseconds; None where nobody knows.

    Queue is the wait for the first step; time back in the queue after a preemption counts as
    decode, where callers feel it.
    """
    wait, first, age = row.wait_ms, row.ttft_ms, row.age_s
    tokenize, detokenize = row.tokenize_ms, row.detokenize_ms
    age_ms = age * 1e3 if age is not None else None
    running = row.position > 0 or row.output_tokens > 0
    before_first = first if first is not None else age_ms
    prefill = _rest(before_first, wait, tokenize or 0.0) if running else 0.0
    decode = _rest(age_ms, first, detokenize or 0.0) if first is not None else 0.0
    return [
        RequestStage("queue", wait),
        RequestStage("tokenize", tokenize),
        RequestStage("prefill", prefill),
        RequestStage("decode", decode),
        RequestStage("detokenize", detokenize),
    ]


def _rest(whole: float | None, *parts: float | None) -> float | None:
    if whole is None or any(part is None for part in parts):
        return None
    return max(0.0, whole - sum(part for part in parts if part is not None))


def stage_bar(parts: list[RequestStage], width: int) -> Line:
    """All known stages in one bar of `width` cells; each that took any time has a cell."""
    known = [(name, ms) for name, ms in parts if ms is not None and fmt.known(ms) and ms > 0]
    whole = sum(ms for _, ms in known)
    if not known or width < len(known):
        return text_line(fmt.MISSING, "faint")
    lengths = [max(1, round(ms / whole * width)) for _, ms in known]
    lengths[lengths.index(max(lengths))] += width - sum(lengths)
    return tuple(
        Span(GLYPHS[name] * n, "spark") for (name, _), n in zip(known, lengths, strict=True)
    )


def request_page(
    row: RequestRow, usual_ttft_ms: float | None, gone: bool, width: int
) -> list[Line]:
    """`usual_ttft_ms` is the median of others; `gone`: it is not in the engine any more."""
    width = min(width, 110)
    lines: list[Line] = []
    if gone:
        lines += [text_line("It has ended; this is the last that was seen of it.", "faint"), BLANK]
    parts = stages(row)
    whole = sum(s.ms for s in parts if s.ms is not None)
    lines += [*grid(_fields(row, usual_ttft_ms), width, 2 if width < 90 else 3), BLANK]
    lines += [text_line("where its time went so far", "label"), stage_bar(parts, width)]
    lines += [_stage_line(stage, whole) for stage in parts]
    lines += [BLANK, text_line("how far it is", "label"), *_progress(row, width)]
    return [fit(line, width) for line in lines]


def _fields(row: RequestRow, usual: float | None) -> list[Field]:
    late = bool(usual and row.ttft_ms and row.ttft_ms > TYPICAL_TTFT * usual)
    return [
        Field("state", row.state, trouble=row.state == "preempted"),
        Field("from", row.source or fmt.MISSING),
        Field("age", fmt.duration(row.age_s)),
        Field("wait", fmt.millis(row.wait_ms)),
        Field("TTFT", fmt.millis(row.ttft_ms), trouble=late),
        Field("usual TTFT (p50)", fmt.millis(usual)),
        Field("pages held", fmt.count(row.pages)),
        Field("position", fmt.count(row.position, "tok")),
        Field("preempted", fmt.count(row.preemptions), trouble=bool(row.preemptions)),
        *_drafts(row),
    ]


def _drafts(row: RequestRow) -> list[Field]:
    """What speculation did for it: tokens that came of drafts, and of how many."""
    if not row.draft_tokens:
        return []
    accepted = row.accepted_tokens or 0
    share = fmt.percent(accepted / row.draft_tokens)
    return [Field("drafts accepted", f"{accepted}/{row.draft_tokens} tok, {share}")]


def _stage_line(stage: RequestStage, whole: float) -> Line:
    share = stage.ms / whole if stage.ms is not None and whole else None
    return (
        Span(f" {GLYPHS[stage.name]} ", "spark"),
        in_column(stage.name, -12),
        Span(f"{fmt.millis(stage.ms):>9}", "value"),
        Span(f"{fmt.percent(share):>8}", "value"),
    )


def _progress(row: RequestRow, width: int) -> list[Line]:
    """Prompt and output as two bars of the tokens that there are and may be."""
    room = max(10, width - 36)
    done = min(row.position, row.prompt_tokens)
    prompt, output, most = row.prompt_tokens, row.output_tokens, row.max_tokens
    return [
        _bar("prompt", done, prompt, f"{done:,}/{prompt:,} in the cache", room),
        _bar("output", output, most, f"{output:,}/{most:,} at most", room),
    ]


def _bar(name: str, done: int, whole: int, told: str, room: int) -> Line:
    full = round(min(done / whole, 1.0) * room) if whole else 0
    return (
        Span(" "),
        in_column(name, -8),
        Span("█" * full, "spark"),
        Span("·" * (room - full), "faint"),
        Span(f" {told}", "value"),
    )
