"""The embedded engine's fit: a short designed load, and what its steps cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from engine.config import EngineConfig
from engine.core import Engine
from engine.models import LoadedModel
from playbooks.forecast.fit_file import Fingerprint, Fit, refuse_drafts, this_machine
from playbooks.forecast.fit_report import fit_report
from playbooks.forecast.fitting import step_times
from playbooks.forecast.ladder import climb, rungs
from playbooks.forecast.step_log import StepLog
from playbooks.load.targets import EmbeddedTarget
from playbooks.measure.trial import warm_up
from playbooks.measure.witnessed import witness_of
from playbooks.optlog.provenance import version_of
from playbooks.steps import Progress
from playbooks.steps.models import FitWork


def run_fit(
    config: EngineConfig,
    work: FitWork,
    progress: Progress = lambda *_: None,
    loaded: LoadedModel | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Fit, dict[str, Any]]:
    """The fit and its report. Raises ConfigError or ModelError before anything runs, EngineError
    when a request fails."""
    refuse_drafts(config)
    start = time.monotonic()
    log, hosts = StepLog(), []
    with Engine(config, loaded) as engine:
        for note in engine.compute.notes:
            say(note)
        warm_up(engine)
        for rung in climb(rungs(work, config.max_batch), progress):
            engine.reset()
            with witness_of(engine) as witness, log.of(engine, rung.number, rung.round):
                rung.run(EmbeddedTarget(engine, "fit"))
            hosts.append(witness.evidence)
        fit = fit_of(engine, log)
    return fit, fit_report(fit, hosts, time.monotonic() - start)


def fit_of(engine: Engine, log: StepLog) -> Fit:
    """From what was measured on it. Raises EngineError for too few steps."""
    return Fit(
        fingerprint=_fingerprint(engine),
        settings=engine.config.to_dict(),
        facts=engine.compute.facts,
        pages=engine.pool.total,
        max_model_len=engine.scheduler.max_model_len,
        when=time.time(),
        **step_times(log)._asdict(),
    )


def _fingerprint(engine: Engine) -> Fingerprint:
    return Fingerprint(
        engine="evewatch",
        version=version_of("evewatch"),
        model=engine.loaded.identity,
        format=engine.config.kv_format,
        kernels=engine.backend.name,
        machine=this_machine(),
    )
