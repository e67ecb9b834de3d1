"""Chat templates: messages to the prompt that the model was trained on."""

import re
from collections.abc import Callable, Mapping, Sequence

from jinja2 import TemplateError, TemplateSyntaxError

from halfmoon.errors import InvalidRequestError, ModelError
from halfmoon.text.sandbox import compile_template, render_bounded
from halfmoon.text.tokenizer import Tokenizer

Message = Mapping[str, object]
"""One message: `role`, `content` and whatever else the template knows; values as JSON has them."""

_ROLE = re.compile(r"[\w.-]{1,64}")
# What a template meets when it uses a value of another type than it expects.
_VALUE_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
_LONGEST_REASON = 300


class ChatTemplate:
    """A model's chat template, compiled once and rendered for each request.

    `named_tokens` are variables of the template, such as `bos_token`. Raises ModelError where the source is no Jinja.
    """

    def __init__(self, source: str, named_tokens: Mapping[str, str]) -> None:
        try:
            self._template = compile_template(source)
        except TemplateSyntaxError as error:
            raise ModelError(f"the chat template is not valid, line {error.lineno}: {error.message}") from error
        self._named_tokens = dict(named_tokens)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The prompt as text. Raises InvalidRequestError where the template refuses the messages."""
        for message in messages:
            _check_role(message)
        variables: dict[str, object] = {
            **self._named_tokens,
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return render_bounded(self._template, variables)
        except (TemplateError, *_VALUE_ERRORS) as error:
            reason = " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
            raise InvalidRequestError(
                f"the model's chat template refuses these messages: {reason}", param="messages"
            ) from error

    def encode(
        self, messages: Sequence[Message], tokenizer: Tokenizer, *, add_generation_prompt: bool = True
    ) -> list[int]:
        """The prompt as token ids.

        Control tokens are those that the template writes; the same strings inside a message stay text. Nothing is put
        before what the template writes: it knows whether the model wants a beginning-of-sequence token.
        """
        covered = [{key: _map_strings(value, tokenizer.shield.cover) for key, value in m.items()} for m in messages]
        text = self.render(covered, add_generation_prompt=add_generation_prompt)
        if covered == list(messages):
            return tokenizer.encode(text, add_special=False)
        return tokenizer.shield.encode(text)


def _check_role(message: Message) -> None:
    """Some templates write a role between the marks of a control token, so it has to be a plain word."""
    role = message.get("role")
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise InvalidRequestError("each message needs a role: a word such as 'user' or 'assistant'", param="messages")


def _map_strings(value: object, change: Callable[[str], str]) -> object:
    """A JSON value with every string in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map_strings(key, change): _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_strings(item, change) for item in value]
    return value
