"""The rows of a table are its space, complete or not, and nobody asks for anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoscout.space import Listed
from autoscout_lab.bench import Entry, find_tables, load_table, replay

OWN = ("hybrid", "hybrid-paper", "random", "grid", "evolution", "coordinate", "cherrypick", "udo", "metis")
PARAMS: list[dict[str, Any]] = [
    {"name": "block", "kind": "ordinal", "role": "dense", "values": [8, 16, 32, 64, 128]},
    {"name": "tile", "kind": "ordinal", "role": "dense", "values": [1, 2, 4, 8]},
    {"name": "shared", "kind": "categorical", "role": "sparse", "values": [0, 1]},
    {"name": "padding", "kind": "categorical", "role": "sparse", "values": [0, 1], "when": {"shared": [1]}},
]


def kernels(folder: Path, complete: bool) -> Path:
    """A kernel whose rule (blocks and tiles of at most 128 threads, and not all alike) the manifest does not say."""
    folder.mkdir()
    entry = {"family": "toy", "objective": "min", "unit": "ms", "complete": complete, "params": PARAMS}
    (folder / "manifest.json").write_text(json.dumps({"kernel": entry}))
    lines = ["block,tile,shared,padding,value"]
    for block in (8, 16, 32, 64, 128):
        for tile in (1, 2, 4, 8):
            for shared, padding in ((0, 0), (1, 0), (1, 1)):
                if 32 <= block * tile <= 128 and (block + tile + padding) % 3:
                    lines.append(
                        f"{block},{tile},{shared},{padding},{1.0 + abs(block - 48) / 16 + abs(tile - 2) + 0.3 * padding - 0.5 * shared}"
                    )
    (folder / "kernel.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("name", OWN)
def test_no_searcher_leaves_a_table(name: str, complete: bool, tmp_path: Path) -> None:
    (source,) = find_tables(str(kernels(tmp_path / "tables", complete)))
    table = load_table(source)
    assert isinstance(table.space, Listed)
    assert set(table.space.enumerate()) == set(table.configs)
    for seed in (0, 1):
        searcher = Entry.parse(name).build(table.space, table.task, seed)
        run = replay(table, searcher, name=name, seed=seed, budget=len(table))
        assert run.known == 0
        assert len(set(run.losses)) > 3
