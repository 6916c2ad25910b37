"""Deployments as people document them: model, GPUs, and what is set. Rendered by `vllm` and `sglang`, and checked by their own parsers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from autoscout.study.campaign import build_campaign
from autoscout.study.setup import Setup, prepare

NAMES = {  # knobs by what they do, in the words of each engine
    "vllm": {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size", "tokens": "max_num_batched_tokens",
             "requests": "max_num_seqs", "memory": "gpu_memory_utilization", "kv": "kv_cache_dtype", "weights": "quantization",
             "guess": "speculative_method"},
    "sglang": {"tp": "tp_size", "pp": "pp_size", "dp": "dp_size", "tokens": "chunked_prefill_size", "requests": "max_running_requests",
               "memory": "mem_fraction_static", "kv": "kv_cache_dtype", "weights": "quantization", "guess": "speculative_algorithm"},
}  # fmt: skip
ENGINES = ("vllm", "sglang")
COMMANDS = {"vllm": ["vllm", "serve"], "sglang": ["python3", "-m", "sglang.launch_server"]}
VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23"}
WORDS = {"sglang": {"fp8_kv": "fp8_e4m3", "ngram": "NGRAM"}, "vllm": {"fp8_kv": "fp8"}}


@dataclass(frozen=True)
class Documented:
    name: str
    model: str
    gpus: str
    settings: dict[str, Any] = field(default_factory=dict)
    only: dict[str, dict[str, Any]] = field(default_factory=dict)  # settings in the words of one engine
    workload: dict[str, Any] = field(default_factory=dict)


DEPLOYMENTS = (
    Documented("llama-8b, one GPU", "meta-llama/Llama-3.1-8B-Instruct", "1xH100"),
    Documented("llama-8b, small GPU, short requests", "meta-llama/Llama-3.1-8B-Instruct", "1xL40S", workload={"max_model_len": 8192}),
    Documented("llama-8b, four copies", "meta-llama/Llama-3.1-8B-Instruct", "4xA100-80", {"dp": 4}),
    Documented("llama-8b, even gaps", "meta-llama/Llama-3.1-8B-Instruct", "1xH200", {"tokens": 512, "requests": 128}),
    Documented("llama-8b, eight bits", "meta-llama/Llama-3.1-8B-Instruct", "1xH200", {"weights": "fp8", "kv": "fp8_kv"}),
    Documented("llama-8b, guesses from the text", "meta-llama/Llama-3.1-8B-Instruct", "1xH100", {"guess": "ngram"}),
    Documented("llama-70b, fits two", "meta-llama/Llama-3.3-70B-Instruct", "2xH200"),
    Documented("llama-70b, four GPUs", "meta-llama/Llama-3.3-70B-Instruct", "4xH100", {"tp": 4, "memory": 0.9}),
    Documented("llama-70b, pairs", "meta-llama/Llama-3.3-70B-Instruct", "8xH100", {"tp": 2, "dp": 4, "kv": "fp8_kv"}),
    Documented("llama-405b, two machines", "meta-llama/Llama-3.1-405B-Instruct", "16xH100", {"tp": 8, "pp": 2}),
    Documented("qwen3-0.6b", "Qwen/Qwen3-0.6B", "1xA10G", {"requests": 64}),
    Documented("qwen3-8b", "Qwen/Qwen3-8B", "1xA100-80", {"tokens": 4096}),
    Documented("qwen3-32b", "Qwen/Qwen3-32B", "2xA100-80", {"tp": 2}),
    Documented("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", "2xH100", {"tp": 2},
               {"vllm": {"enable_expert_parallel": True}, "sglang": {"ep_size": 2}}),
    Documented("qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B", "8xH200", {"tp": 8},
               {"vllm": {"enable_expert_parallel": True}, "sglang": {"ep_size": 8}}),
    Documented("qwen3-coder-480b, two machines", "Qwen/Qwen3-Coder-480B-A35B", "16xH100", {"tp": 16},
               {"vllm": {"enable_expert_parallel": True}, "sglang": {"ep_size": 16}}),
    Documented("deepseek-v3, one machine", "deepseek-ai/DeepSeek-V3", "8xH200", {"tp": 8}),
    Documented("deepseek-r1, experts spread", "deepseek-ai/DeepSeek-R1", "16xH200", {"tp": 16},
               {"vllm": {"enable_expert_parallel": True}, "sglang": {"ep_size": 16, "attn_dp_size": 16}}),
    Documented("gpt-oss-20b", "openai/gpt-oss-20b", "1xH100", {"tokens": 1024}),
    Documented("gpt-oss-120b", "openai/gpt-oss-120b", "4xA100-80", {"tp": 4, "requests": 256}),
)  # fmt: skip


def campaign(engine: str, this: Documented) -> dict[str, Any]:
    """The campaign of a deployment for one engine."""
    chosen = {NAMES[engine][name]: WORDS[engine].get(str(value), value) for name, value in this.settings.items()}
    return {
        "system": engine,
        "workload": {
            "model": this.model,
            "concurrency": 32,
            "engine_version": VERSIONS[engine],
            "engine_command": COMMANDS[engine],
            **this.workload,
        },
        "hardware": {"gpus": this.gpus, "cores": 16},
        "set": {**chosen, **this.only.get(engine, {})},
    }


_SETUPS: dict[tuple[str, str], Setup] = {}


def _setup(engine: str, this: Documented) -> Setup:
    key = (engine, this.name)
    if key not in _SETUPS:
        _SETUPS[key] = prepare(build_campaign(campaign(engine, this), where="test"))
    return _SETUPS[key]


def command_line(engine: str, this: Documented) -> list[str]:
    """The words that start the server."""
    setup = _setup(engine, this)
    return list(setup.backend.serve(setup.default, setup.task))  # type: ignore[attr-defined]


def files(engine: str, this: Documented) -> dict[str, str]:
    """The hand-over."""
    setup = _setup(engine, this)
    return dict(setup.backend.export(setup.default, setup.task))
