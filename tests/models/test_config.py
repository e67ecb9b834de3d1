"""A model's dimensions come from its config; what would be computed wrongly is refused."""

import pytest

from halfmoon.errors import ModelError
from halfmoon.models.registry import model_config
from tests.models.families import CONTEXT, FAMILIES, SPECS, VOCABULARY, hf_config


def config_of(family: str, **changes: object) -> dict[str, object]:
    """A family's config with changes; None removes a key."""
    return {key: value for key, value in (hf_config(family) | changes).items() if value is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_dimensions_and_switches_of_every_family(family: str) -> None:
    config, spec = model_config(hf_config(family)), SPECS[family]
    assert (config.hidden, config.intermediate, config.layers) == (spec.hidden, spec.inner, spec.layers)
    assert (config.heads, config.kv_heads, config.head_dim) == (spec.heads, spec.kv_heads, spec.head_dim)
    assert (config.rope_theta, config.norm_eps, config.tied_head) == (spec.rope_theta, spec.norm_eps, spec.tied)
    assert (config.qkv_bias, config.output_bias, config.qk_norm) == (spec.qkv_bias, spec.output_bias, spec.qk_norm)
    assert (config.vocab_size, config.max_model_len) == (VOCABULARY, CONTEXT)


def test_what_a_config_may_leave_out() -> None:
    bare = config_of("llama", num_key_value_heads=None, head_dim=None, rope_theta=None, tie_word_embeddings=None)
    config = model_config(bare)
    assert (config.kv_heads, config.head_dim, config.rope_theta, config.tied_head) == (4, 16, 10_000.0, False)


def test_the_base_of_the_rotation_may_stand_among_the_rope_parameters() -> None:
    parameters = {"rope_type": "default", "rope_theta": 5e5}
    assert model_config(config_of("llama", rope_theta=None, rope_parameters=parameters)).rope_theta == 5e5


@pytest.mark.parametrize(
    ("family", "biases"), [("llama", (True, True)), ("qwen2", (True, False)), ("qwen3", (True, True))]
)
def test_attention_bias_means_what_each_family_means_by_it(family: str, biases: tuple[bool, bool]) -> None:
    config = model_config(config_of(family, attention_bias=True))
    assert (config.qkv_bias, config.output_bias) == biases


def test_the_geometry_of_pages_follows_from_the_model() -> None:
    geometry = model_config(hf_config("qwen3")).geometry(64, "bfloat16")
    assert geometry.shape == (3, 2, 64, 48)
    assert geometry.block_bytes == 3 * 2 * 64 * 48 * 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "yarn"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
    ],
)
def test_what_is_not_supported_is_named(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ModelError, match="not supported") as caught:
        model_config(config_of("llama", **changes))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
