"""What verbs print stays whole in narrow terminals and in pipes, and says what is meant."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from _cli_program import campaign, run
from autoscout.cli.main import whole_program
from autoscout.core import plugins


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_names_of_knobs_are_whole(tmp_path: Path) -> None:
    knobs = {
        "flash_attention_in_prefill": {"values": ["automatic", "disabled"], "default": "automatic", "help": "kernels of " * 12},
        "x": {"range": [0, 5], "default": 0},
        "y": {"range": [0, 3], "default": 0},
    }
    workload = {"command": "echo {x} {y} {flash_attention_in_prefill}"}
    answer = run(tmp_path, "space", "show", campaign(tmp_path, space={"knobs": knobs}, workload=workload))
    shown = answer.stdout
    assert answer.returncode == 0, answer.stderr
    assert "flash_attention_in_prefill" in shown
    assert "…" not in shown


def test_the_space_of_an_engine_takes_few_lines(tmp_path: Path) -> None:
    known = ("-w", "engine_version=0.32.0", "--hardware", "gpus=1xH200")
    answer = run(tmp_path, "space", "show", "vllm", "--model", "llama-3.1-8b", *known, "--free", "block_size")
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    titles = [line for line in lines if ", default " in line]
    assert any(line.startswith("block_size  [0, 16, 32, 64, 128], default 0") for line in titles), "freed"
    assert all(len(line) <= 80 for line in titles)
    assert sum(line.startswith("    ") for line in lines) <= 4 * len(titles)


def test_help_cuts_no_flag_and_no_sentence(tmp_path: Path) -> None:
    assert "--continue-on-error / --no-continue-on-error" in run(tmp_path, "tune", "-h").stdout
    program = whole_program()
    listed = " ".join(run(tmp_path, "-h").stdout.split())
    assert "..." not in listed.partition("Commands:")[2]
    assert all(" ".join(command.get_short_help_str().split()) in listed for command in program.commands.values())
    assert "…" not in run(tmp_path, "sched", "trace", "-h").stdout


def test_doctor_does_not_call_a_backend_without_its_engine_ok(tmp_path: Path) -> None:
    state = next(
        each
        for each in json.loads(run(tmp_path, "doctor", "--json").stdout)["plugins"]
        if (each["kind"], each["name"]) == ("backend", "sglang")
    )
    assert "not found" in state["why"].lower()
    assert state["usable"], "it loads, and starts engines elsewhere"
    row = next(line for line in run(tmp_path, "doctor").stdout.splitlines() if "sglang" in line and "│" in line)
    assert "no engine" in row
    assert " ok " not in row


def test_a_misspelt_backend_is_recognised(tmp_path: Path) -> None:
    assert "Did you mean 'llamacpp'?" in run(tmp_path, "tune", "llamacp").stderr
    with pytest.raises(plugins.PluginError) as refusal:
        plugins.get("backend", "quite-something-else")
    assert "Did you mean" not in str(refusal.value)


def test_report_without_a_folder_takes_the_newest_study(tmp_path: Path) -> None:
    path = campaign(tmp_path)
    for name in ("second", "first"):
        assert run(tmp_path, "tune", path, "-e", name, "--max-trials", 2).returncode == 0
    os.utime(tmp_path / "autoscout_results" / "first" / "trials.jsonl", (1, 1))
    shown = json.loads(run(tmp_path, "report", "--json").stdout)
    assert shown["files"]["folder"] == "autoscout_results/second"


def test_report_without_a_study_says_what_to_do(tmp_path: Path) -> None:
    refusal = run(tmp_path, "report")
    assert refusal.returncode == 2
    assert "holds no study" in refusal.stderr
    assert "autoscout tune" in refusal.stderr


def test_only_measuring_needs_the_packages_of_a_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins.get("backend", "pytorch"), "requires", ("no_such_package_here",))
    for words in (("render", "pytorch"), ("space", "count", "pytorch"), ("tune", "pytorch", "--dry-run")):
        answer = run(tmp_path, *words)
        assert answer.returncode == 0, answer.stderr
    for verb in ("tune", "profile"):
        answer = run(tmp_path, verb, "pytorch")
        assert answer.returncode == 2
        assert "pip install 'autoscout[torch]'" in " ".join(answer.stderr.split())
    assert not (tmp_path / "autoscout_results").exists()
    own = run(tmp_path, "tune", "pytorch", "--train-cmd", "true", "-w", "knobs={x: [1, 2]}", "--max-trials", "1")
    assert "no_such_package_here" not in own.stderr, "a command of one's own brings its own environment"


def test_render_takes_the_command_and_the_hosts_of_a_training_job(tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("n1 slots=4\nn2 slots=4\n")
    command = "deepspeed --hostfile {hostfile} train.py --deepspeed_config {ds_config}"
    answer = run(tmp_path, "render", "deepspeed", "--train-cmd", command, "--hostfile", "hosts.txt", "-w", "global_batch=64", "--json")
    assert answer.returncode == 0, answer.stderr
    files = json.loads(answer.stdout)["files"]
    assert "n2 slots=4" in files["hostfile.txt" if "hostfile.txt" in files else "hostfile"]
    assert json.loads(files["ds_config.json"])["train_batch_size"] == 64
