"""Real vLLM on the CPU, with a tiny model of random weights: tuned under an SLO, refusing settings, killed. See `make test-vllm`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_engines import START_S, VLLM_PYTHON, alive, run, tiny_model, trials_of, wait

pytestmark = pytest.mark.engines


@pytest.fixture
def study(tmp_path: Path) -> dict[str, Any]:
    """A campaign for a model that exists only as a shape."""
    if not VLLM_PYTHON.exists():
        pytest.skip("no vLLM: `make test-vllm` installs it, or name its Python in AUTOSCOUT_VLLM_PYTHON")
    model = tiny_model(tmp_path / "tiny")
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


def tune(tmp_path: Path, study: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(study))
    return run(tmp_path, "tune", path)


def test_tuned_end_to_end(tmp_path: Path, study: dict[str, Any]) -> None:
    study["workload"]["allow_lossy"] = True  # of a quantised cache, so answers are compared
    study |= {"first": [{"kv_cache_dtype": "fp8"}, {"max_num_seqs": 4}], "budget": {"trials": 3}, "finals": {"rounds": 0}}
    done = tune(tmp_path, study)
    assert done.returncode == 0, done.stderr[-3000:]
    home, trials = tmp_path / "autoscout_results" / "real", trials_of(tmp_path, "real")
    eight = [trial for trial in trials if trial["config"].get("kv_cache_dtype") == "fp8"]
    able = any(word in Path("/proc/cpuinfo").read_text() for word in ("avx512f", "amx_tile"))  # vLLM refuses it on other processors
    assert [trial["status"] for trial in eight] == ["ok" if able else "invalid"]
    assert {trial["status"] for trial in trials if trial not in eight} == {"ok"}
    assert "vllm.entrypoints.cli.main serve" in (home / "best" / "run.sh").read_text()
    assert not alive(study["workload"]["model"])


def test_guesses_are_compared_with_the_launch_of_today(tmp_path: Path, study: dict[str, Any]) -> None:
    """The user's command guesses by n-grams; the study says what of it was right, on text, with the answers compared."""
    model = tiny_model(tmp_path / "texts", tokenizer=True)
    config = """'{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2}'"""
    del study["goal"], study["workload"]["model"]
    study |= {
        "from": f"vllm serve {model} --dtype float32 --enforce-eager --max-num-seqs 4 --speculative-config {config} --port 8000",
        "space": {"knobs": {"speculative_method": {"values": ["none", "ngram"]}, "num_speculative_tokens": {"values": [2, 4]}}},
        "first": [{"speculative_method": "ngram", "num_speculative_tokens": 2, "max_num_seqs": 4}],
        "budget": {"trials": 3},
        "finals": {"rounds": 0},
    }
    done = tune(tmp_path, study)
    assert done.returncode == 0, done.stderr[-3000:]
    trials = trials_of(tmp_path, "real")
    assert [trial["status"] for trial in trials] == ["ok"] * 3, [trial.get("reason") for trial in trials]
    default, today, fewer = trials
    assert "acceptance_rate" not in default["metrics"]
    for trial, most in ((today, 4), (fewer, 2)):
        assert trial["config"]["speculative_method"] == "ngram"
        assert 0 < trial["metrics"]["acceptance_rate"] <= 1
        assert 1 <= trial["metrics"]["acceptance_length"] <= 1 + most
    home = tmp_path / "autoscout_results" / "real"
    assert "acceptance_length" in (home / "report.html").read_text()
    assert not alive(str(model))


def test_refusals_are_invalid_and_not_retried(tmp_path: Path, study: dict[str, Any]) -> None:
    if len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) > 1:
        pytest.skip("vLLM refuses two ranks only where there is one NUMA node")
    study["workload"]["engine_args"] = {"tensor_parallel_size": 2}
    study |= {"first": [{"max_num_seqs": 4}], "budget": {"trials": 2}, "finals": {"rounds": 0}}
    done = tune(tmp_path, study)
    assert done.returncode == 2, "no configuration worked"
    trials = trials_of(tmp_path, "real")
    assert [trial["status"] for trial in trials] == ["invalid", "invalid"], "each refused once"
    assert all("NUMA" in trial["reason"] for trial in trials)


def test_kill_9_of_the_tuner_leaves_no_server(tmp_path: Path, study: dict[str, Any]) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(study))
    model = study["workload"]["model"]
    tuner = subprocess.Popen([sys.executable, "-m", "autoscout", "tune", str(path)], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        assert wait(lambda: bool(alive(model)), 120.0), "the server was never started"
        tuner.send_signal(signal.SIGKILL)
        tuner.wait()
        assert wait(lambda: not alive(model), 60.0), "a server outlived its tuner"
    finally:
        tuner.kill()
