"""`POST /v1/chat/completions` to a Call."""

from collections.abc import Iterator, Sequence

from gateway.parsing import numbers
from gateway.parsing.body import decode
from gateway.parsing.call import Call, View, choices_of, timeout_of, wants_usage
from gateway.parsing.sampling import sampling_params
from gateway.parsing.unsupported import CHAT, refuse_unsupported
from gateway.schema.requests import ChatBody, ContentPart, Message
from halfmoon.errors import InvalidRequestError
from halfmoon.v1.router_pb2 import ChatMessage, ChatPrompt, GenerateRequest

_TOOL_ROLES = ("tool", "function")


def parse_chat(raw: bytes, request_id: str, *, longest: float) -> Call:
    """The checked request; `longest` bounds its time in seconds."""
    body = decode(raw, ChatBody)
    refuse_unsupported(raw, CHAT)
    choices = choices_of(body, 1)
    view = View(
        logprobs=_logprobs(body),
        prompt_logprobs=numbers.optional_count("prompt_logprobs", body.prompt_logprobs),
        token_ids=bool(body.return_token_ids),
        tokens_as_ids=bool(body.return_tokens_as_token_ids),
    )
    request = GenerateRequest(
        request_id=request_id,
        model=body.model or "",
        chat=chat_prompt(body.messages, add_generation_prompt=body.add_generation_prompt is not False),
        sampling=sampling_params(
            body,
            choices=choices,
            max_tokens=_max_tokens(body),
            logprobs=view.logprobs,
            prompt_logprobs=view.prompt_logprobs,
        ),
        priority=numbers.signed("priority", body.priority or 0),
        keep_special_tokens=body.skip_special_tokens is False,
    )
    return Call(
        request_id=request_id,
        requests=(request,),
        choices=choices,
        timeout=timeout_of(body, longest),
        view=view,
        stream=bool(body.stream),
        include_usage=wants_usage(body),
    )


def chat_prompt(messages: Sequence[Message] | None, *, add_generation_prompt: bool) -> ChatPrompt:
    """Messages for the router. Raises InvalidRequestError when there are none or one is not plain text."""
    if not messages:
        raise InvalidRequestError("messages is missing or empty", param="messages")
    return ChatPrompt(
        messages=[_message(f"messages[{index}]", message) for index, message in enumerate(messages)],
        no_generation_prompt=not add_generation_prompt,
    )


def _message(path: str, message: Message) -> ChatMessage:
    if not message.role:
        raise InvalidRequestError(f"{path}.role is missing", param="messages")
    if message.role in _TOOL_ROLES or message.tool_calls or message.function_call:
        raise InvalidRequestError(f"{path}: tools are not supported", param="messages")
    role = "system" if message.role == "developer" else message.role
    return ChatMessage(role=role, content=_text(path, message.content), name=message.name or "")


def _text(path: str, content: str | list[ContentPart] | None) -> str:
    if content is None:
        raise InvalidRequestError(f"{path}.content is missing", param="messages")
    if isinstance(content, str):
        return content
    return "\n".join(_parts(path, content))


def _parts(path: str, content: Sequence[ContentPart]) -> Iterator[str]:
    for index, part in enumerate(content):
        where = f"{path}.content[{index}]"
        if part.type != "text":
            raise InvalidRequestError(f"{where}: only parts of type 'text' are supported", param="messages")
        if part.text is None:
            raise InvalidRequestError(f"{where}.text is missing", param="messages")
        yield part.text


def _max_tokens(body: ChatBody) -> int | None:
    """The newer of the two names wins."""
    limit = numbers.optional_count("max_tokens", body.max_tokens)
    newer = numbers.optional_count("max_completion_tokens", body.max_completion_tokens)
    return limit if newer is None else newer


def _logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return numbers.count("top_logprobs", body.top_logprobs or 0)
    if body.top_logprobs:
        raise InvalidRequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    return None
