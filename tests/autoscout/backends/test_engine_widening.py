"""Any flag, any variable and any value that the engine takes: by `set`, `engine_args`, `first` and the space of a campaign."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from _cli_program import run
from autoscout.core.errors import AutoScoutError, ConfigError, SpaceError
from autoscout.load.plan import PLAN
from autoscout.study.campaign import build_campaign, read_campaign
from autoscout.study.setup import Setup, prepare

DEEPSEEK = {"model": "deepseek-ai/DeepSeek-V3.2", "engine_version": "0.32.0", "engine_command": ["vllm", "serve"], "concurrency": 8}


def study(engine: str = "vllm", workload: dict[str, Any] | None = None, **blocks: Any) -> Setup:
    commands = {"vllm": ["vllm", "serve"], "sglang": ["python3", "-m", "sglang.launch_server"]}
    usual = {**DEEPSEEK, "engine_command": commands[engine], "engine_version": {"vllm": "0.32.0", "sglang": "0.5.23"}[engine]}
    data = {"system": engine, "workload": {**usual, **(workload or {})}, "hardware": {"gpus": "8xH200", "cores": 16}, **blocks}
    return prepare(build_campaign(data, where="test"))


def words(setup: Setup, **changes: Any) -> list[str]:
    config = setup.complete(changes)
    assert all(config[name] == value for name, value in changes.items())
    return list(setup.backend.serve(config, setup.task))


def value_of(line: list[str], flag: str) -> str:
    return line[line.index(flag) + 1]


def plan(setup: Setup, **changes: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(setup.backend.render(setup.complete(changes), setup.task, 1).files[PLAN])
    return told


@pytest.mark.parametrize(
    ("engine", "args", "flag", "knobs"),
    [
        (
            "vllm",
            {"speculative-config": {"method": "mtp", "num_speculative_tokens": 1}},
            "--speculative-config",
            {"speculative_method": "mtp"},
        ),
        ("vllm", {"speculative-config": '{"method":"eagle3","model":"x/y","num_speculative_tokens":3}'}, "--speculative-config", {}),
        ("vllm", {"compilation-config": {"cudagraph_mode": "FULL_AND_PIECEWISE", "custom_ops": ["all"]}}, "--compilation-config", {}),
        ("vllm", {"compilation-config": {"pass_config": {"fuse_allreduce_rms": True}}}, "--compilation-config", {}),
        ("vllm", {"moe-backend": "flashinfer_trtllm"}, "--moe-backend", {"moe_backend": "flashinfer_trtllm"}),
        ("vllm", {"kv_cache_dtype": "fp8_e4m3"}, "--kv-cache-dtype", {"kv_cache_dtype": "fp8_e4m3"}),
        ("vllm", {"attention-backend": "FLASHINFER_MLA"}, "--attention-backend", {"attention_backend": "FLASHINFER_MLA"}),
        ("sglang", {"speculative-algorithm": "EAGLE"}, "--speculative-algorithm", {"speculative_algorithm": "EAGLE"}),
    ],
)
def test_settings_of_the_engine_may_be_knobs(engine: str, args: dict[str, Any], flag: str, knobs: dict[str, Any]) -> None:
    """Defects 1 and 2: `engine_args` refused the names of knobs."""
    setup = study(engine, {"engine_args": args})
    (written,) = args.values()
    told = value_of(words(setup), flag)
    if not isinstance(written, str) or written.startswith("{"):
        wanted = json.loads(written) if isinstance(written, str) else written
        assert json.loads(told) == wanted
    else:
        assert told == written
    assert {name: setup.given[name] for name in knobs} == knobs


@pytest.mark.parametrize(
    ("engine", "name", "value"),
    [
        ("vllm", "speculative_method", "mtp"),
        ("vllm", "moe_backend", "flashinfer_trtllm"),
        ("vllm", "kv-cache-dtype", "fp8_e4m3"),
        ("vllm", "attention_backend", "FLASHINFER_MLA"),
        ("vllm", "linear_backend", "cutlass"),
        ("vllm", "compilation_config.pass_config.fuse_allreduce_rms", True),
        ("vllm", "max_num_seqs", 5000),
        ("sglang", "speculative_algorithm", "EAGLE"),
        ("sglang", "speculative-eagle-topk", 4),
    ],
)
def test_a_knob_can_be_set_to_whatever_the_engine_takes(engine: str, name: str, value: Any) -> None:
    """Defects 1 and 2: `--set` refused the values."""
    setup = study(engine, set={name: value})
    plain = name.replace("-", "_")
    assert setup.given[plain] == value
    line = shlex.join(words(setup))
    shown = json.dumps(value) if isinstance(value, bool) else str(value)
    assert shown in line, line
    assert len(setup.space.knobs[plain].values) == 1


def test_what_the_engine_does_not_take_is_an_error() -> None:
    wrong = {"kv_cache_dtype": "fp9", "max_num_seqs": "many", "enable_prefix_caching": "perhaps", "no_such_flag": 1}
    with pytest.raises(AutoScoutError) as caught:
        study(set=wrong)
    told = str(caught.value)
    assert "set: kv_cache_dtype: --kv-cache-dtype takes one of" in told
    assert "set: max_num_seqs: --max-num-seqs takes a whole number (found 'many')" in told
    assert "set: enable_prefix_caching: --enable-prefix-caching is on or off (found 'perhaps')" in told
    with pytest.raises(SpaceError, match="no_such_flag: there is no such knob"):
        study(set={"no_such_flag": 1})


def test_values_that_a_knob_lacks_are_searched_too() -> None:
    """Defect 3: they were dropped without a word."""
    setup = study(workload={"draft_model": "x/y"}, space={"knobs": {"speculative_method": {"values": ["none", "mtp", "eagle3"]}}})
    assert set(setup.space.choices("speculative_method")) == {"none", "mtp", "eagle3"}
    assert json.loads(value_of(words(setup, speculative_method="mtp"), "--speculative-config"))["method"] == "mtp"
    setup = study(space={"knobs": {"max_num_seqs": {"values": [100, 200, 5000]}}})
    assert setup.space.choices("max_num_seqs") == (100, 200, 5000)
    setup = study(space={"knobs": {"block_size": {"values": [0, 256]}}})
    assert setup.space.choices("block_size") == (0, 256), "a knob that is named is searched"


@pytest.mark.parametrize(("gpus", "told"), [("1xH100", "at most 1"), ("8xH100", "at most 8")])
def test_more_ranks_than_gpus_are_an_error(gpus: str, told: str) -> None:
    """Of values above the number of GPUs nothing was said where there is one."""
    with pytest.raises(AutoScoutError, match=rf"tensor_parallel_size is {told}: there are no more gpus"):
        study(hardware={"gpus": gpus}, space={"knobs": {"tensor_parallel_size": {"values": [2, 16]}}})


def test_ranks_on_processors_are_taken() -> None:
    """vLLM and SGLang spread a model over the sockets of a machine without a GPU, too."""
    setup = study(hardware={"gpus": 0, "cores": 64}, set={"tensor_parallel_size": 2})
    assert value_of(words(setup), "--tensor-parallel-size") == "2"
    setup = study(hardware={"gpus": 0, "cores": 64}, baseline={"tensor_parallel_size": 2})
    assert setup.space.choices("tensor_parallel_size") == (1, 2), "no more than what is named"


def test_a_knob_that_is_not_offered_here_has_only_the_values_that_are_named() -> None:
    setup = study(hardware={"gpus": "1xH100"}, space={"knobs": {"all2all_backend": {"values": ["allgather_reducescatter", "naive"]}}})
    assert set(setup.space.choices("all2all_backend")) == {"allgather_reducescatter", "naive"}


def test_other_backends_refuse_values_that_a_knob_lacks() -> None:
    data = {"system": "virtual", "space": {"knobs": {"tp": {"values": [1, 2, 3]}}}}
    with pytest.raises(SpaceError, match=r"space: knobs\.tp\.values.*: must be one of"):
        prepare(build_campaign({**data, **_virtual()}, where="test"))


def _virtual() -> dict[str, Any]:
    from autoscout.backends.virtual import VirtualBackend

    example = VirtualBackend.example()
    assert example is not None
    return {name: dict(value) for name, value in example.items() if name in ("workload", "hardware")}  # type: ignore[call-overload]


def test_flags_and_variables_become_knobs() -> None:
    """Defect 4: no knob could be added."""
    setup = study(
        space={
            "knobs": {
                "linear_backend": {"values": ["auto", "cutlass"]},
                "mnnvl": {"env": "VLLM_ALLREDUCE_USE_FLASHINFER", "values": [0, 1]},
                "capture": {"flag": "--max-num-scheduled-tokens", "values": [1024, 2048, 4096]},
                "max_logprobs": {"range": [20, 24]},
                "mm_encoder_tp_mode": {},
                "compilation_config.pass_config.fuse_allreduce_rms": {"values": [True, False]},
            }
        }
    )
    free = {name: setup.space.knobs[name].values for name in setup.space.knobs if len(setup.space.knobs[name].values) > 1}
    assert setup.space.choices("linear_backend") == ("auto", "cutlass"), "auto stands for the flag that is left out"
    assert free["mnnvl"] == (None, 0, 1)
    assert free["max_logprobs"] == (20, 21, 22, 23, 24)
    assert set(free["mm_encoder_tp_mode"]) == {"weights", "data"}
    usual = words(setup)
    for flag in ("--linear-backend", "--max-num-scheduled-tokens", "--compilation-config", "--mm-encoder-tp-mode"):
        assert flag not in usual, "the default is the engine's own"
    changed = {
        "linear_backend": "cutlass",
        "capture": 4096,
        "compilation_config.pass_config.fuse_allreduce_rms": True,
        "mm_encoder_tp_mode": "data",
        "mnnvl": 1,
    }
    line = words(setup, **changed)
    assert value_of(line, "--linear-backend") == "cutlass"
    assert value_of(line, "--max-num-scheduled-tokens") == "4096"
    assert json.loads(value_of(line, "--compilation-config")) == {"pass_config": {"fuse_allreduce_rms": True}}
    assert plan(setup, **changed)["env"]["VLLM_ALLREDUCE_USE_FLASHINFER"] == "1"
    assert "VLLM_ALLREDUCE_USE_FLASHINFER" not in plan(setup)["env"]
    files = setup.backend.export(setup.complete(changed), setup.task)
    assert "VLLM_ALLREDUCE_USE_FLASHINFER=1" in files["env"]
    assert "linear-backend: cutlass" in files["config.yaml"]


def test_a_variable_that_the_workload_sets_is_the_default() -> None:
    entry = {"env": "VLLM_USE_FUSED_MOE_GROUPED_TOPK", "values": [0, 1]}
    setup = study(workload={"env": {"VLLM_USE_FUSED_MOE_GROUPED_TOPK": 0}}, space={"knobs": {"gemm": entry}})
    assert plan(setup)["env"]["VLLM_USE_FUSED_MOE_GROUPED_TOPK"] == "0"
    assert [value for value in setup.space.knobs["gemm"].values if str(value) == "1"]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"linear_bakend": {"values": ["a"]}}, r"space: knobs\.linear_bakend: vllm 0.32.0 has no flag .*Did you mean 'linear_backend'"),
        ({"x": {"flag": "--linear-backend", "env": "A", "values": [1]}}, "flag and env exclude each other"),
        ({"x": {"env": "not a name", "values": [1]}}, "is no name of a variable"),
        ({"x": {"flag": "--max-num-seqs", "values": [1]}}, "the knob max_num_seqs has this flag"),
        ({"mm_encoder_tp_mode": {"values": ["dta"]}}, "--mm-encoder-tp-mode takes one of"),
        ({"linear_backend": {"vals": ["a"]}}, "unknown key"),
        ({"mamba_block_size": {}}, "an added knob needs values or a range"),
        ({"block_size": {"flag": "--x", "values": [1]}}, "AutoScout has this knob already"),
        ({"linear_backend.key": {"values": [1]}}, "has no keys"),
        ({"compilation_config.cudagraf": {"values": [1]}}, "--compilation-config of vllm 0.32.0 has no key cudagraf"),
        ({"max_logprobs": {"range": [1, 10_000_000]}}, "at most 1,000 values"),
    ],
)
def test_a_wrong_entry_says_what_is_wrong(entry: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        study(space={"knobs": entry})


def test_a_wrong_entry_is_found_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(
        "system: vllm\nworkload: {model: llama-3.1-8b, engine_version: 0.32.0}\nhardware: {gpus: 1xH200}\n"
        "space:\n  knobs:\n    linear_bakend: {values: [a]}\n    kv_cache_dtype:\n      values: [auto, fp8]\n"
    )
    with pytest.raises(ConfigError) as caught:
        prepare(read_campaign(path))
    assert "campaign.yaml:6: knobs.linear_bakend" in str(caught.value)
    assert "campaign.yaml:8: knobs.kv_cache_dtype.values: changes what the model answers" in str(caught.value)


LOSSY = (
    {"first": [{"kv_cache_dtype": "fp8"}]},
    {"space": {"knobs": {"kv_cache_dtype": {"values": ["auto", "fp8_e4m3"]}}}},
    {"space": {"knobs": {"dtype": {"values": ["auto", "float16"]}}}},
    {"space": {"knobs": {"fast": {"env": "ROCM_QUICK_REDUCE_QUANTIZATION", "values": ["INT4"]}}}},
    {"space": {"knobs": {"mine": {"env": "MY_APPROXIMATION", "values": [1], "lossy": True}}}},
)


@pytest.mark.parametrize("blocks", LOSSY)
def test_values_that_change_answers_need_consent_and_are_guarded(blocks: dict[str, Any]) -> None:
    """Defect 5: `first` freed a lossy knob, and nothing compared the answers."""
    with pytest.raises(ConfigError, match=r"changes what the model answers .*--allow-lossy"):
        study(**blocks)
    setup = study(workload={"allow_lossy": True}, **blocks)
    assert plan(setup)["check"]["reference"] is not None
    name = next(iter(blocks.get("space", {}).get("knobs", {"kv_cache_dtype": {}})))
    freed = study(workload={"free": [name]}, **blocks) if name in study().space.knobs else setup
    assert plan(freed)["check"]["reference"] is not None


def test_a_flag_that_is_freed_is_a_knob() -> None:
    assert set(study(workload={"free": ["enable_dbo"]}).space.choices("enable_dbo")) == {True, False}
    with pytest.raises(ConfigError, match="an added knob needs values or a range"):
        study(workload={"free": ["mamba_block_size"]})


def test_a_lossy_value_that_is_set_holds_everywhere() -> None:
    """It is what the user runs: in the default and in every candidate, so there is nothing to compare."""
    setup = study(workload={"model": "Qwen/Qwen3-8B"}, set={"kv_cache_dtype": "fp8"})
    assert plan(setup)["check"]["reference"] is None
    assert setup.space.choices("kv_cache_dtype") == ("fp8",)
    setup = study(workload={"model": "Qwen/Qwen3-8B", "free": ["speculative_method"], "engine_args": {"kv-cache-dtype": "fp8"}})
    reference = plan(setup, speculative_method="ngram")["check"]["reference"]
    assert value_of(reference["serve"], "--kv-cache-dtype") == "fp8", "compared with what the user runs"
    assert "--speculative-config" not in reference["serve"]


def test_what_goes_with_speculation_leaves_with_it() -> None:
    args = {"speculative-config": {"method": "eagle3", "model": "x/draft", "num_speculative_tokens": 3}}
    setup = study(workload={"engine_args": args})
    assert json.loads(value_of(words(setup), "--speculative-config")) == args["speculative-config"]
    setup = study(workload={"engine_args": args, "free": ["speculative_method"]}, set={"speculative_method": "none"})
    assert "--speculative-config" not in words(setup), "what is set goes before"


def test_a_dry_run_shows_what_is_tried_first(tmp_path: Path) -> None:
    """Defect 6."""
    path = tmp_path / "campaign.yaml"
    path.write_text(
        "system: vllm\nworkload: {model: llama-3.1-8b, engine_version: 0.32.0, concurrency: 4}\nhardware: {gpus: 1xH200, cores: 8}\n"
        "first: [{max_num_seqs: 272}]\n"
    )
    told = json.loads(run(tmp_path, "tune", path, "--dry-run", "--json").stdout)
    assert [launch["config"]["max_num_seqs"] for launch in told["launches"]][1] == 272
    assert len(told["launches"]) >= 4
