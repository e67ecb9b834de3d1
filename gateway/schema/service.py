"""Answers about models, tokens, health and errors."""

import msgspec


class Model(msgspec.Struct, kw_only=True):
    """A model that is served; `max_model_len` is its context in tokens, `created` is in seconds since 1970.

    `vocab_size` is the number of token ids, `fingerprint` that of model and weights.
    """

    id: str
    object: str = "model"
    created: int
    owned_by: str = "halfmoon"
    max_model_len: int
    vocab_size: int
    fingerprint: str


class ModelList(msgspec.Struct, kw_only=True):
    """All models."""

    object: str = "list"
    data: list[Model]


class TokenizeResult(msgspec.Struct):
    """The ids of a text or chat."""

    count: int
    max_model_len: int
    tokens: list[int]


class DetokenizeResult(msgspec.Struct):
    """The text of ids."""

    prompt: str


class Health(msgspec.Struct):
    """`ready`, `live`, `draining`, or why there is nobody to do the work."""

    status: str


class ErrorDetail(msgspec.Struct):
    """What went wrong; `param` names the request's field at fault."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct):
    """The body of every answer that is not a success."""

    error: ErrorDetail
