"""`/livez`, `/readyz`, `/health` and `/metrics`: for probes, without an API key."""

import asyncio
from contextlib import suppress

from fastapi import Response

from gateway.errors import json_response
from gateway.schema.service import Health
from gateway.services import Services
from halfmoon.errors import HalfmoonError
from halfmoon.telemetry.metrics import CONTENT_TYPE


class HealthRoutes:
    """How the gateway is."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def live(self) -> Response:
        """200 whenever the event loop turns."""
        return json_response(Health("live"))

    async def ready(self) -> Response:
        """200 when a request would be taken now: not draining, and a router with a worker that is ready."""
        obstacle = await self._obstacle()
        if obstacle is None:
            return json_response(Health("ready"))
        return json_response(Health(obstacle), status=503, headers={"Retry-After": "1"})

    async def metrics(self) -> Response:
        """Metrics in Prometheus' text format. vLLM's names carry the model's, which is asked for once."""
        if self._services.config.vllm_names and not self._services.client.model:
            with suppress(HalfmoonError):
                await self._services.client.list_models()
        body = await asyncio.to_thread(self._services.metrics.render)
        return Response(body, media_type=CONTENT_TYPE)

    async def _obstacle(self) -> str | None:
        if self._services.running.draining:
            return "draining"
        try:
            listed = await self._services.client.list_models()
        except HalfmoonError as error:
            return f"no router: {error.message[:200]}"
        return None if any(info.ready for info in listed.models) else "no worker is ready"
