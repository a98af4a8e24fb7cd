"""The shapes of the reports of `checklist run` and `explain`."""

from __future__ import annotations

from typing import Literal, TypedDict


class ChecklistItem(TypedDict):
    id: str
    kind: Literal["auto", "human"]
    severity: Literal["must", "should"]
    text: str
    owner: str
    verdict: Literal["pass", "warn", "fail", "unknown"]
    evidence: str
    by: str | None
    why: str
    undo: str
    remedy: str
    command: str


class ChecklistReport(TypedDict):
    schema: Literal[1]
    kind: Literal["checklist"]
    name: str
    title: str
    about: str
    target: str
    verdict: Literal["pass", "warn", "fail", "inconclusive"]
    counts: dict[str, int]
    items: list[ChecklistItem]
    signed_off_by: str | None
    seconds: float


class ExplainEntry(TypedDict):
    id: str
    symptom: str
    likely: str
    confirm: list[str]
    look_for: str
    remedy: str
    applies: Literal["live", "restart"]
    undo: str
    also: list[str]
    cause: str
    score: float


class ExplainReport(TypedDict):
    schema: Literal[1]
    kind: Literal["explain"]
    query: str
    entries: list[ExplainEntry]
    suggestions: list[str]


CHECKLIST_SHAPES: dict[str, type] = {"checklist": ChecklistReport, "explain": ExplainReport}
