"""How byte-level BPE models cut text into words before merging.

Rules go by the name that a GGUF file gives (`tokenizer.ggml.pre`). The patterns are those of the tokenizers that the
models were trained with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.normalizers import NFC, Normalizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as Steps

from halfmoon.errors import ModelError

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cl100k(number: str) -> str:
    """The family of patterns that began with OpenAI's cl100k; its members differ in how many digits stay together."""
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"


def _o200k(contractions: str, number: str) -> str:
    """The family of OpenAI's o200k, which also cuts where lower case is followed by upper case."""
    start = r"[^\r\n\p{L}\p{N}]?"
    words = rf"{start}{_UPPER}*{_LOWER}+{contractions}|{start}{_UPPER}+{_LOWER}*{contractions}"
    return rf"{words}|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_DEEPSEEK_3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    rf" ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
# Escaped, since editors compose some of these characters into others.
_DEEPSEEK_LETTERS = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-"
    "\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-"
    "\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80"
    "-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-"
    "\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_DEEPSEEK_LETTERS}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    _DEEPSEEK_CJK,
    r"\p{N}",
)


def _gpt2() -> PreTokenizer:
    return ByteLevel(add_prefix_space=False, use_regex=True)


def _gpt2_with_single_digits() -> PreTokenizer:
    return Steps([Digits(individual_digits=True), _gpt2()])


def _splits(*patterns: str) -> Callable[[], PreTokenizer]:
    def make() -> PreTokenizer:
        splits: list[PreTokenizer] = [Split(Regex(pattern), behavior="isolated") for pattern in patterns]
        return Steps([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])

    return make


@dataclass(frozen=True, slots=True)
class WordRule:
    """How text is prepared for byte-level BPE.

    `whole_words`: a word that is itself in the vocabulary is taken as it is, without merging. `nfc`: text is composed
    first. `add_bos`: raw prompts begin with the beginning-of-sequence token unless the file says otherwise.
    """

    make_pre_tokenizer: Callable[[], PreTokenizer]
    whole_words: bool = False
    nfc: bool = False
    add_bos: bool = False

    def make_normalizer(self) -> Normalizer | None:
        """The normaliser, where the rule has one."""
        return NFC() if self.nfc else None


_LLAMA_3 = WordRule(_splits(_cl100k(r"\p{N}{1,3}")), whole_words=True, add_bos=True)
_QWEN_2 = WordRule(_splits(_cl100k(r"\p{N}")), nfc=True)
_GPT_2 = WordRule(_gpt2)
_SINGLE_DIGITS = WordRule(_gpt2_with_single_digits)
_GPT_4O = WordRule(_splits(_o200k(f"{_CONTRACTIONS}?", r"\p{N}{1,3}")))

_RULES: Mapping[str, WordRule] = {
    "gpt-2": _GPT_2,
    "phi-2": _GPT_2,
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "llama3": _LLAMA_3,
    "llama-v3": _LLAMA_3,
    "llama-bpe": _LLAMA_3,
    "qwen2": _QWEN_2,
    "deepseek-r1-qwen": _QWEN_2,
    "deepseek-llm": WordRule(_splits(*_DEEPSEEK_LLM)),
    "deepseek-v3": WordRule(_splits(*_DEEPSEEK_3)),
    "tekken": WordRule(_splits(_o200k("", r"\p{N}")), whole_words=True, add_bos=True),
    "gpt-4o": _GPT_4O,
    "llama4": _GPT_4O,
}


def word_rule(name: str) -> WordRule:
    """Raises ModelError that names the pre-tokenizer and lists those that are supported."""
    if name not in _RULES:
        raise ModelError(
            f"pre-tokenizer {name!r} (tokenizer.ggml.pre) is not supported; supported: {', '.join(_RULES)}"
        )
    return _RULES[name]
