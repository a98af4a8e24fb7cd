"""A page is found where it is: addresses keep path and query, redirects of the same host and the
slash are followed with the token, another host never sees it, and no secret is shown.
"""

import httpx
import pytest

from engine.errors import ConfigError
from engine.remote import address
from engine.snapshot import SourceState
from remote_stub import Server, page

TOKEN = "sk-very-secret"
LIVE = SourceState.LIVE


def moved(to, code=307):
    return httpx.Response(code, headers={"location": to})


@pytest.mark.parametrize(
    ("pages", "url"),
    [
        ({"/metrics": moved("/metrics/")}, "http://h:8000"),
        ({"/metrics": moved("http://h:8000/metrics/", 308)}, "http://h:8000"),
        ({"/metrics": moved("metrics/", 301)}, "http://h:8000/metrics"),
        ({"/metrics": moved("//H:8000/metrics/?x=1", 302)}, "http://h:8000/v1"),
        ({"/metrics": moved("/a"), "/a": moved("/b"), "/b": moved("/metrics/")}, "http://h:8000"),
        ({}, "http://h:8000"),
        ({}, "http://h:8000/metrics"),
        ({}, "http://h:8000/metrics/"),
    ],
)
def test_redirects_of_the_same_host_and_the_slash_are_followed_with_the_token(pages, url):
    server = Server(**pages, **{"/metrics/": page("vllm/busy")})
    assert server.attach(url, token=TOKEN).poll().source.state is LIVE
    assert all(r.headers["authorization"] == f"Bearer {TOKEN}" for r in server.asked)


def test_behind_a_proxy_that_ends_tls_a_redirect_to_http_stays_on_https():
    server = Server(moved("http://h/metrics/"), **{"/metrics/": page("vllm/busy")})
    assert server.attach("https://h").poll().source.state is LIVE
    assert {request.url.scheme for request in server.asked} == {"https"}


@pytest.mark.parametrize(
    "to",
    ["http://evil.test/metrics", "http://h:8001/metrics/", "https://h:8000/metrics", "//evil/",
     "http://h.evil.test:8000/metrics/", "http://h@evil.test:8000/"],
)  # fmt: skip
def test_another_host_is_named_and_never_sees_the_token(to):
    server = Server(moved(to), **{"/metrics/": page("vllm/busy")})
    source = server.attach("http://h:8000", token=TOKEN).poll().source
    assert source.state is SourceState.UNREACHABLE and "redirects" in source.reason
    assert {str(r.url) for r in server.asked} == {"http://h:8000/metrics"}
    assert TOKEN not in source.reason


@pytest.mark.parametrize("to", ["/metrics", "/login", ""])
def test_a_redirect_that_leads_nowhere_says_so(to):
    source = Server(moved(to)).attach().poll().source
    assert source.state is SourceState.UNREACHABLE and "redirects" in source.reason


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://h/engine_metrics", "/engine_metrics"),
        ("http://h/engine_metrics/", "/engine_metrics/"),
        ("http://h/a/b/stats?format=prometheus", "/a/b/stats?format=prometheus"),
        ("http://h/metrics?module=vllm&x=%2Fy", "/metrics?module=vllm&x=%2Fy"),
        ("http://h/gateway/v1", "/gateway/metrics"),
        ("http://h/gateway/v1/chat/completions?version=2", "/gateway/metrics?version=2"),
        ("http://h/a%20b/metrics", "/a%20b/metrics"),
    ],
)
def test_an_address_keeps_its_path_and_query(url, asked):
    seen = []

    def only(request):
        seen.append(request.url.raw_path.decode())
        found = seen[-1] == asked
        return httpx.Response(200 if found else 404, content=page("vllm/busy") if found else b"")

    from engine.remote import attach

    assert attach(url, transport=httpx.MockTransport(only)).poll().source.state is LIVE
    assert seen[0] == asked


def test_a_path_that_is_no_page_is_a_gateways():
    server = Server(
        **{
            "/gw": httpx.Response(200, content=b"<html>welcome</html>\n"),
            "/gw/metrics": page("vllm/busy"),
            "/gw/v1/models": b'{"data": [{"id": "through-the-gateway"}]}',
        }
    )
    engine = server.attach("http://h/gw")
    assert engine.poll().source.state is LIVE
    assert engine.model == "through-the-gateway"


