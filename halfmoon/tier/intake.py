"""From a tier's request message to what its engine takes."""

from halfmoon.bounds import check_counts, check_token_ids
from halfmoon.engine.request import EngineRequest, PageSource, Task
from halfmoon.errors import InvalidRequestError
from halfmoon.v1 import decode_pb2, prefill_pb2
from halfmoon.wire import sampling_from_pb

TierRequest = prefill_pb2.PrefillRequest | decode_pb2.DecodeRequest


def engine_request(request: TierRequest, task: Task, *, vocab: int, publish: bool = False) -> EngineRequest:
    """Raises InvalidRequestError for what would harm the engine; finer validation is the router's."""
    if not request.sampling.HasField("seed"):
        raise InvalidRequestError("sampling.seed is not set: the caller of a tier draws it", param="seed")
    if not request.sampling.HasField("max_tokens"):
        raise InvalidRequestError("sampling.max_tokens is not set: the caller of a tier sets it", param="max_tokens")
    check_counts(request.sampling)
    prompt = tuple(request.prompt_token_ids)
    params = sampling_from_pb(request.sampling, max_tokens=0, seed=0)
    for name, ids in (("prompt", prompt), ("stop_token_ids", params.stop_token_ids), ("logit_bias", params.logit_bias)):
        check_token_ids(ids, vocab, name)
    source = PageSource(request.source.endpoint, request.source.pages) if request.HasField("source") else None
    return EngineRequest(request.request_id, prompt, params, task, request.priority, publish, source)
