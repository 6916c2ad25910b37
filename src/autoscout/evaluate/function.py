"""A plain Python function as the system to tune."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autoscout.core.clock import Clock
from autoscout.core.config import Config
from autoscout.core.errors import Infeasible
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.protocols import Executor, SpaceLike
from autoscout.core.task import Task
from autoscout.core.trial import Measurement, Proposal, Status
from autoscout.evaluate.profiler import Profiler, ProfilerOptions

Objective = Callable[[Config], float | Mapping[str, float]]
"""Takes a configuration, gives the objective's value or several metrics by name."""


class FunctionEvaluator:
    """Measures configurations by calling a Python function with each.

    The function returns a number (the task's metric) or a dict of metrics. It raises `Infeasible` for a configuration that
    cannot work; any other exception is a crash of that configuration, and the study goes on. Where it runs is the executor's
    business: inline in this process, local in one of its own that can be killed.

    Args:
        function: The objective.
        executor: Where it runs.
        task: Names the metric.
        space: Configurations outside it are refused without a call.
        options: Repeats, limits and so on, as for real systems; without them a busy machine is no reason to call again, since few
            functions measure time.
        clock: For pauses between repeats.
        resources: What one call occupies.
    """

    def __init__(
        self,
        function: Objective,
        executor: Executor,
        task: Task,
        space: SpaceLike,
        options: ProfilerOptions | None = None,
        clock: Clock | None = None,
        resources: Resources | None = None,
    ) -> None:
        system = _Function(function=function, resources=resources or Resources())
        self._profiler = Profiler(system, executor, task, space, options or ProfilerOptions(dirty_repeats=0), clock)

    @property
    def slots(self) -> int:
        return self._profiler.slots

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        return self._profiler.evaluate(proposals)

    def recheck(self) -> list[Proposal]:
        return self._profiler.recheck()

    def cancel(self) -> None:
        self._profiler.cancel()


@dataclass(frozen=True, kw_only=True)
class _Function:
    function: Objective
    resources: Resources

    def render(self, config: Config, task: Task, seed: int) -> Launch:  # noqa: ARG002 - a function draws its own inputs
        return Launch(call=_Call(function=self.function, config=config, metric=task.objective.metric), resources=self.resources)

    def parse(self, completed: Completed, task: Task) -> Measurement:  # noqa: ARG002
        if isinstance(completed.value, Measurement):
            return completed.value
        code = completed.returncode
        reason = f"the function ended its process (signal {-code})" if code is not None and code < 0 else "the function did not return"
        return Measurement(status=Status.CRASHED, reason=reason)


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One call of the function, made into a measurement where the function runs, so that its exceptions need not pickle."""

    function: Objective
    config: Config
    metric: str

    def __call__(self) -> Measurement:
        try:
            value = self.function(self.config)
        except Infeasible as refusal:
            return Measurement(status=refusal.status, reason=refusal.reason or "infeasible")
        except MemoryError:
            return Measurement(status=Status.OOM_RUN, reason="out of memory", log_tail=traceback.format_exc()[-6000:])
        except Exception as error:
            return Measurement(status=Status.CRASHED, reason=_one_line(error), log_tail=traceback.format_exc()[-6000:])
        named = value if isinstance(value, Mapping) else {self.metric: value}
        metrics: dict[str, float] = {}
        for name, item in named.items():
            number = _number(item)
            if number is None:
                return Measurement(status=Status.WRONG_OUTPUT, reason=f"returned {item!r} for {name}, which is not a finite number"[:300])
            metrics[str(name)] = number
        return Measurement(status=Status.OK, metrics=metrics)


def _number(item: object) -> float | None:
    try:
        number = float(item)  # type: ignore[arg-type]  # numpy and torch scalars too; everything else is refused below
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and not isinstance(item, str) else None


def _one_line(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


__all__ = ["FunctionEvaluator"]
