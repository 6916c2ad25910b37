"""Replay behind simulators, and the ablations: who answers, what counts, and that noise is answered by measuring."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_bench_simulated import training_folder

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks.ablation import ABLATIONS  # noqa: E402
from benchmarks.assisted import Assistance  # noqa: E402
from benchmarks.synthetic import write  # noqa: E402

from autoscout.core.origin import Origin  # noqa: E402
from autoscout.core.protocols import Evaluator  # noqa: E402
from autoscout.core.trial import Fidelity, Measurement, Proposal  # noqa: E402
from autoscout_lab.bench import Entry, Race, Run, Table, find_tables, load_table, run_race  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write(tmp_path_factory.mktemp("synthetic")))


def synthetic(folder: str, name: str = "megatron-5dp") -> Table:
    return load_table(find_tables(folder, [name])[0])


class Idle(Evaluator):
    """A profiler that must not be asked."""

    slots = 1

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        raise AssertionError(f"{len(proposals)} were measured")

    def recheck(self) -> list[Proposal]:
        return []

    def cancel(self) -> None: ...


def assisted(table: Table, noise: float, seed: int = 0, budget: int = 12) -> Run:
    searcher = Entry.parse("hybrid-paper").build(table.space, table.task, seed)
    return Assistance(noise=noise)(table, searcher, name="x", seed=seed, budget=budget)


@pytest.mark.parametrize("trained", [True, False])
def test_simulators_answer_what_the_search_proposes(trained: bool, folder: str, tmp_path: Path) -> None:
    table = synthetic(folder) if trained else load_table(find_tables(str(training_folder(tmp_path)))[0])
    evaluator = Assistance().evaluator(table, Idle(), 0)
    (answer,) = evaluator.evaluate([Proposal(config=table.configs[-1], origin=Origin(by="hybrid-paper"))])
    assert answer.fidelity is Fidelity.SIMULATED


def test_noise_is_added_and_differs_by_configuration(folder: str) -> None:
    table = synthetic(folder)
    answers = [
        Assistance(noise=noise).evaluator(table, Idle(), 0).evaluate([Proposal(config=config) for config in table.configs[:4]])
        for noise in (0.0, 0.4)
    ]
    factors = {
        round(wrong.metrics["value"] / right.metrics["value"], 6) for right, wrong in zip(*answers, strict=True) if right.ok and wrong.ok
    }
    assert len(factors) > 1


def test_only_measured_rows_count_and_the_default_comes_first(folder: str) -> None:
    table = synthetic(folder)
    run = assisted(table, 0.0)
    assert len(run.losses) == len(run.cpu_ms) == 12
    first = table.losses[table.row(table.space.default())]
    assert run.losses[0] == (None if first == float("inf") else first)


def test_runs_repeat_and_noise_changes_them(folder: str) -> None:
    table = synthetic(folder)
    assert assisted(table, 0.4).losses == assisted(table, 0.4).losses != assisted(table, 0.8).losses


def test_a_small_table_ends_the_run(folder: str) -> None:
    table = synthetic(folder, "megatron-3dp")
    assert len(assisted(table, 0.8, budget=1000).losses) <= len(table)


def test_the_ablation_races_both(folder: str) -> None:
    entries = ABLATIONS["noise"].entries
    assert [entry.label for entry in entries] == ["hybrid-paper", *(f"hybrid-paper, simulators {noise}% off" for noise in (0, 40, 80))]
    race = Race(entries=entries, tables=tuple(find_tables(folder, ["megatron-3dp"])), seeds=(0,), budget=4, jobs=0)
    assert [len(run.losses) for run in run_race(race)] == [4, 4, 4, 4]


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_variant_of_an_ablation_can_be_entered(name: str) -> None:
    assert all(Entry.parse(text).label == text for text in ABLATIONS[name].searchers)
    assert len({entry.label for entry in ABLATIONS[name].entries}) == len(ABLATIONS[name].entries)
