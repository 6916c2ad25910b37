"""A cluster that is not there: a simulator's answers with realistic noise, failures and measuring time on a clock of choice."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscout.core import seeds
from autoscout.core.clock import Clock, VirtualClock
from autoscout.core.errors import require
from autoscout.core.protocols import Evaluator, Simulator
from autoscout.core.task import Guard, Limit, Task
from autoscout.core.trial import VIRTUAL, Fidelity, Measurement, Proposal, Status


@dataclass(frozen=True, kw_only=True)
class VirtualOptions:
    """How the virtual cluster differs from its simulator.

    Attributes:
        surprise: Standard deviation of a lasting log error: what the real system would do that no model knows. Configurations of which
            the simulator says the same err together: a knob that does nothing there must not win by chance.
        noise: Standard deviation of the log error of one measurement, new for every repeat.
        crash_rate: Share of launches that crash for no reason of the configuration's.
        start_s: Time to start the system before anything can be measured; a failure to start takes half of it.
        steps: How many times the metric's duration one measurement takes, for metrics that are times.
        run_s: Length of the measured part for all other metrics.
        workers: Launches at once.
        seed: Names the cluster: the same seed is the same cluster.
        fidelity: What the answers count as. They are simulated and say so; tests of the switch from simulation to measuring let
            them stand in for measured ones (`conditions["virtual"]` stays).
    """

    surprise: float = 0.08
    noise: float = 0.02
    crash_rate: float = 0.0
    start_s: float = 60.0
    steps: int = 20
    run_s: float = 60.0
    workers: int = 1
    seed: int = 0
    fidelity: Fidelity = Fidelity.SIMULATED

    def __post_init__(self) -> None:
        checks = {
            "surprise": (self.surprise >= 0, "must not be negative"),
            "noise": (self.noise >= 0, "must not be negative"),
            "crash_rate": (0 <= self.crash_rate < 1, "is a share between 0 and 1"),
            "start_s": (self.start_s >= 0, "must not be negative"),
            "steps": (self.steps >= 1, "must be at least 1"),
            "run_s": (self.run_s >= 0, "must not be negative"),
            "workers": (self.workers >= 1, "must be at least 1"),
        }
        require("virtual", self, checks)


_SELDOM = r"p(?!9[59])\d+_|.*_(e2e|itl)_ms$"
"""Metrics that are reported only where the task names them: other percentiles, and other names of the same."""


class VirtualEvaluator(Evaluator):
    """Measures on a virtual cluster: a ten-hour study takes seconds on a `VirtualClock`.

    Args:
        simulator: Makes the truth; it is never fitted.
        task: Names the metric.
        options: Noise, failures, time.
        clock: Passes while measuring; a virtual one unless given.
    """

    def __init__(self, simulator: Simulator, task: Task, options: VirtualOptions | None = None, clock: Clock | None = None) -> None:
        self._simulator, self._task = simulator, task
        self._options = options or VirtualOptions()
        self._clock = clock or VirtualClock()
        self._cancelled = threading.Event()

    @property
    def slots(self) -> int:
        return self._options.workers

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        self._cancelled.clear()
        truth = self._simulator.predict([proposal.config for proposal in proposals], self._task)
        answers = []
        for row, proposal in enumerate(proposals):
            if self._cancelled.is_set():
                answers.append(Measurement(status=Status.ABORTED, fidelity=self._options.fidelity, reason="cancelled"))
                continue
            value, feasible = float(truth.value[row]), float(truth.feasible[row])
            same = f"{value:.9g} {feasible:.6g}"
            answer = self._answer(proposal, value, feasible, same)
            if answer.ok:
                answer = replace(answer, metrics={**self._others(proposal, same), **answer.metrics})
            self._clock.sleep(answer.cost_s)
            answers.append(answer)
        return answers

    def cancel(self) -> None:
        self._cancelled.set()

    def _others(self, proposal: Proposal, same: str) -> dict[str, float]:
        """The metrics besides the first goal's, each kind with errors of its own."""
        options = self._options
        metrics = {}
        objective = self._task.objective
        rules: list[Limit | Guard] = [*objective.limits, *objective.guards]
        named = {*(goal.metric for goal in objective.goals), *(rule.metric for rule in rules)}
        for name, value in self._simulator.metrics(proposal.config, self._task).items():
            if name not in named and re.match(_SELDOM, name):
                continue
            kind = name.partition("_")[2]  # mean, median and percentiles of one time err together
            lasting = float(seeds.stream(options.seed, "virtual", same, kind).standard_normal())
            passing = float(seeds.stream(options.seed, "virtual", proposal.config.key, kind, proposal.repeat).standard_normal())
            if name not in ("feasible", self._task.objective.metric) and np.isfinite(value):
                metrics[name] = value * float(np.exp(options.surprise * lasting + options.noise * passing))
        return metrics

    def _answer(self, proposal: Proposal, value: float, feasible: float, same: str) -> Measurement:
        options = self._options
        lasting = seeds.stream(options.seed, "virtual", same)
        passing = seeds.stream(options.seed, "virtual", proposal.config.key, proposal.repeat)
        conditions = {VIRTUAL: 1.0}
        surprise, luck = options.surprise * float(lasting.standard_normal()), float(lasting.random())
        if luck > feasible or not np.isfinite(value):
            return Measurement(
                status=Status.OOM_START,
                fidelity=options.fidelity,
                cost_s=options.start_s / 2,
                conditions=conditions,
                reason=f"virtual cluster: does not fit (chance to fit {feasible:.0%})",
            )
        if float(passing.random()) < options.crash_rate:
            reason = "virtual cluster: crashed by chance"
            return Measurement(
                status=Status.CRASHED, fidelity=options.fidelity, cost_s=options.start_s, conditions=conditions, reason=reason
            )
        metric = self._task.objective.metric
        measured = value * float(np.exp(surprise + options.noise * float(passing.standard_normal())))
        seconds = {"_s": 1.0, "_ms": 1e-3}
        unit = next((scale for end, scale in seconds.items() if metric.endswith(end)), None)
        run_s = options.steps * measured * unit if unit else options.run_s
        return Measurement(
            status=Status.OK,
            metrics={metric: measured},
            fidelity=options.fidelity,
            cost_s=options.start_s + run_s,
            conditions=conditions,
        )


__all__ = ["VirtualEvaluator"]
