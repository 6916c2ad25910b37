"""The files of a hand-over without the secrets of its launch: variables that hold one are named, and must be set where it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from autoscout.core.config import Config
from autoscout.core.launch import Launch
from autoscout.core.protocols import Backend
from autoscout.core.secrecy import is_secret, refer_to_variables
from autoscout.core.task import Task

_PLACEHOLDER = re.compile(r"(?<!\{)\{\w[\w.]*\}")
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


def without_values(launch: Launch, task: Task) -> Launch:
    """A launch as it is shown: variables of the workload refer to themselves, so that it runs where they are set.

    A variable that takes the value of a knob or a place is shown with it.
    """
    return replace(
        launch,
        argv=tuple(refer_to_values(word, task) for word in launch.argv),
        env={
            name: f"${name}" if value and any(value == own.get(name) for own in _fixed_variables(task)) else value
            for name, value in launch.env.items()
        },
        files={name: refer_to_values(text, task) for name, text in launch.files.items()},
    )


def shown_line(launch: Launch, task: Task) -> str:
    """The launch as a line for a shell, with its variables by name."""
    return refer_to_values(launch.line, task)


def refer_to_values(text: str, task: Task) -> str:
    """A command or a file as it is shown, with the variables of the workload by name."""
    for variables in _fixed_variables(task):
        text = refer_to_variables(text, variables)
    return text


def _fixed_variables(task: Task) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of the workload that take no value of a knob: as they stand there, and with the braces of templates undone."""
    env = task.workload.get("env")
    pairs = env.items() if isinstance(env, Mapping) else ()
    fixed = {name: value for name, value in pairs if isinstance(value, str) and not _PLACEHOLDER.search(value)}
    return fixed, {name: value.replace("{{", "{").replace("}}", "}") for name, value in fixed.items()}


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


__all__ = ["export", "private_values", "refer_to_values", "shown_line", "without_secret_variables", "without_values"]
