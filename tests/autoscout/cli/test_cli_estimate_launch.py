"""`autoscout estimate --from`: what the user runs is a row of its own, and is handed over unless more is clearly gained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from _cli_program import run

OWN = "vllm serve Qwen/Qwen3-8B -tp 2 --max-num-seqs 64 --gpu-memory-utilization 0.95 --port 80"


def estimated(folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    done = run(folder, "estimate", *words, "--json")
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data, done.stderr


def own_row(data: dict[str, Any]) -> dict[str, Any]:
    (row,) = [row for row in data["candidates"] if row["is_baseline"]]
    assert isinstance(row, dict)
    return row


def test_system_model_and_number_of_gpus_come_from_the_launch(tmp_path: Path) -> None:
    data, told = estimated(tmp_path, "--from", OWN, "--gpu", "H100")
    assert (data["system"], data["model"], data["gpus"]) == ("vllm", "Qwen/Qwen3-8B", "2xH100")
    assert told.count("Your launch: --port changes no speed") == 1
    row = own_row(data)
    assert (row["config"]["tensor_parallel_size"], row["config"]["max_num_seqs"]) == (2, 64)
    assert row["gain_over_baseline"] == 1.0
    (default,) = [row for row in data["candidates"] if row["is_default"]]
    assert default["gain"] == 1.0
    assert default["gain_over_baseline"] == pytest.approx(1 / row["gain"])
    assert "gpu_memory_utilization" not in default["config"]
    assert all(row["config"]["gpu_memory_utilization"] == 0.95 for row in data["candidates"] if row is not default)


def test_no_pin_and_no_row_count_hides_what_the_user_runs(tmp_path: Path) -> None:
    data, _ = estimated(tmp_path, "vllm", "--from", OWN, "--gpus", "8xH100", "--set", "tp=4", "--top", "1", "--concurrency", "512")
    assert own_row(data)["config"]["tensor_parallel_size"] == 2
    assert {row["config"]["tensor_parallel_size"] for row in data["candidates"] if not row["is_baseline"]} == {4}
    assert data["candidates"][0]["gain_over_baseline"] > 1.5


def test_a_format_of_the_launch_holds_in_every_row(tmp_path: Path) -> None:
    launch = "vllm serve Qwen/Qwen3-8B --kv-cache-dtype fp8 --attention-backend FLASHINFER"
    data, told = estimated(tmp_path, "--from", launch, "--gpu", "H100")
    assert {row["config"]["kv_cache_dtype"] for row in data["candidates"]} == {"fp8"}
    assert own_row(data)["is_default"], "nothing else is set that the prediction reads"
    assert told.count("attention_backend=FLASHINFER: the prediction does not read it.") == 1


def test_the_users_own_is_written_where_nothing_gains_more_than_the_error(tmp_path: Path) -> None:
    done = run(tmp_path, "estimate", "--from", f"{OWN} --trust-remote-code", "--gpu", "H100", "--export", "here")
    assert "(yours)" in done.stdout
    assert "over yours" in done.stdout
    written = (tmp_path / "here" / "config.yaml").read_text()
    for line in ("tensor-parallel-size: 2", "max-num-seqs: 64", "gpu-memory-utilization: 0.95", "trust-remote-code: true"):
        assert line in written


def test_formats_are_written_as_the_engine_calls_them(tmp_path: Path) -> None:
    launch = "sglang serve --model-path Qwen/Qwen3-8B --max-running-requests 4"
    done = run(tmp_path, "estimate", "--from", launch, "--gpu", "H100", "--allow-lossy", "--set", "kv_cache_dtype=fp8", "--export", "here")
    assert done.returncode == 0, done.stderr
    assert "kv-cache-dtype: fp8_e4m3" in (tmp_path / "here" / "config.yaml").read_text()


def test_weights_that_no_engine_makes_are_said(tmp_path: Path) -> None:
    launch = "sglang serve --model-path Qwen/Qwen3-8B --max-running-requests 4"
    done = run(tmp_path, "estimate", "--from", launch, "--gpu", "B200", "--allow-lossy", "--set", "precision=fp4", "--export", "here")
    assert done.returncode == 0, done.stderr
    assert "MODEL must be published in fp4" in " ".join(done.stdout.split())
    assert "quantization" not in (tmp_path / "here" / "config.yaml").read_text()


def test_no_gain_is_given_over_what_cannot_hold_the_rate(tmp_path: Path) -> None:
    launch = "vllm serve Qwen/Qwen3-8B --max-num-seqs 1"
    data, _ = estimated(tmp_path, "--from", launch, "--gpu", "H100", "--rate", "4")
    assert data["candidates"][0]["gain_over_baseline"] is None
    assert own_row(data)["gain_over_baseline"] == 1.0
    done = run(tmp_path, "estimate", "--from", launch, "--gpu", "H100", "--rate", "4", "--export", "here")
    assert "files of the first one" in done.stdout


def test_what_does_not_fit_is_not_kept(tmp_path: Path) -> None:
    launch = "vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 1 --max-num-seqs 64"
    done = run(tmp_path, "estimate", "--from", launch, "--gpus", "4xH100", "--export", "here")
    assert done.returncode == 0, done.stderr
    assert "(yours)" in done.stdout
    assert "files of yours" not in done.stdout
    assert "tensor-parallel-size" in (tmp_path / "here" / "config.yaml").read_text()


def test_a_clear_gain_is_written_over_the_launch(tmp_path: Path) -> None:
    launch = "sglang serve --model-path Qwen/Qwen3-8B --max-running-requests 4 --chunked-prefill-size -1 --attention-backend fa3"
    done = run(tmp_path, "estimate", "sglang", "--from", launch, "--gpus", "4xH100", "--concurrency", "256", "--export", "here")
    assert done.returncode == 0, done.stderr
    assert "files of the first one" in done.stdout
    written = (tmp_path / "here" / "config.yaml").read_text()
    assert "attention-backend: fa3" in written
    assert "max-running-requests: 4\n" not in written
    assert "dp-size: 4" in written or "tp-size: 4" in written


def test_the_launch_of_a_file_and_a_known_model_for_one_that_is_not(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text("vllm serve my/own --max-num-seqs 8\n")
    data, _ = estimated(tmp_path, "--from", "serve.sh", "--model", "llama-3.1-8b", "--gpus", "1xH100")
    assert data["model"] == "llama-3.1-8b"
    assert own_row(data)["config"]["max_num_seqs"] == 8


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--from", OWN, "--gpu", "H100", "--model", "llama-3.1-8b"), ("Qwen/Qwen3-8B", "llama-3.1-8b")),
        (("--from", "vllm serve --max-num-seqs 8", "--gpu", "H100"), ("--model: is missing",)),
        (("--from", "llama-server -m model.gguf", "--gpu", "H100"), ("launches of vllm and sglang only",)),
        (("megatron", "--from", OWN), ("launches of vllm and sglang only",)),
        (("sglang", "--from", OWN, "--gpu", "H100"), ("SGLang",)),
        ((), ("SYSTEM: is missing", "--model: is missing", "--gpus: is missing")),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    done = run(tmp_path, "estimate", *words)
    assert done.returncode == 2
    assert all(part in done.stderr for part in parts)
