"""The HTTP application: routes, middleware, and the answer to routes that do not exist."""

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from gateway.client import RouterClient
from gateway.config import GatewayConfig
from gateway.errors import error_detail, json_response
from gateway.metrics import GatewayMetrics
from gateway.middleware import Admit, Observe
from gateway.routes.generation import GenerationRoutes
from gateway.routes.health import HealthRoutes
from gateway.routes.models import ModelRoutes
from gateway.routes.tokens import TokenRoutes
from gateway.running import Running
from gateway.services import Services
from halfmoon.telemetry import Metrics


def create_app(
    config: GatewayConfig, client: RouterClient, metrics: Metrics, *, running: Running | None = None
) -> FastAPI:
    """The gateway as an ASGI application, to be made inside the event loop that serves it.

    The caller closes `client`, and drains by way of `running` where it wants to. `metrics` must be new: a gateway's
    instruments can be made on it once.
    """
    running = running or Running(config.max_running)
    instruments = GatewayMetrics(metrics, running=lambda: running.count, streams_open=lambda: client.streams_open)
    if config.vllm_names:
        metrics.show_vllm_names(lambda: client.model)
    app = FastAPI(title="Halfmoon", openapi_url=None, redirect_slashes=False)
    _add_routes(app, Services(config, client, instruments, running))
    app.add_exception_handler(HTTPException, _no_such_route)
    app.add_middleware(Admit, running=running, api_key=config.api_key)
    app.add_middleware(Observe, metrics=instruments)
    return app


def _add_routes(app: FastAPI, services: Services) -> None:
    generation, tokens = GenerationRoutes(services), TokenRoutes(services)
    models, health = ModelRoutes(services), HealthRoutes(services)
    posts = {
        "/v1/completions": generation.completions,
        "/v1/chat/completions": generation.chat,
        "/tokenize": tokens.tokenize,
        "/detokenize": tokens.detokenize,
    }
    gets = {
        "/v1/models": models.models,
        "/livez": health.live,
        "/readyz": health.ready,
        "/health": health.ready,
        "/metrics": health.metrics,
    }
    for path, handler in posts.items():
        app.add_api_route(path, handler, methods=["POST"], response_model=None)
    for path, probe in gets.items():
        app.add_api_route(path, probe, methods=["GET"], response_model=None)
    app.add_api_route("/v1/models/{name:path}", models.model, methods=["GET"], response_model=None)


async def _no_such_route(request: Request, error: Exception) -> Response:
    """404 for an unknown route, 405 for a method that a route does not have."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    message = f"{request.method} {request.url.path[:200]}: {error.detail}"
    body = error_detail(error.status_code, message, param=None, code=code)
    return json_response(body, status=error.status_code, headers=error.headers)
