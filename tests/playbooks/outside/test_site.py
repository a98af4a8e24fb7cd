"""What a check knows of its target: what makes runs comparable, and whose process it is."""

from dataclasses import replace
from itertools import pairwise

from engine.remote.adapters.evewatch import EVEWATCH
from engine.snapshot import Snapshot
from playbooks.faults.proxy import FaultyProxy
from playbooks.outside import watch
from playbooks.outside.site import UrlSite
from playbooks.outside.watch import Watch
from served import MODEL, serving


def test_runs_are_of_the_version_model_and_format_that_the_target_tells():
    with serving() as served:
        site = UrlSite(served.url)
        with site.watched():
            told = site.watch.look()
        version = served.get("/openapi.json").json()["info"]["version"]
        assert site.watch.newest.source.engine == EVEWATCH.name
        assert site.kind == {
            "url": served.url, "version": version, "model": MODEL,
            "kv_format": told.kv.format, "device": None,
        }  # fmt: skip
        with FaultyProxy(served.url) as proxy:  # as any vLLM, which would say /version
            other = site.beside(proxy.url)
            with other.watched():
                other.watch.look()
            assert (other.watch.version, other.kind["url"]) == (None, proxy.url)
            assert other.journal is site.journal
    nobody = UrlSite("http://127.0.0.1:9").kind
    assert (nobody["version"], nobody["model"], nobody["kv_format"]) == (None, None, None)


def test_a_server_of_this_very_process_is_no_process_to_look_at():
    with serving() as served:
        assert UrlSite(served.url).process is None


def test_a_long_watch_keeps_few_looks_evenly_spread(monkeypatch):
    monkeypatch.setattr(watch, "MOST_LOOKS", 8)
    seen = Watch("http://127.0.0.1:9")
    with seen.kept() as whole:
        for at in range(50):
            seen.take(replace(Snapshot(), time=float(at)))
        with seen.kept() as part:
            seen.take(replace(Snapshot(), time=50.0))
    seen.take(replace(Snapshot(), time=51.0))
    times = [look.time for look in whole]
    assert times[0] == 0 and times[-1] > 40 and len(times) <= 8
    assert len({b - a for a, b in pairwise(times)}) == 1
    assert [look.time for look in part] == [50.0] and seen.newest.time == 51.0
