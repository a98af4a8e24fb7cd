"""An OpenAI-compatible endpoint as the target of a load: streaming completions by URL.

Whatever a server does (drops, stalls, errors, nonsense) ends as a counted failure of that one
request. Time limits are the client's: see playbooks/load/client.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import numpy as np

from engine.errors import ConfigError
from engine.remote.address import CHAT, COMPLETIONS, Address, SameHost, bearer, parse, shown
from engine.remote.answer import BadStream, EventReader
from engine.remote.client import unread_coding
from engine.remote.errors import COMPLAINT_BYTES, one_line, said
from playbooks.load.limits import CLIENT_LIMIT, limit_named, raise_open_files
from playbooks.load.prompts import PromptMaker, TextPrompts, TokenPrompts
from playbooks.load.record import RequestRecord
from playbooks.load.streamed_answer import StreamedAnswer
from playbooks.load.targets import Failed, Outgoing, TargetUnreachable
from playbooks.load.whole_answer import whole_answer

PLAIN_IDS = (1_000, 30_000)
"""Token ids that are plain text in nearly every vocabulary."""
NO_STREAM = ("application/json", "application/problem+json", "text/html")
"""Content types of answers that are whole."""
IDLE_CONNECTION_S = 2.0
"""Kept so long between requests: shorter than servers do, so that none closes under a request."""
ASK_MODEL_S = 20.0
MARK = "evewatch"
"""Whose the traffic is, in the field that the API has for it."""
PATHS = {"completions": COMPLETIONS, "chat": CHAT}


@dataclass(frozen=True)
class EndpointSpec:
    """Where and how to ask. Raises ConfigError for what cannot work."""

    url: str
    """The server (http://host:8000), its /v1, or one of the two completion paths."""
    api: str = "completions"
    """completions or chat."""
    model: str | None = None
    """None: the first that the server lists."""
    token_ids: bool = False
    """Send ids instead of text: exact lengths, where the server's completions take them."""
    key: str | None = field(default=None, repr=False)
    """Bearer token."""
    limit: int | None = None
    """Longest prompt and output together that the server takes."""

    def __post_init__(self) -> None:
        assert self.address  # raises for what is none
        if self.api not in PATHS:
            raise ConfigError(f"api: expected completions or chat, got {self.api!r}")
        bearer(self.key)
        if self.limit is not None and self.limit < 2:
            raise ConfigError(f"max_context: expected at least 2 tokens, got {self.limit}")
        if self.token_ids and self.chat:
            raise ConfigError("prompts as token ids need the completions API, not chat")

    @property
    def address(self) -> Address:
        try:
            return parse(self.url, embedded=True)
        except ConfigError as error:
            raise ConfigError(f"target {error}") from error

    @property
    def call(self) -> str:
        """Of the API; an address that names one wins."""
        return self.address.named or PATHS[self.api]

    @property
    def chat(self) -> bool:
        return self.call == CHAT

    def prompt(self, prompt: str | list[int]) -> dict[str, Any]:
        """The field of the API that has it."""
        return {"messages": [{"role": "user", "content": prompt}]} if self.chat else {
            "prompt": prompt}  # fmt: skip

    @property
    def base(self) -> str:
        """The address before /v1."""
        return self.address.origin + self.address.server

    @property
    def path(self) -> str:
        """Of the API on the host, with the address's query."""
        return self.address.api(self.call)

    def hide(self, text: str) -> str:
        """Foreign text without the secrets that this target was told."""
        return self.address.hide(text, self.key)

    @property
    def shown(self) -> str:
        """Where requests go, without a secret."""
        return shown(self.address.origin + self.path)


class Endpoint:
    """May be entered again while somebody is inside. `transport` replaces the network in tests."""

    def __init__(
        self, spec: EndpointSpec, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.spec = spec
        self.model = spec.model
        self._transport = transport
        self._client: httpx.AsyncClient | None = None
        self._inside = 0

    @property
    def limit(self) -> int | None:
        return self.spec.limit

    def describe(self) -> dict[str, Any]:
        spec = self.spec
        prompts = "ids" if spec.token_ids else "text"
        return {"kind": "endpoint", "url": spec.shown, "model": self.model, "prompts": prompts}

    def prompts(self, seed: int, shared: int) -> PromptMaker:
        if self.spec.token_ids:
            return TokenPrompts(np.arange(*PLAIN_IDS), seed, shared)
        return TextPrompts(seed, shared)

    async def __aenter__(self) -> Self:
        """Raises TargetUnreachable when nobody answers, ConfigError when no model is found."""
        if self._inside == 0:
            await self._connect()
        self._inside += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._inside -= 1
        if self._inside == 0 and self._client is not None:
            await self._client.aclose()

    async def _connect(self) -> None:
        raise_open_files()
        headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # a compressor would hold tokens back
            "Content-Type": "application/json",
        } | bearer(self.spec.key)
        self._client = httpx.AsyncClient(
            base_url=self.spec.address.origin,
            headers=headers,
            auth=SameHost(),
            timeout=None,
            trust_env=False,  # a proxy of the environment would be measured as well
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=None,
                keepalive_expiry=IDLE_CONNECTION_S,
            ),
            transport=self._transport,
        )
        if self.model is None:
            try:
                self.model = await self._first_model()
            except BaseException:
                await self._client.aclose()
                raise

    async def _first_model(self) -> str:
        assert self._client is not None
        models = self.spec.address.api("/v1/models")
        where = shown(self.spec.address.origin + models)
        try:
            answer = await self._client.get(models, timeout=ASK_MODEL_S)
        except httpx.HTTPError as error:
            raise TargetUnreachable(f"target {self.spec.base}: {_reason(error)}") from error
        try:
            name = answer.raise_for_status().json()["data"][0]["id"]
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            why = self.spec.hide(said(answer.content)) if answer.is_error else ""
            raise ConfigError(
                f"{where}: answers {answer.status_code}{f' ({why})' if why else ''} and names no "
                "model; say it with --model"
            ) from error
        return str(name)

    def body(self, request: Outgoing) -> bytes:
        """What is sent: the same bytes for the same request."""
        asked = {
            "model": self.model,
            **self.spec.prompt(request.prompt),
            "max_tokens": request.output,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "user": MARK,
        }
        if request.ignore_eos:
            asked["ignore_eos"] = True
        return json.dumps(asked).encode()

    def prepare(self, request: Outgoing) -> httpx.Request:
        assert self._client is not None
        return self._client.build_request("POST", self.spec.path, content=self.body(request))

    async def send(self, prepared: httpx.Request, record: RequestRecord) -> None:
        assert self._client is not None
        answer, reader = StreamedAnswer(record, self.spec.chat), EventReader()
        with self._failures(done=lambda: answer.done):
            response = await self._client.send(prepared, stream=True)
            try:
                await _refuse_errors(response)
                async for chunk in response.aiter_bytes():
                    for data in reader.feed(chunk):
                        answer.take(data)
                for data in reader.end():
                    answer.take(data)
            finally:
                await response.aclose()
        answer.finish()

    async def whole(self, asked: Mapping[str, Any], record: RequestRecord) -> dict[str, Any]:
        """The first choice of an answer that comes in one piece, as the API has it. `asked` has a
        prompt or messages, and whatever else. Raises Failed."""
        assert self._client is not None
        path = self.spec.address.api(CHAT if "messages" in asked else COMPLETIONS)
        body = {"model": self.model, "temperature": 0, "user": MARK, **asked}
        with self._failures():
            response = await self._client.post(path, json=body, headers={"Accept": "*/*"})
            if response.status_code != 200:
                raise _refused(response, response.content)
            return whole_answer(response.text, record)

    @contextmanager
    def _failures(self, done: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Whatever goes wrong on the way, as Failed; what does after it is `done` is no matter."""
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _failed("connect", error) from error
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            if not done():
                raise _failed("dropped", error) from error
        except BadStream as error:
            raise Failed("bad_stream", self.spec.hide(str(error))) from error
        except Failed as failure:
            raise Failed(failure.kind, self.spec.hide(failure.detail)) from None


async def _refuse_errors(response: httpx.Response) -> None:
    """Whatever a proxy calls it, what is no JSON and no HTML is read as a stream: it shows."""
    kind = response.headers.get("content-type", "").lower()
    if response.status_code == 200 and not kind.startswith(NO_STREAM):
        if coding := unread_coding(response):
            raise Failed("not_streamed", f"a stream that is encoded ({coding}) unasked")
        return
    text = b""
    async for chunk in response.aiter_bytes():
        text += chunk
        if len(text) >= COMPLAINT_BYTES:
            break
    if response.status_code != 200:
        raise _refused(response, text)
    raise Failed("not_streamed", f"answered with {kind or 'no content type'}: "
                 f"{said(text) or 'no text'}")  # fmt: skip


def _refused(response: httpx.Response, text: bytes) -> Failed:
    detail = said(text) or "no text"
    if 300 <= response.status_code < 400:
        detail = f"it redirects to {shown(response.headers.get('location', 'nowhere'))}"
    return Failed(f"http_{response.status_code}", detail)


def _failed(kind: str, error: Exception) -> Failed:
    """As the target's failure, unless it comes from a limit of this machine."""
    limit = limit_named(error)
    return Failed(CLIENT_LIMIT, limit) if limit else Failed(kind, _reason(error))


def _reason(error: Exception) -> str:
    return one_line(str(error)) or type(error).__name__
