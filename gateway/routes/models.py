"""`/v1/models`."""

from fastapi import Request, Response

from gateway.errors import json_response
from gateway.schema.service import Model, ModelList
from gateway.services import Services
from halfmoon.errors import ModelNotFoundError
from halfmoon.v1.router_pb2 import ModelInfo


class ModelRoutes:
    """What is served."""

    def __init__(self, services: Services) -> None:
        self._client = services.client

    async def models(self) -> Response:
        """`GET /v1/models`."""
        listed = await self._client.list_models()
        return json_response(ModelList(data=[_model(info) for info in listed.models]))

    async def model(self, request: Request) -> Response:
        """`GET /v1/models/{name}`; a name may have slashes."""
        name = str(request.path_params["name"])
        for info in (await self._client.list_models()).models:
            if info.name == name:
                return json_response(_model(info))
        raise ModelNotFoundError(f"the model {name[:200]!r} is not served here", param="model")


def _model(info: ModelInfo) -> Model:
    return Model(
        id=info.name,
        created=info.created,
        max_model_len=info.max_model_len,
        vocab_size=info.vocab_size,
        fingerprint=info.fingerprint,
    )
