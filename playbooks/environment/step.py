"""The environment step: facts of this machine, judged against the compatibility table."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import Any

from engine.errors import ConfigError
from playbooks.environment.check import FAIL, PASS, WARN
from playbooks.environment.facts import EnvironmentFacts, gather, mapped_libraries, maps_of
from playbooks.environment.judge import judge
from playbooks.environment.table import CompatibilityTable, shipped

SCHEMA = 1


def examine(
    facts: EnvironmentFacts | None = None,
    table: CompatibilityTable | None = None,
    pid: int | None = None,
) -> dict[str, Any]:
    """Gather (unless `facts` are given) and judge.

    `pid`: look for doubled libraries in that process instead of this one. The verdict is fail
    when something is known to break, warn when a pair is unknown or the machine is short of
    something. Raises ConfigError when the process cannot be read.
    """
    facts = facts or gather()
    if pid is not None:
        maps = maps_of(pid)
        if maps is None:
            raise ConfigError(
                f"--pid {pid}: its memory map cannot be read; is it yours, and alive?"
            )
        facts = replace(facts, libraries=mapped_libraries(maps))
    checks = judge(facts, table or shipped())
    counts = Counter(check.verdict for check in checks)
    return {
        "schema": SCHEMA,
        "kind": "environment",
        "verdict": next((v for v in (FAIL, WARN) if counts[v]), PASS),
        "checks": [asdict(check) for check in checks],
        "counts": {verdict: counts[verdict] for verdict in ("pass", "warn", "fail", "skip")},
        "facts": asdict(facts),
    }
