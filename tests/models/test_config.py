"""A model's dimensions come from its config; what would be computed wrongly is refused."""

import pytest

from halfmoon.errors import ModelError
from halfmoon.models.registry import model_config
from halfmoon.weights.rope_scaling import LinearScaling, Llama3Scaling
from tests.models.families import CONTEXT, FAMILIES, LLAMA3_SCALING, SPECS, VOCABULARY, hf_config


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
        ({"rope_scaling": {"rope_type": "longrope", "factor": 8.0}}, "longrope"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "yarn"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"model_type": "mistral", "architectures": None, "sliding_window": 128}, "128 of its 512 tokens"),
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


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_yarn_is_refused_in_one_line(family: str) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    with pytest.raises(ModelError, match=r"'yarn' is not supported; supported: default, linear, llama3"):
        model_config(config_of(family, rope_scaling=scaling))


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_both_names_of_the_rope_scaling_mean_the_same(key: str) -> None:
    config = config_of("llama3", rope_scaling=None) | {key: LLAMA3_SCALING}
    assert model_config(config).rope_scaling == Llama3Scaling(8.0, 1.0, 4.0, 8192)
    old = config_of("llama", **{key: {"type": "linear", "factor": 2.0}})
    assert model_config(old).rope_scaling == LinearScaling(2.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"factor": None}, "factor"),
        ({"factor": 0}, "factor"),
        ({"original_max_position_embeddings": "long"}, "original_max_position_embeddings"),
        ({"high_freq_factor": 1.0}, "low_freq_factor 1.0 and high_freq_factor 1.0"),
    ],
)
def test_a_scaling_that_lacks_a_number_is_refused(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        model_config(config_of("llama3", rope_scaling=LLAMA3_SCALING | changes))


@pytest.mark.parametrize("window", [None, CONTEXT, 4096])
def test_a_window_that_hides_nothing_is_accepted(window: int | None) -> None:
    model_config(hf_config("mistral") | {"sliding_window": window})


def test_a_mistral_config_that_leaves_its_window_out_means_4096_tokens() -> None:
    config = config_of("mistral", max_position_embeddings=8192)
    assert "sliding_window" not in config
    with pytest.raises(ModelError, match="4096 of its 8192 tokens"):
        model_config(config)
