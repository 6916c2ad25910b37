"""Replay behind simulators: who answers, what counts, and that noise is answered by measuring."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from test_bench_simulated import training_folder

from autoscout.bench import Entry, Race, Run, Table, find_tables, load_table, run_race
from autoscout.bench.ablation import ABLATIONS
from autoscout.bench.assisted import Assistance, replay_assisted
from autoscout.bench.replay import Replay
from autoscout.bench.synthetic import table as synthetic
from autoscout.core.trial import Fidelity, Measurement, Proposal


class Idle:
    """A profiler that must not be asked."""

    slots = 1

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        raise AssertionError(f"{len(proposals)} were measured")

    def recheck(self) -> list[Proposal]:
        return []

    def cancel(self) -> None: ...


def assisted(table: Table, noise: float, seed: int = 0, budget: int = 12) -> Run:
    searcher = Entry.parse("hybrid-paper").build(table.space, table.task, seed)
    return replay_assisted(table, searcher, Assistance(noise=noise), name="x", seed=seed, budget=budget)


@pytest.mark.parametrize(
    "make", [lambda folder: load_table(find_tables(str(training_folder(folder)))[0]), lambda _: synthetic("megatron-5dp")]
)
def test_simulators_answer_what_the_search_proposes(make: object, tmp_path: Path) -> None:
    table = make(tmp_path)  # type: ignore[operator]
    evaluator = Assistance().evaluator(table, Idle(), 0)
    (answer,) = evaluator.evaluate([Proposal(config=table.configs[-1], origin={"by": "hybrid-paper"})])
    assert answer.fidelity is Fidelity.SIMULATED


def test_noise_is_added_and_differs_by_configuration() -> None:
    table = synthetic("megatron-5dp")
    answers = [
        Assistance(noise=noise).evaluator(table, Idle(), 0).evaluate([Proposal(config=config) for config in table.configs[:4]])
        for noise in (0.0, 0.4)
    ]
    factors = {
        round(wrong.metrics["value"] / right.metrics["value"], 6) for right, wrong in zip(*answers, strict=True) if right.ok and wrong.ok
    }
    assert len(factors) > 1


def test_only_measured_rows_count_and_the_default_comes_first() -> None:
    table = synthetic("megatron-5dp")
    run = assisted(table, 0.0)
    assert len(run.losses) == len(run.cpu_ms) == 12
    first = table.losses[Replay(table, 0).table.row(table.space.default())]
    assert run.losses[0] == (None if first == float("inf") else first)


def test_runs_repeat_and_noise_changes_them() -> None:
    table = synthetic("megatron-5dp")
    assert assisted(table, 0.4).losses == assisted(table, 0.4).losses != assisted(table, 0.8).losses


def test_a_small_table_ends_the_run() -> None:
    table = synthetic("megatron-3dp")
    assert len(assisted(table, 0.8, budget=1000).losses) <= len(table)


def test_the_ablation_races_both() -> None:
    entries = ABLATIONS["noise"].entries
    assert [entry.label for entry in entries] == ["hybrid-paper", *(f"hybrid-paper, simulators {noise}% off" for noise in (0, 40, 80))]
    race = Race(entries=entries, tables=tuple(find_tables("synthetic:megatron-3dp")), seeds=(0,), budget=4, jobs=0)
    assert [len(run.losses) for run in run_race(race)] == [4, 4, 4, 4]
