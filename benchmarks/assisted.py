"""Replay behind an adaptive evaluator: simulators answer the search until they prove wrong, and only measured rows count.

What the simulators are follows from the table: the model of training where it understands the job; the paper's four regressions
(its Table 2) where the knobs are named as there; else one regression on all knobs. Regressions are trained beforehand on rows drawn
at random, which the search does not see: the profiles of earlier jobs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.core.clock import cpu_s
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Evaluator, Searcher
from autoscout.core.seeds import stream
from autoscout.core.trial import Fidelity, Measurement, Proposal, Trial
from autoscout.evaluate.adaptive import AdaptiveEvaluator
from autoscout.evaluate.ensemble import EnsembleEvaluator, EnsembleOptions
from autoscout.evaluate.noisy import NoisyEvaluator, NoisyOptions
from autoscout_lab.bench.replay import Replay, Run
from autoscout_lab.bench.simulated import Simulated
from autoscout_lab.bench.table import Table

TRAINED = 60
"""Rows that regressions are trained on beforehand."""
ASKS = 40
"""Answers per evaluation of the budget after which a run ends: a search may find nothing new to measure."""
_SUBSETS = ("3d-parallelism", "5d-parallelism", "ddp-aware", "communication-aware")
_THEIRS = {"mbs", "tp", "pp", "dp"}


@dataclass(frozen=True, kw_only=True)
class Assistance:
    """Simulators between a searcher and a table.

    Attributes:
        noise: Standard deviation of the error that is added to every simulated answer, as a share of it.
        paper: The paper's regressions even where the model of training understands the job.
    """

    noise: float = 0.0
    paper: bool = False

    def __call__(self, table: Table, searcher: Searcher, *, name: str, seed: int, budget: int, workers: int = 1) -> Run:
        """Run a searcher on a table until the budget of measured rows is spent, as `Entry.play` wants it; one proposal at a time.

        As in a study, the default is measured first, and what the evaluator wants checked comes before what the searcher proposes.
        """
        assert workers == 1, "simulators answer one proposal at a time"
        source = Replay(table)
        evaluator = self.evaluator(table, _Profiler(source), seed)
        costs: list[float] = []
        spent, settled = 0.0, False
        wanted = [Proposal(config=table.space.default(), origin=Origin(by=By.DEFAULT))]
        for _ in range(ASKS * budget):
            if len(source.order) >= min(budget, len(table)):
                break
            before = cpu_s()
            proposals = wanted or evaluator.recheck()[:1] or searcher.ask(1)
            spent += cpu_s() - before
            wanted = []
            if not proposals:
                if settled:
                    break
                settled = True
                evaluator.settle()
                continue
            measured = len(source.order)
            (answer,) = evaluator.evaluate(proposals)
            before = cpu_s()
            searcher.tell([Trial(proposal=proposals[0], measurement=answer)])
            spent += cpu_s() - before
            if answer.fidelity is Fidelity.MEASURED and len(source.order) > measured:
                costs.append(spent * 1000.0)
                spent = 0.0
        return source.run(name, seed, budget, costs, stopped=len(source.order) < min(budget, len(table)))

    def evaluator(self, table: Table, profiler: Evaluator, seed: int) -> Any:
        """Simulators and profiler behind the switch."""
        simulated = _Fixed(self._ensemble(table, seed))
        noisy = NoisyEvaluator(simulated, NoisyOptions(noise=self.noise, seed=seed))
        return AdaptiveEvaluator(noisy, profiler, table.task)

    def _ensemble(self, table: Table, seed: int) -> Evaluator:
        if not self.paper and not (training := Simulated.parse("training")).reads(table):
            return EnsembleEvaluator([training.build()], table.task)
        named = table.space.knobs.keys() >= _THEIRS
        texts = [f"linear:subset={name}" for name in _SUBSETS] if named else ["linear"]
        worked = [row for row in range(len(table)) if math.isfinite(table.losses[row])]
        drawn = stream(seed, "bench", "trained").permutation(len(worked))[:TRAINED]
        rows = sorted(worked[place] for place in drawn)
        past = [Trial(proposal=Proposal(config=table.configs[row]), measurement=table.measurement(row)) for row in rows]
        options = EnsembleOptions(weights="r2")  # the paper's Eq. 2
        return EnsembleEvaluator([Simulated.parse(text).build() for text in texts], table.task, options, past)


class _Fixed(Evaluator):
    """Simulators that learn nothing more, as the paper's: `learn` is not passed on."""

    slots = 1

    def __init__(self, inner: Evaluator) -> None:
        self._inner = inner

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        return self._inner.evaluate(proposals)

    def cancel(self) -> None:
        """Answers take no time."""


class _Profiler(Evaluator):
    """The table as the real system; it remembers which rows were measured."""

    slots = 1

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        return [self._replay.answer(proposal).measurement for proposal in proposals]

    def cancel(self) -> None:
        """Answers take no time."""
