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
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    rf" ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώ"
    "ᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓"
    "𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_CJK = "[一-龥ࠀ-一가-퟿]+"
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_DEEPSEEK_LETTERS}]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    _DEEPSEEK_CJK,
    r"\p{N}+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")


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
    "deepseek-coder": WordRule(_splits(*_DEEPSEEK_CODER)),
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
