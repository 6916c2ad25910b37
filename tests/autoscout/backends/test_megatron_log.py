"""Logs of Megatron-LM in the format that it prints: steps, memory, and every way in which a run dies. Nothing of Megatron is needed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from megatron_checkout import LOGS, make_checkout
from training_running import run_trial

from autoscout.backends.megatron import MegatronBackend, log
from autoscout.backends.megatron.pretrain import follow
from autoscout.core.launch import Completed
from autoscout.core.trial import Measurement, Status
from autoscout.training.outcome import outcome

GPUS = {"gpus": "8xA100-80", "cores": 8}


def given_of(checkout: Path, **workload: Any) -> dict[str, Any]:
    """What the trial program is told about a run of that checkout, with the checkout's script started by Python instead of torchrun."""
    backend = MegatronBackend()
    described = {"model": "llama-3.2-3b", "global_batch": 128, "checkout": str(checkout), "launcher": sys.executable, **workload}
    task = backend.task({"workload": described, "hardware": GPUS})
    launch = backend.render(backend.space(task).default(), task, seed=1)
    return {"input": json.loads(launch.files["train_input.json"]), "files": dict(launch.files)}


def run(folder: Path, log_name: str, ending: str = "", **workload: Any) -> Measurement:
    found = given_of(make_checkout(folder / "checkout", log_name, ending), **workload)
    folder.mkdir(exist_ok=True)
    (folder / "trial").mkdir()
    for name, text in found["files"].items():
        (folder / "trial" / name).write_text(text)
    more = {name: found["input"][name] for name in ("argv", "ranks")}
    plan = {"warm_up": 1, "least": 3, "most": 4, "settled": 1e-9, "enough_s": 1000.0}
    completed = run_trial(folder / "trial", found["input"]["config"], plan=plan, loss_steps=5, **more)
    return outcome(completed, "tokens_per_s")


def test_a_line_tells_time_throughput_and_loss() -> None:
    lines = (LOGS / "trained.log").read_text().splitlines()
    found = [iteration for line in lines if (iteration := log.iteration(line)) is not None]
    assert [iteration.number for iteration in found] == [1, 2, 3, 4, 5]
    assert (found[0].elapsed_ms, found[0].tflops, found[0].loss, found[0].samples) == (22871.4, 18.0, 11.89842, 128)
    assert not any(iteration.skipped or iteration.broken for iteration in found)
    assert max(log.peak_memory_gib(line) or 0.0 for line in lines) == pytest.approx(63488 / 1024)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            " iteration  10/ 100 | elapsed time per iteration (ms): 12.5 | lm loss: NAN | number of nan iterations: 1 |",
            (None, True),
        ),
        ("[default7]: [2026] iteration 3/ 9 | elapsed time per iteration (ms): 8.0 | lm loss: 2.0E+00 | loss scale: 1.0 |", (2.0, False)),
        (" iteration 4/ 9 | consumed samples: 8 | elapsed time per iteration (ms): 8.0 | learning rate: 1.0E-03 |", (None, False)),
    ],
)
def test_losses_that_are_missing_or_not_numbers(line: str, expected: tuple[float | None, bool]) -> None:
    found = log.iteration(line)
    assert found is not None
    assert (found.loss, found.broken) == expected


@pytest.mark.parametrize(
    "line", ["", "iteration", "saving at iteration 10/100 | done", "iteration 1/2 | elapsed time per iteration (ms): soon |", "x" * 10_000]
)
def test_other_lines_tell_nothing(line: str) -> None:
    assert log.iteration(line) is None
    assert log.peak_memory_gib(line) is None


