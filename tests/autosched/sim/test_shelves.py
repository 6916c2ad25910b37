"""Nodes by free GPUs, against a look at all of them."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.kernel.place import best_fit
from autosched.kernel.shelves import BITS, first_on, has_as_many, new_shelves, set_free
from autosched.sim.cluster import Cluster


@pytest.mark.parametrize("text", ["9x8", f"{BITS}x4", f"{BITS + 1}x8", f"{2 * BITS}x8+3x4"])
def test_a_node_is_found_as_by_looking_at_all(text: str) -> None:
    node = Cluster.parse(text).table()
    shelves, sizes = new_shelves(node)
    assert list(sizes) == [node["gpus"].max(), node["gpus"].min()]
    draw = np.random.default_rng(len(node))
    for _ in range(300):
        i = int(draw.integers(len(node)))
        set_free(node, i, float(draw.integers(0, int(node["gpus"][i]) + 1)), shelves)
        free, start = int(draw.integers(0, int(sizes[0]) + 1)), int(draw.integers(0, len(node)))
        alike = np.flatnonzero(node["free"] == free)
        assert first_on(shelves, free, start) == next((int(each) for each in alike if each >= start), -1)
        assert has_as_many(shelves, free, float(len(alike)))
        assert not has_as_many(shelves, free, float(len(alike) + 1))
        wanted = float(draw.integers(1, int(sizes[0]) + 1))
        room = [(float(node["free"][each]), each) for each in range(len(node)) if node["free"][each] >= wanted]
        assert best_fit(node, wanted, -1.0, shelves) == (min(room)[1] if room else -1)
