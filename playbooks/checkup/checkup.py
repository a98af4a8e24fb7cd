"""A check-up of the embedded engine: the load, the soak and the probe, as one body of evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from playbooks.checkup.probe import run_probe
from playbooks.checkup.site import Site
from playbooks.checkup.watched_load import Examined, examine, load_spec
from playbooks.diagnosis import Evidence
from playbooks.environment.facts import gather as gather_facts
from playbooks.environment.facts import with_versions
from playbooks.environment.step import examine as examine_machine
from playbooks.measure.profile import TextTarget
from playbooks.measure.soak import grown_of, run_soak
from playbooks.steps import Progress
from playbooks.steps.models import LoadStep, SoakStep


def examine_site(site: Site, load: LoadStep, progress: Progress = lambda *_: None) -> Examined:
    """The load step of a playbook, with the site's fault over its parameters."""
    asked = replace(load, **site.alteration.load)
    with site.engine() as engine:
        return examine(
            engine,
            load_spec(asked),
            site.alteration.target or TextTarget,
            asked.tpot_objective_ms,
            progress,
            site.alteration.look,
        )


def soak_site(site: Site, spec: SoakStep, progress: Progress = lambda *_: None) -> dict[str, Any]:
    with site.engine() as engine:
        return run_soak(engine, spec, progress)


def soak_facts(report: dict[str, Any]) -> dict[str, Any]:
    return {"growth": grown_of(report)}


def probe_facts(report: dict[str, Any]) -> dict[str, Any]:
    return {
        "mean_kld": report["metrics"]["mean_kld"],
        "suspects": tuple(map(suspect_text, report["suspects"])),
        "clipped": report.get("clipped"),
        "mixed_answers": report["crosstalk"]["mixed"],
    }


def version_facts(site: Site) -> dict[str, Any]:
    return {"broken_versions": broken_versions(environment_report(site))}


def environment_report(site: Site) -> dict[str, Any]:
    """Of this machine, or of one with the versions of the site's fault."""
    versions = site.alteration.versions
    return examine_machine(with_versions(gather_facts(), versions) if versions else None)


def broken_versions(report: Mapping[str, Any]) -> tuple[str, ...]:
    failed = (check for check in report["checks"] if check["verdict"] == "fail")
    return tuple(f"{c['id']}: {c['value']}; {c['evidence']}" for c in failed)


def suspect_text(row: Mapping[str, Any]) -> str:
    return (
        f"layer {row['layer']} head {row['head']} channel {row['channel']}: "
        f"{row['ratio']:.0f} × its head's median, {row['why']}"
    )


def gather(
    site: Site, load: LoadStep, soak: SoakStep, progress: Progress = lambda *_: None
) -> Evidence:
    """All that a diagnosis of the engine itself needs; versions are not looked at."""
    evidence = Evidence().having(examine_site(site, load, progress).facts)
    evidence = evidence.having(soak_facts(soak_site(site, soak, progress)))
    return evidence.having(probe_facts(run_probe(site, progress)))
