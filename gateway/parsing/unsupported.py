"""Parameters that other servers know and that would change the answer: refused by name unless they ask for nothing."""

from collections.abc import Mapping

import msgspec

from halfmoon.errors import InvalidRequestError

Harmless = Mapping[str, tuple[object, ...]]
"""Parameter names, each with the values (besides null) that ask for nothing."""

_COMMON: Harmless = {
    "allowed_token_ids": (),
    "bad_words": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "length_penalty": (1.0,),
    "logits_processors": ([],),
    "prompt_embeds": (),
    "structured_outputs": (),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
}

COMPLETIONS: Harmless = {
    **_COMMON,
    "add_special_tokens": (True,),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
}

CHAT: Harmless = {
    **_COMMON,
    "add_special_tokens": (False,),
    "audio": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "web_search_options": (),
}


def refuse_unsupported(body: bytes, harmless: Harmless) -> None:
    """Raises InvalidRequestError for the first parameter that asks for something; `body` is a valid JSON object."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    for name in harmless.keys() & fields.keys():
        value: object = msgspec.json.decode(fields[name])
        if value is not None and value not in harmless[name]:
            raise InvalidRequestError(f"{name} is not supported", param=name)
