"""The hand-over of a training backend: a launch script, the same for Slurm, settings, and the measurement again."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from autoscout.commands.nodes import USUAL_PORT, hosts_script, node_variables, slurm_script
from autoscout.core.launch import Launch
from autoscout.training.hardware import local_processes
from autoscout.training.protocol import FOLDER_VARIABLE, INPUT, PORT_VARIABLE, PROGRAM

SETTINGS = "settings.json"
REAL_STEPS = 1000  # of the built-in model, when it is trained for its own sake

_HEAD = (
    "#!/bin/sh\nset -eu\n"
    'here="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"\n'
    '[ -n "${{PYTHON:-}}" ] || PYTHON={python}\ncommand -v "$PYTHON" > /dev/null || PYTHON=python3\n'
)


def torchrun(hardware: Mapping[str, Any]) -> str:
    """The start of a command that runs a program in the processes of this machine; with several it is told where they meet."""
    if int(hardware.get("nodes", 1)) > 1:
        return '"$PYTHON" -m torch.distributed.run'
    return f'"$PYTHON" -m torch.distributed.run --standalone --nproc-per-node {local_processes(hardware)}'


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
    everywhere: bool = True,
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
        everywhere: Whether the command is to be started on every node of several, instead of once by a launcher that reaches them all.
        is_script: Whether the command is more than one plain command, which takes no further words.
    """
    head = _HEAD.format(python=shlex.quote(sys.executable))
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
    where = ""
    if cwd:
        where = 'PATH="$PATH:$(dirname "$(command -v "$PYTHON")")"  # torchrun is next to python\n'
        where += f'[ -n "${{WORKDIR:-}}" ] || WORKDIR={shlex.quote(cwd)}  # where it was measured\ncd -- "$WORKDIR"\n'
    comment = "".join(f"# {line}\n" for line in notes)
    settings = f'AUTOSCOUT_CONFIG="$(cat "$here/{SETTINGS}")"\nexport AUTOSCOUT_CONFIG\n'
    measured = shlex.join(launch.files)
    started = command if is_script else f'exec {command} "$@"'
    nodes, local = int(hardware.get("nodes", 1)), local_processes(hardware)
    meet = node_variables(nodes, local) if everywhere and nodes > 1 else ""
    hosts = {"run_hosts.sh": hosts_script(hardware["hosts"])} if meet and hardware.get("hosts") else {}
    return {
        "run.sh": f"{head}{meet}{_variables(command)}{exports}{settings}{where}{comment}{started}\n",
        "run.sbatch": slurm_script(nodes, int(hardware["cores"]), local if hardware["device"] == "cuda" else 0, everywhere=everywhere),
        **hosts,
        SETTINGS: json.dumps(dict(config), indent=2, sort_keys=True) + "\n",
        "bench_run.sh": (
            f"{head}{meet}# Measures this configuration again, as the study did; writes result.json into a folder of its own.\n"
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
