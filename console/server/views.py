"""What can be looked at: health, models, snapshot, metrics, the OpenAPI document."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from console.server.admission import Admission
from console.server.errors import ApiError
from console.server.metrics import Metrics
from engine.errors import EngineError
from engine.snapshot import Snapshot, SourceState

FRESH_S = 0.5
"""A Snapshot that is older is asked for anew."""
PATIENCE_S = 1.0
STALE_S = 5.0


class Views:
    def __init__(self, admission: Admission, metrics: Metrics, document: dict[str, Any]) -> None:
        self._admission, self._metrics, self._document = admission, metrics, document
        self._started = int(time.time())

    async def health(self, request: Request) -> Response:
        """200 while requests are served; 503 with the reason when they are not."""
        alarm = self._admission.engine.alarm()
        if self._admission.closing:
            alarm = "the server is shutting down"
        if alarm is None:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "unhealthy", "reason": alarm}, 503)

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Response:
        self._admission.check_model(request.scope["path"].removeprefix("/v1/models/"))
        return JSONResponse(self._card())

    def _card(self) -> dict[str, Any]:
        self._admission.check_model(None)
        return {
            "id": self._admission.model,
            "object": "model",
            "created": self._started,
            "owned_by": "evewatch",
            "max_model_len": self._admission.limit,
        }

    async def snapshot(self, request: Request) -> Response:
        found = await self._fresh()
        if found is None:
            raise self._down()
        return Response(found.to_json(), media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        snapshot = await self._fresh()
        model = self._admission.model if snapshot is not None else None
        text = await asyncio.to_thread(self._metrics.text, snapshot, model)
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})

    async def document(self, request: Request) -> Response:
        return JSONResponse(self._document)

    def _down(self) -> ApiError:
        return self._admission.closed(EngineError("the engine is not up"))

    async def _fresh(self) -> Snapshot | None:
        """The engine as it is now; one that does not answer in time as it was, with its age.

        None before the model is loaded.
        """
        engine = self._admission.engine
        latest = engine.snapshot()
        if latest.time == 0:
            return None
        end = time.monotonic() + PATIENCE_S
        while time.time() - latest.time > FRESH_S and time.monotonic() < end:
            await asyncio.sleep(0.02)
            latest = engine.snapshot()
        age = max(0.0, time.time() - latest.time)
        source = replace(latest.source, age_s=age)
        if age > STALE_S:
            reason = engine.alarm() or "the engine publishes nothing: its thread is busy"
            source = replace(source, state=SourceState.STALE, reason=reason)
        return replace(latest, source=source)
