"""Every fault is found first, a healthy engine is blamed for nothing, and no fault stays."""

import logging

import pytest

from checkups import LOAD, SOAK, tiny_config, tiny_folder, tiny_site
from engine.core import Engine
from engine.errors import ConfigError
from playbooks.checkup.site import Site
from playbooks.diagnosis import CAUSES
from playbooks.faults import fault_patches
from playbooks.faults.faults import FAULTS, Ground, inject
from playbooks.faults.selftest import run_selftest
from playbooks.faults.tampering import OUTSIDE_FAULTS
from quiet import undisturbed
from report_schemas import violations

OUTSIDE_THE_ENGINE = ("slow_tokenizer", "busy_neighbours", "one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def loaded(folder):
    return tiny_site(folder).loaded


@pytest.fixture(scope="module")
def ground(folder, loaded):
    """The faults of this module are sized from one measurement of the machine."""
    site = Site(tiny_config(folder), loaded)
    found = Ground(site, LOAD)
    assert found.curve.fixed_ms > 0
    return found


def selftest(folder, loaded, names, seeds=0):
    def run():
        return run_selftest(tiny_config(folder), names, seeds, loaded=loaded, load=LOAD, soak=SOAK)

    return undisturbed(run, lambda report: report["verdict"] == "pass")


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_the_first_finding(folder, loaded, name):
    report = selftest(folder, loaded, [name])
    assert violations(report, "selftest") == []
    (row,) = report["rows"]
    assert row["first"] == FAULTS[name].cause, row
    assert row["found"]
    assert row["confidence"] >= 0.55


def test_healthy_engines_are_blamed_for_nothing(folder, loaded):
    report = selftest(folder, loaded, ["leak_pages"], seeds=4)
    assert [row["first"] for row in report["rows"]] == ["healthy"] * 4 + ["leak"], report
    assert report["verdict"] == "pass"


def test_every_cause_has_a_fault():
    planted = {fault.cause for fault in (*FAULTS.values(), *OUTSIDE_FAULTS.values())}
    assert planted | {"slower_than_usual", "worse_than_usual"} == {cause.name for cause in CAUSES}


def test_a_fault_that_is_not_known(folder, loaded):
    with pytest.raises(ConfigError, match="known: leak_pages"):
        inject("nix", Site(tiny_config(folder), loaded), LOAD)
    with pytest.raises(ConfigError, match="known: leak_pages"):
        run_selftest(tiny_config(folder), ["nix"], loaded=loaded)


# --- nothing stays ----------------------------------------------------------------------------


def parts(engine: Engine):
    scheduler = engine.scheduler
    return [engine.loop, engine.runner, engine.sampler, scheduler,
            scheduler.policy, engine.pool, engine.pool.index, engine.telemetry,
            logging.Logger]  # fmt: skip


def own(engine: Engine):
    """What every part has as its own: methods that cover the class's would show up here."""
    return [{k: v for k, v in vars(part).items() if callable(v)}
            for part in parts(engine)]  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_undone_on_every_way_out(ground, name):
    touch = FAULTS[name].make(ground).touch
    if touch is None:
        return  # settings or weights of engines that end with their step
    with ground.site.engine() as engine:
        before = own(engine)
        with touch(engine):
            assert own(engine) != before or name in OUTSIDE_THE_ENGINE
        assert own(engine) == before
        with pytest.raises(RuntimeError, match="on the way"), touch(engine):
            raise RuntimeError("on the way")
        assert own(engine) == before
        assert engine.loaded is ground.site.loaded


def test_a_fault_reaches_no_other_engine(ground):
    with ground.site.engine() as one, ground.site.engine() as other:
        before = own(other)
        with fault_patches.leak_on_cancel(one), fault_patches.swap_rows(one):
            assert own(one) != before
            assert own(other) == before
