"""A load by URL: what it says is of its own requests."""

from playbooks.outside.load import run_load
from playbooks.outside.site import UrlSite
from playbooks.runs.outcome import StepClock
from playbooks.steps.models import LoadStep
from served import serving


def test_prefix_hits_are_those_of_this_load_and_not_of_all_there_ever_were():
    alike = LoadStep("closed:1", "fixed:40,2", requests=6, shared_prefix=36)
    with serving() as served:
        site = UrlSite(served.url)
        first = run_load(site, alike, StepClock())
        other = run_load(site, LoadStep("closed:1", "fixed:40,2", requests=6, seed=9), StepClock())
        page = site.watch.told
    assert first.metrics["prefix_hit_ratio"] > 0.3
    assert other.metrics["prefix_hit_ratio"] == 0.0
    assert page is not None and page.kv.prefix_hit_ratio > 0.1
