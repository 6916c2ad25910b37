"""The hand-over of a training backend: a launch script, the same for Slurm, settings, and the measurement again."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from autoscout.core.launch import Launch
from autoscout.training.hardware import local_processes
from autoscout.training.protocol import FOLDER_VARIABLE, INPUT, PORT_VARIABLE, PROGRAM

SETTINGS = "settings.json"
USUAL_PORT = "29500"  # where the processes of torchrun and DeepSpeed meet by themselves
REAL_STEPS = 1000  # of the built-in model, when it is trained for its own sake

_HEAD = (
    "#!/bin/sh\nset -eu\n"
    'here="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"\n'
    '[ -n "${{PYTHON:-}}" ] || PYTHON={python}\ncommand -v "$PYTHON" > /dev/null || PYTHON=python3\n'
)


def torchrun(processes: int) -> str:
    """The start of a command that runs a module in several processes of one machine."""
    return f'"$PYTHON" -m torch.distributed.run --standalone --nproc-per-node {processes}'


def export_files(
    *,
    command: str,
    config: Mapping[str, Any],
    hardware: Mapping[str, Any],
    launch: Launch,
    env: Mapping[str, str],
    cwd: str = "",
    notes: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    everywhere: bool = False,
    is_script: bool = False,
) -> dict[str, str]:
    """All files of the hand-over folder.

    Args:
        command: Shell text that trains; `$here` is the folder and `$PYTHON` the interpreter.
        config: The knobs.
        hardware: What it was tuned for.
        launch: The measurement, to repeat it.
        env: Variables that belong to the configuration.
        cwd: Folder that the command runs in.
        notes: Lines of comment above the command.
        files: Further files.
        everywhere: Whether the command is to be started on every node, instead of once by a launcher that reaches them all.
        is_script: Whether the command is more than one plain command, which takes no further words.
    """
    head = _HEAD.format(python=shlex.quote(sys.executable))
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
    where = f'[ -n "${{WORKDIR:-}}" ] || WORKDIR={shlex.quote(cwd)}  # where it was measured\ncd -- "$WORKDIR"\n' if cwd else ""
    comment = "".join(f"# {line}\n" for line in notes)
    settings = f'AUTOSCOUT_CONFIG="$(cat "$here/{SETTINGS}")"\nexport AUTOSCOUT_CONFIG\n'
    measured = shlex.join(launch.files)
    started = command if is_script else f'exec {command} "$@"'
    return {
        "run.sh": f"{head}{_variables(command)}{exports}{settings}{where}{comment}{started}\n",
        "run.sbatch": _sbatch(hardware, everywhere),
        SETTINGS: json.dumps(dict(config), indent=2, sort_keys=True) + "\n",
        "bench_run.sh": (
            f"{head}# Measures this configuration again, as the study did; writes result.json into a folder of its own.\n"
            f'folder="$(mktemp -d "${{TMPDIR:-/tmp}}/training.XXXXXX")"\n(cd "$here" && cp {measured} "$folder")\ncd "$folder"\n'
            f'"$PYTHON" -m {PROGRAM} {INPUT}\necho "$folder/result.json"\n'
        ),
        **dict(launch.files),
        **(files or {}),
    }


def _variables(command: str) -> str:
    """What a command reads in a trial, where it does."""
    values = {FOLDER_VARIABLE: '"$here"', PORT_VARIABLE: f'"${{MASTER_PORT:-{USUAL_PORT}}}"'}
    return "".join(f"export {name}={value}\n" for name, value in values.items() if name in command)


def _sbatch(hardware: Mapping[str, Any], everywhere: bool) -> str:
    """A job script for Slurm; the launcher starts the processes, on all nodes of the job if it is one that does."""
    processes, nodes = local_processes(hardware), int(hardware.get("nodes", 1))
    gpus = f"#SBATCH --gpus-per-node={processes}\n" if hardware["device"] == "cuda" else ""
    cpus = int(hardware["cores"])
    meet, tasks = "", 1
    if everywhere and nodes > 1:
        meet = 'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"\nexport MASTER_ADDR\n'
        tasks = nodes
    return (
        f"#!/bin/bash\n#SBATCH --job-name=train\n#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node=1\n"
        f"#SBATCH --cpus-per-task={cpus}\n{gpus}"
        "# Submit it from this folder: sbatch run.sbatch\n"
        f'{meet}exec srun --ntasks={tasks} sh "$SLURM_SUBMIT_DIR/run.sh" "$@"\n'
    )
