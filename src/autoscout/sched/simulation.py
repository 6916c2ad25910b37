"""A trace, a cluster and a scheduler seen as a system to tune: configurations in, metrics out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event

import numpy as np
from numpy.typing import NDArray

from autoscout.core import plugins
from autoscout.core.clock import Clock, RealClock
from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError, ConfigError, Fault
from autoscout.core.launch import Launch
from autoscout.core.protocols import Executor
from autoscout.core.task import Budget, Direction, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status
from autoscout.sched.cluster import Cluster
from autoscout.sched.engine import Run, simulate
from autoscout.sched.metrics import summary
from autoscout.sched.scheduler import Scheduler
from autoscout.sched.trace import Trace
from autoscout.space import Space

HIGHER_IS_BETTER = frozenset({"utilisation", "fair_share", "fair_share_forgiving"})


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A question that can travel: how does a configuration of this scheduler do on this trace and cluster?

    Call it with a configuration to get all metrics. It pickles, so that executors may run it in another process or on another
    machine.

    Attributes:
        scheduler: Name of the plug-in.
        fixed: Fields of the scheduler that are not tuned.
        scored: Which jobs count; None: all.
    """

    trace: Trace
    cluster: Cluster
    scheduler: str
    fixed: tuple[tuple[str, object], ...] = ()
    run: Run = field(default_factory=Run)
    scored: NDArray[np.bool_] | None = None

    def space(self) -> Space:
        """The knobs of the scheduler on this cluster."""
        found: Space = plugins.get("scheduler", self.scheduler).space(self.cluster)
        return found

    def task(self, metric: str = "mean_jct_s", trials: int | None = None) -> Task:
        """The tuning task this is."""
        direction = Direction.MAXIMIZE if metric in HIGHER_IS_BETTER else Direction.MINIMIZE
        return Task(
            system=f"sched-{self.scheduler}",
            objective=Objective(metric=metric, direction=direction),
            workload={"trace": self.trace.source, "jobs": len(self.trace), "gpu_hours": round(self.trace.gpu_seconds / 3600, 3)},
            hardware={"gpus": self.cluster.gpus, "nodes": sum(group.nodes for group in self.cluster.groups)},
            budget=Budget(trials=trials),
        )

    def build(self, config: Config) -> Scheduler:
        """The scheduler with this configuration."""
        import dataclasses

        built: Scheduler = plugins.get("scheduler", self.scheduler).of(config)
        return dataclasses.replace(built, **dict(self.fixed)) if self.fixed else built  # type: ignore[type-var]

    def __call__(self, config: Config) -> dict[str, float]:
        """All metrics of a run with this configuration.

        Raises:
            ConfigError: some jobs never end, so that no mean over them is a figure of the configuration.
        """
        result = simulate(self.trace, self.cluster, self.build(config), self.run)
        if endless := result.endless:
            raise ConfigError(Fault(where=f"scheduler {self.scheduler}", value=str(config), rule=endless))
        return summary(result, self.scored)


@dataclass(frozen=True, kw_only=True)
class _Question:
    simulation: Simulation
    config: Config

    def __call__(self) -> dict[str, float] | str:
        try:
            return self.simulation(self.config)
        except AutoScoutError as error:  # a refusal, which must survive the way back as plain data
            return str(error)


class SchedulerEvaluator:
    """Answers proposals by simulation, in this process or wherever an executor runs.

    Args:
        simulation: The question.
        executor: Where to run; None: here, one after the other.
        clock: For the cost of each answer.
    """

    def __init__(self, simulation: Simulation, executor: Executor | None = None, clock: Clock | None = None) -> None:
        self.simulation = simulation
        self._executor = executor
        self._clock = clock or RealClock()
        self._space = simulation.space()
        self._cancelled = Event()

    @property
    def slots(self) -> int:
        return self._executor.slots if self._executor else 1

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        if self._executor is None:
            return [self._here(proposal.config) for proposal in proposals]
        jobs = {
            number: self._executor.submit(
                Launch(call=_Question(simulation=self.simulation, config=proposal.config), name=proposal.config.key)
            )
            for number, proposal in enumerate(proposals)
            if not self._space.check(proposal.config)
        }
        answers = []
        for number, proposal in enumerate(proposals):
            if number not in jobs:
                answers.append(self._refused(proposal.config))
                continue
            completed = jobs[number].result()
            if completed.cancelled:
                answers.append(Measurement(status=Status.ABORTED, fidelity=Fidelity.SIMULATED))
            elif completed.value is None:
                reason = completed.error.strip().splitlines()[-1:] or ["the simulation did not return"]
                answers.append(
                    Measurement(status=Status.CRASHED, fidelity=Fidelity.SIMULATED, reason=reason[0], log_tail=completed.log_tail)
                )
            else:
                answers.append(_measured(completed.value, completed.wall_s))
        return answers

    def recheck(self) -> list[Proposal]:
        return []

    def cancel(self) -> None:
        self._cancelled.set()

    def _here(self, config: Config) -> Measurement:
        if self._cancelled.is_set():
            return Measurement(status=Status.ABORTED, fidelity=Fidelity.SIMULATED)
        if self._space.check(config):
            return self._refused(config)
        began = self._clock.span_s()
        answer = _Question(simulation=self.simulation, config=config)()
        return _measured(answer, self._clock.span_s() - began)

    def _refused(self, config: Config) -> Measurement:
        return Measurement(status=Status.INVALID, fidelity=Fidelity.SIMULATED, reason="; ".join(self._space.check(config))[:300])


def _measured(answer: dict[str, float] | str, cost_s: float) -> Measurement:
    if isinstance(answer, str):
        return Measurement(status=Status.INVALID, fidelity=Fidelity.SIMULATED, reason=answer[:300], cost_s=cost_s)
    return Measurement(status=Status.OK, metrics=answer, fidelity=Fidelity.SIMULATED, cost_s=cost_s)
