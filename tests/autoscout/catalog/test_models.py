from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autoscout.catalog.models import ModelShape, model, model_from
from autoscout.catalog.published import read_config
from autoscout.core.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("llama-3.1-8b", 8.03, 8.03),
        ("llama-3.3-70b", 70.6, 70.6),
        ("llama-3.2-3b", 3.21, 3.21),
        ("qwen3-30b-a3b", 30.5, 3.3),
        ("Qwen/Qwen3-235B-A22B-FP8", 235.1, 22.2),
        ("gpt3-175b", 174.6, 174.6),
        ("deepseek-v3", 671.0, 37.5),
        ("mixtral-8x7b", 46.7, 12.9),
        ("nemotron-340b", 341.0, 341.0),
        ("Qwen/Qwen1.5-7B-Chat", 7.72, 7.72),
        ("Qwen/Qwen2-72B-Instruct", 72.7, 72.7),
        ("qwen1.5-110b", 111.2, 111.2),
        ("Qwen/Qwen2.5-3B-Instruct", 3.09, 3.09),
        ("qwen2-57b-a14b", 57.4, 14.2),
        ("zai-org/GLM-4.7-Flash", 29.9, 3.9),
        ("google/gemma-4-31B-it", 30.7, 30.7),
        ("google/gemma-4-26B-A4B-it", 25.2, 3.8),
        ("Deci/DeciLM-7B-instruct", 7.04, 7.04),
        ("baidu/ERNIE-4.5-300B-A47B-PT", 299.5, 47.0),
        ("internlm/internlm2-chat-7b", 7.74, 7.74),
        ("internlm/internlm2_5-20b-chat", 19.86, 19.86),
    ],
)
def test_parameters_match_the_published_counts(name: str, billions: float, active: float) -> None:
    shape = model(name)
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert shape.active_parameters / 1e9 == pytest.approx(active, rel=0.02)


def test_a_decimal_point_counts() -> None:
    assert model("gpt3-1.3b").layers == 24
    assert model("gpt3-13b").layers == 40


def test_unknown_models_list_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"config\.json.*qwen3-8b"):
        model("no-such-model")


def test_a_hugging_face_config_is_read(tmp_path: Path) -> None:
    config = {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_hidden_layers": 48,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "vocab_size": 151936,
        "hidden_act": "silu",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_config(tmp_path / "config.json").parameters == model("qwen3-30b-a3b").parameters
    assert model(str(tmp_path)).experts == 128


def test_latent_attention_of_a_config(tmp_path: Path) -> None:
    config = {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "num_attention_heads": 128,
        "num_hidden_layers": 61,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "vocab_size": 129280,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = read_config(tmp_path / "config.json")
    assert shape.kv_width == 576
    assert shape.attention_params == model("deepseek-v3").attention_params
    assert shape.parameters == pytest.approx(671e9, rel=0.01)


def test_a_shape_names_all_its_faults() -> None:
    with pytest.raises(ConfigError) as caught:
        model_from({"hidden": 8, "colour": "red"})
    assert {fault.field for fault in caught.value.faults} == {"colour", "layers", "heads"}
    with pytest.raises(ConfigError, match="active_experts"):
        ModelShape(layers=1, hidden=8, heads=1, experts=4, active_experts=5)


def test_defaults_of_a_shape() -> None:
    shape = ModelShape(layers=2, hidden=64, heads=4, gated=False, vocab=100, tied=True)
    assert (shape.kv_heads, shape.head_size, shape.ffn, shape.kv_width) == (4, 16, 256, 128)
    # embedding 6400 + two layers of 4 x 64² attention and 2 x 64 x 256 feed-forward
    assert shape.parameters == 6400 + 2 * (4 * 64 * 64 + 2 * 64 * 256)


@pytest.mark.parametrize(
    "change", [{"hidden_size": "64"}, {"vocab_size": [1]}, {"kv_lora_rank": 1e9}, {"num_local_experts": True}, {"vocab_size": 10**30}]
)
def test_configs_with_numbers_that_are_none(tmp_path: Path, change: dict[str, object]) -> None:
    data = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, **change}
    (tmp_path / "config.json").write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=next(iter(change))):
        read_config(tmp_path / "config.json")


