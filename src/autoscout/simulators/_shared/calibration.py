"""Files of fitted constants: read with their faults named."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from autoscout.core.errors import ConfigError, Fault


def read_calibration(path: str | Path, kind: str) -> dict[str, Any]:
    """The content of a file that `autoscout calibrate` wrote for a simulator of this kind."""
    try:
        data = yaml.safe_load(Path(path).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(Fault(where=str(path), rule=f"the calibration cannot be read: {error}")) from error
    if not isinstance(data, dict) or data.get("kind") != kind:
        raise ConfigError(Fault(where=str(path), field="kind", rule=f"must say {kind!r}", fix="Write it with autoscout calibrate"))
    return data


def check_constants(data: Mapping[str, Any], known: Mapping[str, Collection[str]], where: str) -> None:
    """Refuse constants that the simulator does not have; `known` gives their names by block, all faults come at once."""
    faults = [
        Fault(where=where, field=f"{block}.{name}", rule=f"unknown constant; there are: {', '.join(sorted(names))}")
        for block, names in known.items()
        for name in sorted(data.get(block, {}).keys() - set(names))
    ]
    if faults:
        raise ConfigError(faults)


def mape_of(data: Mapping[str, Any]) -> float | None:
    """The error on unseen data that a file states; None where it could not be judged."""
    stated = data.get("mape", 0.0)
    return None if stated is None else float(stated)


__all__ = ["check_constants", "mape_of", "read_calibration"]
