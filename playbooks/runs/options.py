"""What a check can be told beside its playbook, and whether that fits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConfigError
from playbooks.checkup.site import Site
from playbooks.faults.faults import check_fault
from playbooks.outside.answers import check_files
from playbooks.outside.site import UrlSite
from playbooks.runs.history import History
from playbooks.runs.spec import Playbook
from playbooks.runs.view import OUTSIDE
from playbooks.steps.metrics import RENAMED
from playbooks.steps.models import QualityStep


@dataclass(frozen=True)
class CheckOptions:
    time_budget_s: float | None = None
    """Instead of the playbook's."""
    withheld: tuple[str, ...] = ()
    """Metrics that are taken away, as if they could not be measured."""
    inject: str | None = None
    """A fault to put into the engine first."""
    folder: Path | None = None
    """For the report; None: one of the user's own."""
    log: bool = True
    """Write one record to the optimization log."""
    keep_going: bool | None = None
    """After a failed step; None: as the playbook says."""
    require: str = OUTSIDE
    """inside: against a URL, what only the inside of an engine tells counts as missing."""
    usual: History | None = None
    """Where the figures of healthy runs are; None: this one is held against none, and not kept."""


def check_options(playbook: Playbook, target: Site | UrlSite, options: CheckOptions) -> None:
    """Raises ConfigError for the first that does not fit the playbook or the target."""
    for name in options.withheld:
        if name in RENAMED:
            raise ConfigError(f"withhold {name}: it is called {RENAMED[name]} now")
        if name not in playbook.judged:
            raise ConfigError(
                f"withhold {name}: nothing in {playbook.name} looks at it; it looks at "
                f"{', '.join(sorted(playbook.judged))}"
            )
    if options.usual is not None:
        options.usual.check()
    if options.inject is not None:
        if isinstance(target, UrlSite):
            raise ConfigError("inject: faults go into the embedded engine only, not behind a URL")
        check_fault(options.inject)
    for step in playbook.steps:
        if isinstance(target, UrlSite) and isinstance(step.parameters, QualityStep):
            check_files(step.parameters)