def test_what_a_config_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{tmp_path}/config\.json: cannot be read: No such file"):
        model(str(tmp_path))
    (tmp_path / "config.json").write_text('{"hidden_size": "x", "num_hidden_layers": 2}')
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path / "config.json")
    assert [(fault.field, fault.value) for fault in caught.value.faults] == [("hidden_size", "'x'"), ("num_attention_heads", "")]


def test_shapes_with_numbers_that_are_none() -> None:
    with pytest.raises(ConfigError) as caught:
        model_from({"layers": 2, "hidden": "64", "heads": [4]})
    assert {fault.field for fault in caught.value.faults} == {"hidden", "heads"}
    with pytest.raises(ConfigError, match="unknown model"):
        model("[" * 5000)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct-FP8", "llama-3-8b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
        ("nvidia/DeepSeek-R1-0528-NVFP4-v2", "deepseek-v3"),
        ("zai-org/GLM-4.5-Air-FP8", "glm-4.5-air"),
        ("nvidia/DeepSeek-V3.1-NVFP4", "deepseek-v3"),
    ],
)
def test_endings_that_say_nothing_of_the_shape_are_left_out(name: str, found: str) -> None:
    assert model(name).name == found


@pytest.mark.parametrize("name", ["zai-org/GLM-4.5-Flash", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "llama-3-8b-pruned"])
def test_another_model_is_not_taken_for_one_whose_name_it_begins_with(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown model"):
        model(name)


def test_weights_are_served_as_they_are_published(tmp_path: Path) -> None:
    assert (model("deepseek-r1").stored, model("llama-3.1-8b").stored) == ("fp8", "bf16")
    facts = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(facts))
    assert model(str(tmp_path)).stored == "fp8"


GLM_5 = {
    "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "hidden_act": "silu", "hidden_size": 6144,
    "num_hidden_layers": 78, "num_attention_heads": 64, "num_key_value_heads": 64, "intermediate_size": 12288,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "kv_lora_rank": 512, "q_lora_rank": 2048, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "vocab_size": 154880,
    "max_position_embeddings": 202752, "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
}  # fmt: skip


def test_a_downloaded_model_is_read_from_the_cache(cached_config: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match="unknown model"):
        model("zai-org/GLM-5")
    cached_config("zai-org/GLM-5", GLM_5)
    shape = model("zai-org/GLM-5")
    assert (shape.layers, shape.vocab, shape.draft_layers, shape.longest) == (78, 154880, 1, 202752)
    assert shape.kv_width == 576
    assert 650e9 < shape.parameters < 780e9


def test_the_newest_snapshot_counts(cached_config: Callable[..., Path]) -> None:
    older = cached_config("org/one", {**GLM_5, "vocab_size": 100}, snapshot="aaaa")
    os.utime(older, (1, 1))
    cached_config("org/one", {**GLM_5, "vocab_size": 200}, snapshot="0000")
    assert model("org/one").vocab == 200


def test_a_broken_config_of_the_cache_is_named(cached_config: Callable[..., Path]) -> None:
    path = cached_config("org/broken", {"hidden_size": "wide"})
    with pytest.raises(ConfigError, match="hidden_size") as error:
        model("org/broken")
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("fields", "attention"),
    [
        ({"layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2}, 2),
        ({"layer_types": ["sliding_attention", "full_attention"] * 4}, 8),
        ({"full_attention_interval": 4}, 2),
        ({"hybrid_override_pattern": "M-M*-M-*"}, 2),
        ({}, 8),
    ],
)
def test_layers_that_keep_a_growing_cache(tmp_path: Path, fields: dict[str, object], attention: int) -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8, "vocab_size": 128}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {**sizes, **fields}, "vision_config": {"depth": 2}}))
    shape = model(str(tmp_path))
    assert shape.attention_layers == attention
    assert shape.encoder


@pytest.mark.parametrize("name", ["num_nextn_predict_layers", "mtp_num_hidden_layers"])
def test_layers_that_guess_tokens(tmp_path: Path, name: str) -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8, "vocab_size": 128, name: 3}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": sizes}))
    assert model(str(tmp_path)).draft_layers == 3
