"""The trial program of training backends, with processes that report steps and fail in every way; no PyTorch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from training_running import measured, run_trial

from autoscout.core.trial import Status

pytestmark = pytest.mark.slow


def test_steps_of_all_ranks_make_one_measurement(tmp_path: Path) -> None:
    completed = run_trial(tmp_path / "a", {"tokens": 100})
    found = measured(completed)
    assert found.status is Status.OK, (found.reason, completed.stderr)
    result = json.loads(completed.outputs["result.json"])
    assert result["tokens_per_step"] == 200, "both ranks count"
    assert found.metrics["tokens_per_s"] == pytest.approx(200 / found.metrics["step_ms"] * 1000)
    assert found.metrics["samples_per_s"] == pytest.approx(2 / found.metrics["step_ms"] * 1000)
    assert found.metrics["loss_after"] == pytest.approx((5 / 4 + 5 / 5 + 5 / 6) / 3), "the mean of the last three of six steps"
    assert found.metrics["peak_mem_gib"] > 0
    assert found.metrics["free_mem_gib"] > 0
    assert set(found.spent) == {"start_s", "warm_up_s", "measure_s"}
    assert result["steps"]["dropped"] >= 2


def test_ranks_are_ended_when_enough_is_known(tmp_path: Path) -> None:
    found = measured(run_trial(tmp_path / "a", {"steps": 100_000}))
    assert found.status is Status.OK, found.reason


def test_what_a_rank_leaves_running_is_ended(tmp_path: Path) -> None:
    found = measured(run_trial(tmp_path / "a", {"fault": "child", "steps": 8, "rank": 99}))
    assert found.status is Status.OK, found.reason


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("oom at start", Status.OOM_START, "out of memory while building"),
        ("oom", Status.OOM_RUN, "out of memory while training"),
        ("killed", Status.OOM_RUN, "killed for memory while training: rank 1 ended with SIGKILL after 4 steps"),
        ("nccl", Status.CRASHED, "NCCL error"),
        ("hang", Status.TIMEOUT, "no step for"),
        ("nan", Status.WRONG_OUTPUT, "the loss of step 5 is not a finite number"),
    ],
)
def test_failures_are_told_apart(tmp_path: Path, fault: str, status: Status, words: str) -> None:
    found = measured(run_trial(tmp_path / "a", {"fault": fault, "rank": 1}))
    assert found.status is status, found.reason
    assert words in found.reason


def test_a_run_that_does_not_learn_what_the_default_learns_is_wrong(tmp_path: Path) -> None:
    """Whatever machine it runs on: the launch brings what the default did."""
    default = measured(run_trial(tmp_path / "default", {}))
    assert default.status is Status.OK
    curves = json.dumps({name: default.samples[name] for name in ("loss", "tokens")})
    assert measured(run_trial(tmp_path / "same", {}, curves=curves)).status is Status.OK
    found = measured(run_trial(tmp_path / "idle", {"learns": False}, curves=curves))
    assert found.status is Status.WRONG_OUTPUT
    assert "where the default's is" in found.reason
    half = measured(run_trial(tmp_path / "half", {"tokens": 5}, curves=curves))
    assert half.status is Status.WRONG_OUTPUT
    assert "the global batch must stay the same" in half.reason
    nothing = measured(run_trial(tmp_path / "nothing", {"scale": 0.0}, curves=curves))
    assert nothing.status is Status.WRONG_OUTPUT, "a loss of 0 from the first step on is no better model"
    assert "the first loss is 0 where the default's is 5, 100.0% away" in nothing.reason


def test_a_run_that_cannot_win_is_stopped(tmp_path: Path) -> None:
    told = {"metric": "tokens_per_s", "direction": "maximize", "value": 1e6, "limits": [], "spread": 0.05}
    found = measured(run_trial(tmp_path / "a", {"steps": 100_000}, to_beat=json.dumps(told)))
    assert found.status is Status.BOUNDED, found.reason
    assert 0 < found.bounds["tokens_per_s"] < 1e6
    assert "is to beat" in found.reason
    easy = measured(run_trial(tmp_path / "b", {}, to_beat=json.dumps({**told, "value": 1e-3})))
    assert easy.status is Status.OK


def test_two_depths_give_the_whole_model(tmp_path: Path) -> None:
    completed = run_trial(tmp_path / "a", {"tokens": 100}, depths=[1, 3], layers=20)
    found = measured(completed)
    assert found.status is Status.OK, (found.reason, completed.stderr)
    assert found.metrics["step_ms"] >= 3 * 20, "a step of the deeper model sleeps that long, and more layers take no less"
    assert found.metrics["tokens_per_s"] == pytest.approx(200 / found.metrics["step_ms"] * 1000)
    assert "loss_after" not in found.metrics, "shallow models learn something else"
    failed = measured(run_trial(tmp_path / "b", {"fault": "oom"}, depths=[1, 3], layers=20))
    assert failed.status is Status.OOM_RUN


def test_a_launcher_starts_the_ranks_itself(tmp_path: Path) -> None:
    launcher = (
        "import os, subprocess, sys; "
        "run = [subprocess.Popen([sys.executable, sys.argv[1]], env={**os.environ, 'RANK': str(n)}) for n in range(2)]; "
        "assert os.environ['MASTER_PORT'] == os.environ['PET_MASTER_PORT'] == sys.argv[2]; sys.exit(max(p.wait() for p in run))"
    )
    argv = [sys.executable, "-c", launcher, "{folder}/train.py", "{port}"]
    completed = run_trial(tmp_path / "a", {"tokens": 7}, ranks=0, argv=argv)
    found = measured(completed)
    assert found.status is Status.OK, (found.reason, completed.stderr)
    assert json.loads(completed.outputs["result.json"])["tokens_per_step"] == 14


def test_programs_next_to_python_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.venv/bin/autoscout` without activating the environment: `torchrun` was not found."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    name = Path(sys.executable).name
    argv = ["/bin/sh", "-c", f'command -v {name} && PATH="${{PATH#/usr/bin:/bin:}}" exec {name} "$AUTOSCOUT_FOLDER/train.py"']
    found = measured(run_trial(tmp_path / "a", {}, ranks=0, argv=argv))
    assert found.status is Status.OK, found.reason


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["no-such-program-anywhere"], "No such file or directory"),
        ([sys.executable, "-c", "raise ValueError('no data')"], "ValueError: no data"),
    ],
)
def test_a_command_that_fails_says_why(tmp_path: Path, argv: list[str], words: str) -> None:
    found = measured(run_trial(tmp_path / "a", {}, ranks=0, argv=argv))
    assert found.status is Status.CRASHED
    assert words in found.reason


def test_a_run_at_its_limit_tells_what_it_said_last(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import time; print('waiting for the data'); time.sleep(600)"]
    found = measured(run_trial(tmp_path / "a", {}, ranks=1, argv=argv, limit_s=4.0))
    assert found.status is Status.TIMEOUT
    assert found.reason == "still starting after 4 s; it said: waiting for the data"
    assert "waiting for the data" in found.log_tail


def test_a_script_that_reports_nothing_is_wrong(tmp_path: Path) -> None:
    found = measured(run_trial(tmp_path / "a", {}, ranks=0, argv=[sys.executable, "-c", "pass"]))
    assert found.status is Status.WRONG_OUTPUT
    assert "after 0 steps" in found.reason


def test_a_script_that_reports_no_tokens_is_told_what_to_do(tmp_path: Path) -> None:
    found = measured(run_trial(tmp_path / "a", {"tokens": 0}))
    assert found.status is Status.WRONG_OUTPUT
    assert "give tokens= to every call of training.step" in found.reason
    assert measured(run_trial(tmp_path / "b", {"tokens": 0}), "samples_per_s").status is Status.OK
