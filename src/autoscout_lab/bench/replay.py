"""Replay: a searcher against a table, by rules that make figures of different searchers comparable.

- The space of a table is the list of its rows, so every proposal has an answer.
- The budget counts distinct rows. Asking for a known one costs nothing; after more than `MAX_FREE` of these in a row the run ends.
- A recorded failure costs one evaluation and is told as a failure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autoscout.core.clock import cpu_s
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.protocols import Searcher
from autoscout.core.trial import Proposal, Trial
from autoscout_lab.bench.table import Table

MAX_FREE = 10
"""Proposals in a row that may be known rows."""


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
        stopped: Whether the searcher had nothing new to propose before the budget ended.
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
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.order: list[int] = []  # rows as they were measured
        self.known = 0
        self.repeated = 0  # known rows asked for in a row
        self._measured: set[int] = set()

    def answer(self, proposal: Proposal) -> Trial:
        """The trial to tell.

        Raises:
            ConfigError: the proposal is no row of the table, which the searcher's space does not allow.
        """
        row = self.table.row(proposal.config)
        if row is None:
            rule = "a searcher proposed a configuration that its space does not list"
            raise ConfigError(Fault(where=self.table.name, value=str(proposal.config), rule=rule))
        if row in self._measured:
            self.known += 1
            self.repeated += 1
        else:
            self.repeated = 0
            self._measured.add(row)
            self.order.append(row)
        return Trial(proposal=proposal, measurement=self.table.measurement(row), number=len(self.order) - 1)

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
            stopped=stopped,
        )


def replay(table: Table, searcher: Searcher, *, name: str, seed: int, budget: int, workers: int = 1) -> Run:
    """Run a searcher on a table until the budget, the table or the searcher is exhausted.

    With several workers, that many proposals are kept under way; their answers come back in the order they were asked for.
    """
    source = Replay(table)
    pending: list[Proposal] = []
    costs: list[float] = []
    spent = 0.0
    stopped = False
    while len(source.order) < min(budget, len(table)):
        before = cpu_s()
        pending += searcher.ask(workers - len(pending), pending=pending)
        spent += cpu_s() - before
        if not pending or source.repeated > MAX_FREE:
            stopped = True
            break
        measured = len(source.order)
        trial = source.answer(pending.pop(0))
        before = cpu_s()
        searcher.tell([trial])
        spent += cpu_s() - before
        if len(source.order) > measured:
            costs.append(spent * 1000.0)
            spent = 0.0
    return source.run(name, seed, budget, costs, stopped=stopped, workers=workers)
