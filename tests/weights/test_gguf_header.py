"""The header reader, judged by the `gguf` package's reader and by damaged files."""

import contextlib
from pathlib import Path

import pytest
from gguf import GGUFReader, GGUFWriter

from halfmoon.errors import ModelError
from halfmoon.weights.gguf_header import GgufHeader, read_gguf_header
from tests.weights.gguf_building import Value, build_gguf

TOKENS = ["<s>", "é", "Ġthe", ""]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    metadata: dict[str, Value] = {
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3, 1, 1, 1],
        "general.flag": True,
    }
    return build_gguf(tmp_path / "tiny.gguf", metadata=metadata)


def test_metadata_are_those_the_gguf_package_reads(file: Path) -> None:
    expected = {name: field.contents() for name, field in GGUFReader(file).fields.items() if name[:5] != "GGUF."}
    assert dict(read_gguf_header(file).metadata) == expected
    assert expected["tokenizer.ggml.tokens"] == TOKENS


def test_tensors_are_those_the_gguf_package_reads(file: Path) -> None:
    expected = {
        tensor.name: (tensor.tensor_type, tuple(tensor.shape[::-1]), tensor.data_offset, tensor.n_bytes)
        for tensor in GGUFReader(file).tensors
    }
    header = read_gguf_header(file)
    assert {
        name: (info.type, info.shape, info.offset, info.nbytes) for name, info in header.tensors.items()
    } == expected


def test_every_scalar_type_and_nested_arrays_are_read(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "scalars.gguf", "llama")
    writer.add_uint8("a", 250)
    writer.add_int8("b", -3)
    writer.add_uint16("c", 60_000)
    writer.add_int16("d", -300)
    writer.add_int32("e", -70_000)
    writer.add_float32("f", 0.5)
    writer.add_uint64("g", 1 << 40)
    writer.add_int64("h", -(1 << 40))
    writer.add_float64("i", 0.1)
    writer.add_bool("j", False)
    writer.add_array("k", [[1, 2], [3]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = read_gguf_header(tmp_path / "scalars.gguf").metadata
    assert [metadata[key] for key in "abcde"] == [250, -3, 60_000, -300, -70_000]
    assert [metadata[key] for key in "fghij"] == [0.5, 1 << 40, -(1 << 40), 0.1, False]
    assert metadata["k"] == [[1, 2], [3]]


def test_an_unchanged_file_is_parsed_once_and_a_changed_one_again(file: Path) -> None:
    first = read_gguf_header(file)
    assert read_gguf_header(file) is first
    build_gguf(file, metadata={"general.name": "another"})
    assert read_gguf_header(file).metadata["general.name"] == "another"


def test_a_file_cut_anywhere_is_one_line(file: Path) -> None:
    content, cut = file.read_bytes(), file.with_name("cut.gguf")
    header_end = read_gguf_header(file).tensors["token_embd.weight"].offset
    for length in [*range(0, header_end, 7), header_end, len(content) - 1]:
        cut.write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"is damaged or truncated \(.*\): download or copy it again") as error:
            read_gguf_header(cut)
        assert "\n" not in error.value.message


def test_any_damaged_byte_of_the_header_is_read_or_refused_at_once(file: Path) -> None:
    content, damaged = bytearray(file.read_bytes()), file.with_name("damaged.gguf")
    header_end = read_gguf_header(file).tensors["token_embd.weight"].offset
    for position in range(0, header_end):
        original = content[position]
        content[position] = 0xFF
        damaged.write_bytes(content[: header_end + 64])
        content[position] = original
        with contextlib.suppress(ModelError):
            assert isinstance(read_gguf_header(damaged), GgufHeader)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged or truncated"),
        (b"PK\x03\x04 a zip file", "is no GGUF file"),
        (b"GGUF" + (1).to_bytes(4, "little") + bytes(16), "has GGUF version 1"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(16), "has GGUF version 50331648; supported are little-endian"),
    ],
    ids=["empty", "zip", "old", "big-endian"],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        read_gguf_header(path)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read .*none\.gguf: No such file"):
        read_gguf_header(tmp_path / "none.gguf")
