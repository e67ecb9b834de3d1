"""Dequantisation of every supported type: against the `gguf` package, and against the formulas written out here."""

import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from halfmoon.errors import ModelError
from halfmoon.weights import open_checkpoint
from tests.weights.gguf_building import HIDDEN, VOCABULARY, build_gguf

NAME = "token_embd.weight"
Type = GGMLQuantizationType


def read_embedding(folder: Path, stored: NDArray[np.uint8], kind: Type) -> NDArray[np.float32]:
    path = build_gguf(folder / f"{kind.name}.gguf", tensors={NAME: (stored, kind)})
    tensor: NDArray[np.float32] = open_checkpoint(path).read("model.embed_tokens.weight")
    return tensor


def random_values() -> NDArray[np.float32]:
    return np.random.RandomState(11).standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)


def random_blocks(kind: Type) -> NDArray[np.uint8]:
    """Random bytes with sound half-precision scales, for the types that the package cannot quantise to."""
    random = np.random.RandomState(12)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    blocks = random.randint(0, 256, (VOCABULARY, HIDDEN // block, block_bytes)).astype(np.uint8)
    scale_at = {Type.Q2_K: (80, 82), Type.Q3_K: (108,), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,)}[kind]
    for at in scale_at:
        scales = random.uniform(-0.1, 0.1, blocks.shape[:2]).astype(np.float16)
        blocks[:, :, at : at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(VOCABULARY, -1)


def q4_0(block: bytes) -> list[float]:
    (scale,), codes = struct.unpack("<e", block[:2]), block[2:]
    return [scale * ((code & 15) - 8) for code in codes] + [scale * ((code >> 4) - 8) for code in codes]


def q4_1(block: bytes) -> list[float]:
    (scale, low), codes = struct.unpack("<2e", block[:4]), block[4:]
    return [scale * (code & 15) + low for code in codes] + [scale * (code >> 4) + low for code in codes]


def q5_0(block: bytes) -> list[float]:
    """32 values; the fifth bits of all codes lie together in four bytes."""
    scale, fifth = struct.unpack("<eI", block[:6])
    return [scale * (code - 16) for code in _five_bits(block[6:], fifth)]


def q5_1(block: bytes) -> list[float]:
    scale, low, fifth = struct.unpack("<2eI", block[:8])
    return [scale * code + low for code in _five_bits(block[8:], fifth)]


def _five_bits(codes: bytes, fifth: int) -> list[int]:
    nibbles = [code & 15 for code in codes] + [code >> 4 for code in codes]
    return [nibble | (fifth >> index & 1) << 4 for index, nibble in enumerate(nibbles)]


def q8_0(block: bytes) -> list[float]:
    (scale,) = struct.unpack("<e", block[:2])
    return [scale * code for code in struct.unpack("32b", block[2:])]


def q2_k(block: bytes) -> list[float]:
    """256 values in 16 groups of 16; a byte for each group's scale and minimum."""
    packed, codes = block[:16], block[16:80]
    scale, minimum = struct.unpack("<2e", block[80:])
    values = []
    for index in range(256):
        group = packed[index // 16]
        values.append(scale * (group & 15) * _two_bits(codes, index) - minimum * (group >> 4))
    return values


def q3_k(block: bytes) -> list[float]:
    """256 values in 16 groups of 16; third bits apart and inverted, 6-bit scales packed in 12 bytes."""
    third, codes, packed, (scale,) = block[:32], block[32:96], block[96:108], struct.unpack("<e", block[108:])
    scales = []
    for group in range(16):
        low = packed[group % 8] >> (4 if group >= 8 else 0) & 15
        high = packed[8 + group % 4] >> (2 * (group // 4)) & 3
        scales.append((low | high << 4) - 32)
    values = []
    for index in range(256):
        lowered = 0 if third[index % 32] >> (index // 32) & 1 else 4
        values.append(scale * scales[index // 16] * (_two_bits(codes, index) - lowered))
    return values


def _two_bits(codes: bytes, index: int) -> int:
    """Each half of 128 values lies in 32 bytes, a quarter of it in two bits of each."""
    half, rest = divmod(index, 128)
    quarter, lane = divmod(rest, 32)
    return codes[32 * half + lane] >> (2 * quarter) & 3


def q4_k(block: bytes) -> list[float]:
    """256 values in 8 groups of 32; 6-bit scales and minima packed in 12 bytes."""
    scale, minimum = struct.unpack("<2e", block[:4])
    codes = block[16:]
    values = []
    for group, (group_scale, group_min) in enumerate(_six_bit_pairs(block[4:16])):
        for code in codes[32 * (group // 2) : 32 * (group // 2) + 32]:
            nibble = code >> 4 if group % 2 else code & 15
            values.append(scale * group_scale * nibble - minimum * group_min)
    return values


def q5_k(block: bytes) -> list[float]:
    """Like Q4_K, with a fifth bit of each code in 32 bytes more."""
    scale, minimum = struct.unpack("<2e", block[:4])
    fifth, codes = block[16:48], block[48:]
    values = []
    for group, (group_scale, group_min) in enumerate(_six_bit_pairs(block[4:16])):
        for lane, code in enumerate(codes[32 * (group // 2) : 32 * (group // 2) + 32]):
            nibble = code >> 4 if group % 2 else code & 15
            value = nibble | (fifth[lane] >> group & 1) << 4
            values.append(scale * group_scale * value - minimum * group_min)
    return values


def _six_bit_pairs(packed: bytes) -> list[tuple[int, int]]:
    """Scale and minimum of 8 groups from 12 bytes."""
    pairs = [(packed[group] & 63, packed[group + 4] & 63) for group in range(4)]
    for group in range(4, 8):
        scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6 << 4)
        pairs.append((scale, (packed[group + 4] >> 4) | (packed[group] >> 6 << 4)))
    return pairs


def q6_k(block: bytes) -> list[float]:
    """256 values in 16 groups of 16; four low bits and two high bits of each code lie apart."""
    low, high = block[:128], block[128:192]
    scales, (scale,) = struct.unpack("16b", block[192:208]), struct.unpack("<e", block[208:])
    values = []
    for index in range(256):
        half, rest = divmod(index, 128)
        quarter, lane = divmod(rest, 32)
        byte = low[64 * half + 32 * (quarter % 2) + lane]
        nibble = byte >> 4 if quarter >= 2 else byte & 15
        bits = high[32 * half + lane] >> (2 * quarter) & 3
        values.append(scale * scales[index // 16] * ((nibble | bits << 4) - 32))
    return values


FORMULAS = {
    Type.Q4_0: q4_0,
    Type.Q4_1: q4_1,
    Type.Q5_0: q5_0,
    Type.Q5_1: q5_1,
    Type.Q8_0: q8_0,
    Type.Q2_K: q2_k,
    Type.Q3_K: q3_k,
    Type.Q4_K: q4_k,
    Type.Q5_K: q5_k,
    Type.Q6_K: q6_k,
}
BY_PACKAGE = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1]
"""Types that the package can quantise to."""


def stored_blocks(kind: Type) -> NDArray[np.uint8]:
    if kind not in BY_PACKAGE:
        return random_blocks(kind)
    blocks: NDArray[np.uint8] = quantize(random_values(), kind)
    return blocks


@pytest.mark.parametrize("kind", FORMULAS, ids=lambda kind: kind.name)
def test_a_quantised_tensor_has_the_values_of_its_formula(tmp_path: Path, kind: Type) -> None:
    stored = stored_blocks(kind)
    block_bytes = GGML_QUANT_SIZES[kind][1]
    expected = [FORMULAS[kind](block.tobytes()) for block in stored.reshape(-1, block_bytes)]
    tensor = read_embedding(tmp_path, stored, kind)
    assert tensor.dtype == np.float32
    np.testing.assert_allclose(tensor, np.reshape(expected, (VOCABULARY, HIDDEN)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", FORMULAS, ids=lambda kind: kind.name)
def test_reading_in_pieces_changes_nothing(tmp_path: Path, kind: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.weights.gguf_tensors._PIECE_BYTES", 5 * HIDDEN * 4)
    stored = stored_blocks(kind)
    np.testing.assert_array_equal(read_embedding(tmp_path, stored, kind), dequantize(stored, kind))


@pytest.mark.parametrize("kind", BY_PACKAGE, ids=lambda kind: kind.name)
def test_a_quantised_tensor_stays_close_to_what_was_quantised(tmp_path: Path, kind: Type) -> None:
    tensor = read_embedding(tmp_path, stored_blocks(kind), kind)
    steps = {Type.Q8_0: 255, Type.Q5_0: 31, Type.Q5_1: 31}.get(kind, 15)
    spread = float(np.ptp(random_values()))
    assert float(np.abs(tensor - random_values()).max()) < spread / steps


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(Type.F32, np.float32), (Type.F16, np.float16), (Type.BF16, ml_dtypes.bfloat16)],
    ids=["F32", "F16", "BF16"],
)
def test_a_plain_tensor_keeps_its_type_and_its_bits(tmp_path: Path, kind: Type, dtype: type) -> None:
    values: NDArray[Any] = random_values().astype(dtype)
    tensor = read_embedding(tmp_path, values.view(np.uint8), kind)
    assert tensor.dtype == dtype
    np.testing.assert_array_equal(tensor, values)


def test_what_is_read_outlives_the_file(tmp_path: Path) -> None:
    path = build_gguf(tmp_path / "model.gguf")
    tensor = open_checkpoint(path).read("model.norm.weight")
    before = tensor.copy()
    path.write_bytes(bytes(path.stat().st_size))
    np.testing.assert_array_equal(tensor, before)
    assert tensor.flags.writeable


@pytest.mark.parametrize("kind", [Type.Q8_K, Type.IQ4_NL], ids=lambda kind: kind.name)
def test_another_type_is_refused_by_name_with_its_tensor(tmp_path: Path, kind: Type) -> None:
    block, block_bytes = GGML_QUANT_SIZES[kind]
    stored = np.zeros((VOCABULARY, HIDDEN // block * block_bytes), np.uint8)
    with pytest.raises(ModelError, match=rf"token_embd\.weight in type {kind.name}, .*Q4_K, Q5_K, Q6_K"):
        read_embedding(tmp_path, stored, kind)


def test_a_file_that_shrinks_after_opening_is_one_line(tmp_path: Path) -> None:
    path = build_gguf(tmp_path / "model.gguf")
    checkpoint = open_checkpoint(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match="changed since it was opened"):
        checkpoint.read("model.norm.weight")
