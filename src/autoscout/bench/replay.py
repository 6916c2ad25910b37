"""Replay: a searcher against a table, by rules that make figures of different searchers comparable.

- The budget counts distinct measured rows. Asking for a known one costs nothing, at most `FREE` times in a row; then the nearest
  row that nobody measured is taken.
- A proposal outside the table goes to the nearest row, and the searcher is told which row was measured. It is told the proposal
  itself as aborted, which says nothing about it except that it need not be asked again.
- A recorded failure costs one evaluation and is told as a failure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from autoscout.bench.table import Table
from autoscout.core.clock import cpu_s
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.trial import Measurement, Proposal, Status, Trial

FREE = 10
"""How often in a row a known configuration may be asked for."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """How one searcher fared on one table with one seed.

    Attributes:
        searcher: The name and options it was entered with.
        table: Name of the table.
        seed: Of the searcher.
        budget: Distinct evaluations that were allowed.
        workers: Proposals that were under way at once.
        losses: Of the rows in the order they were measured; None for a failure.
        cpu_ms: CPU of this process for each of them, asking and telling.
        known: Answers that cost nothing because the row was known.
        outside: Proposals that were not in the table.
        stopped: Whether the searcher had nothing left to propose before the budget ended.
        informed: The simulator whose predictions it was told; empty for none.
    """

    searcher: str
    table: str
    seed: int
    budget: int
    workers: int = 1
    losses: tuple[float | None, ...]
    cpu_ms: tuple[float, ...]
    known: int = 0
    outside: int = 0
    stopped: bool = False
    informed: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        return cls(**{**data, "losses": tuple(data["losses"]), "cpu_ms": tuple(data["cpu_ms"])})

    @property
    def key(self) -> tuple[str, str, int, int, int, str]:
        """What makes it another run."""
        return self.searcher, self.table, self.seed, self.budget, self.workers, self.informed


class Replay:
    """A table that answers proposals, and remembers what was measured.

    Args:
        table: The answers.
        seed: Decides ties between equally near rows.
    """

    def __init__(self, table: Table, seed: int) -> None:
        self.table = table
        self.order: list[int] = []  # rows as they were measured
        self.known = 0
        self.outside = 0
        self._rng = stream(seed, "replay", "ties")
        self._free = np.ones(len(table), dtype=np.bool_)
        self._in_a_row = 0

    def answer(self, proposal: Proposal) -> list[Trial]:
        """The trials to tell: the row that was measured (or was known), and the proposal itself where it is no row."""
        row = self.table.nearest(proposal.config, self._rng)
        if not self._free[row]:
            self._in_a_row += 1
            if self._in_a_row > FREE and self._free.any():
                row = self.table.nearest(proposal.config, self._rng, self._free)
            else:
                self.known += 1
        if self._free[row]:
            self._in_a_row = 0
            self._free[row] = False
            self.order.append(row)
        config = self.table.configs[row]
        trials = [Trial(proposal=replace(proposal, config=config), measurement=self.table.measurement(row), number=len(self.order) - 1)]
        if config != proposal.config:
            self.outside += 1
            trials.append(Trial(proposal=proposal, measurement=Measurement(status=Status.ABORTED, reason="not in the table")))
        return trials

    def run(self, name: str, seed: int, budget: int, costs_ms: Sequence[float], *, stopped: bool, workers: int = 1) -> Run:
        """What was measured so far, as the run of a searcher."""
        losses = tuple(None if math.isinf(loss := float(self.table.losses[row])) else loss for row in self.order)
        return Run(
            searcher=name,
            table=self.table.name,
            seed=seed,
            budget=budget,
            workers=workers,
            losses=losses,
            cpu_ms=tuple(round(cost, 3) for cost in costs_ms),
            known=self.known,
            outside=self.outside,
            stopped=stopped,
        )


class ReplayEvaluator:
    """The table as an Evaluator, so that a whole study can be replayed: every proposal gets the answer of the nearest row."""

    slots = 1

    def __init__(self, table: Table, seed: int = 0) -> None:
        self._table = table
        self._seed = seed

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        rows = (self._table.nearest(item.config, stream(self._seed, "replay", item.config.key)) for item in proposals)
        return [self._table.measurement(row) for row in rows]

    def recheck(self) -> list[Proposal]:
        return []

    def cancel(self) -> None:
        """Nothing is ever under way."""


def replay(table: Table, searcher: Searcher, *, name: str, seed: int, budget: int, workers: int = 1) -> Run:
    """Run a searcher on a table until the budget, the table or the searcher is exhausted.

    With several workers, that many proposals are kept under way; their answers come back in the order they were asked for.
    """
    source = Replay(table, seed)
    pending: list[Proposal] = []
    costs: list[float] = []
    spent = 0.0
    stopped = False
    while len(source.order) < min(budget, len(table)):
        before = cpu_s()
        pending += searcher.ask(workers - len(pending), pending=pending)
        spent += cpu_s() - before
        if not pending:
            stopped = True
            break
        measured = len(source.order)
        trials = source.answer(pending.pop(0))
        before = cpu_s()
        searcher.tell(trials)
        spent += cpu_s() - before
        if len(source.order) > measured:
            costs.append(spent * 1000.0)
            spent = 0.0
    return source.run(name, seed, budget, costs, stopped=stopped, workers=workers)
