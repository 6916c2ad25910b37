"""The files of a hand-over without the secrets of its launch: variables that hold one are named, and must be set where it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from autoscout.core.config import Config
from autoscout.core.protocols import Backend
from autoscout.core.secrecy import is_secret
from autoscout.core.task import Task

_SHORTEST = 4  # characters of a variable's value whose file only its owner may read


def export(backend: Backend, config: Config, task: Task) -> dict[str, str]:
    """What `backend.export` gives, where variables of the workload that hold a secret are referred to by their names."""
    open_task, names = without_secret_variables(task)
    files = dict(backend.export(config, open_task))
    return {name: _asking(name, text, names) for name, text in files.items()} if names else files


def without_secret_variables(task: Task) -> tuple[Task, tuple[str, ...]]:
    """The task without the variables of its workload that hold a secret, and their names."""
    env = task.workload.get("env")
    if not isinstance(env, Mapping):
        return task, ()
    names = tuple(name for name, value in env.items() if isinstance(value, str) and is_secret(name, value))
    if not names:
        return task, ()
    rest = {name: value for name, value in env.items() if name not in names}
    return replace(task, workload={**task.workload, "env": rest}), names


def private_values(task: Task) -> tuple[str, ...]:
    """Values of the workload's variables: only the owner may read the files that hold one."""
    env = task.workload.get("env")
    values = env.values() if isinstance(env, Mapping) else ()
    return tuple(value for value in values if isinstance(value, str) and len(value) >= _SHORTEST)


def _asking(name: str, text: str, variables: Sequence[str]) -> str:
    """A script that ends with a message where a variable is not set; other files say in a comment what they leave out."""
    kind = PurePosixPath(name).suffix
    named = [each for each in variables if re.fullmatch(r"[A-Za-z_]\w*", each, re.ASCII)]
    if kind in (".sh", ".sbatch"):
        first, newline, rest = text.partition("\n")
        checks = "".join(f': "${{{each}:?set it: the study ran with it, and its value is kept nowhere here}}"\n' for each in named)
        return f"{first}{newline}{checks}{rest}" if first.startswith("#!") else checks + text
    if kind in (".yaml", ".yml") or name == "env":
        return f"# Left out, because they hold secrets; set them where this runs: {', '.join(f'${each}' for each in named)}\n{text}"
    return text


__all__ = ["export", "private_values", "without_secret_variables"]
