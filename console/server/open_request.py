"""OpenRequest: one HTTP request's work in the engine, a stream for each prompt and choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from console.server.body import ClientGone
from console.server.errors import ApiError, unavailable
from console.server.token_notifier import Channel, TokenNotifier
from engine.core import Engine
from engine.errors import EngineError
from engine.request import FinishReason, Priority, SamplingParams
from engine.stream import Stream, StreamEvent
from engine.text.completion import Encoded

ENDS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.KV_CAPACITY: "length",
}
"""What a finish reason is in OpenAI's words; the others are errors."""
SEED_MASK = 2**63 - 1


class OpenRequest:
    """Raises ApiError while it is made; then nothing has been left in the engine.

    `leave` may be called at any time: the engine ends what still runs.
    """

    def __init__(self, engine: Engine, notifier: TokenNotifier) -> None:
        self._engine = engine
        self._channel = Channel(notifier)
        self.streams: list[Stream] = []
        self.gone = False
        """The client has left, or the server ends: nobody wants the rest."""
        self.reason: str | None = None
        """Why the server gave it up."""
        self.output_tokens = 0
        self.prompts = 0

    def submit(
        self,
        prompts: Sequence[tuple[Encoded, SamplingParams]],
        each: int,
        client: str,
        priority: Priority,
        timeout_s: float | None,
        arrival_ns: int,
        tokens_wanted: bool,
    ) -> None:
        """`each` choices of every prompt, the first prompt's first. A given seed counts up from
        choice to choice, so that they differ."""
        self.prompts = len(prompts)
        channel = self._channel
        try:
            for encoded, params in prompts:
                for choice in range(each):
                    if params.seed is not None and choice:
                        params = replace(params, seed=(params.seed + 1) & SEED_MASK)
                    stream = self._engine.submit(
                        encoded,
                        params,
                        client=client,
                        priority=priority,
                        timeout_s=timeout_s,
                        arrival_ns=arrival_ns,
                    )
                    self.streams.append(stream)
                    stream.listen(channel.token if tokens_wanted else None, channel.ended)
        except EngineError as error:
            self.leave()
            raise unavailable(f"the engine takes nothing new: {error}") from error

    def leave(self, reason: str | None = None) -> None:
        """Idempotent; wakes the reader."""
        if not self.gone:
            self.gone, self.reason = True, reason
            self._channel.wake()
        self._cancel()

    def check(self) -> None:
        """ClientGone, or ApiError with the server's reason, when it has been given up."""
        if self.gone:
            if self.reason is None:
                raise ClientGone
            raise unavailable(self.reason)

    def _cancel(self) -> None:
        for stream in self.streams:
            if not stream.closed:
                self._engine.cancel(stream.request_id)

    @property
    def done(self) -> bool:
        """Everything has been taken."""
        return all(stream.finished for stream in self.streams)

    @property
    def prompt_tokens(self) -> int:
        """Of every prompt once, whatever its number of choices."""
        step = max(len(self.streams) // max(self.prompts, 1), 1)
        return sum(stream.prompt_tokens for stream in self.streams[::step])

    async def wait(self) -> None:
        await self._channel.wait()

    async def wait_for_all(self) -> None:
        while not self.gone and not all(stream.closed for stream in self.streams):
            await self._channel.wait()

    def take(self) -> Iterator[tuple[int, StreamEvent]]:
        """What is there now, by choice. ApiError when one of them has failed."""
        for index, stream in enumerate(self.streams):
            event = stream.poll()
            if event is None:
                continue
            self.output_tokens += len(event.token_ids)
            reason = event.finish_reason
            if reason is not None and reason not in ENDS:
                raise self._failure(stream, reason, event.error)
            yield index, event

    def _failure(self, stream: Stream, reason: FinishReason, detail: str | None) -> ApiError:
        text = detail or f"the request ended: {reason.value}"
        match reason:
            case FinishReason.REJECTED if stream.try_later:
                draining = self._engine.loop.controls.draining
                return unavailable(text) if draining else ApiError(
                    429, text, code="queue_full", headers={"retry-after": "5"}
                )  # fmt: skip
            case FinishReason.REJECTED:
                return ApiError(400, text, code="invalid_value")
            case FinishReason.TIMEOUT:
                return ApiError(
                    504, "the request took longer than it may", code="timeout",
                    headers={"x-should-retry": "false"},
                )  # fmt: skip
            case FinishReason.CANCELLED:
                return unavailable(self.reason or text)
        return ApiError(500, "the engine failed on this request", code="engine_error")