def test_the_api_of_a_page_with_a_name_of_its_own_is_beside_it():
    server = Server(
        **{
            "/engine_metrics": page("vllm/busy"),
            "/v1/models": b'{"data": [{"id": "beside"}]}',
        }
    )
    engine = server.attach("http://h/engine_metrics")
    engine.poll()
    assert engine.model == "beside"


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        (401, b'{"error": {"message": "key expired yesterday"}}', "key expired yesterday"),
        (403, b'{"detail": "metrics are for admins"}', "metrics are for admins"),
        (503, b'{"error": "the model is loading"}', "the model is loading"),
        (500, b"plain \x1b[31mwords\nof woe", "plain [31mwords of woe"),
        (429, b'{"message": "slow down", "code": 7}', "slow down"),
        (502, b"<html><h1>Bad gateway</h1>", "answered 502 Bad Gateway: Bad gateway"),
        (
            503,
            b"<!DOCTYPE html><html><head><title>x</title><style>p {}</style></head><body>"
            b"<!-- no --><p>pool a &amp; b are\ndraining</p></body>",
            "pool a & b are draining",
        ),
        (403, b"<?xml version='1.0'?><Error><Message>URL expired</Message></Error>", "URL expired"),
        (503, b'[{"msg": "loading"}]', ": loading"),
        (422, b'{"detail": [{"loc": ["q"], "msg": "field required"}]}', ": field required"),
        (503, b'{"errors": [{"code": 1, "message": "quota"}]}', ": quota"),
        (503, b'{"status": "error", "reason": "draining"}', ": draining"),
        (500, b'{"error": true, "message": "no GPU"}', ": no GPU"),
        (401, b"\xef\xbb\xbf" + b'{"message": "who are you"}', ": who are you"),
        (401, f"no user has the key {TOKEN}".encode(), "no user has the key …"),
    ],
)
def test_the_servers_own_reason_for_a_refusal_is_shown(code, body, said):
    answer = httpx.Response(code, content=body)
    source = Server(answer).attach(token=TOKEN).poll().source
    assert source.state is SourceState.UNREACHABLE
    assert said in source.reason and str(code) in source.reason
    assert source.reason.isprintable() and TOKEN not in source.reason


# --- secrets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [f"http://me:{TOKEN}@h", f"http://{TOKEN}@h", f"http://me:a/{TOKEN}@h", f"ftp://a:{TOKEN}@h",
     f"http://me:{TOKEN}@h:99999", f"http://h:x/?api_key={TOKEN}"],
)  # fmt: skip
def test_a_password_is_refused_and_not_shown(url):
    with pytest.raises(ConfigError) as caught:
        address.parse(url)
    assert TOKEN not in str(caught.value)


def test_a_key_in_the_query_goes_on_over_a_redirect_and_is_hidden_in_a_servers_words():
    def guarded(request):
        asked = request.url.query.decode()
        return httpx.Response(200, content=page("vllm/busy")) if TOKEN in asked else refused(asked)

    def refused(asked):
        return httpx.Response(403, content=f"not with {asked}".encode())

    server = Server(moved("/metrics/", 301), **{"/metrics/": guarded})
    assert server.attach(f"http://h?api_key={TOKEN}").poll().source.state is LIVE
    server.pages["/metrics/"] = lambda request: refused(request.url.query.decode())
    source = server.attach(f"http://h?api_key={TOKEN}").poll().source
    assert source.reason.endswith("not with api_key=…")


def test_a_key_in_the_query_is_sent_and_never_shown():
    server = Server(page("vllm/busy"))
    engine = server.attach(f"http://h/metrics?a=1&api_key={TOKEN}&b=2")
    snapshot = engine.poll()
    assert server.asked[0].url.query == f"a=1&api_key={TOKEN}&b=2".encode()
    assert engine.url == "http://h/metrics?a=1&api_key=…&b=2"
    assert TOKEN not in snapshot.to_json() + engine.name


@pytest.mark.parametrize(
    ("value", "why"), [(None, "is not set"), ("", "is empty"), (" \n", "is empty"), ("ä", "header")]
)
def test_a_token_variable_without_a_token_is_named(value, why):
    environment = {} if value is None else {"KEY": value}
    with pytest.raises(ConfigError, match=rf"--token-env: .*KEY.*{why}"):
        address.read_token("KEY", environment)


def test_a_token_is_read_without_the_line_end_of_its_file():
    assert address.read_token("KEY", {"KEY": "abc\n"}) == "abc"
    assert address.read_token(None, {}) is None
