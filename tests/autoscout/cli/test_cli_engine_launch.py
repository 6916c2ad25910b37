"""From the command or file that starts vLLM or SGLang today to a configuration, by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from _cli_program import run

GPUS = "gpus=8xH200"


def rendered(folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    done = run(folder, "render", *words, "--json")
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data, done.stderr


def test_a_command_is_rendered_again(tmp_path: Path) -> None:
    launch = (
        "HF_TOKEN=hf_secret vllm serve deepseek-ai/DeepSeek-V3.2 -tp 8 --max-num-seqs 96 --kv-cache-dtype fp8 --linear-backend cutlass "
        """--speculative-config '{"method": "mtp", "num_speculative_tokens": 1}' --port 80"""
    )
    data, told = rendered(tmp_path, "--from", launch, "--hardware", GPUS)
    serve = " ".join(data["serve"]) if "serve" in data else json.dumps(data)
    for part in ("max-num-seqs", "fp8", "cutlass", "mtp"):
        assert part in serve
    assert "hf_secret" not in json.dumps(data) + told
    assert "Your launch: --port changes no speed" in told


def test_a_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text('vllm serve a --max-num-seqs 32\nif [ "$BIG" = yes ]; then vllm serve b; fi\n')
    data, told = rendered(tmp_path, "vllm", "--from", "serve.sh", "--hardware", GPUS)
    assert data["config"]["max_num_seqs"] == 32
    assert "BIG is not set" in told
    (tmp_path / "two.sh").write_text("vllm serve a --max-num-seqs 32\nvllm serve b --max-num-seqs 48\n")
    data, _ = rendered(tmp_path, "vllm", "--from", "two.sh#2", "--hardware", GPUS)
    assert data["config"]["max_num_seqs"] == 48
    done = run(tmp_path, "render", "--from", "two.sh", "--hardware", GPUS)
    assert done.returncode == 2
    assert "two.sh: holds 2 launches" in done.stderr


def test_what_is_wrong_with_somebodys_launch_is_said(tmp_path: Path) -> None:
    done = run(tmp_path, "tune", "--from", "vllm serve m --max-nm-seqs 8")
    assert done.returncode == 2
    assert "--max-nm-seqs: vllm" in done.stderr
    assert "--max-num-seqs" in done.stderr


def test_the_machine_may_be_another_one(tmp_path: Path) -> None:
    data, _ = rendered(tmp_path, "sglang", "--from", "sglang serve --model-path m --tp 4", "--hardware", GPUS)
    assert data["config"]["tp_size"] == 4


def test_rules_that_the_engine_does_not_have_bend_to_what_runs(tmp_path: Path) -> None:
    launch = "vllm serve org/new-model -tp 8 --enable-expert-parallel --long-prefill-token-threshold 4096"
    launch += " --max-num-batched-tokens 512 --max-num-seqs 512"
    data, _ = rendered(tmp_path, "--from", launch, "--hardware", GPUS)
    config = data["config"]
    assert (config["enable_expert_parallel"], config["long_prefill_token_threshold"]) == (True, 4096)
    assert (config["max_num_batched_tokens"], config["max_num_seqs"]) == (512, 512)
    data, _ = rendered(tmp_path, "--from", "vllm serve org/m --enforce-eager --max-cudagraph-capture-size 128", "--hardware", GPUS)
    assert data["config"]["max_cudagraph_capture_size"] == 128, "it means nothing next to --enforce-eager, and vLLM takes it"


def test_a_draft_model_without_a_method(tmp_path: Path) -> None:
    launch = """vllm serve org/big --speculative-config '{"model": "org/big-assistant", "num_speculative_tokens": 4}'"""
    data, _ = rendered(tmp_path, "--from", launch, "--hardware", GPUS)
    assert data["config"]["speculative_method"] == "mtp"
    assert "org/big-assistant" in json.dumps(data)
