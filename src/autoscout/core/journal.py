"""`trials.jsonl`: one trial per line, written once, readable by anything that reads JSON.

Everybody may read it: reports, replays, other people's notebooks. Only a store writes it while a study runs.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoscout.core.errors import ConfigError, Fault
from autoscout.core.secrecy import hide_secrets, without_secrets
from autoscout.core.trial import Trial

NAME = "trials.jsonl"
"""What the file is called in a result folder."""


def encode(trial: Trial) -> str:
    """The line of a trial, without the newline: strict JSON in ASCII.

    Never fails, because a trial that was paid for must not be lost over an unusual value: numbers that JSON does not
    know become the strings that `float` reads, foreign objects in an origin become lists or text. What programs say of
    themselves is kept without secrets.
    """
    data = trial.to_json()
    for name in ("reason", "log_tail"):
        if isinstance(text := data.get(name), str):
            data[name] = hide_secrets(text)
    return json.dumps(_plain(data), separators=(",", ":"), allow_nan=False)


def decode(line: str) -> Trial:
    """The trial of a line.

    Raises:
        ValueError: the line is no trial; the message says why.
    """
    try:
        data = json.loads(line)
        if not isinstance(data, dict):
            raise ValueError(f"a JSON object is wanted, not {type(data).__name__}")
        return Trial.from_json(data)
    except KeyError as error:
        raise ValueError(f"{error} is missing") from error
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def public(line: str) -> str:
    """The line as a file that everybody may read holds it: without what looks like a secret in the values of knobs, too."""
    return line if hide_secrets(line) == line else json.dumps(without_secrets(json.loads(line)), separators=(",", ":"))


def settled(trial: Trial) -> Trial:
    """The trial as a reader of its line will see it, so that a searcher is told the same live and on replay."""
    return decode(encode(trial))


def read_trials(path: str | os.PathLike[str], study: str | None = None) -> list[Trial]:
    """All trials of a `trials.jsonl` (or of the folder that holds one), each study's in the order of their numbers.

    A last line without an end is what a running or killed writer leaves behind; it is ignored when it cannot be read.

    Args:
        path: The file, or a result folder.
        study: Only this study's trials.

    Raises:
        ConfigError: the file cannot be read, or has lines that are not trials or that are there twice; all of them at once.
    """
    file = Path(path)
    file = file / NAME if file.is_dir() else file
    try:
        raw = file.read_bytes()
    except OSError as error:
        rule = f"trials cannot be read: {error.strerror}"
        raise ConfigError(Fault(where=str(file), rule=rule, fix=f"Give a {NAME} or a result folder")) from error
    faults: list[Fault] = []
    trials: list[Trial] = []
    lines: dict[tuple[str, int], int] = {}
    texts = raw.split(b"\n")
    for line, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        try:
            trial = decode(text.decode())
        except ValueError as error:
            if line < len(texts):
                fix = "Delete the line, or take the file of a store that is whole"
                faults.append(Fault(where=f"{file}:{line}", rule=f"not a trial: {error}", value=_excerpt(text), fix=fix))
            continue
        before = lines.setdefault((trial.study, trial.number), line)
        if before != line and trial.number >= 0:
            rule = f"trial {trial.number} of study {trial.study!r} is already in line {before}"
            faults.append(Fault(where=f"{file}:{line}", rule=rule, fix="Delete one of the two lines"))
        elif study is None or trial.study == study:
            trials.append(trial)
    if faults:
        raise ConfigError(faults)
    order = {name: place for place, name in enumerate(dict.fromkeys(trial.study for trial in trials))}
    return sorted(trials, key=lambda trial: (order[trial.study], trial.number))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=str)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain(value.tolist())
    return str(value)


def _excerpt(text: bytes, limit: int = 60) -> str:
    excerpt = text[: limit + 1].decode(errors="replace")
    return repr(excerpt if len(excerpt) <= limit else excerpt[:limit] + "...")
