"""`vllm` and `sglang` from the campaign to `best/`, with the server that speaks the API and computes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from autoscout.testing.openai_server.settings import EXTRA

REFUSED = {
    "vllm": ("enable_prefix_caching", False, "--no-enable-prefix-caching"),
    "sglang": ("disable_radix_cache", True, "--disable-radix-cache"),
}
CHANGED = {"vllm": {"max_num_seqs": 4}, "sglang": {"max_running_requests": 8}}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_study_without_an_engine(tmp_path: Path, engine: str) -> None:
    knob, value, flag = REFUSED[engine]
    command = [sys.executable, "-m", "autoscout.testing.openai_server", "--vocab-size", "200000"]
    load = {"input_tokens": 64, "output_tokens": 8, "concurrency": 8, "requests": 32}
    study = {
        "system": engine,
        "name": "toy",
        "workload": {"model": "llama-3.1-8b", "engine_command": command, "env": {EXTRA: f"--refuse={flag}"}, **load},
        "hardware": {"gpus": 0, "cores": 1},
        "goal": {"slo": ["p95_ttft_ms<=60000"]},
        "first": [{knob: value}, CHANGED[engine]],
        "budget": {"trials": 3},
        "finals": {"rounds": 0},
        "measure": {"dirty_repeats": 0},
    }
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(study))
    done = subprocess.run(
        [sys.executable, "-m", "autoscout", "tune", str(path), "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    home = tmp_path / "autoscout_results" / "toy"
    trials = [json.loads(line) for line in (home / "trials.jsonl").read_text().splitlines()]
    refused = [trial for trial in trials if trial["config"][knob] == value]
    assert [trial["status"] for trial in refused] == ["invalid"], "refused once, and never tried again"
    assert flag in refused[0]["reason"]
    assert {trial["status"] for trial in trials if trial not in refused} == {"ok"}
    assert {"run.sh", "config.yaml", "k8s_deploy.yaml", "compose.yaml", "bench_run.sh", "diff.txt", "deploy"} <= {
        item.name for item in (home / "best").iterdir()
    }
    assert (home / "report.html").exists()


def test_an_engine_that_is_not_there_ends_the_study_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autoscout", "tune", "vllm", "--model", "llama-3.1-8b", "--hardware", "gpus=0"]
    missing = [
        "-w",
        "engine_command=[/no/such/vllm, serve]",
        "-w",
        "engine_version=0.32.0",
        "--hardware",
        "cores=1",
        "--experiment-name",
        "toy",
    ]
    done = subprocess.run([*command, *missing], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "/no/such/vllm" in done.stderr
    assert "Install it" in done.stderr
    trials = tmp_path / "autoscout_results" / "toy" / "trials.jsonl"
    assert not trials.exists() or not trials.read_text(), "no configuration is to blame"


@pytest.mark.slow
def test_a_study_that_begins_with_the_launch_of_today(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autoscout.testing.openai_server", "--vocab-size", "200000"]
    study = {
        "system": "vllm",
        "name": "today",
        "from": "HF_HUB_OFFLINE=1 vllm serve llama-3.1-8b --max-num-seqs 12 --enable-log-requests --port 9000",
        "workload": {"engine_command": command, "input_tokens": 64, "output_tokens": 8, "concurrency": 8, "requests": 16},
        "hardware": {"gpus": 0, "cores": 1},
        "budget": {"trials": 3},
        "finals": {"rounds": 1, "finalists": 1},
        "measure": {"dirty_repeats": 0},
    }
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(study))
    done = subprocess.run(
        [sys.executable, "-m", "autoscout", "tune", str(path), "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    home = tmp_path / "autoscout_results" / "today"
    trials = [json.loads(line) for line in (home / "trials.jsonl").read_text().splitlines()]
    assert [trial["origin"]["by"] for trial in trials[:2]] == ["default", "baseline"]
    assert {trial["status"] for trial in trials[:2]} == {"ok"}
    assert trials[1]["config"]["max_num_seqs"] == 12
    assert sum(trial["config"]["max_num_seqs"] == 12 for trial in trials if trial["origin"].get("phase") == "final") >= 1
    kept = yaml.safe_load((home / "campaign.yaml").read_text())
    assert kept["baseline"] == {"max_num_seqs": 12}
    assert kept["workload"]["model"] == "llama-3.1-8b"
    assert "from" not in kept
    result = json.loads(done.stdout)
    assert result["against"] == "baseline"
    assert result["baseline"]["config"]["max_num_seqs"] == 12
    assert "From the baseline, which you run today" in (home / "best" / "diff.txt").read_text()


@pytest.mark.slow
def test_what_changes_answers_holds_and_secrets_are_kept_nowhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autoscout.testing.openai_server", "--vocab-size", "200000"]
    launch = "HF_TOKEN=hf_of_somebody vllm serve llama-3.1-8b --max-num-seqs 64 --kv-cache-dtype fp8 --port 80 --api-key sk_of_somebody"
    study = {
        "system": "vllm",
        "name": "mine",
        "from": launch,
        "workload": {"engine_command": command, "input_tokens": 32, "output_tokens": 8, "concurrency": 4, "requests": 16},
        "hardware": {"gpus": 0, "cores": 1},
        "budget": {"trials": 3},
        "finals": {"rounds": 0},
        "measure": {"dirty_repeats": 0},
    }
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(study))
    tune = [sys.executable, "-m", "autoscout", "tune", str(path), "--json"]
    done = subprocess.run(tune, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    home = tmp_path / "autoscout_results" / "mine"
    trials = [json.loads(line) for line in (home / "trials.jsonl").read_text().splitlines()]
    assert trials[1]["config"]["max_num_seqs"] == 64, "what runs today comes right after the default"
    assert {trial["config"]["kv_cache_dtype"] for trial in trials} == {"fp8"}, "somebody's own choice, in every configuration"
    written = b"".join(item.read_bytes() for item in home.rglob("*") if item.is_file())
    assert b"of_somebody" not in written + done.stdout.encode() + done.stderr.encode()
