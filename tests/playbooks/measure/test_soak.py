"""Soak: nothing is left of a healthy engine, and every kind of leak is named by its class."""

import json
from collections import Counter

import pytest

from checklists.tomlfile import checked
from checkups import tiny_config, tiny_folder
from engine.errors import ConfigError
from engine.execution.load import load_model
from engine.observing.host import silent
from playbooks.checkup.site import Site
from playbooks.faults import fault_patches
from playbooks.measure.leak_detector import Look, allocator, containers, growth, objects
from playbooks.measure.soak import grown_of, run_soak
from playbooks.steps.models import SoakStep
from report_schemas import violations

SPEC = SoakStep(requests=54, waves=6)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    config = tiny_config(tiny_folder(tmp_path_factory.mktemp("model")))
    return Site(config, load_model(config))


def soaked(site, touch=None, spec=SPEC):
    with site.engine() as engine:
        if touch is None:
            return run_soak(engine, spec)
        with touch(engine):
            return run_soak(engine, spec)


def test_a_healthy_engine_keeps_nothing(site):
    seen = []
    with site.engine() as engine:
        report = run_soak(engine, SPEC, lambda done, total: seen.append((done, total)))
        assert engine.ledger().is_zero
        assert engine.pool.used == 0
    assert report["verdict"] == "pass", report["grew"]
    assert report["grew"] == []
    assert report["served"] >= SPEC.requests
    assert [storm["name"] for storm in report["storms"]] == [
        "cancel storm", "timeout storm", "oversized prompts", "shared-prefix exhaustion",
    ]  # fmt: skip
    assert all(storm["clean"] for storm in report["storms"])
    ends = {storm["name"]: storm["ended"] for storm in report["storms"]}
    assert ends["oversized prompts"] == {"rejected": report["storms"][2]["sent"]}
    assert ends["timeout storm"].get("timeout", 0) > 0
    assert ends["cancel storm"].get("cancelled", 0) > 0
    assert seen[-1][0] <= seen[-1][1]
    read = json.loads(json.dumps(report, allow_nan=False))
    assert violations(read, "soak") == []
    assert report["slopes"]["idle_pages"]["per_request"] == 0
    assert report["slopes"]["container_entries"]["per_request"] == 0


def test_pages_that_are_lost_are_counted_per_request(site):
    report = soaked(site, fault_patches.leak_on_cancel)
    assert report["verdict"] == "fail"
    pages = next(row for row in report["grew"] if row["what"] == "pages")
    assert 0.05 < pages["per_request"] <= 1 / 3 + 0.01
    assert report["storms"][0]["left"]["pages"] > 0
    assert report["storms"][0]["pool"]
    assert report["looks"][-1]["pages"] > report["looks"][0]["pages"] > 0
    assert any("pool after" in str(one) for one in grown_of(report))


def test_what_is_kept_is_named_by_container_and_class(site):
    report = soaked(site, fault_patches.keep_ended_requests, SoakStep(54, 6, storms=False))
    grew = {row["what"]: row for row in report["grew"]}
    kept = next(row for what, row in grew.items() if what.endswith("kept_requests"))
    assert kept["kind"] == "container"
    assert kept["per_request"] == pytest.approx(1.0)
    assert grew["engine.request.Request"]["kind"] == "object"
    assert grew["engine.request.Request"]["per_request"] == pytest.approx(1.0, abs=0.2)


def test_a_long_soak_keeps_three_snapshots_of_objects(site):
    report = soaked(site, spec=SoakStep(32, 4, duration_s=0.3, storms=False))
    assert len(report["looks"]) >= 4
    assert report["verdict"] == "pass", report["grew"]


def test_a_soak_by_time_is_not_at_its_end_before_its_time(site):
    """Whoever is told may cut it at any moment, however much has been served."""
    seen = []
    with site.engine() as engine:
        spec = SoakStep(8, 4, duration_s=0.3, storms=False)
        run_soak(engine, spec, lambda done, total: seen.append((done, total)))
    assert all(done < total for done, total in seen[:-1])
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize(
    "bad", [{"waves": 3}, {"requests": 8, "waves": 9}, {"requests": 4}, {"duration_s": 0.0}]
)
def test_specs_that_prove_nothing_are_refused(bad):
    with pytest.raises(ConfigError):
        checked(SoakStep, bad)


def test_containers_are_found_by_their_paths(site):
    with site.engine() as engine:
        found = containers(engine)
        engine.telemetry.extra = {i: i for i in range(7)}  # type: ignore[attr-defined]
        after = containers(engine)
    assert found["engine._open"] == 0
    assert any(".scheduler.running" in path for path in found)
    new = {path: n for path, n in after.items() if path not in found}
    assert [n for path, n in new.items() if path.endswith("telemetry.extra")] == [7]


# --- slopes -------------------------------------------------------------------------------------


def looks(**columns):
    """Made up: a column is a number a look, the rest stays level."""
    count = len(next(iter(columns.values())))
    level = {"rss": 10**9, "allocated": 10**8, "reserved": 10**9, "pages": 0}
    made = []
    for i in range(count):
        row = {name: columns.get(name, [value] * count)[i] for name, value in level.items()}
        entries = {name: v[i] for name, v in columns.items() if name not in level}
        made.append(Look(100 * (i + 1), **row, ledger={"pages": row["pages"]},
                         containers=entries))  # fmt: skip
    return made


def kinds(found):
    return {(one.what, one.kind) for one in found}


def test_what_rises_and_what_only_wobbles():
    steady = looks(cache=[50, 51, 50, 52, 50, 51], rss=[10**9 + (i % 2) * 2**22 for i in range(6)])
    assert growth(steady, []) == []
    rising = looks(kept=[100 * i for i in range(6)])
    assert kinds(growth(rising, [])) == {("kept", "container")}
    assert growth(rising, [])[0].per_request == pytest.approx(1.0)
    once = looks(kept=[0, 0, 0, 0, 0, 90])
    assert growth(once, []) == []


def test_memory_needs_a_slope_and_a_size():
    heavy = looks(rss=[10**9 + i * 2**22 for i in range(8)])
    assert kinds(growth(heavy, [])) == {("resident set", "memory")}
    light = looks(rss=[10**9 + i * 2**10 for i in range(8)])
    assert growth(light, []) == []
    unknown = looks(allocated=[None] * 6)
    assert growth(unknown, []) == []


def test_pages_at_idle_are_held_even_when_they_do_not_grow():
    found = growth(looks(pages=[3] * 6), [])
    assert kinds(found) == {("pages", "ledger")}
    assert found[0].per_request == pytest.approx(3 / 600)


def test_too_few_looks_say_nothing():
    assert growth(looks(kept=[0, 100]), []) == []


def test_objects_count_as_grown_when_each_look_has_more():
    def classes(*counts):
        return [(100 * i, Counter({"engine.request.Request": n})) for i, n in enumerate(counts)]

    level = looks(kept=[1] * 6)
    assert kinds(growth(level, classes(10, 60, 110))) == {("engine.request.Request", "object")}
    assert growth(level, classes(10, 110, 10)) == []
    assert growth(level, classes(10, 110)) == []
    assert growth(level, classes(10, 11, 12)) == []


def test_what_a_witness_keeps_of_the_machine_is_not_the_engines():
    """More processes on the machine are more rows of them, and no leak."""
    rows = [silent() for _ in range(9)]
    assert not {name for name in objects() if type(rows[0]).__name__ in name}


def test_objects_and_the_allocator_can_be_read():
    assert all(name.startswith(("engine.", "kernels.")) for name in objects())
    used, taken = allocator()
    assert used is None or 0 < used <= taken
