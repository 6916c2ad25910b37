"""Starting a command on several machines by hand: what hand-overs of every backend that runs on them share."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

USUAL_PORT = "29500"  # where processes of PyTorch meet by themselves


def node_variables(nodes: int, local: int) -> str:
    """Shell text that says how the machines find each other, in plain words and in those that torchrun reads; under Slurm by itself."""
    lines = [
        'NODE_RANK="${NODE_RANK:-${SLURM_NODEID:-}}"',
        'if [ -z "$NODE_RANK" ] || [ -z "${MASTER_ADDR:-}" ]; then',
        f'    echo "It ran on {nodes} machines. With Slurm: sbatch run.sbatch. Otherwise start it on each, with NODE_RANK=0, 1, ..." >&2',
        '    echo "and MASTER_ADDR, the address of the first (run_hosts.sh does, where hosts are known)." >&2',
        "    exit 2",
        "fi",
        f'MASTER_PORT="${{MASTER_PORT:-{USUAL_PORT}}}" NNODES={nodes} NPROC_PER_NODE={local}',
    ]
    names = ("NODE_RANK", "NNODES", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT")
    lines.append(" ".join(f'PET_{name}="${name}"' for name in names))
    lines.append("export " + " ".join([*names, *(f"PET_{name}" for name in names)]))
    return "\n".join(lines) + "\n"


def slurm_script(nodes: int, cpus: int, gpus: int, *, everywhere: bool = True) -> str:
    """`run.sbatch`: the same on the nodes of a job.

    Args:
        nodes: Machines.
        cpus: Of each.
        gpus: Of each.
        everywhere: Whether the command is started on every node, instead of once by a launcher that reaches them all.
    """
    meet, start = "", "srun --ntasks=1 sh" if nodes == 1 else "sh"
    if everywhere and nodes > 1:
        meet = 'MASTER_ADDR="${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}"\nexport MASTER_ADDR\n'
        start = f"srun --nodes={nodes} --ntasks={nodes} sh"
    return (
        f"#!/bin/bash\n#SBATCH --job-name=train\n#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task={cpus}\n"
        f"{f'#SBATCH --gpus-per-node={gpus}{chr(10)}' if gpus else ''}"
        "# Submit it from this folder: sbatch run.sbatch\n"
        f'{meet}exec {start} "$SLURM_SUBMIT_DIR/${{SCRIPT:-run.sh}}" "$@"\n'
    )


def hosts_script(hosts: Iterable[str]) -> str:
    """`run_hosts.sh`: the same on machines that ssh reaches; when one fails the others are ended."""
    listed = list(hosts)
    first = listed[0].rpartition("@")[2]
    return (
        "#!/bin/sh\n# Starts run.sh on every host. They must see this folder under the same path; SSH changes how they are reached.\n"
        'set -u\nhere="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)"\nrank=0 pids=""\n'
        f"for host in {shlex.join(listed)}; do\n"
        f'    ${{SSH:-ssh}} "$host" "NODE_RANK=$rank MASTER_ADDR=${{MASTER_ADDR:-{first}}} ${{MASTER_PORT:+MASTER_PORT=$MASTER_PORT}} \\\n'
        "        ${STEPS:+STEPS=$STEPS} ${PYTHON:+PYTHON=$PYTHON} sh '$here/${SCRIPT:-run.sh}' $*\" &\n"
        '    pids="$pids $!" rank=$((rank + 1))\ndone\n'
        'for pid in $pids; do\n    wait "$pid" || { code=$?; kill $pids 2> /dev/null; exit "$code"; }\ndone\n'
    )


__all__ = ["USUAL_PORT", "hosts_script", "node_variables", "slurm_script"]
