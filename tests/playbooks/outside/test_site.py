"""What a check knows of its target: what makes runs comparable, and whose process it is."""

from engine.remote.adapters.evewatch import EVEWATCH
from playbooks.faults.proxy import FaultyProxy
from playbooks.outside.site import UrlSite
from served import MODEL, serving


def test_runs_are_of_the_version_model_and_format_that_the_target_tells():
    with serving() as served:
        site = UrlSite(served.url)
        with site.watched():
            told = site.watch.look()
        version = served.get("/openapi.json").json()["info"]["version"]
        assert site.watch.series[0].source.engine == EVEWATCH.name
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
