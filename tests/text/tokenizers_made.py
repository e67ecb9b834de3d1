"""Small tokenizers of the two kinds in use, made on the spot, and folders and GGUF files that hold them."""

import json
from collections.abc import Sequence
from pathlib import Path

from gguf import GGUFWriter
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE

CONTROLS = ("<|bos|>", "<|im_start|>", "<|im_end|>")
CORPUS = ("the cat sat on the mat ", "hello world hello there ", "Привет, мир! 中国的首都是北京 🙂🙃 naïve café\n") * 3
CHAT = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] | trim }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_level(*, nfkc: bool = False) -> Tokenizer:
    """Byte-level BPE of 300 tokens: three control tokens, the bytes, and merges of `CORPUS`."""
    backend = Tokenizer(BPE())
    if nfkc:
        backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    controls: list[str | AddedToken] = [AddedToken(token, special=True, normalized=nfkc) for token in CONTROLS]
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=controls,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def sentencepiece() -> Tokenizer:
    """BPE as Llama-2 has it: spaces as U+2581, one put before the text, bytes for unknown characters."""
    trained = Tokenizer(BPE())
    trained.normalizer = _metaspace()
    trained.train_from_iterator(CORPUS[:2], trainers.BpeTrainer(vocab_size=80, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *model["vocab"]]
    merges = [(left, right) for left, right in model["merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    backend = Tokenizer(BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = _metaspace()
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tokens[:3]])
    return backend


def _metaspace() -> normalizers.Normalizer:
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def write_folder(folder: Path, backend: Tokenizer, config: dict[str, object] | None = None) -> Path:
    """The tokenizer's part of a Hugging Face folder."""
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def write_gguf(
    file: Path, tokens: Sequence[str], *, pre: str = "gpt-2", model: str = "gpt2", add_bos: bool | None
) -> Path:
    """A GGUF file with a tokenizer and nothing else; its first tokens are `CONTROLS`, and there are no merges."""
    writer = GGUFWriter(file, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(list(tokens))
    writer.add_token_types([3 if token in CONTROLS else 4 if token == "<think>" else 1 for token in tokens])
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHAT)
    if add_bos is not None:
        writer.add_add_bos_token(add_bos)
    return _written(writer, file)


def write_sentencepiece_gguf(
    file: Path,
    pieces: Sequence[tuple[str, float, int]],
    *,
    add_space_prefix: bool | None = None,
    scores: int | None = None,
) -> Path:
    """A GGUF file with a SentencePiece vocabulary (piece, score, type) that begins with <unk>, <s> and </s>.

    `scores` keeps only so many scores.
    """
    writer = GGUFWriter(file, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece for piece, _, _ in pieces])
    writer.add_token_scores([score for _, score, _ in pieces][:scores])
    writer.add_token_types([kind for _, _, kind in pieces])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if add_space_prefix is not None:
        writer.add_add_space_prefix(add_space_prefix)
    return _written(writer, file)


def write_gguf_without_tokenizer(file: Path) -> Path:
    """A GGUF file that names its architecture alone."""
    return _written(GGUFWriter(file, "llama"), file)


def _written(writer: GGUFWriter, file: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
