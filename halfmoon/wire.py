"""Between the domain objects of `halfmoon.request` / `halfmoon.config` and their messages in `halfmoon.v1`."""

from collections.abc import Iterable

from halfmoon.config import PageGeometry
from halfmoon.request import FinishReason, Logprob, OutputToken, PositionLogprobs, SamplingParams
from halfmoon.v1 import common_pb2 as pb

_FINISH_TO_PB: dict[FinishReason, "pb.FinishReason.ValueType"] = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.ABORT: pb.FINISH_REASON_ABORT,
}
_FINISH_FROM_PB = {number: reason for reason, number in _FINISH_TO_PB.items()}


def finish_to_pb(reason: FinishReason | None) -> "pb.FinishReason.ValueType":
    """None becomes FINISH_REASON_UNSPECIFIED."""
    return pb.FINISH_REASON_UNSPECIFIED if reason is None else _FINISH_TO_PB[reason]


def finish_from_pb(number: "pb.FinishReason.ValueType") -> FinishReason | None:
    """FINISH_REASON_UNSPECIFIED becomes None."""
    return _FINISH_FROM_PB.get(number)


def sampling_to_pb(params: SamplingParams) -> pb.SamplingParams:
    """Stop strings are not part of `SamplingParams`: text belongs to the router."""
    message = pb.SamplingParams(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=dict(params.logit_bias),
        seed=params.seed,
        n=params.n,
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        ignore_eos=params.ignore_eos,
        stop_token_ids=params.stop_token_ids,
    )
    if params.logprobs is not None:
        message.logprobs = params.logprobs
    if params.prompt_logprobs is not None:
        message.prompt_logprobs = params.prompt_logprobs
    return message


def sampling_from_pb(message: pb.SamplingParams, *, max_tokens: int, seed: int) -> SamplingParams:
    """`max_tokens` and `seed` stand in where the message leaves them out."""
    return SamplingParams(
        max_tokens=message.max_tokens if message.HasField("max_tokens") else max_tokens,
        seed=message.seed if message.HasField("seed") else seed,
        n=message.n or 1,
        temperature=message.temperature,
        top_p=message.top_p if message.HasField("top_p") else 1.0,
        top_k=message.top_k,
        min_p=message.min_p,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        repetition_penalty=message.repetition_penalty or 1.0,
        logit_bias=dict(message.logit_bias),
        min_tokens=message.min_tokens,
        ignore_eos=message.ignore_eos,
        stop_token_ids=tuple(message.stop_token_ids),
        logprobs=message.logprobs if message.HasField("logprobs") else None,
        prompt_logprobs=message.prompt_logprobs if message.HasField("prompt_logprobs") else None,
    )


def _logprob_to_pb(entry: Logprob) -> pb.TokenLogprob:
    return pb.TokenLogprob(token_id=entry.token_id, logprob=entry.logprob, rank=entry.rank)


def _logprob_from_pb(message: pb.TokenLogprob) -> Logprob:
    return Logprob(message.token_id, message.logprob, message.rank)


def logprobs_to_pb(entry: PositionLogprobs) -> pb.TokenLogprobs:
    """One position's log-probabilities."""
    message = pb.TokenLogprobs(top=[_logprob_to_pb(candidate) for candidate in entry.top])
    if entry.chosen is not None:
        message.chosen.CopyFrom(_logprob_to_pb(entry.chosen))
    return message


def logprobs_from_pb(message: pb.TokenLogprobs) -> PositionLogprobs:
    """The reverse of `logprobs_to_pb`; token bytes are dropped."""
    chosen = _logprob_from_pb(message.chosen) if message.HasField("chosen") else None
    return PositionLogprobs(chosen, tuple(_logprob_from_pb(candidate) for candidate in message.top))


def token_to_pb(token: OutputToken) -> pb.OutputToken:
    """One generated token."""
    message = pb.OutputToken(
        choice=token.choice,
        position=token.position,
        token_id=token.token_id,
        finish_reason=finish_to_pb(token.finish),
    )
    if token.logprobs is not None:
        message.logprobs.CopyFrom(logprobs_to_pb(token.logprobs))
    return message


def token_from_pb(message: pb.OutputToken) -> OutputToken:
    """The reverse of `token_to_pb`."""
    return OutputToken(
        choice=message.choice,
        position=message.position,
        token_id=message.token_id,
        logprobs=logprobs_from_pb(message.logprobs) if message.HasField("logprobs") else None,
        finish=finish_from_pb(message.finish_reason),
    )


def tokens_to_pb(tokens: Iterable[OutputToken]) -> list[pb.OutputToken]:
    """Several tokens, in order."""
    return [token_to_pb(token) for token in tokens]


def geometry_to_pb(geometry: PageGeometry) -> pb.PageGeometry:
    """The shape of a page."""
    return pb.PageGeometry(
        layers=geometry.layers,
        kv_heads=geometry.kv_heads,
        page_size=geometry.page_size,
        head_dim=geometry.head_dim,
        dtype=geometry.dtype,
    )


def geometry_from_pb(message: pb.PageGeometry) -> PageGeometry:
    """The reverse of `geometry_to_pb`."""
    return PageGeometry(message.layers, message.kv_heads, message.page_size, message.head_dim, message.dtype)
