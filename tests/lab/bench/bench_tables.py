"""Small tables that tests make themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.core.config import Config
from autoscout.core.task import Direction
from autoscout.space import Choice, Grid, Space
from autoscout_lab.bench.table import Table, task_of

PARAMS: list[dict[str, Any]] = [
    {"name": "x", "kind": "ordinal", "role": "dense", "values": [1, 2, 4, 8]},
    {"name": "kind", "kind": "categorical", "role": "sparse", "values": ["a", "b"]},
    {"name": "extra", "kind": "ordinal", "role": "dense", "values": [0, 5], "when": {"kind": ["b"]}},
]


def rows() -> list[tuple[int, str, int, float | None]]:
    """Every combination; 8 fails for kind a."""
    found: list[tuple[int, str, int, float | None]] = []
    for x in (1, 2, 4, 8):
        found.append((x, "a", 0, None if x == 8 else float(x)))
        found += [(x, "b", extra, 10.0 / x + extra) for extra in (0, 5)]
    return found


def write_folder(folder: Path, *, objective: str = "min") -> Path:
    """A folder in the format of the shared tables, with a CSV instead of Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    entry = {"family": "toy", "objective": objective, "unit": "s", "complete": True, "params": PARAMS}
    (folder / "manifest.json").write_text(json.dumps({"toy": entry}))
    lines = ["x,kind,extra,value", *(f"{x},{kind},{extra},{'' if value is None else value}" for x, kind, extra, value in rows())]
    (folder / "toy.csv").write_text("\n".join(lines) + "\n")
    return folder


def square(side: int = 6, hole: bool = False) -> Table:
    """A bowl over two ordered knobs and a category; with a hole, half of the rows are missing."""
    space = Space([Grid("x", 0, side - 1), Grid("y", 0, side - 1), Choice("c", ["p", "q"])])
    kept = [config for config in space.enumerate() if not hole or (int(config["x"]) + int(config["y"])) % 2 == 0]  # type: ignore[arg-type]
    values = np.array([_bowl(config) for config in kept])
    return Table("square", space, kept, values, task_of("square", Direction.MINIMIZE))


def _bowl(config: Config) -> float:
    x, y = int(config["x"]), int(config["y"])  # type: ignore[arg-type]
    return float("nan") if (x, y) == (0, 0) else 1.0 + (x - 3) ** 2 + (y - 2) ** 2 + (config["c"] == "q")