def test_steps_take_what_megatron_says_they_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCOUT_STEPS", str(tmp_path))
    monkeypatch.setenv("RANK", "0")
    given = {"global_batch": 128, "sequence": 4096, "memory_gib": 74.5}
    with (LOGS / "trained.log").open() as lines, (tmp_path / "out").open("w") as out:
        follow(lines, given, out)
    steps = [json.loads(line) for line in (tmp_path / "rank0.jsonl").read_text().splitlines()]
    taken_ms = [round(1000 * (late["at_s"] - early["at_s"]), 1) for early, late in pairwise(steps)]
    assert taken_ms == [8141.9, 8001.0, 7997.8, 8011.5]
    assert {step["tokens"] for step in steps} == {128 * 4096}
    assert [step["loss"] for step in steps][:2] == [11.89842, 11.63027]
    assert steps[-1]["mem_gib"] == pytest.approx(62.0)
    assert (tmp_path / "out").read_text() == (LOGS / "trained.log").read_text(), "what the script prints is kept"


@pytest.mark.slow
def test_a_checkout_is_measured_by_its_log(tmp_path: Path) -> None:
    found = run(tmp_path, "trained")
    assert found.status is Status.OK, found.reason
    mean_ms = (8141.9 + 8001.0 + 7997.8 + 8011.5) / 4
    assert found.metrics["step_ms"] == pytest.approx(mean_ms, rel=0.02), "the first iteration is warm-up"
    assert found.metrics["tokens_per_s"] == pytest.approx(128 * 4096 / found.metrics["step_ms"] * 1000)
    assert found.metrics["tflops_per_gpu"] == pytest.approx(51.2, abs=0.3)
    assert found.metrics["peak_mem_gib"] == pytest.approx(62.0)
    assert found.metrics["free_mem_gib"] == pytest.approx(80 - 62.0)
    assert found.metrics["loss_after"] == pytest.approx((11.3731 + 11.20774 + 11.08231) / 3)


@pytest.mark.parametrize(
    ("log_name", "status", "words"),
    [
        ("out_of_memory", Status.OOM_START, "CUDA out of memory"),
        ("nccl", Status.CRASHED, "communication failed"),
        ("killed", Status.OOM_START, "killed for memory while building"),
        ("refused", Status.INVALID, "only when sequence parallelism is enabled"),
        ("unknown_flag", Status.INVALID, "unrecognized arguments: --no-such-flag"),
    ],
)
def test_logs_of_runs_that_died_are_told_apart(log_name: str, status: Status, words: str) -> None:
    said = (LOGS / f"{log_name}.log").read_text()
    result = json.dumps({"failure": "ended", "reason": "rank 0 ended with exit code 1 after 0 steps", "returncode": 1, "stage": "building"})
    found = outcome(Completed(returncode=3, stderr=said, outputs={"result.json": result, "stage.txt": "building\n"}), "tokens_per_s")
    assert found.status is status, found.reason
    assert words in found.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "status", "words"),
    [
        ("killed", Status.OOM_RUN, "killed for memory while training"),
        ("hang", Status.TIMEOUT, "no step for"),
        ("1", Status.CRASHED, "exit code 1"),
    ],
)
def test_a_checkout_that_dies_leaves_nothing_behind(tmp_path: Path, ending: str, status: Status, words: str) -> None:
    """`run_trial` fails where a process is left."""
    shortened = tmp_path / "short"
    shortened.mkdir()
    text = (LOGS / "trained.log").read_text()
    quick = re.sub(r"\(ms\): [\d.]+", "(ms): 10.0", text[: text.index("iteration        5/")])
    (shortened / "quick.log").write_text(quick)
    found = run(tmp_path / "run", str(shortened / "quick"), ending)
    assert found.status is status, found.reason
    assert words in found.reason


def test_the_follower_passes_arguments_and_the_exit_code_on(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "checkout")
    (checkout / "pretrain_gpt.py").write_text("import sys; print(sys.argv[1:]); sys.exit(7)")
    argv = [sys.executable, "pretrain_gpt.py", "--file", "{folder}/a.yaml"]
    given = {"argv": argv, "cwd": str(checkout), "sequence": 1, "global_batch": 1, "memory_gib": 0, "everywhere": True}
    (tmp_path / "run.json").write_text(json.dumps(given))
    command = [sys.executable, "-m", "autoscout.backends.megatron.pretrain", str(tmp_path / "run.json"), "--more"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 7
    assert done.stdout.strip() == str(["--file", f"{tmp_path}/a.yaml", "--more"])
