"""A quality check's evidence as the report that people and programs read."""

from __future__ import annotations

from typing import Any

from playbooks.quality.answers import divergence
from playbooks.quality.controls import Control
from playbooks.quality.evidence import QualityEvidence
from playbooks.quality.metrics import Scores, summarise

SCHEMA = 1
WORST = 5
"""Texts shown side by side."""


def findings(evidence: QualityEvidence) -> dict[str, Any]:
    """Everything but what was asked for: no NaN, null where there is no number."""
    verdict, reasons = evidence.conclude()
    return {
        "schema": SCHEMA,
        "kind": "quality",
        "verdict": verdict,
        "reasons": reasons,
        "model": evidence.loaded.spec.name,
        "identity": evidence.loaded.identity,
        "cases": len(evidence.cases),
        "positions": sum(map(len, evidence.scores)),
        "metrics": evidence.metrics,
        "gates": [gate.to_dict() for gate in evidence.gates],
        "categories": _categories(evidence),
        "passkey": _passkeys(evidence),
        "structured": _structured(evidence),
        "controls": {n: _control(c, evidence) for n, c in evidence.controls.items()},
        "suspects": [suspect.to_dict() for suspect in evidence.suspects],
        "worst": _worst(evidence),
    }


def _categories(evidence: QualityEvidence) -> dict[str, Any]:
    table = {}
    pairs = list(zip(evidence.texts, evidence.scores, strict=True))
    for name in dict.fromkeys(text.category for text in evidence.texts):
        mine = [scores for text, scores in pairs if text.category == name]
        joined = Scores.join(mine)
        table[name] = {"cases": len(mine), "positions": len(joined), **summarise(joined)}
    return table


def _passkeys(evidence: QualityEvidence) -> list[dict[str, Any]]:
    before, after = evidence.found(evidence.base_keys), evidence.found(evidence.keys)
    return [
        {"length": c.length, "depth": c.depth, "baseline": b, "candidate": a}
        for c, b, a in zip(evidence.cells, before, after, strict=True)
    ]


def _structured(evidence: QualityEvidence) -> dict[str, Any]:
    """Valid answers by kind; and those that were valid before, for a human to read."""
    sides = zip(evidence.base_structured, evidence.structured, strict=True)
    rows = [(task, a.text, b.text) for task, (a, b) in zip(evidence.tasks, sides, strict=True)]
    lost = [row for row in rows if row[0].valid(row[1]) and not row[0].valid(row[2])]
    return {
        "kinds": [
            {
                "kind": kind,
                "tasks": sum(task.kind == kind for task, *_ in rows),
                "baseline": sum(task.kind == kind and task.valid(a) for task, a, _ in rows),
                "candidate": sum(task.kind == kind and task.valid(b) for task, _, b in rows),
            }
            for kind in dict.fromkeys(task.kind for task in evidence.tasks)
        ],
        "lost": [
            {"task": task.id, "right": task.answer, "baseline": a, "candidate": b}
            for task, a, b in lost[:WORST]
        ],
    }


def _control(control: Control, evidence: QualityEvidence) -> dict[str, Any]:
    dim = evidence.loaded.spec.head_dim
    return {
        "note": control.note,
        "expected": control.expected,
        "verdict": control.verdict,
        "ok": control.ok,
        "metrics": {gate.limit.metric: gate.value for gate in control.gates},
        "injected": [
            {"layer": p.layer, "head": p.head, "channels": list(p.channels(dim))}
            for p in control.injected
        ],
        "suspects": [suspect.to_dict() for suspect in control.suspects],
    }


def _worst(evidence: QualityEvidence) -> list[dict[str, Any]]:
    """Answers that differ first: those are what a human can judge."""
    rows = [_side_by_side(evidence, i) for i in evidence.worst]
    return sorted(rows, key=lambda row: row["first_divergence"] is None)[:WORST]


def _side_by_side(evidence: QualityEvidence, i: int) -> dict[str, Any]:
    """Text i with both answers, for a human to read."""
    text, scores = evidence.texts[i], evidence.scores[i]
    if i < len(evidence.cases):
        prompt, base, other = evidence.cases[i].prompt, evidence.base[i], evidence.candidate[i]
    else:
        at = evidence.long_cells[i - len(evidence.cases)]
        prompt, base, other = evidence.cells[at].prompt, evidence.base_keys[at], evidence.keys[at]
    return {
        "case": text.id,
        "category": text.category,
        "mean_kld": float(scores.kld.mean()),
        "max_kld": float(scores.kld.max()),
        "prompt": prompt,
        "first_divergence": divergence(base.token_ids, other.token_ids),
        "baseline": base.text,
        "candidate": other.text,
    }
