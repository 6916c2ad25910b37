"""Real vLLM on the CPU, with a tiny model of random weights: tuned under an SLO, refusing settings, killed. See `make test-vllm`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.engines
ROOT = Path(__file__).parents[3]
VLLM_PYTHON = Path(os.environ.get("AUTOSCOUT_VLLM_PYTHON", str(ROOT / ".venv-vllm" / "bin" / "python")))
SHAPE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 688, "vocab_size": 2048, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "hidden_act": "silu", "torch_dtype": "float32", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
START_S = 900.0  # importing alone takes a minute of a busy machine


@pytest.fixture
def study(tmp_path: Path) -> dict[str, Any]:
    """A campaign for a model that exists only as a shape."""
    if not VLLM_PYTHON.exists():
        pytest.skip("no vLLM: `make test-vllm` installs it, or name its Python in AUTOSCOUT_VLLM_PYTHON")
    model = tmp_path / "tiny"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(SHAPE))
    return {
        "system": "vllm",
        "name": "real",
        "workload": {
            "model": str(model),
            "engine_command": [str(VLLM_PYTHON), "-m", "vllm.entrypoints.cli.main", "serve"],
            "engine_version": "0.32.0",
            "env": {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"},
            "input_tokens": 64,
            "output_tokens": 16,
            "concurrency": 4,
            "requests": 24,
            "start_limit_s": START_S,
        },
        "hardware": {"gpus": 0, "cores": 2},
        "goal": {"slo": ["p95_ttft_ms<=20000"]},
        "set": {"enforce_eager": True},
        "measure": {"dirty_repeats": 0},
    }


def run(tmp_path: Path, study: dict[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(study))
    command = [sys.executable, "-m", "autoscout", *words, str(path), "--json"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=3600)


def alive(marker: str) -> list[int]:
    """Processes whose command line names the model of this test."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker in path.read_bytes().decode(errors="replace") and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def trials_of(tmp_path: Path) -> list[dict[str, Any]]:
    journal = tmp_path / "autoscout_results" / "real" / "trials.jsonl"
    return [json.loads(line) for line in journal.read_text().splitlines()]


def test_tuned_end_to_end(tmp_path: Path, study: dict[str, Any]) -> None:
    study |= {"first": [{"kv_cache_dtype": "fp8"}, {"max_num_seqs": 4}], "budget": {"trials": 3}, "finals": {"rounds": 0}}
    done = run(tmp_path, study, "tune")
    assert done.returncode == 0, done.stderr[-3000:]
    home, trials = tmp_path / "autoscout_results" / "real", trials_of(tmp_path)
    eight = [trial for trial in trials if trial["config"].get("kv_cache_dtype") == "fp8"]
    able = any(word in Path("/proc/cpuinfo").read_text() for word in ("avx512f", "amx_tile"))  # vLLM refuses it on other processors
    assert [trial["status"] for trial in eight] == ["ok" if able else "invalid"]
    assert {trial["status"] for trial in trials if trial not in eight} == {"ok"}
    assert "vllm.entrypoints.cli.main serve" in (home / "best" / "run.sh").read_text()
    assert not alive(study["workload"]["model"])


def test_refusals_are_invalid_and_not_retried(tmp_path: Path, study: dict[str, Any]) -> None:
    if len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) > 1:
        pytest.skip("vLLM refuses two ranks only where there is one NUMA node")
    study["workload"]["engine_args"] = {"tensor_parallel_size": 2}
    study |= {"first": [{"max_num_seqs": 4}], "budget": {"trials": 2}, "finals": {"rounds": 0}}
    done = run(tmp_path, study, "tune")
    assert done.returncode == 2, "no configuration worked"
    trials = trials_of(tmp_path)
    assert [trial["status"] for trial in trials] == ["invalid", "invalid"], "each refused once"
    assert all("NUMA" in trial["reason"] for trial in trials)


def test_kill_9_of_the_tuner_leaves_no_server(tmp_path: Path, study: dict[str, Any]) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(study))
    model = study["workload"]["model"]
    tuner = subprocess.Popen([sys.executable, "-m", "autoscout", "tune", str(path)], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        assert _wait(lambda: bool(alive(model)), 120.0), "the server was never started"
        tuner.send_signal(signal.SIGKILL)
        tuner.wait()
        assert _wait(lambda: not alive(model), 60.0), "a server outlived its tuner"
    finally:
        tuner.kill()


def _wait(true: Any, most_s: float) -> bool:
    end = time.monotonic() + most_s
    while not true() and time.monotonic() < end:
        time.sleep(0.5)
    return bool(true())
