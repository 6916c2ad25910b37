"""Texts in which Slurm writes GPUs and times."""

from __future__ import annotations

import re

import numpy as np

from autosched.traces.columns import Texts

_GPUS = re.compile(r"(?:^|,)(?:gres[/:])?gpu(?::([\w.-]+))?[:=](\d+)|(?:^|,)(?:gres[/:])?gpu(?=,|$)")


def gpus_of(text: str) -> tuple[float, str]:
    """GPUs of `cpu=8,gres/gpu=4,gres/gpu:a100=4` (accounting) or `gres/gpu:a100:4` (per node), and their type; several types are none."""
    plain = 0.0
    typed: dict[str, float] = {}
    for match in _GPUS.finditer(text):
        if match[1]:
            typed[match[1]] = typed.get(match[1], 0.0) + float(match[2])
        else:
            plain = max(plain, float(match[2] or 1))
    total = max(plain, sum(typed.values()))
    return total, next(iter(typed)) if len(typed) == 1 and typed == {next(iter(typed)): total} else ""


def seconds_of(texts: Texts) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Seconds of `days-hours:minutes:seconds`, `minutes:seconds` and what lies between; NaN for UNLIMITED and the like."""
    return np.asarray([_seconds(text.strip()) for text in texts], np.float64)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?(?:\.\d+)?", text)
    if not match:
        return float("nan")
    parts = [int(part) for part in match.groups()[1:] if part is not None]
    if match[1] is not None:  # days-hours, days-hours:minutes, days-hours:minutes:seconds
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:  # minutes, minutes:seconds
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return int(match[1] or 0) * 86_400.0 + hours * 3_600.0 + minutes * 60.0 + seconds
