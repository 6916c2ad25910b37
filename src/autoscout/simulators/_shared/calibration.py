"""Files of fitted constants: read with their faults named."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoscout.common.document import load
from autoscout.common.outcome import is_number
from autoscout.core.errors import ConfigError, Fault


def read_calibration(path: str | Path, kind: str) -> dict[str, Any]:
    """The content of a file that `autoscout calibrate` wrote for a simulator of this kind."""
    try:
        data = load(Path(path)).value
    except ConfigError as error:
        raise ConfigError([replace(fault, rule=f"the calibration: {fault.rule}") for fault in error.faults]) from error
    if not isinstance(data, dict) or data.get("kind") != kind:
        raise ConfigError(Fault(where=str(path), field="kind", rule=f"must say {kind!r}", fix="Write it with autoscout calibrate"))
    return data


def check_constants(
    data: Mapping[str, Any], blocks: Mapping[str, Collection[str]], where: str, numbers: Collection[str] = (), more: Iterable[Fault] = ()
) -> None:
    """Refuse constants that the simulator does not have, and what is no number; all faults come at once.

    Args:
        data: What the file holds.
        blocks: Names of the constants by block.
        where: The file.
        numbers: Names outside the blocks that hold a number where they are given.
        more: Faults that the caller found itself.
    """
    faults = list(more)
    for block, names in blocks.items():
        constants = data.get(block, {})
        if not isinstance(constants, Mapping):
            faults.append(Fault(where=where, field=block, value=repr(constants), rule="must map constants to numbers"))
            continue
        for name, value in constants.items():
            if name not in names:
                faults.append(Fault(where=where, field=f"{block}.{name}", rule=f"unknown constant; there are: {', '.join(sorted(names))}"))
            elif not is_number(value):
                faults.append(Fault(where=where, field=f"{block}.{name}", value=repr(value), rule="must be a finite number"))
    strange = [name for name in (*numbers, "rows", "mape") if data.get(name) is not None and not is_number(data[name])]
    faults += [Fault(where=where, field=name, value=repr(data[name]), rule="must be a finite number") for name in strange]
    if faults:
        raise ConfigError(faults)


def mape_of(data: Mapping[str, Any]) -> float | None:
    """The error on unseen data that a file states; None where it could not be judged."""
    stated = data.get("mape", 0.0)
    return None if stated is None else float(stated)


__all__ = ["check_constants", "mape_of", "read_calibration"]
