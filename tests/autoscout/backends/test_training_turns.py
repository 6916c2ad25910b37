"""Several configurations in one start of processes: the trial program, with a script that takes turns as the built-in one does.

Needs no PyTorch.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from training_running import run_trial

from autoscout.backends.finetune import FinetuneBackend
from autoscout.backends.pytorch import PyTorchBackend
from autoscout.core.config import Config
from autoscout.core.launch import Completed
from autoscout.core.trial import Status

pytestmark = pytest.mark.slow

SCRIPT = textwrap.dedent(
    """
    import json, os, time
    from pathlib import Path
    from autoscout import training
    time.sleep(0.5)  # what a start takes
    folder = Path(os.environ["AUTOSCOUT_STEPS"])
    with open(folder.parent / f"starts{os.environ['RANK']}", "a") as file:
        file.write("x")
    for number, knobs in enumerate(json.loads(os.environ["AUTOSCOUT_TURNS"])):
        while number and not (folder / f"turn{number}").exists():
            time.sleep(0.005)
        if knobs.get("fault") == "leaves":
            break
        training.report({"turn": number})
        training.stage("training")
        for step in range(12):
            time.sleep(knobs.get("step_s", 0.01))
            failing = knobs.get("fault") == "oom" or (knobs.get("fault") == "leftovers" and number)
            if step == 3 and failing and os.environ["RANK"] == "1":
                raise SystemExit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB free")
            if step == 3 and knobs.get("fault") == "hang":
                time.sleep(3600)
            loss = 5.0 / (1 + step) if knobs.get("learns", True) else 5.0
            training.step(loss=loss, tokens=10)
    """
)
BACKEND = PyTorchBackend()
TASK = BACKEND.task({"workload": {"model": "micro"}, "hardware": {"device": "cpu", "gpus": 0, "processes": 1, "cores": 1}})


def trial(folder: Path, *configs: dict[str, Any]) -> tuple[Completed, str]:
    """The finished launch, and how often the processes were started."""
    folder.mkdir()
    (folder / "turns.py").write_text(SCRIPT)
    turns = [{"config": config} for config in configs]
    curves = json.dumps({"loss": [5.0 / (1 + step) for step in range(6)], "tokens": [20.0] * 6})
    completed = run_trial(folder, dict(configs[0]), argv=["python3", "{folder}/turns.py"], turns=turns, curves=curves)
    return completed, (folder / "starts0").read_text()


def statuses(completed: Completed, count: int) -> list[Status | None]:
    return [part and BACKEND.parse(part, TASK).status for part in BACKEND.divide(completed, count)]


def test_processes_are_started_once(tmp_path: Path) -> None:
    completed, starts = trial(tmp_path / "a", {"step_s": 0.01}, {"step_s": 0.04}, {"step_s": 0.02})
    parts = BACKEND.divide(completed, 3)
    found = [BACKEND.parse(part, TASK) for part in parts if part is not None]
    assert [one.status for one in found] == [Status.OK] * 3, [one.reason for one in found]
    assert starts == "x"
    times = [one.metrics["step_ms"] for one in found]
    assert times[0] < times[2] < times[1], "each has the steps of its own configuration"
    assert all(one.metrics["tokens_per_s"] == pytest.approx(20_000 / one.metrics["step_ms"]) for one in found)
    assert found[0].spent["start_s"] > 0.5 > found[1].spent["start_s"]
    assert found[0].conditions["saved_s"] == 0 < found[1].conditions["saved_s"]
    assert all(part.wall_s > 0 for part in parts if part is not None)


@pytest.mark.parametrize(
    ("fault", "status"), [({"fault": "oom"}, Status.OOM_RUN), ({"fault": "hang"}, Status.TIMEOUT), ({"learns": False}, Status.WRONG_OUTPUT)]
)
def test_after_a_failure_the_next_gets_a_fresh_process(tmp_path: Path, fault: dict[str, Any], status: Status) -> None:
    completed, starts = trial(tmp_path / "a", {}, fault, {}, {})
    assert statuses(completed, 4) == [Status.OK, status, Status.OK, Status.OK]
    assert starts == "xxx", "it had fresh processes itself before it counted as failed"


def test_what_others_left_behind_is_nobodys_failure(tmp_path: Path) -> None:
    completed, starts = trial(tmp_path / "a", {}, {"fault": "leftovers"}, {})
    assert statuses(completed, 3) == [Status.OK] * 3
    assert starts == "xx"


def test_a_process_that_leaves_between_two_turns_is_replaced(tmp_path: Path) -> None:
    """The built-in one does where the system cannot forget a peak of memory."""
    completed, starts = trial(tmp_path / "a", {}, {"fault": "leaves"}, {})
    assert statuses(completed, 3) == [Status.OK, Status.WRONG_OUTPUT, Status.OK], "this one leaves a fresh process as well"
    assert starts == "xxx"


def test_what_was_measured_before_a_limit_is_kept() -> None:
    turn = {"metrics": {"step_ms": 2.0, "peak_mem_gib": 1.0, "tokens_per_s": 5.0}, "samples": {}, "spent": {}, "took_s": 4.0}
    cut = Completed(returncode=None, timed_out=True, wall_s=10.0, cpu_s=20.0, outputs={"result.json": json.dumps({"turns": [turn]})})
    first, second, third = BACKEND.divide(cut, 3)
    assert first is not None
    assert second is not None
    assert third is None, "not begun"
    assert BACKEND.parse(first, TASK).status is Status.OK
    assert (first.wall_s, first.cpu_s, second.wall_s) == (4.0, 8.0, 6.0)
    assert BACKEND.parse(second, TASK).status is Status.TIMEOUT


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"turns": 3}', '{"turns": [3]}', '{"turns": [{"took_s": "x"}]}'])
def test_a_result_that_cannot_be_read_says_nothing_about_the_others(text: str) -> None:
    parts = BACKEND.divide(Completed(returncode=1, stderr="Segmentation fault", outputs={"result.json": text}), 2)
    assert parts[1] is None
    assert parts[0] is not None
    assert BACKEND.parse(parts[0], TASK).status is Status.CRASHED


def test_who_shares_a_process() -> None:
    hardware = {"device": "cuda", "gpus": 2, "processes": 2, "cores": 4, "native_bf16": True, "memory_gb": 80.0}
    task = BACKEND.task({"workload": {"model": "gpt-124m"}, "hardware": hardware})
    assert BACKEND.shares_process
    default = BACKEND.space(task).default()
    process = BACKEND.process_of(default, task)
    assert BACKEND.process_of(Config({**default, "micro_batch": 1, "attention": "math"}), task) == process
    assert BACKEND.process_of(Config({**default, "dp": 1, "tp": 2}), task) != process
    assert BACKEND.process_of(Config({**default, "expandable_segments": True}), task) != process
    assert BACKEND.process_of(Config({**default, "compile": "default"}), task) is None
    deep = BACKEND.task({"workload": {"model": "gpt-124m", "depths": [1, 2]}, "hardware": hardware})
    assert BACKEND.process_of(default, deep) is None
    tuned = FinetuneBackend()
    fine = tuned.task({"workload": {"free_lora": True}, "hardware": hardware})
    usual = tuned.space(fine).default()
    assert tuned.process_of(Config({**usual, "batching": "pack"}), fine) == tuned.process_of(usual, fine)
    assert tuned.process_of(Config({**usual, "lora_rank": 64}), fine) != tuned.process_of(usual, fine)
    assert tuned.process_of(Config({**usual, "torch_compile": True}), fine) is None


def test_a_shared_launch_holds_every_configuration() -> None:
    space = BACKEND.space(TASK)
    default = space.default()
    other = space.project({**default, "micro_batch": 1}, Config(micro_batch=1))
    launch = BACKEND.render_together([default, other], TASK, seed=1)
    given = json.loads(launch.files["train_input.json"])
    assert [turn["config"]["micro_batch"] for turn in given["turns"]] == [default["micro_batch"], 1]
    assert launch.limit_s == 2 * (BACKEND.render(default, TASK, seed=1).limit_s or 0)
