"""The self-test of the outside view: a sound server, and a proxy that has the faults.

Each run is the check that operators run, against the proxy's address. Without a fault it has to
pass; with one, its first finding has to be the fault's cause.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.observing.host import Witness
from playbooks.diagnosis import HEALTHY, OF_HOST
from playbooks.faults.proxy import FaultyProxy
from playbooks.faults.selftest import Row, selftest_report
from playbooks.faults.tampering import OUTSIDE_FAULTS, OutsideFault
from playbooks.outside.site import UrlSite
from playbooks.runs import spec
from playbooks.runs.options import CheckOptions
from playbooks.runs.runner import run_playbook
from playbooks.steps import Progress

PLAYBOOK = "quick_check"


MakeWitness = Callable[[], Witness | None]


@dataclass(frozen=True)
class _WitnessedSite(UrlSite):
    """The server is in this process, which a check would take for no engine: whoever started it
    says how its host is read."""

    make_witness: MakeWitness = lambda: None

    def witness(self) -> Witness | None:
        return self.make_witness()


def check_outside_fault(name: str) -> None:
    """Raises ConfigError for one that is not known."""
    if name not in OUTSIDE_FAULTS:
        known = ", ".join(OUTSIDE_FAULTS)
        raise ConfigError(f"fault {name!r} is none that clients see; known: {known}")


def run_outside_selftest(
    url: str,
    model: str,
    config: EngineConfig,
    faults: Sequence[str] | None = None,
    seeds: int = 2,
    progress: Progress = lambda *_: None,
    *,
    playbook: spec.Playbook | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
    witness: MakeWitness = lambda: None,
) -> dict[str, Any]:
    """As `run_selftest`, on the sound server at `url`; `witness`: of its host, as a check has one.
    A run in which the host is blamed is done once more. Raises ConfigError for a fault that is not
    known."""
    for name in faults or ():
        check_outside_fault(name)
    start, rows = time.monotonic(), []
    book = playbook or spec.load(PLAYBOOK)
    names = OUTSIDE_FAULTS if faults is None else faults
    planted = [None] * seeds + [OUTSIDE_FAULTS[name] for name in names]
    progress(0, len(planted))
    for done, fault in enumerate(planted, 1):
        row = _row(fault, url, book, witness)
        rows.append(_row(fault, url, book, witness) if row["first"] in OF_HOST else row)
        on_row(rows[-1])
        progress(done, len(planted))
    return selftest_report(rows, model, config, {"playbook": book.name}, start)


def _row(fault: OutsideFault | None, url: str, book: spec.Playbook, witness: MakeWitness) -> Row:
    start = time.monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        options = CheckOptions(folder=Path(folder, "report"), log=False)
        report = run_playbook(book, _site(fault, url, stack, witness), options)
    findings = report["findings"]
    first = findings[0] if findings else None
    wanted = fault.cause if fault is not None else HEALTHY
    found = first is not None and first["cause"] == wanted
    if fault is None:
        found = found and report["verdict"] == "pass"
    return {
        "fault": fault.name if fault is not None else None,
        "what": fault.title if fault is not None else "nothing",
        "wanted": wanted,
        "first": first["cause"] if first is not None else report["verdict"],
        "found": found,
        "confidence": first["confidence"] if first is not None else 0.0,
        "evidence": _evidence(report, first),
        "others": [finding["cause"] for finding in findings[1:]],
        "seconds": round(time.monotonic() - start, 1),
    }


def _site(fault: OutsideFault | None, url: str, stack: ExitStack, witness: MakeWitness) -> UrlSite:
    proxy = stack.enter_context(FaultyProxy(url, fault.make() if fault is not None else None))
    if fault is None or not fault.of_replica:
        return _WitnessedSite(proxy.url, make_witness=witness)
    return _WitnessedSite(url, replicas=(proxy.url,), make_witness=witness)


def _evidence(report: dict[str, Any], first: dict[str, Any] | None) -> str:
    """Of the first finding; where there is no cause and no pass, the steps that did not pass."""
    if first is not None and (first["cause"] != HEALTHY or report["verdict"] == "pass"):
        return str(first["evidence"][0])
    bad = [f"{row['id']}: {row['verdict']}: {row['reason']}" for row in report["steps"]
           if row["verdict"] != "pass"]  # fmt: skip
    return "; ".join(bad) or str(report["problem"])
