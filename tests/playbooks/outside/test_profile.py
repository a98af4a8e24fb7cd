"""A profile by URL: what the host took too much of is measured once more, and then in doubt."""

from __future__ import annotations

import pytest

from engine.observing.host import HostEvidence, Witness, silent
from playbooks.outside.profile import run_profile
from playbooks.outside.site import UrlSite
from playbooks.runs.outcome import StepClock
from playbooks.steps.models import ProfileStep
from served import serving

BUSY = HostEvidence(4.0, cores=2, cpu_s=2.0, wait_s=2.0, others_s=2.0)
QUIET = HostEvidence(4.0, cores=2, cpu_s=4.0, wait_s=0.0, others_s=0.0)
STEP = ProfileStep("closed:2", "fixed:8,4", 6)


class Told(Witness):
    """Of a host made up."""

    def __init__(self, told: HostEvidence) -> None:
        super().__init__(look=silent)
        self._told = told

    @property
    def evidence(self) -> HostEvidence:
        return self._told


@pytest.mark.parametrize(
    ("hosts", "doubted"), [((QUIET,), False), ((BUSY, QUIET), False), ((BUSY, BUSY), True)]
)
def test_what_lost_too_much_is_measured_once_more(monkeypatch, hosts, doubted):
    left = list(hosts)
    monkeypatch.setattr(UrlSite, "witness", lambda site: Told(left.pop(0)))
    with serving() as served:
        site = UrlSite(served.url)
        found = run_profile(site, STEP, StepClock())
    assert not left
    assert bool(found.doubts) is doubted
    assert (found.report or {})["host"]["disturbed"] == int(doubted)
    assert sum(len(phase.records) for phase in site.journal.phases) == 6 * len(hosts)
    assert found.metrics["output_tok_s"] > 0


def test_elsewhere_there_is_no_host_to_look_at(monkeypatch):
    monkeypatch.setattr(UrlSite, "witness", lambda site: None)
    with serving() as served:
        found = run_profile(UrlSite(served.url), STEP, StepClock())
    assert (found.report or {})["host"] is None and not found.doubts
