"""Spaces from plain Python values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autoscout.common.fields import shown
from autoscout.core.errors import AutoScoutError, Fault, SpaceError
from autoscout.space.knobs import Choice, Flag, Grid, Knob
from autoscout.space.space import Space
from autoscout.space.yaml import read_knob


def simple_space(knobs: Mapping[str, Any]) -> Space:
    """A space from plain Python: `{"x": range(1, 9), "mode": ["a", "b"], "fast": bool}`.

    What a campaign writes for a knob, such as `{"range": [1, 64], "log": True, "default": 8}`, and knobs themselves may be given, too.

    Raises:
        SpaceError: what a knob may hold cannot be read; all faults at once.
    """
    read: list[Knob] = []
    faults: list[Fault] = []
    for name, values in knobs.items():
        try:
            read.append(_knob(name, values))
        except AutoScoutError as error:
            faults += error.faults
    if faults:
        raise SpaceError(faults)
    return Space(read)


def _knob(name: str, values: Any) -> Knob:
    if isinstance(values, Knob):
        return values
    if values is bool:
        return Flag(name)
    if isinstance(values, Mapping):
        return read_knob(name, values)
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        fix = "Give a list, a range, `bool`, or a mapping such as {'range': [1, 64], 'log': True}"
        raise SpaceError(Fault(where="space", field=name, value=shown(values), rule="lists what the knob may hold", fix=fix))
    if isinstance(values, range) and len(values) > 1:  # which may be too long to be listed
        return Grid(name, min(values[0], values[-1]), max(values[0], values[-1]), step=abs(values.step), default=values[0])
    listed = values.tolist() if hasattr(values, "tolist") else list(values)  # of an array: numbers that JSON knows
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in listed)
    return Grid(name, values=sorted(listed), default=listed[0]) if numeric and listed else Choice(name, listed)


__all__ = ["simple_space"]
