"""How much is under way, and what the engine can take. Lives on the event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from console.server.errors import ApiError, bad_request, busy, unavailable
from console.server.open_request import OpenRequest
from console.server.settings import ServerSettings
from console.server.token_notifier import TokenNotifier
from engine.core import Engine
from engine.errors import EngineError

RETRY_MOST_S = 60


class Admission:
    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self.engine, self.settings = engine, settings
        self.closing = False
        """The server drains."""
        self.choices = 0
        """Under way, all requests together."""
        self._requests: set[OpenRequest] = set()
        self._notifier: TokenNotifier | None = None

    @property
    def model(self) -> str:
        """The model's name to clients."""
        return self.settings.served_name or self.engine.loaded.spec.name

    def check_model(self, name: str | None) -> None:
        if self.closing:
            raise unavailable("the server is shutting down")
        try:
            model = self.model
        except EngineError as error:
            raise self.closed(error) from None
        if name is not None and name != model:
            raise ApiError(
                404, f"there is no model of that name here; it is {model!r}", "model",
                "model_not_found",
            )  # fmt: skip

    def closed(self, error: EngineError) -> ApiError:
        return unavailable(self.engine.alarm() or str(error))

    @property
    def limit(self) -> int:
        """Prompt and output together, in tokens."""
        pool = self.engine.pool
        return min(self.engine.scheduler.max_model_len, pool.total * pool.page_tokens)

    def room(self, prompt_tokens: int) -> int:
        """Output tokens that fit behind a prompt."""
        return max(self.limit - prompt_tokens, 1)

    def check_prompt(self, ids: Sequence[int]) -> None:
        if not ids:
            raise bad_request("the prompt has no tokens; send at least one", "prompt")
        most = min(self.limit - 1, self.settings.max_prompt_tokens or self.limit)
        if len(ids) > most:
            raise bad_request(
                f"the prompt has {len(ids)} tokens, at most {most} are possible; shorten it",
                "prompt",
                "context_length_exceeded",
            )
        vocab = self.engine.loaded.spec.vocab
        if max(ids) >= vocab:
            raise bad_request(f"the prompt has a token beyond the vocabulary's {vocab}", "prompt")

    @contextmanager
    def admit(self, choices: int) -> Iterator[OpenRequest]:
        """Room for a request of so many choices, or ApiError; given back at the end."""
        if choices > self.settings.max_choices:
            most = self.settings.max_choices
            raise bad_request(f"prompts times n is {choices}, at most {most} are possible", "n")
        places = self.engine.config.max_batch + self.settings.max_queue
        over = self.choices + choices - places
        if over > 0:
            raise busy(
                f"{self.choices} answers are under way, at most {places} are possible; try later",
                self._seconds_until(over),
            )
        request = OpenRequest(self.engine, self._notifier_here())
        self.choices += choices
        self._requests.add(request)
        try:
            yield request
        finally:
            self._requests.discard(request)
            self.choices -= choices

    def _seconds_until(self, ended: int) -> int:
        """About when so many more will have ended, by the recent pace."""
        pace = self.engine.snapshot().queue.finished_per_s
        return max(1, min(RETRY_MOST_S, math.ceil(ended / pace))) if pace else 5

    def _notifier_here(self) -> TokenNotifier:
        loop = asyncio.get_running_loop()
        if self._notifier is None or self._notifier.loop is not loop:
            self._notifier = TokenNotifier(loop)
        return self._notifier

    def leave_all(self, reason: str) -> None:
        """Give up everything under way; each client is told the reason."""
        for request in list(self._requests):
            request.leave(reason)
