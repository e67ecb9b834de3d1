"""`POST /v1/completions` to a Call."""

from typing import TypeGuard

from gateway.parsing import numbers
from gateway.parsing.body import decode
from gateway.parsing.call import Call, View, choices_of, timeout_of, wants_usage
from gateway.parsing.sampling import sampling_params
from gateway.parsing.unsupported import COMPLETIONS, refuse_unsupported
from gateway.schema.requests import CompletionBody
from halfmoon.errors import InvalidRequestError
from halfmoon.v1.router_pb2 import GenerateRequest, TokenIds

MAX_PROMPTS = 2048
"""Prompts of one list."""

DEFAULT_MAX_TOKENS = 16
"""New tokens where the request does not say, as the API has it."""

Prompt = str | list[int]


def parse_completion(raw: bytes, request_id: str, *, longest: float) -> Call:
    """The checked request; `longest` bounds its time in seconds."""
    body = decode(raw, CompletionBody)
    refuse_unsupported(raw, COMPLETIONS)
    prompts = _prompts(body.prompt)
    choices = choices_of(body, len(prompts))
    if body.best_of is not None and numbers.count("best_of", body.best_of) != choices:
        raise InvalidRequestError(f"best_of must equal n ({choices}), not {body.best_of}", param="best_of")
    view = View(
        logprobs=numbers.optional_count("logprobs", body.logprobs),
        prompt_logprobs=numbers.optional_count("prompt_logprobs", body.prompt_logprobs),
        echo=bool(body.echo),
        token_ids=bool(body.return_token_ids),
        tokens_as_ids=bool(body.return_tokens_as_token_ids),
    )
    return Call(
        request_id=request_id,
        requests=_requests(body, prompts, choices, view, request_id),
        choices=choices,
        timeout=timeout_of(body, longest),
        view=view,
        stream=bool(body.stream),
        include_usage=wants_usage(body),
    )


def _requests(
    body: CompletionBody, prompts: list[Prompt], choices: int, view: View, request_id: str
) -> tuple[GenerateRequest, ...]:
    sampling = sampling_params(
        body,
        choices=choices,
        max_tokens=numbers.count("max_tokens", DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens),
        logprobs=view.logprobs,
        prompt_logprobs=_prompt_logprobs(view),
    )
    requests = []
    for index, prompt in enumerate(prompts):
        request = GenerateRequest(
            request_id=request_id if len(prompts) == 1 else f"{request_id}-{index}",
            model=body.model or "",
            sampling=sampling,
            priority=numbers.signed("priority", body.priority or 0),
            echo=view.echo,
            keep_special_tokens=body.skip_special_tokens is False,
        )
        if isinstance(prompt, str):
            request.text = prompt
        else:
            request.token_ids.CopyFrom(TokenIds(ids=numbers.token_ids("prompt", prompt)))
        requests.append(request)
    return tuple(requests)


def _prompt_logprobs(view: View) -> int | None:
    """What the router must give: `echo` with `logprobs` needs those of the prompt too."""
    asked = [view.prompt_logprobs, view.logprobs if view.echo else None]
    return max((number for number in asked if number is not None), default=None)


def _prompts(prompt: str | list[str | int | list[int]] | None) -> list[Prompt]:
    if prompt is None:
        raise InvalidRequestError("prompt is missing", param="prompt")
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise InvalidRequestError("prompt is an empty list", param="prompt")
    if _is_token_ids(prompt):
        return [prompt]
    if len(prompt) > MAX_PROMPTS:
        raise InvalidRequestError(f"prompt has {len(prompt)} prompts, above {MAX_PROMPTS}", param="prompt")
    return _listed(prompt)


def _is_token_ids(prompt: list[str | int | list[int]]) -> TypeGuard[list[int]]:
    return all(isinstance(item, int) for item in prompt)


def _listed(prompt: list[str | int | list[int]]) -> list[Prompt]:
    kind = str if isinstance(prompt[0], str) else list
    prompts: list[Prompt] = []
    for index, item in enumerate(prompt):
        if isinstance(item, int) or not isinstance(item, kind):
            raise InvalidRequestError(f"prompt[{index}] is of another kind than those before it", param="prompt")
        if item == []:
            raise InvalidRequestError(f"prompt[{index}] has no tokens", param="prompt")
        prompts.append(item)
    return prompts
