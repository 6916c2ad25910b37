from __future__ import annotations

from collections.abc import Sequence

import pytest
from bench_tables import square

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.trial import Proposal, Status, Trial
from autoscout.search.random import RandomSearcher
from autoscout_lab.bench import Replay, replay
from autoscout_lab.bench.replay import MAX_FREE, Run


class Stubborn(Searcher):
    """Asks for a list of configurations, the last one for ever."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self.configs = list(configs)
        self.told: list[list[Trial]] = []
        self.pending: list[int] = []

    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        self.pending.append(len(pending))
        found = []
        for place in range(n):
            config = self.configs.pop(0) if len(self.configs) > 1 else self.configs[0]
            found.append(Proposal(config=config, origin=Origin.from_json({"place": place})))
        return found

    def tell(self, trials: Sequence[Trial]) -> None:
        self.told.append(list(trials))


def test_a_run_measures_distinct_rows() -> None:
    table = square()
    run = replay(table, RandomSearcher(table.space, table.task, 3), name="random", seed=3, budget=20)
    assert len(run.losses) == len(run.cpu_ms) == 20
    assert run.known == 0
    assert Run.from_json(run.to_json()) == run


def test_same_seed_same_run() -> None:
    table = square(hole=True)

    def one(seed: int) -> tuple[float | None, ...]:
        return replay(table, RandomSearcher(table.space, table.task, seed), name="random", seed=seed, budget=15).losses

    assert one(1) == one(1) != one(2)


def test_the_whole_table_ends_a_run() -> None:
    table = square(3)
    run = replay(table, RandomSearcher(table.space, table.task, 0), name="random", seed=0, budget=500)
    assert len(run.losses) == len(table)
    assert sum(loss is None for loss in run.losses) == 2


def test_known_rows_cost_nothing_and_end_a_run_that_asks_for_nothing_else() -> None:
    searcher = Stubborn([Config(x=1, y=1, c="p"), Config(x=2, y=1, c="p")])
    run = replay(square(), searcher, name="stubborn", seed=0, budget=5)
    assert len(run.losses) == 2
    assert run.known == MAX_FREE + 1
    assert run.stopped


def test_only_rows_can_be_proposed() -> None:
    table = square(hole=True)
    missing = Config(x=2, y=3, c="p")
    assert table.space.check(missing)
    with pytest.raises(ConfigError, match="does not list"):
        Replay(table).answer(Proposal(config=missing))
    trial = Replay(table).answer(Proposal(config=Config(x=3, y=3, c="p"), origin=Origin.from_json({"by": "test"})))
    assert trial.measurement.metrics == {"value": 2.0}
    assert trial.proposal.origin == Origin(by="test")


def test_failures_cost_one_and_are_told() -> None:
    table = square()
    searcher = Stubborn([Config(x=0, y=0, c="p"), Config(x=3, y=2, c="p")])
    run = replay(table, searcher, name="stubborn", seed=0, budget=2)
    assert run.losses == (None, 1.0)
    assert searcher.told[0][0].measurement.status is Status.CRASHED


def test_several_workers_are_kept_busy() -> None:
    table = square()
    searcher = Stubborn(table.configs[5:15])
    run = replay(table, searcher, name="stubborn", seed=0, budget=8, workers=4)
    assert len(run.losses) == 8
    assert searcher.pending == [0, *[3] * 7]


def test_a_searcher_that_stops_ends_its_run() -> None:
    class Tired(Stubborn):
        def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
            return super().ask(n) if len(self.told) < 2 else []

    run = replay(square(), Tired(square().configs[3:9]), name="tired", seed=0, budget=5)
    assert run.stopped
    assert len(run.losses) == 2
