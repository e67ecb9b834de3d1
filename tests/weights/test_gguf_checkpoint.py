"""GGUF files of every architecture as checkpoints, and files that cannot be served."""

import math
from pathlib import Path

import numpy as np
import pytest

from halfmoon.errors import ModelError
from halfmoon.weights import open_checkpoint
from halfmoon.weights.gguf_header import read_gguf_header
from tests.models.families import FAMILIES, SPECS, hf_config, make_weights, write_gguf
from tests.weights.gguf_building import HEAD_DIM, HIDDEN, INNER, Tensor, Value, build_gguf


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_have_hugging_face_names_shapes_and_row_order(family: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_gguf(family, tmp_path / "model.gguf"))
    weights = make_weights(family)
    assert sorted(checkpoint.names()) == sorted(weights)
    for name, expected in weights.items():
        assert checkpoint.tensors[name].shape == expected.shape
        np.testing.assert_array_equal(checkpoint.read(name), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_config_is_the_one_that_hugging_face_would_have(family: str, tmp_path: Path) -> None:
    config = open_checkpoint(write_gguf(family, tmp_path / "model.gguf")).config
    expected = {key: value for key, value in hf_config(family).items() if key not in ("torch_dtype", "sliding_window")}
    if family == "mistral":  # GGUF files of Mistral's models call themselves llama
        expected |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    assert {key: config[key] for key in expected} == expected
    assert config["attention_bias"] == SPECS[family].qkv_bias


def test_rows_of_q_and_k_are_stored_in_another_order_by_llama_alone(tmp_path: Path) -> None:
    stored = {}
    for family in ("llama", "qwen2"):
        path = write_gguf(family, tmp_path / f"{family}.gguf")
        info = read_gguf_header(path).tensors["blk.0.attn_q.weight"]
        raw = np.fromfile(path, np.float32, math.prod(info.shape), offset=info.offset).reshape(info.shape)
        stored[family] = np.array_equal(raw, make_weights(family)["model.layers.0.self_attn.q_proj.weight"])
    assert stored == {"llama": False, "qwen2": True}


def test_all_end_tokens_and_sampling_defaults_reach_the_generation_config(tmp_path: Path) -> None:
    metadata: dict[str, Value] = {
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 7,
        "tokenizer.ggml.eom_token_id": 2,
        "general.sampling.temp": 0.7,
        "general.sampling.top_k": 20,
    }
    config = open_checkpoint(build_gguf(tmp_path / "model.gguf", metadata=metadata)).generation_config
    assert config == {"bos_token_id": 1, "eos_token_id": [2, 7], "temperature": 0.7, "top_k": 20}


def test_a_file_without_an_output_tensor_ties_the_head(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(build_gguf(tmp_path / "model.gguf", tensors={"output.weight": None}))
    assert checkpoint.config["tie_word_embeddings"] is True
    assert "lm_head.weight" not in checkpoint.names()


def test_the_rope_table_of_llama_3_becomes_its_parameters(tmp_path: Path) -> None:
    theta, factor = 500_000.0, 32.0
    divisors = []
    for index in range(HEAD_DIM // 2):
        wavelength = 2 * math.pi * theta ** (2 * index / HEAD_DIM)
        share = min(1.0, max(0.0, (8192 / wavelength - 1) / 3))
        divisors.append(1 / ((1 - share) / factor + share))
    path = build_gguf(
        tmp_path / "model.gguf",
        metadata={"llama.rope.freq_base": theta},
        tensors={"rope_freqs.weight": np.array(divisors, np.float32)},
    )
    checkpoint = open_checkpoint(path)
    assert checkpoint.config["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert not any("rope" in name for name in checkpoint.names())


def test_other_rope_scaling_is_named_in_the_config(tmp_path: Path) -> None:
    metadata: dict[str, Value] = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    config = open_checkpoint(build_gguf(tmp_path / "model.gguf", metadata=metadata)).config
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


def test_head_size_may_differ_from_hidden_size_by_heads(tmp_path: Path) -> None:
    metadata: dict[str, Value] = {
        "llama.attention.key_length": 32,
        "llama.attention.value_length": 32,
        "llama.rope.dimension_count": 32,
    }
    tensors: dict[str, Tensor] = {
        "blk.0.attn_q.weight": np.zeros((4 * 32, HIDDEN), np.float32),
        "blk.0.attn_k.weight": np.zeros((2 * 32, HIDDEN), np.float32),
        "blk.0.attn_v.weight": np.zeros((2 * 32, HIDDEN), np.float32),
        "blk.0.attn_output.weight": np.zeros((HIDDEN, 4 * 32), np.float32),
    }
    path = build_gguf(tmp_path / "model.gguf", metadata=metadata, tensors=tensors)
    assert open_checkpoint(path).config["head_dim"] == 32


def test_an_unsupported_architecture_is_named_with_the_supported_ones(tmp_path: Path) -> None:
    path = build_gguf(tmp_path / "model.gguf", architecture="gemma2")
    message = r"architecture gemma2 is not supported; supported are .*llama.*qwen2.*qwen3"
    with pytest.raises(ModelError, match=message):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.expert_count": 8}, "mixture of experts is not supported"),
        ({"split.count": 3}, "one part of a split GGUF: merge"),
        ({"llama.block_count": None}, r"lacks the metadata llama\.block_count"),
        ({"llama.embedding_length": "wide"}, r"llama\.embedding_length = wide, which is not supported"),
        ({"llama.attention.head_count_kv": [2, 1]}, r"head_count_kv = \[2, 1\], which is not supported"),
        ({"llama.rope.dimension_count": 32}, "rotates only a part of each head"),
        ({"llama.attention.value_length": 32}, "values of another size than its keys"),
        ({"llama.block_count": 2}, r"layers\.1\.input_layernorm\.weight is missing; .* and 4 more; download"),
        ({"llama.feed_forward_length": 128}, r"gate_proj\.weight has shape \[256, 256\], expected \[128, 256\]"),
    ],
)
def test_metadata_that_cannot_be_served_are_one_line(
    tmp_path: Path, metadata: dict[str, Value | None], message: str
) -> None:
    path = build_gguf(tmp_path / "model.gguf", metadata=metadata)
    with pytest.raises(ModelError, match=message) as error:
        open_checkpoint(path)
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"blk.0.ffn_up.weight": None}, r"model\.layers\.0\.mlp\.up_proj\.weight is missing"),
        ({"token_embd.weight": None}, r"lacks the tensor token_embd\.weight"),
        ({"blk.0.ffn_down.weight": np.zeros((HIDDEN, INNER // 2), np.float32)}, r"expected \[256, 256\]"),
        ({"blk.0.ffn_gate_exps.weight": np.zeros((2, 2), np.float32)}, "which no supported architecture has"),
        ({"rope_freqs.weight": np.linspace(1, 9, HEAD_DIM // 2, dtype=np.float32)}, "is not Llama 3's"),
    ],
)
def test_tensors_that_do_not_fit_are_one_line(tmp_path: Path, tensors: dict[str, Tensor | None], message: str) -> None:
    path = build_gguf(tmp_path / "model.gguf", tensors=tensors)
    with pytest.raises(ModelError, match=message) as error:
        open_checkpoint(path)
    assert "\n" not in error.value.message


def test_an_unknown_tensor_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no tensor model\.layers\.9"):
        open_checkpoint(build_gguf(tmp_path / "model.gguf")).read("model.layers.9.mlp.up_proj.weight")
