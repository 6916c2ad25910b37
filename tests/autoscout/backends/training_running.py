"""A trial of training without PyTorch: a script that reports steps as a real one does, and can go wrong in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import autoscout
from autoscout.core.journal import decode
from autoscout.core.launch import Completed
from autoscout.core.trial import Measurement, Trial
from autoscout.training.outcome import outcome
from autoscout.training.protocol import INPUT, RESULT, STAGE

SCRIPT = textwrap.dedent(
    """
    import os, signal, sys, time
    from autoscout import training
    knobs = training.config()
    rank, fault = int(os.environ.get("RANK", 0)), knobs.get("fault", "")
    training.stage("building")
    if fault == "oom at start":
        raise SystemExit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB free")
    training.stage("training")
    for step in range(int(knobs.get("steps", 12))):
        time.sleep(float(knobs.get("step_s", 0.01)) + 0.02 * int(os.environ.get("AUTOSCOUT_DEPTH", 0)))
        if step == 4 and fault and rank == int(knobs.get("rank", 0)):
            if fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == "hang":
                time.sleep(3600)
            if fault == "oom":
                raise SystemExit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB free")
            if fault == "nccl":
                print("[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94, unhandled system error")
                raise SystemExit(1)
            if fault == "nan":
                training.step(loss=float("nan"), tokens=10)
                continue
        loss = knobs.get("scale", 1.0) * (5.0 / (1 + step) if knobs.get("learns", True) else 5.0)
        training.step(loss=loss, tokens=knobs.get("tokens", 10), samples=1)
    if fault == "child":
        os.fork() or time.sleep(3600)
    """
)


def run_trial(
    folder: Path, config: dict[str, Any], *, ranks: int = 2, to_beat: str = "", curves: str = "", limit_s: float = 0.0, **more: Any
) -> Completed:
    """Run the trial program in a folder, as an executor would; at its time limit it is told to stop."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(SCRIPT)
    given = {
        "argv": [sys.executable, "{folder}/train.py"],
        "ranks": ranks,
        "env": {},
        "cwd": "",
        "config": config,
        "plan": {"warm_up": 2, "least": 4, "most": 8, "settled": 1e-9, "enough_s": 1000.0},
        "loss_steps": 6,
        "hang_s": 1.0,
        "max_loss_gap": 0.02,
        "max_first_gap": 0.05,
        "depths": [],
        "layers": 0,
        "nodes": 1,
        "local": ranks,
        "first_only": False,
        **more,
    }
    (folder / INPUT).write_text(json.dumps(given))
    source = str(Path(autoscout.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "AUTOSCOUT_CACHE": str(folder.parent / "cache")}
    environment |= {"AUTOSCOUT_TO_BEAT": to_beat} if to_beat else {}
    environment |= {"AUTOSCOUT_CURVES": curves} if curves else {}
    command = [sys.executable, "-m", "autoscout.training.trial", INPUT]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    timed_out = False
    try:
        with suppress(subprocess.TimeoutExpired) if limit_s else nullcontext():
            stdout, stderr = process.communicate(timeout=limit_s or 120)
        if timed_out := process.poll() is None:
            process.terminate()
            stdout, stderr = process.communicate(timeout=120)
    finally:
        left = group_left(process.pid)
    assert not left, "processes of the trial are left behind"
    outputs = {name: (folder / name).read_text() for name in (RESULT, STAGE) if (folder / name).exists()}
    return Completed(returncode=process.returncode, stdout=stdout, stderr=stderr, outputs=outputs, timed_out=timed_out, wall_s=limit_s)


def group_left(group: int) -> bool:
    """Whether a process group has members; they are killed then."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def measured(completed: Completed, metric: str = "tokens_per_s") -> Measurement:
    return outcome(completed, metric)


def tuned(folder: Path, campaign: dict[str, Any]) -> tuple[dict[str, Any], list[Trial]]:
    """What `autoscout tune` prints about a study on two processes of this machine's cores, and its trials."""
    common = {"finals": {"rounds": 1, "finalists": 1, "simplify": False}, "measure": {"dirty_repeats": 0}, "search": {"warm_start": False}}
    path = folder / "campaign.yaml"
    path.write_text(json.dumps({**common, **campaign}))  # every JSON document is one of YAML
    command = [sys.executable, "-m", "autoscout", "tune", str(path), "-o", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    trials = [decode(line) for line in (folder / campaign["name"] / "trials.jsonl").read_text().splitlines()]
    return json.loads(done.stdout), trials
