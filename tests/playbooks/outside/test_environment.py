"""What a target says of itself, as the environment step of a check reads it."""

from functools import partial

import httpx
import pytest

from playbooks.outside import environment
from playbooks.outside.site import UrlSite

MODELS = {"data": [{"id": "m", "max_model_len": 4096}]}


@pytest.mark.parametrize("there", ["/v1/models/", "http://h/v1/models/"])
def test_a_redirect_on_the_host_is_followed_as_by_all_other_requests(monkeypatch, there):
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer secret"
        if request.url.path.endswith("/"):
            return httpx.Response(200, json=MODELS)
        return httpx.Response(307, headers={"location": there})

    made = partial(httpx.Client, transport=httpx.MockTransport(answer))
    monkeypatch.setattr(environment.httpx, "Client", made)
    with environment._client(UrlSite("http://h", key="secret")) as http:
        assert environment._get(http, "/v1/models").found == MODELS


def test_another_host_never_sees_the_token(monkeypatch):
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.host == "h"
        return httpx.Response(307, headers={"location": "http://elsewhere/v1/models"})

    made = partial(httpx.Client, transport=httpx.MockTransport(answer))
    monkeypatch.setattr(environment.httpx, "Client", made)
    with environment._client(UrlSite("http://h", key="secret")) as http:
        page = environment._get(http, "/v1/models")
    assert (page.found, page.ahead_s) == (None, None)
    assert page.why.startswith("answers 307")


def test_a_target_that_names_no_model_says_why(monkeypatch):
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(401, json={"error": {"message": "bad token secret"}})

    made = partial(httpx.Client, transport=httpx.MockTransport(answer))
    monkeypatch.setattr(environment.httpx, "Client", made)
    site = UrlSite("http://h", key="secret")
    with environment._client(site) as http:
        check = environment._models(environment._get(http, "/v1/models"), site)
    assert check.evidence == "/v1/models answers 401 (bad token …)"


@pytest.mark.parametrize(
    ("off", "said", "verdict"),
    [
        (-1.2, "agrees", "pass"),
        (0.4, "agrees", "pass"),
        (3.0, "+3.0 s", "pass"),
        (-7, "-7.0 s", "warn"),
    ],
)
def test_a_clock_that_a_date_cannot_tell_apart_agrees(off, said, verdict):
    check = environment._clock(off)
    assert (check.value, check.verdict) == (said, verdict)
