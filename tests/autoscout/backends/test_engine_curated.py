"""What people know about flags: which knobs and values make sense where, and which are searched by default."""

from __future__ import annotations

from typing import Any

import pytest

from autoscout.engines.space import default_of
from autoscout.engines.table import ASKED, KnobRow, table, versions
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import Setup, prepare

VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23"}
COMMANDS = {"vllm": ["vllm", "serve"], "sglang": ["python3", "-m", "sglang.launch_server"]}
V3, LLAMA, NEXT = "deepseek-ai/DeepSeek-V3", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-Next-80B-A3B-Instruct"
MOST = 24  # knobs that a study searches unless it is told otherwise


def study(engine: str, model: str, gpus: str, workload: dict[str, Any] | None = None, **blocks: Any) -> Setup:
    usual = {"model": model, "concurrency": 8, "engine_version": VERSIONS[engine], "engine_command": COMMANDS[engine]}
    data = {"system": engine, "workload": {**usual, **(workload or {})}, "hardware": {"gpus": gpus, "cores": 16}, **blocks}
    return prepare(build_campaign(data, where="test"))


def searched(setup: Setup) -> set[str]:
    return {name for name, knob in setup.space.knobs.items() if len(knob.values) > 1}


ROWS = [(engine, row) for engine in VERSIONS for row in table(engine, VERSIONS[engine]).knobs.values()]


@pytest.mark.parametrize(("engine", "row"), ROWS, ids=[f"{engine}-{row.name}" for engine, row in ROWS])
def test_rows_agree_with_the_newest_table(engine: str, row: KnobRow) -> None:
    assert row.trades
    assert set(row.only) <= set(row.values), "a condition of a value that the knob has not"
    newest = table(engine, VERSIONS[engine])
    own = default_of(row, newest, {})
    assert not row.values or own in row.values, "the engine's own value is one of them"
    flag = None if row.env or row.key else newest.flags[row.setting]
    if flag is not None and flag.choices and row.values:
        assert {value for value in row.values if value != row.left_out} <= set(flag.choices)


@pytest.mark.parametrize("engine", VERSIONS)
@pytest.mark.parametrize("gpus", ["1xL40S", "8xH200", "8xB200", "8xMI300X"])
@pytest.mark.parametrize("model", [V3, LLAMA, NEXT, "Qwen/Qwen3-8B"])
def test_a_study_searches_few_of_them(engine: str, gpus: str, model: str) -> None:
    assert len(searched(study(engine, model, gpus))) <= MOST


@pytest.mark.parametrize(
    ("engine", "model", "gpus", "present", "absent"),
    [
        ("vllm", V3, "8xB200", {"moe_backend", "linear_backend", "fuse_allreduce_rms"}, {"VLLM_ROCM_USE_AITER", "cudagraph_mode"}),
        ("vllm", V3, "8xH200", {"fuse_allreduce_rms"}, {"moe_backend", "linear_backend"}),
        ("vllm", LLAMA, "8xMI300X", {"VLLM_ROCM_USE_AITER", "attention_backend"}, {"fuse_allreduce_rms", "VLLM_USE_DEEP_GEMM"}),
        ("vllm", LLAMA, "8xH200", set(), {"attention_backend", "enable_dbo", "decode_context_parallel_size"}),
        ("sglang", V3, "8xH200", {"scheduler_recv_interval", "enable_symm_mem", "enable_dp_lm_head"}, {"enable_hierarchical_cache"}),
        ("sglang", NEXT, "4xH100", {"mamba_full_memory_ratio"}, {"mamba_ssm_dtype"}),
        ("sglang", LLAMA, "8xMI300X", {"SGLANG_USE_AITER", "enable_aiter_allreduce_fusion"}, {"enable_symm_mem"}),
    ],
)
def test_what_pays_on_a_machine_is_searched_there(engine: str, model: str, gpus: str, present: set[str], absent: set[str]) -> None:
    names = searched(study(engine, model, gpus))
    assert present <= names
    assert not absent & names


