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
from benchmarks._autosched_paper import draw  # noqa: E402
from benchmarks._autosched_paper import page as evaluation  # noqa: E402
from benchmarks.autosched import GRIDS, Kept, Place, cells, mode_of, summary, trace_of  # noqa: E402


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
        "places": [*grid, Place("philly", 1.2, 1, ("lucid",), every)], "traces": ["philly", "pai"], "schedulers": ["tiresias", "lucid"],
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
    for grid in GRIDS.values():
        weeks = [(place.trace, place.load, place.week) for place in grid]
        assert len(set(weeks)) == len(weeks)
        assert all(mode in MODES for place in grid for mode in place.seeds)
    assert {place.trace for place in GRIDS["paper"]} == {"philly", "venus", "pai"}
    assert "synthetic" in trace_of("pai").source


def test_what_was_worked_out_is_not_worked_out_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    assert Kept(path, float("inf")).get("a", lambda: {"x": 1}) == {"x": 1}
    later = Kept(path, -1.0)  # no time is left
    assert later.get("a", lambda: {"x": 2}) == {"x": 1}
    assert later.get("b", lambda: 3) is None
    assert later.left == 1


def evaluated(trace: str, mode: str, time_s: float, scheduler: str = "tiresias", variant: str = "") -> dict[str, Any]:
    """A record as the benchmark keeps it, with what pictures are drawn from."""
    graph = {
        "knobs": ["queues", "lease_s"], "metrics": ["queue_s"], "objective": "time_s", "method": "by hand",
        "edges": [["queues", "queue_s", 1.0], ["queue_s", "time_s", 1.0]],
    }  # fmt: skip
    course = [[hour * 3_600.0, 1.0 + hour % 3, 10, {"lease_s": 600.0 * (1 + hour % 2)}] for hour in range(24)]
    more = {"graph": graph, "course": course, "updates": {"queues": 3, "lease_s": 1}, "causal_error": 0.05} if mode == "paper" else {}
    return {**record(mode, time_s, scheduler=scheduler), "trace": trace, "variant": variant, "gpus": 40, "commit": "abc", **more}


TIMES = {"static": 200.0, "selftune": 150.0, "paper": 100.0}
EVALUATED = [
    *(evaluated(trace, mode, time_s) for trace in ("venus", "pai") for mode, time_s in TIMES.items()),
    *(evaluated("venus", mode, 100.0, "themis") for mode in ("static", "paper")),
    *(evaluated("venus", "paper", 100.0 + number, variant=f"metric:{name}") for number, name in enumerate(("manhattan", "pearson"))),
    evaluated("venus", "paper", 90.0, variant="controller:neither"),
]


def test_the_papers_numbers_stand_next_to_ours(tmp_path: Path) -> None:
    shown = draw(EVALUATED, tmp_path)
    told = evaluation(EVALUATED, ["helios", "synthetic pai"], 0, "command", shown)
    assert "| Tiresias over SelfTune, mean time (Figure 9) | 1.10 to 1.36 times | venus, 1: 1.50; pai, 1: 1.50 |" in told
    assert "| error of the causal model (Table 4) | 11.2 to 15.2 % | 5.0% to 5.0% |" in told
    assert "best fixed settings" not in told, "nothing is said of what was not run"
    assert "| venus, 1 | tiresias | paper | 1 | 2.000 | 1.500 | 100 | 0.800 | 0 |" in told
    assert "| pearson | 1.025 | 101 s, 1.010 |" in told
    assert "| relative | - | 100 s, 1.000 |" in told
    assert "| venus | tiresias | neither | 90 |" in told
    assert "synthetic pai" in told
    assert "missing" not in told
    assert "2 runs of the grid are missing" in evaluation(EVALUATED, [], 2, "command", {})


def test_figures_are_drawn_from_the_runs(tmp_path: Path) -> None:
    shown = draw(EVALUATED, tmp_path)
    assert set(shown) == {"causes-tiresias.svg", "updates-tiresias.svg", "causes-themis.svg", "lease-themis.svg"}
    assert {path.name for path in tmp_path.iterdir()} == set(shown)
    assert all("simulated" in words for words in shown.values())
    causes = (tmp_path / "causes-tiresias.svg").read_text(encoding="utf-8")
    assert all(f">{name}<" in causes for name in ("queues", "lease_s", "queue_s", "time_s"))
    assert "lease, over 1,200 s" in (tmp_path / "lease-themis.svg").read_text(encoding="utf-8")
    assert ">3<" in (tmp_path / "updates-tiresias.svg").read_text(encoding="utf-8")
    assert draw([each for each in EVALUATED if each["mode"] != "paper"], tmp_path) == {}
