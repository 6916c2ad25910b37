"""The launch of Megatron-LM that people paste: `torchrun ... pretrain_gpt.py ...`, or a script that ends in one."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Any

from autoscout.backends.megatron.own_flags import OF_A_RUN, groups
from autoscout.common.fields import refuse_if
from autoscout.core.errors import Fault, NoLaunchError
from autoscout.core.user import UserLaunch
from autoscout.training.launches import complete, read_training_launch

DROPPED = ("CUDA_DEVICE_MAX_CONNECTIONS",)  # set where Megatron demands it
PLAIN = ("torchrun", "python", "python3", "-m", "torch.distributed.run", "torch.distributed.launch")


def read_megatron_launch(text: str, name: str) -> UserLaunch:
    """The launch in a text.

    Raises:
        ConfigError: there is none, or it is not understood; all faults at once.
    """
    start = read_training_launch(text, name)
    script = PurePosixPath(start.script)
    if not script.name.startswith("pretrain"):
        rule = "starts no training script of Megatron-LM"
        fix = "Give 'torchrun ... pretrain_gpt.py ...'; other scripts are tuned with pytorch"
        raise NoLaunchError(Fault(where=name, value=repr(start.script), rule=rule, fix=fix))
    words = [word for part in start.arguments for word in (part.split(" ") if part.startswith("--") and " " in part else [part])]
    of_a_run = [group for group in groups(words) if group[0].startswith(OF_A_RUN)]
    lost = {word for _, values in of_a_run for word in values}
    refuse_if(complete(start, [word for word in start.arguments if word not in lost], name))
    workload: dict[str, Any] = {"arguments": shlex.join(words), "script": script.name}
    folder = start.path(str(script.parent))
    if (folder / "megatron").is_dir():
        workload["checkout"] = str(folder)
    if env := {key: str(value) for key, value in start.env.items() if key not in DROPPED}:
        workload["env"] = env
    left_out = list(start.left_out)
    if of_a_run:
        flags = ", ".join(group[0] for group in of_a_run)
        left_out.append(
            f"{flags}: a trial neither loads nor saves nor evaluates, and logs every step; the files that are handed over keep them."
        )
    if wrappers := [word for word in start.before if PurePosixPath(word).name not in PLAIN and not word.startswith("-")]:
        first = PurePosixPath(wrappers[0]).name
        if first in ("srun", "mpirun", "docker", "singularity", "apptainer", "bash"):
            left_out.append(f"{first}: AutoScout starts torchrun itself; -w launcher=... gives another start.")
    hardware = dict(start.hardware)
    if isinstance(count := hardware.pop("processes", None), int):
        hardware["gpus"] = count
    return UserLaunch(workload=workload, hardware=hardware, left_out=tuple(left_out))


__all__ = ["read_megatron_launch"]
