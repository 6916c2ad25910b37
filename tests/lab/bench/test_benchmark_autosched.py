"""`benchmarks.autosched`: what it asks of the default mode, and what its page says where that is not reached."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from autosched.tune.modes import MODES

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks._autosched_page import bars, page  # noqa: E402
from benchmarks.autosched import GRID, Kept, Place, cells, mode_of, summary, trace_of  # noqa: E402


def record(mode: str, time_s: float, load: float = 1.2, scheduler: str = "tiresias", seed: int = 0) -> dict[str, Any]:
    changes = 2 if mode == "default" else 0
    return {
        "trace": "venus", "scheduler": scheduler, "load": load, "week": 0, "seed": seed, "mode": mode, "variant": "",
        "time_s": time_s, "fair_share": 0.8, "decisions": 6 if changes else 0, "changes": changes, "cpu_s": 14.0, "start_cpu_s": 2.0,
        "simulations": 60, "stopped": 6, "rejected": 0, "not_searched": changes,
        "predicted": [1.2] * changes, "realised": [1.1, None][:changes], "days": 7.0,
    }  # fmt: skip


RECORDS = [
    record("static", 200.0),
    *(record("fixed-history", 100.0 + seed, seed=seed) for seed in range(3)),
    *(record("default", 100.0 + 2 * seed, seed=seed) for seed in range(3)),
    record("fixed-oracle", 99.0),
]


def test_cells_are_medians_over_seeds() -> None:
    (ours,) = [row for row in summary(RECORDS) if row["mode"] == "default"]
    assert ours["over_static"] == pytest.approx([200 / 102, 200 / 104, 2.0])
    assert ours["over_fixed-history"][0] == pytest.approx(101 / 102)
    assert (ours["runs"], ours["changes_a_week"], ours["cpu_s_a_day"], ours["cpu_s_per_decision"]) == (3, 2, 2, 2)
    assert (ours["predicted"], ours["realised"], ours["gained"], ours["known_changes"]) == (1.2, 1.1, 1.0, 3)
    assert ours["stopped_share"] == pytest.approx(0.1)
    assert ours["not_searched"] == pytest.approx(1 / 3)


def test_a_bar_that_is_missed_is_said_to_be() -> None:
    asked = {words: ok for words, _, _, ok in bars(summary(RECORDS))}
    assert asked["Tiresias over the published default at load 1.2: at least 1.60"]
    assert asked["over settings tuned once on history, in every cell: at least 0.98"]
    assert not asked["the same in the mean: at least 1.00"]
    assert asked["over the best fixed settings in hindsight: at least 0.97"]
    told = page({"cells": summary(RECORDS), "controller": [], "parts": {}, "sources": ["x"], "not_run": 4}, "command")
    assert "| the same in the mean: at least 1.00 | 0.990 | 1 cells | **no** |" in told
    assert "4 runs of the whole grid" in told


def options(**more: Any) -> Namespace:
    every = dict.fromkeys(MODES, 1)
    grid = [Place("philly", 1.2, seeds={**every, "selftune": 3}, has_variants=True), Place("pai", 1.2, seeds={"static": 1, "paper": 1})]
    given = {
        "grid": [*grid, Place("philly", 1.2, 1, ("lucid",), every)], "traces": ["philly", "pai"], "schedulers": ["tiresias", "lucid"],
        "loads": [1.2], "weeks": [0, 1], "modes": list(MODES), "seeds": 2, "cells_only": True,
    }  # fmt: skip
    return Namespace(**{**given, **more})


def test_the_grid_goes_for_breadth_first() -> None:
    order = list(cells(options()))
    first = [cell for cell in order if cell.seed == 0]
    assert order[: len(first)] == first
    assert len(first) == 2 * len(MODES) + 2 * 2 + len(MODES), "two schedulers, two of two modes, one"
    assert {(cell.trace, cell.mode, cell.seed) for cell in order[len(first) :]} == {("philly", "selftune", 1)}, "as many seeds as asked for"
    assert {cell.scheduler for cell in order if cell.week} == {"lucid"}
    assert len(set(order)) == len(order)
    for cell, after in pairwise(order):
        assert cell.mode != "fixed-history" or replace(cell, mode=after.mode) == after, "modes that share a beginning are neighbours"


def test_variants_are_of_the_mode_that_has_these_parts() -> None:
    everything = list(cells(options(cells_only=False)))
    extra = [cell for cell in everything if cell.variant]
    assert {cell.variant.partition(":")[0] for cell in extra} == {"controller", "metric"}
    assert {(cell.trace, cell.scheduler, cell.load, cell.mode) for cell in extra} == {("philly", "tiresias", 1.2, "paper")}
    assert [cell for cell in everything if not cell.variant] == list(cells(options()))
    plain = mode_of(replace(extra[0], variant=""))
    assert all(mode_of(cell) != plain for cell in extra), "the whole is the mode itself, and is not run twice"


def test_every_week_of_the_grid_is_another_one() -> None:
    weeks = [(place.trace, place.load, place.week) for place in GRID]
    assert len(set(weeks)) == len(weeks)
    assert {place.trace for place in GRID} == {"philly", "venus", "pai"}
    assert {place.week for place in GRID if place.trace == "philly"} == {0, 1, 2}
    assert all(mode in MODES for place in GRID for mode in place.seeds)
    assert "synthetic" in trace_of("pai").source


def test_what_was_worked_out_is_not_worked_out_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    assert Kept(path, float("inf")).get("a", lambda: {"x": 1}) == {"x": 1}
    later = Kept(path, -1.0)  # no time is left
    assert later.get("a", lambda: {"x": 2}) == {"x": 1}
    assert later.get("b", lambda: 3) is None
    assert later.left == 1