def test_knobs_that_need_their_master_are_freed_with_it() -> None:
    setup = study("sglang", LLAMA, "4xH100", {"free": ["enable_hierarchical_cache"]})
    assert {"hicache_ratio", "hicache_write_policy", "hicache_io_backend", "hicache_mem_layout"} <= searched(setup)
    direct = setup.complete({"enable_hierarchical_cache": True, "hicache_io_backend": "direct"})
    assert direct["hicache_mem_layout"] in ("page_first_direct", "layer_first")
    setup = study("vllm", V3, "16xH200", {"free": ["enable_dbo", "all2all_backend"]})
    assert {"dbo_decode_token_threshold", "dbo_prefill_token_threshold"} <= searched(setup)


def test_values_of_another_chip_are_taken_where_they_are_named() -> None:
    assert "ROCM_AITER_FA" not in study("vllm", LLAMA, "4xH100", {"free": ["attention_backend"]}).space.choices("attention_backend")
    setup = study("vllm", LLAMA, "4xH100", set={"attention_backend": "ROCM_AITER_FA"})
    assert setup.default["attention_backend"] == "ROCM_AITER_FA"
    backends = study("vllm", LLAMA, "4xMI300X", {"free": ["attention_backend"]}).space.choices("attention_backend")
    assert {"ROCM_AITER_FA", "TRITON_ATTN"} <= set(backends)
    assert "FLASH_ATTN" not in backends
    asked = study("vllm", V3, "8xH200", space={"knobs": {"moe_backend": {"values": ["auto", "humming"]}}})
    assert asked.space.choices("moe_backend") == ("auto", "humming")


def test_a_variable_of_the_workload_is_where_a_study_begins() -> None:
    setup = study("vllm", LLAMA, "4xMI300X", {"env": {"VLLM_ROCM_USE_AITER": "1"}})
    assert setup.default["VLLM_ROCM_USE_AITER"] == 1
    assert setup.backend.env(setup.default, setup.task)["VLLM_ROCM_USE_AITER"] == "1"
    off = setup.complete({"VLLM_ROCM_USE_AITER": 0})
    assert setup.backend.env(off, setup.task)["VLLM_ROCM_USE_AITER"] == "0"
    plain = study("vllm", LLAMA, "4xMI300X")
    assert "VLLM_ROCM_USE_AITER" not in plain.backend.env(plain.default, plain.task)
    assert plain.backend.env(plain.complete({"VLLM_ROCM_USE_AITER": 1}), plain.task)["VLLM_ROCM_USE_AITER"] == "1"


def test_lists_inside_a_json_flag() -> None:
    free = study("vllm", LLAMA, "4xH100", {"free": ["custom_ops"]})
    line = free.backend.serve(free.complete({"custom_ops": '["all"]'}), free.task)
    assert line[line.index("--compilation-config") + 1] == '{"custom_ops": ["all"]}'
    entry = {"compilation_config.custom_ops": {"values": [["none"], ["none", "+quant_fp8"]]}}
    named = study("vllm", LLAMA, "4xH100", space={"knobs": entry})
    assert "custom_ops" not in named.space.knobs, "the same place has one knob"
    line = named.backend.serve(named.complete({"compilation_config.custom_ops": '["none", "+quant_fp8"]'}), named.task)
    assert line[line.index("--compilation-config") + 1] == '{"custom_ops": ["none", "+quant_fp8"]}'


def test_older_versions_have_fewer_knobs() -> None:
    for engine in VERSIONS:
        for version in versions(engine):
            rows = table(engine, version).knobs
            assert len(rows) > 50
            assert all(row.needs != ASKED for row in rows.values())
    assert "long_prefill_token_threshold_adaptive" not in table("vllm", "0.24.0").knobs
    assert "all" in table("vllm", "0.24.0").knobs["mamba_cache_mode"].values
    assert "all" not in table("vllm", "0.33.0").knobs["mamba_cache_mode"].values
