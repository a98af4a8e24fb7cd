"""What a target says of itself: engine and version, model, KV cache, metrics, clock, replicas."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from engine.remote.address import SameHost, bearer
from engine.remote.errors import one_line, said
from engine.snapshot import KvState, Snapshot
from playbooks.environment.check import FAIL, PASS, SKIP, WARN, Check
from playbooks.outside.site import UrlSite
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.steps import models

TIMEOUT_S = 5.0
CLOCK_S = 5.0
"""Difference above which times in two logs do not fit together."""
DATE_S = 1.5
"""What a Date header leaves open: it has whole seconds, and some servers renew it once a second."""
WORDS = {
    "model": "Model", "engine": "Engine", "metrics": "Metrics", "kv_cache": "KV cache",
    "clock": "Clock",
}  # fmt: skip
"""For people: a fact's id is what is typed."""
NEEDS_PROCESS = frozenset({"broken_versions"})


def run_environment(site: UrlSite, params: models.EnvironmentStep, clock: StepClock) -> StepOutcome:
    with site.watched():
        seen = site.watch.look()
    with _client(site) as http:
        names = _get(http, site.spec.address.api("/v1/models"))
        version = _get(http, site.spec.address.server + "/version")
    facts = [
        _models(names, site),
        _version(version.found, site, seen),
        _metrics(seen),
        _kv(seen),
        _clock(names.ahead_s),
    ]
    failed = sum(fact.verdict == FAIL for fact in facts)
    warned = sum(fact.verdict == WARN for fact in facts)
    metrics = {"failures": failed, "warnings": warned, **site.facts()}
    note = "; ".join(f"{WORDS[fact.id]}: {fact.value}" for fact in facts if fact.value)
    return StepOutcome(
        metrics, note, {"checks": [asdict(f) for f in facts]}, not_told=NEEDS_PROCESS
    )


def _client(site: UrlSite) -> httpx.Client:
    return httpx.Client(
        base_url=site.spec.address.origin,
        headers=bearer(site.key),
        auth=SameHost(),
        timeout=TIMEOUT_S,
        trust_env=False,
    )


@dataclass(frozen=True)
class Page:
    """What is at a path."""

    found: Any = None
    """JSON; None: there is none."""
    ahead_s: float | None = None
    """So far is its clock ahead of this one."""
    why: str = "is no JSON"
    """There is none."""


def _get(http: httpx.Client, path: str) -> Page:
    begun = time.time()
    try:
        answer = http.get(path)
    except httpx.HTTPError as error:
        return Page(why=one_line(str(error)) or type(error).__name__)
    found, why = None, f"answers {answer.status_code} ({said(answer.content) or 'no text'})"
    if answer.status_code == 200:
        try:
            found = answer.json()
        except ValueError:
            why = Page.why
    try:
        there = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return Page(found, None, why)
    return Page(found, there + 0.5 - (begun + time.time()) / 2, why)


def _models(page: Page, site: UrlSite) -> Check:
    if page.found is None:
        return Check("model", FAIL, "none", f"/v1/models {site.spec.hide(page.why)}")
    try:
        names = [str(row["id"]) for row in page.found["data"]]
        length = page.found["data"][0].get("max_model_len")
    except (LookupError, TypeError, AttributeError):
        return Check("model", FAIL, "none", "/v1/models names no model")
    room = "" if length is None else f", {length} tokens"
    return Check("model", PASS if names else FAIL, ", ".join(names) + room, "/v1/models")


def _version(page: Any, site: UrlSite, seen: Snapshot) -> Check:
    told = site.watch.version or (page.get("version") if isinstance(page, dict) else None)
    engine = seen.source.engine
    text = f"{engine} {told}" if told else engine
    return Check("engine", PASS if told else SKIP, text, "its API" if told else "tells no version")


def _metrics(seen: Snapshot) -> Check:
    if seen.source.state == "live":
        return Check("metrics", PASS, "on", "a metrics page that is understood")
    return Check("metrics", WARN, "none", seen.source.reason or "no metrics page")


def _kv(seen: Snapshot) -> Check:
    told = [_pages(seen.kv), seen.kv.format or ""]
    text = ", ".join(filter(None, told))
    return Check(
        "kv_cache", PASS if text else SKIP, text, "the metrics page" if text else "not told"
    )


def _pages(kv: KvState) -> str:
    if kv.page_tokens is None:
        return f"{kv.total} pages" if kv.total else ""
    if not kv.total:
        return f"pages of {kv.page_tokens:d} tokens"
    return f"{kv.total} pages of {kv.page_tokens:d} tokens"


def _clock(off_s: float | None) -> Check:
    if off_s is None:
        return Check("clock", SKIP, "", "answers have no Date")
    if abs(off_s) <= DATE_S:
        return Check("clock", PASS, "agrees", "as far as whole seconds tell")
    late = abs(off_s) > CLOCK_S
    evidence = f"its clock is {off_s:+.0f} s from this machine's (limit {CLOCK_S:.0f} s)"
    return Check("clock", WARN if late else PASS, f"{off_s:+.1f} s", evidence)
