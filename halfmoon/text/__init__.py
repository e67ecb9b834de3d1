"""Text and tokens: tokenizer, chat template, incremental detokeniser, stop strings. No JAX here."""

from halfmoon.text.chat import ChatTemplate, Message
from halfmoon.text.detokenizer import IncrementalDetokenizer
from halfmoon.text.model import TextModel, load_text_model
from halfmoon.text.saving import save_gguf_text
from halfmoon.text.stops import StopMatcher, StopResult
from halfmoon.text.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "IncrementalDetokenizer",
    "Message",
    "StopMatcher",
    "StopResult",
    "TextModel",
    "Tokenizer",
    "load_text_model",
    "save_gguf_text",
]
