"""Reports in the shape that `evewatch forecast run` writes, made in no time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 12, 24, tzinfo=UTC)
SLO_MS = 2000.0
RATES = (2, 1.5, 1, 1, 1, 1.5, 2, 3, 4, 5, 6, 6.5, 7, 7, 7, 7.5, 8, 9, 10, 11, 12, 10, 7, 4)


def around(value: float | None, share: float = 0.15) -> dict[str, Any]:
    if value is None:
        return {"value": None, "low": None, "high": None}
    return {"value": value, "low": value * (1 - share), "high": value * (1 + share)}


def latency(ms: float) -> dict[str, Any]:
    return {name: around(ms * part) for name, part in (("p50", 0.3), ("p90", 0.7), ("p99", 1))}


def scenario(hours: int, able: float, name: str = "as it is", replicas: int = 1) -> dict[str, Any]:
    """`able`: requests/s that it can serve; from there on it saturates."""
    rows, full = [], []
    for i in range(hours):
        rate = RATES[i % len(RATES)]
        busy = rate / able
        full += [i] if busy >= 1 else []
        figures = {
            "offered": rate * 3600.0, "answered": 1.0, "good": min(1.0, 1.99 - busy),
            "output_tok_s": rate * 100, "requests_s": rate, "preemptions": 0.0,
            "replicas": float(replicas), "waiting": max(busy - 0.8, 0) * 100,
            "kv": min(busy * 0.9, 1.0),
        }  # fmt: skip
        ttft = 300.0 + 1700.0 * busy**6 if busy < 1 else 90_000.0
        rows.append(
            {
                "at": (START + timedelta(hours=i)).isoformat(),
                **{key: around(value) for key, value in figures.items()},
                "kv": around(figures["kv"], 0.0), "good": around(figures["good"], 0.0),
                "ttft_ms": latency(ttft), "tpot_ms": latency(60.0),
                "e2e_ms": latency(ttft + 4000), "queue_ms": latency(ttft / 2),
            }
        )  # fmt: skip
    spans = []
    if full:
        spans.append(
            {
                "from": (START + timedelta(hours=full[0], minutes=40)).isoformat(),
                "until": (START + timedelta(hours=full[-1] + 1, minutes=10)).isoformat(),
                "days": 6, "worst_delay_s": 900.0,
            }
        )  # fmt: skip
    totals = {**rows[min(20, hours - 1)], "budget_spent": around(1.4 if full else 0.2),
              "replica_hours": around(24.0 * replicas, 0)}  # fmt: skip
    return {
        "name": name, "fit": {}, "settings": {}, "replicas": replicas,
        "router": "least_outstanding", "scaling": None, "losses": [],
        "capacity_requests_s": able / replicas, "sampling": None,
        "verdict": "fails" if full else "holds", "holds_on": 2 if full else 8,
        "saturations": spans, "totals": totals, "hours": rows,
    }  # fmt: skip


def forecast_report(hours: int = 24, **more: Any) -> dict[str, Any]:
    """One replica that saturates in the evening, and two as a what-if."""
    first = scenario(hours, 10.5)
    return {
        "schema": 1, "kind": "forecast", "start": START.isoformat(), "seconds": hours * 3600.0,
        "days": 8, "seed": 0,
        "traffic": {"hours": [
            {"start": hour["at"], "expected": RATES[i % 24], "low": RATES[i % 24] * 0.8,
             "high": RATES[i % 24] * 1.3, "last_value": 4.0, "last_week": None, "special": []}
            for i, hour in enumerate(first["hours"])
        ]},
        "objective": {"slo": {"ttft_ms": SLO_MS}, "target": 0.99},
        "verdict": "fails", "holds_on": 2,
        "scenarios": [first, scenario(hours, 21.0, "replicas=2", 2)],
        "smallest": {"hours": [2 if RATES[i % 24] > 8 else 1 for i in range(hours)], "whole": 2,
                     "replica_hours": 28.0, "constant_replica_hours": 48.0},
        "sentences": [
            "as it is: saturates at 19:40, recovers 22:10, on 6 of 8 plausible days; what waits "
            "then takes up to 15 min",
            "as it is: does not hold: 99% of the requests within TTFT 2000 ms on 2 of 8 plausible "
            "days; 97.10% (95.20% to 99.10%); missed 18:00 to 22:00",
            "replicas=2: holds: 99% of the requests within TTFT 2000 ms on 8 of 8 plausible days",
            "2 replicas hold it in every hour and take 48 replica-hours; as many as each hour "
            "needs take 28",
        ],
        "past_scores": [],
        "assumptions": ["requests of a lost replica fail, and nobody retries them"],
        "warnings": [],
    } | more  # fmt: skip
