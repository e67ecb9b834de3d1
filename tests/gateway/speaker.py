"""What the scripted router says: bytes for tokens, so every character of several bytes takes several of them."""

import codecs
from collections.abc import AsyncIterator, Iterator, Sequence

from halfmoon.v1 import common_pb2, router_pb2

ANSWER = "Grüße vom 🌙, says "
"""What choice 0 answers; the others end with their index instead."""


def answer(choice: int) -> str:
    """The full answer of a choice."""
    return f"{ANSWER}{choice}"


async def speak(request: router_pb2.GenerateRequest) -> AsyncIterator[router_pb2.GenerateResponse]:
    """The events of a request: the prompt, the choices token by token and in turn, and usage."""
    sampling = request.sampling
    prompt = prompt_ids(request)
    yield router_pb2.GenerateResponse(prompt=_prompt_info(request, prompt))
    spoken = [list(_deltas(request, choice)) for choice in range(sampling.n)]
    for step in range(max(map(len, spoken))):
        for deltas in spoken:
            if step < len(deltas):
                yield router_pb2.GenerateResponse(delta=deltas[step])
    usage = common_pb2.Usage(
        prompt_tokens=len(prompt),
        completion_tokens=sum(len(delta.token_ids) for deltas in spoken for delta in deltas),
        cached_tokens=len(prompt) // 2,
    )
    yield router_pb2.GenerateResponse(usage=usage)


def prompt_ids(request: router_pb2.GenerateRequest) -> list[int]:
    """The prompt's tokens: its bytes, or the ids given."""
    match request.WhichOneof("input"):
        case "token_ids":
            return list(request.token_ids.ids)
        case "text":
            return list(request.text.encode())
    return list("\n".join(f"{message.role}:{message.content}" for message in request.chat.messages).encode())


def logprob_of(token: int) -> float:
    """What the fake model thinks of a token; of the letter e, that it cannot be."""
    return -float("inf") if token == ord("e") else -token / 256


def position(token: int, count: int) -> common_pb2.TokenLogprobs:
    """Log-probabilities where `token` stands: the most likely are the smallest bytes from "0" on."""
    top = [_entry(ord("0") + index, index + 1) for index in range(count)]
    return common_pb2.TokenLogprobs(chosen=_entry(token, 0), top=top)


def _entry(token: int, rank: int) -> common_pb2.TokenLogprob:
    return common_pb2.TokenLogprob(
        token_id=token, logprob=logprob_of(token), rank=rank, token_bytes=bytes([token % 256])
    )


def _prompt_info(request: router_pb2.GenerateRequest, prompt: Sequence[int]) -> router_pb2.PromptInfo:
    info = router_pb2.PromptInfo(request_id=request.request_id, token_ids=prompt, model="moon")
    if request.sampling.HasField("prompt_logprobs"):
        count = request.sampling.prompt_logprobs
        info.logprobs.append(common_pb2.TokenLogprobs())
        info.logprobs.extend(position(token, count) for token in prompt[1:])
    if request.echo or request.sampling.HasField("prompt_logprobs"):
        info.token_bytes.extend(bytes([token % 256]) for token in prompt)
    if request.echo:
        info.text = bytes(token % 256 for token in prompt).decode()
    return info


def _deltas(request: router_pb2.GenerateRequest, choice: int) -> Iterator[router_pb2.ChoiceDelta]:
    sampling = request.sampling
    tokens = list(answer(choice).encode())
    if sampling.HasField("max_tokens"):
        tokens = tokens[: sampling.max_tokens]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    if not tokens:
        yield router_pb2.ChoiceDelta(index=choice, finish_reason=common_pb2.FINISH_REASON_LENGTH)
    for place, token in enumerate(tokens):
        last = place == len(tokens) - 1
        delta = router_pb2.ChoiceDelta(index=choice, text=decoder.decode(bytes([token]), last), token_ids=[token])
        if sampling.HasField("logprobs"):
            delta.logprobs.append(position(token, sampling.logprobs))
        if last:
            _finish(delta, whole=len(tokens) == len(answer(choice).encode()))
        yield delta


def _finish(delta: router_pb2.ChoiceDelta, *, whole: bool) -> None:
    delta.finish_reason = common_pb2.FINISH_REASON_STOP if whole else common_pb2.FINISH_REASON_LENGTH
    if whole:
        delta.stop_string = str(delta.index)
