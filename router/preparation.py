"""From a client's request to a `Job`: tokenised off the event loop, checked, and completed."""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from halfmoon.bounds import check_token_ids
from halfmoon.errors import ContextLengthError, DeadlineError, InvalidRequestError
from halfmoon.text import TextModel
from halfmoon.v1 import router_pb2 as pb
from router.job import Job
from router.sampling import check_sampling, resolve_sampling

MAX_REQUEST_ID_CHARS = 128

_CHARS_PER_TOKEN = 256
"""No token stands for more characters, so a text that is longer than this for each token of the context cannot fit."""

_THREADS = 2

Result = TypeVar("Result")


class Preparation:
    """Owns the threads that tokenise. Close it after the last request."""

    def __init__(self, text: TextModel) -> None:
        self._text = text
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tokenize")

    def close(self) -> None:
        """Ends the threads; does not wait for a tokenisation under way."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def job(self, request: pb.GenerateRequest, *, context: int, deadline: float) -> Job:
        """Raises InvalidRequestError for what can never be served, DeadlineError when `deadline` passes first."""
        sampling = request.sampling
        check_sampling(sampling, self._text.vocab_size)
        prompt_ids, prompt_text = await self._prompt(request, context, deadline)
        resolved = resolve_sampling(sampling, prompt_tokens=len(prompt_ids), context=context)
        return Job(
            request_id=request.request_id,
            prompt_ids=prompt_ids,
            prompt_text=prompt_text,
            sampling=resolved,
            stop=tuple(sampling.stop),
            include_stop=sampling.include_stop_str_in_output,
            keep_special=request.keep_special_tokens,
            echo=request.echo,
            priority=request.priority,
            deadline=deadline,
        )

    async def encode_text(self, text: str, *, add_special: bool, context: int, deadline: float) -> list[int]:
        """Ids of a raw prompt."""
        self._check_length(len(text), context, "prompt")
        return await self._run(lambda: self._text.tokenizer.encode(text, add_special=add_special), deadline)

    async def encode_chat(self, chat: pb.ChatPrompt, *, context: int, deadline: float) -> list[int]:
        """Ids of messages, rendered with the model's template."""
        template = self._text.chat
        if template is None:
            raise InvalidRequestError("this model has no chat template: use completions", param="messages")
        if not chat.messages:
            raise InvalidRequestError("there are no messages", param="messages")
        self._check_length(sum(len(message.content) for message in chat.messages), context, "messages")
        messages = [_message(message) for message in chat.messages]
        return await self._run(
            lambda: template.encode(
                messages, self._text.tokenizer, add_generation_prompt=not chat.no_generation_prompt
            ),
            deadline,
        )

    async def decode(self, token_ids: Sequence[int], deadline: float) -> str:
        """Text of ids, special tokens included."""
        check_token_ids(token_ids, self._text.vocab_size, "token_ids")
        return await self._run(lambda: self._text.tokenizer.decode(token_ids, skip_special=False), deadline)

    async def _prompt(
        self, request: pb.GenerateRequest, context: int, deadline: float
    ) -> tuple[Sequence[int], str | None]:
        """Ids, and the text where it was given as text."""
        text: str | None = None
        prompt_ids: Sequence[int]
        kind = request.WhichOneof("input")
        if kind == "text":
            text = request.text
            prompt_ids = await self.encode_text(text, add_special=True, context=context, deadline=deadline)
        elif kind == "chat":
            prompt_ids = await self.encode_chat(request.chat, context=context, deadline=deadline)
        else:
            prompt_ids = list(request.token_ids.ids)
            check_token_ids(prompt_ids, self._text.vocab_size, "prompt")
        if not prompt_ids:
            raise InvalidRequestError("the prompt is empty", param="prompt")
        return prompt_ids, text

    def _check_length(self, characters: int, context: int, param: str) -> None:
        if characters > context * _CHARS_PER_TOKEN:
            raise ContextLengthError(
                f"the prompt has {characters} characters, more than the context of this model, "
                f"which is {context} tokens, can hold",
                param=param,
            )

    async def _run(self, work: Callable[[], Result], deadline: float) -> Result:
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            return await asyncio.wait_for(future, deadline - time.monotonic())
        except TimeoutError as error:
            raise DeadlineError("the deadline passed while the prompt was tokenised") from error


def drawn_request_id() -> str:
    """An id for a request that came without."""
    return f"req-{uuid.uuid4().hex}"


def check_request_id(request_id: str) -> None:
    """Raises InvalidRequestError when an id cannot stand in a log line."""
    if len(request_id) > MAX_REQUEST_ID_CHARS or not request_id.isprintable():
        raise InvalidRequestError(
            f"request_id has up to {MAX_REQUEST_ID_CHARS} printable characters", param="request_id"
        )


def _message(message: pb.ChatMessage) -> dict[str, str]:
    fields = {"role": message.role, "content": message.content}
    if message.name:
        fields["name"] = message.name
    return fields
