"""The self-test: every fault goes into an engine once, and the diagnosis has to find it first.

A diagnosis that has never been seen to find anything proves nothing when it says healthy. The
healthy engine runs too, on several seeds, and must not be blamed for anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from engine.config import EngineConfig
from engine.models import LoadedModel
from engine.observing.host import silent
from playbooks.checkup.checkup import gather, version_facts
from playbooks.checkup.site import Site
from playbooks.diagnosis import HEALTHY, Evidence, Finding, diagnose
from playbooks.faults.faults import FAULTS, Ground, check_fault, inject
from playbooks.steps import Progress
from playbooks.steps.models import LoadStep, SoakStep

SCHEMA = 1
LOAD = LoadStep(arrivals="closed:6", lengths="lognormal:56,16,0.3", requests=30, shared_prefix=20)
SOAK = SoakStep(requests=96, waves=8)
Row = dict[str, Any]


def run_selftest(
    config: EngineConfig,
    faults: Sequence[str] | None = None,
    seeds: int = 2,
    progress: Progress = lambda *_: None,
    *,
    loaded: LoadedModel | None = None,
    load: LoadStep = LOAD,
    soak: SoakStep = SOAK,
    on_row: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Rows of fault, first finding, confidence; healthy runs have no fault. `faults`: None for all.

    Raises ConfigError for a fault that is not known and for a model that does not load.
    """
    for name in faults or ():
        check_fault(name)
    start, rows = time.monotonic(), []
    site = Site(config, loaded)
    names = list(FAULTS if faults is None else faults)
    jobs = _jobs(site, names, seeds, load)
    total = seeds + len(names)
    progress(0, total)
    for done, (fault, where, asked) in enumerate(jobs, 1):
        rows.append(_row(fault, where, asked, soak))
        on_row(rows[-1])
        progress(done, total)
    return selftest_report(rows, site.loaded.spec.name, config, asdict(load), start)


def selftest_report(
    rows: Sequence[Row], model: str, config: EngineConfig, load: dict[str, Any], start: float
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "selftest",
        "verdict": "pass" if all(row["found"] for row in rows) else "fail",
        "model": model,
        "config": config.to_dict(),
        "load": load,
        "rows": list(rows),
        "seconds": round(time.monotonic() - start, 1),
    }


def _jobs(
    site: Site, names: Sequence[str], seeds: int, load: LoadStep
) -> Iterator[tuple[str | None, Site, LoadStep]]:
    """Healthy first. What the faults need to know of the machine is measured once."""
    for seed in range(seeds):
        yield None, _on_quiet_host(site), replace(load, seed=seed)
    ground = Ground(site, load)
    for name in names:
        yield name, _on_quiet_host(inject(name, site, load, ground)), load


def _on_quiet_host(site: Site) -> Site:
    """What the diagnosis makes of the engine is tried, not what this machine's others do to it;
    faults of the host bring their own."""
    quiet = replace(site.alteration, look=site.alteration.look or silent)
    return site.altered(quiet)


def _row(name: str | None, site: Site, load: LoadStep, soak: SoakStep) -> Row:
    start = time.monotonic()
    evidence: Evidence = gather(site, load, soak).having(version_facts(site))
    findings = diagnose(evidence)
    first: Finding = findings[0]
    wanted = FAULTS[name].cause if name is not None else HEALTHY
    return {
        "fault": name,
        "what": FAULTS[name].title if name is not None else f"nothing, seed {load.seed}",
        "wanted": wanted,
        "first": first.cause,
        "found": first.cause == wanted,
        "confidence": round(first.confidence, 2),
        "evidence": first.evidence[0],
        "others": [finding.cause for finding in findings[1:]],
        "seconds": round(time.monotonic() - start, 1),
    }
