"""`evewatch generate`: one streamed answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.engine_flags import EngineFlags, note_backend
from console.commands.options import command_options
from console.commands.output import Output
from engine.errors import RequestError

if TYPE_CHECKING:
    from engine.core import Engine
    from engine.stream import Stream


@command_options()
def generate(
    engine: EngineFlags,
    output: Output,
    prompt: Annotated[str, typer.Argument(help="What to say to the model; - reads stdin.")],
    max_tokens: Annotated[int, typer.Option(help="Longest answer.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Of the sampling.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None,
    raw: Annotated[
        bool, typer.Option(help="Continue the text as it is, without chat template.")
    ] = False,
) -> None:
    """Stream one answer to standard output."""
    from engine.request import SamplingParams

    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=tuple(stop or ()),
    )
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise RequestError("prompt: is empty; say something")
    config = engine.config(max_batch=1, kv_memory="256M")
    from engine.core import Engine

    with Engine(config) as running:
        note_backend(running, output)
        chat = not raw and running.loaded.tokenizer.has_chat
        stream = running.submit([{"role": "user", "content": text}] if chat else text, params)
        report = _follow(running, stream, echo=not output.as_json)
    output.finish(report, show=print)


def _follow(engine: Engine, stream: Stream, echo: bool) -> dict[str, Any]:
    """Take the answer as it comes; RequestError when it was refused or broke off."""
    from playbooks.reports.text import clean_lines

    shown = clean_lines if sys.stdout.isatty() else str  # a model's letters steer no terminal
    pieces: list[str] = []
    tokens, reason = 0, None
    try:
        for event in stream:
            if event.error:
                raise RequestError(event.error)
            pieces.append(event.text)
            tokens += len(event.token_ids)
            reason = event.finish_reason
            if echo:
                sys.stdout.write(shown(event.text))
                sys.stdout.flush()
    except KeyboardInterrupt:
        engine.cancel(stream.request_id)
        raise
    stamps = stream.stamps
    assert stamps is not None
    return {
        "schema": 1,
        "kind": "generate",
        "model": engine.loaded.spec.name,
        "text": "".join(pieces),
        "finish_reason": str(reason),
        "prompt_tokens": stream.prompt_tokens,
        "output_tokens": tokens,
        "ttft_ms": stamps.span_ms("arrival", "first_token"),
        "tpot_ms": stamps.tpot_ms,
    }
