"""A tiny engine behind a server on a free port, and clients for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai

from builders import tiny_loaded
from console.server import RunningServer, ServerSettings, serve_in_thread
from engine.config import EngineConfig
from engine.core import Engine
from engine.execution.kv_cache import layout_for, memory_needed
from engines import assert_nothing_held
from kernels import dispatch
from waiting import CEILING_S, until

MODEL = "tiny-llama"


@dataclass
class Served:
    engine: Engine
    server: RunningServer
    http: httpx.Client = field(
        default_factory=lambda: httpx.Client(  # one context, a connection for each request
            verify=False, timeout=CEILING_S, limits=httpx.Limits(max_keepalive_connections=0)
        )
    )

    @property
    def url(self) -> str:
        return self.server.url

    def client(self, **more: Any) -> openai.OpenAI:
        settings = {"api_key": "none", "max_retries": 0, "timeout": CEILING_S} | more
        return openai.OpenAI(base_url=f"{self.url}/v1", **settings)

    def post(self, path: str = "/v1/completions", **body: Any) -> httpx.Response:
        return self.http.post(self.url + path, json=body)

    def get(self, path: str) -> httpx.Response:
        return self.http.get(self.url + path)

    def wire(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=CEILING_S)

    def until_idle(self) -> None:
        """The ledger is zero soon, and nothing is held."""
        until(lambda: self.engine.ledger().is_zero)
        assert_nothing_held(self.engine)


@contextmanager
def serving(
    started: bool = True,
    settings: ServerSettings | None = None,
    max_positions: int = 512,
    pages: int = 512,
    **engine: Any,
) -> Iterator[Served]:
    """`engine` are fields of EngineConfig."""
    config = EngineConfig(
        **{
            "kernels": "reference",
            "max_batch": 8,
            "token_budget": 64,
            "max_model_len": max_positions,
        }
        | engine
    )
    loaded = tiny_loaded(dispatch.select(config.kernels).ops, layers=1, max_positions=max_positions)
    layout = layout_for(config, loaded.spec.kv_heads, loaded.spec.head_dim)
    memory = memory_needed(layout, 1, pages, config.max_batch, config.token_budget)
    made = Engine(config.with_(kv_memory=memory), loaded)
    made.start() if started else made.load()
    with serve_in_thread(made, settings or ServerSettings(port=0, drain_s=5)) as server:
        yield Served(made, server)
    made.stop()
