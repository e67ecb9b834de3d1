"""Makes `data/sentencepiece.json`: a small SentencePiece model, and the ids that SentencePiece gives to many texts.

Run from the root of the repository, in an environment that has sentencepiece (Halfmoon does not need it):

    python -m tests.text.make_sentencepiece

The committed file was made with sentencepiece 0.2.3; it names its version.
"""

import io
import json
import random
from pathlib import Path

import sentencepiece  # type: ignore[import-not-found]

DATA = Path(__file__).parent / "data/sentencepiece.json"
CONTROLS = ["[INST]", "[/INST]"]
MORE = "def f(x):\n    return x  # ======\n</s> [INST]\nПривет, мир! 中国的首都是北京 🙂 naïve café\n"
FRAGMENTS = [
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\t",
    "a",
    "aa",
    "the",
    " the",
    "=",
    "==",
    "--",
    "🙂",
    "中",
    "国",
    "é",
    "e\u0301",
    "</s>",
    "return",
]
RANDOM_TEXTS = 240


def main() -> None:
    """Train on a text that never changes, and encode."""
    corpus = Path("LICENSE").read_text() + MORE * 5
    model = _train(corpus)
    texts = [*_fixed(), *_random(corpus)]
    content = {
        "made_with": f"sentencepiece {sentencepiece.__version__}",
        "pieces": [[model.id_to_piece(i), round(model.get_score(i), 6), _type(model, i)] for i in range(len(model))],
        "cases": [[text, model.encode(text)] for text in texts],
    }
    DATA.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("],[", "],\n[") + "\n")


def _train(corpus: str) -> sentencepiece.SentencePieceProcessor:
    """As Llama's was: BPE, bytes for what is unknown, no normalisation."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus.splitlines()),
        model_writer=trained,
        model_type="bpe",
        vocab_size=800,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        control_symbols=CONTROLS,
        num_threads=1,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())


def _type(model: sentencepiece.SentencePieceProcessor, number: int) -> int:
    """GGUF's type of a token."""
    if model.is_unknown(number):
        return 2
    if model.is_control(number):
        return 3
    return 6 if model.is_byte(number) else 1


def _fixed() -> list[str]:
    return [
        "",
        " ",
        "  leading",
        "trailing  ",
        "a\nb\r\n",
        "\x00",
        "▁",
        "🙂🙃👨‍👩‍👧‍👦",
        "</s",
        "<0x0A>",
        "=" * 70,
        " " * 70,
        "a" * 70,
    ]


def _random(corpus: str) -> list[str]:
    source = random.Random(3)
    texts = []
    for _ in range(RANDOM_TEXTS // 3):
        start = source.randrange(len(corpus) - 200)
        texts.append(corpus[start : start + source.randint(1, 120)])
        texts.append("".join(source.choice(FRAGMENTS) for _ in range(source.randint(1, 40))))
        texts.append("".join(_character(source) for _ in range(source.randint(1, 20))))
    return texts


def _character(source: random.Random) -> str:
    ranges = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x5FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0x1F300, 0x1FAFF)]
    return chr(source.randint(*source.choice(ranges)))


if __name__ == "__main__":
    main()
