"""A run beside the last healthy ones of its kind, and kept for those that come."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from playbooks.checkup.site import Site
from playbooks.diagnosis import Evidence, Usual
from playbooks.outside.site import UrlSite
from playbooks.reports.text import json_values
from playbooks.runs.spec import Playbook
from playbooks.usual import KeptRun, KeptRuns, beside, changes_since, figures_of, path_in

HEALTHY = ("pass", "warn")
KIND_SETTINGS = ("model", "kv_format", "device")
"""Of the engine's settings, those that make it another kind of run."""
log = logging.getLogger("evewatch.playbooks")


def run_of(
    playbook: Playbook,
    target: Site | UrlSite,
    steps: Sequence[Mapping[str, Any]],
    evidence: Evidence,
) -> KeptRun:
    """`steps`: their rows in the report."""
    from playbooks.environment.facts import cpu
    from playbooks.optlog.provenance import provenance_of

    machine, environment = cpu(), provenance_of()
    settings = target.config.to_dict() if isinstance(target, Site) else {}
    kind: dict[str, Any] = {
        "playbook": playbook.name,
        "steps": {step.id: asdict(step.parameters) for step in playbook.steps},
        "engine": evidence.engine or "evewatch",
        "machine": f"{machine.model}, {os.cpu_count()} cores",
    }
    if isinstance(target, UrlSite):  # this program's version is around it, and not of its kind
        kind |= target.kind
    else:
        kind |= {"url": None, "version": environment.pop("evewatch")}
        kind |= {name: settings[name] for name in KIND_SETTINGS}
    host = evidence.host
    environment |= {
        "usable cores": machine.cores if host is None or host.cores is None else host.cores,
        "compute threads": host.compute_threads if host is not None else None,
        "CPU governor": machine.governor,
    }
    own = {k: v for k, v in settings.items() if k not in KIND_SETTINGS}
    kept = json_values([kind, own])  # as they come back from the disk
    return KeptRun(time.time(), kept[0], figures_of(steps), kept[1], environment)


@dataclass(frozen=True)
class History:
    place: Path
    """A file, or the folder in which every kind of run has one."""
    accept: bool = False
    """This run is usual from now on, whatever it is like."""

    def check(self) -> None:
        """Raises ConfigError for a file that is none of figures."""
        if self.place.is_file():
            KeptRuns(self.place).read()

    def beside(self, now: KeptRun, evidence: Evidence) -> Usual | None:
        """None without an earlier healthy run. Raises ConfigError."""
        before = self._runs(now).read()
        lost = (evidence.host.lost if evidence.host is not None else None) or 0.0
        found = None if self.accept else beside(now.figures, [r.figures for r in before], lost)
        if found is None or not (found.slower or found.worse):
            return found
        from playbooks.optlog import OptLog

        return replace(found, changed=changes_since(before[-1], now, OptLog().read().records))

    def keep(self, now: KeptRun, verdict: str) -> None:
        """A healthy run, or one that is accepted. What cannot be kept is said, not raised."""
        if not now.figures or not (self.accept or verdict in HEALTHY):
            return
        try:
            self._runs(now).add(replace(now, accepted=self.accept))
        except ConfigError as error:
            log.warning("not kept as usual: %s", error)

    def _runs(self, now: KeptRun) -> KeptRuns:
        return KeptRuns(path_in(self.place, now.kind))
