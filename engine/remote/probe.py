"""What serves at an address: finds its metrics page, its adapter, and what it says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.remote.adapters import canonical, known, recognise
from engine.remote.adapters.base import Adapter
from engine.remote.adapters.llamacpp import read_slots
from engine.remote.client import Client, NoSuchPage
from engine.remote.errors import Trouble, Unparsable, WrongEngine
from engine.remote.metrics.metrics_page import Page, parse
from engine.remote.metrics.scrape import Scrape
from engine.snapshot import Snapshot

SNAPSHOT = "/snapshot"
VERSIONS = {
    "evewatch": (("/openapi.json", "info", "version"),),
    "llamacpp": (("/props", "build_info"),),
    "sglang": (("/get_server_info", "version"), ("/server_info", "version")),
    "tgi": (("/info", "version"),),
}
"""Where engines say their version, and under which keys; the others as vLLM does."""
HINT = "vLLM and TGI export them always; SGLang and LMDeploy with --enable-metrics, llama.cpp with --metrics"  # noqa: E501


@dataclass
class Card:
    """What a server says of itself once."""

    model: str | None = None
    max_model_len: int | None = None


@dataclass
class Found:
    """One successful scrape."""

    adapter: Adapter
    scrape: Scrape
    own: Snapshot | None = None
    """EveWatch's own Snapshot."""


class Probe:
    """Of one target; remembers where its page is until that fails."""

    def __init__(self, client: Client, expected: str | None, model: str | None = None) -> None:
        self._client = client
        self._expected = expected
        self.model = model
        """The one that is read of a page with several; None: the first."""
        self._path: str | None = None
        self._adapter: Adapter | None = None
        self._slots = True
        self.card: Card | None = None

    def scrape(self) -> Found:
        """Raises Trouble; then everything is looked for again the next time."""
        try:
            return self._scrape()
        except Trouble:
            self._path = self._adapter = self.card = None
            self._slots = True
            raise

    def _scrape(self) -> Found:
        page = self._find_page() if self._path is None else self._page(self._path)
        adapter = recognise(page)
        if adapter is None:
            raise WrongEngine("a metrics page, but of no engine that is known here")
        if self._expected and adapter.name != self._expected:
            raise WrongEngine(f"expected {self._expected}, found {adapter.title}")
        if self.card is None:
            self.card = self._ask(adapter)
        scrape = adapter.scrape(page, self.model)
        scrape.model = scrape.model or self.card.model
        own = self._own() if adapter.name == "evewatch" else None
        if adapter.name == "llamacpp" and self._slots:
            slots = self._client.get_json(self._client.server + "/slots")
            self._slots = slots is not None
            read_slots(slots, scrape)
        return Found(adapter, scrape, own)

    def _page(self, path: str) -> Page:
        return parse(self._client.get(path), canonical, known)

    def _find_page(self) -> Page:
        """At the address given, else where engines have it."""
        trouble: Trouble | None = None
        for path, server in self._client.address.pages():
            try:
                page = self._page(path)
            except NoSuchPage as error:
                trouble = trouble or error
            except Unparsable as error:  # TensorRT-LLM's statistics, a gateway's front page
                trouble = error if trouble is None or isinstance(trouble, NoSuchPage) else trouble
            else:
                self._path, self._client.server = path, server
                return page
        assert trouble is not None
        if isinstance(trouble, NoSuchPage):
            raise WrongEngine(f"{trouble}: it exports no metrics; {HINT}")
        raise trouble

    def ask_version(self, adapter: Adapter) -> str | None:
        """None where it says none."""
        for path, *keys in VERSIONS.get(adapter.name, (("/version", "version"),)):
            found = self._client.get_json(self._client.server + path)
            for key in keys:
                found = _table(found).get(key)
            if text := _text(found):
                return text
        return None

    def _own(self) -> Snapshot | None:
        try:
            return Snapshot.from_json(
                self._client.get(self._client.server + SNAPSHOT, "application/json").decode()
            )
        except (NoSuchPage, ValueError, RecursionError):
            return None  # an older one, or one that gives only metrics: they do as well

    def _ask(self, adapter: Adapter) -> Card:
        """Name and longest context, where the server has an API beside its metrics."""
        if adapter.name == "triton":  # its API is on another port
            return Card()
        server = self._client.server
        card = _read_models(self._client.get_json(server + "/v1/models"))
        if adapter.name == "llamacpp":
            props = _table(self._client.get_json(server + "/props"))
            settings = _table(props.get("default_generation_settings"))
            card.max_model_len = card.max_model_len or _size(settings.get("n_ctx"))
        if adapter.name == "tgi":
            info = _table(self._client.get_json(server + "/info"))
            card.model = card.model or _text(info.get("model_id"))
            card.max_model_len = card.max_model_len or _size(info.get("max_total_tokens"))
        return card


def _read_models(answer: Any) -> Card:
    listed = _table(answer).get("data")
    first = _table(listed[0]) if isinstance(listed, list) and listed else {}
    return Card(_text(first.get("id")), _size(first.get("max_model_len")))


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _size(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < 1 << 53 else None
