"""Algorithm 1 of AutoSched over any searcher: sample, project, reject by the causal model, simulate, update, narrow down."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autosched.tune.causal.model import CausalModel
from autosched.tune.futures import Pruned
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import Infeasible, require
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import number as seed_of
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.space import Space

Metrics = Mapping[str, float]
Ask = Callable[[Config], Metrics]

_LEAST_FREE = 2  # knobs that stay free however many are frozen
_FREEZE_ROUNDS = 5  # iterations that a frozen knob stays so
_MOST_ERROR = 0.2  # relative error of the last predictions above which nothing is frozen
_MIN_WORTH = 0.01  # gain below which a knob is not worth moving


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How configurations are looked for.

    Attributes:
        searcher: Name of the plug-in that samples and projects.
        trials: Iterations; a rejected configuration counts as one.
        reject: Chance that a configuration which the causal model predicts to be bad is not simulated (the paper's epsilon); 0: never.
        relax: Bad is a predicted reward of at most this times the best one's (the paper's gamma).
        first: This many are never rejected.
        scope: Whether knobs are frozen that by the model do not matter.
        seed: Equal seeds, equal searches.
    """

    searcher: str = "bluefin"
    trials: int = 40
    reject: float = 0.8
    relax: float = 0.95
    first: int = 8
    scope: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        rules = {
            "searcher": (self.searcher in plugins.available("searcher"), "there is no such searcher"),
            "trials": (self.trials >= 1, "must be at least 1"),
            "reject": (0 <= self.reject <= 1, "must be from 0 to 1"),
            "relax": (self.relax > 0, "must be above zero"),
            "first": (self.first >= 0, "must not be negative"),
        }
        require("search", self, rules)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search came to.

    Attributes:
        best: The best configuration that was simulated.
        metrics: Its metrics.
        start: Metrics of the configuration that the search began with.
        runs: Everything simulated, in order.
        rejected: How many were not simulated because of their prediction.
        frozen: How often each knob was frozen.
    """

    best: Config
    metrics: Metrics
    start: Metrics
    runs: tuple[tuple[Config, Metrics], ...]
    rejected: int
    frozen: Mapping[str, int]


@dataclass
class _Progress:
    objective: Objective
    best: Config
    best_loss: float
    runs: list[tuple[Config, Metrics]] = field(default_factory=list)
    rejected: int = 0
    frozen: dict[str, int] = field(default_factory=dict)
    given: Config = field(default_factory=Config)
    until: int = 0  # iteration at which the frozen knobs are free again

    def note(self, config: Config, metrics: Metrics) -> None:
        self.runs.append((config, metrics))
        loss = _loss(self.objective, metrics)
        if loss < self.best_loss:
            self.best, self.best_loss = config, loss


def search(
    space: Space,
    ask: Ask,
    objective: Objective,
    start: Config,
    options: SearchOptions,
    model: CausalModel | None = None,
    first: Sequence[Config] = (),
) -> Found:
    """Look for the configuration with the least loss, beginning with `start`.

    Args:
        space: What may be chosen.
        ask: Simulates a configuration; raises `Infeasible` where it does not work, `Pruned` where it cannot be the best any more.
        objective: What is better.
        start: The configuration in force; always simulated, so that the answer is never predicted to be worse.
        options: How.
        model: Predicts configurations, learns from all that are simulated here; None: nothing is rejected or frozen.
        first: Simulated before anything is sampled, and not counted among the iterations.
    """
    task = Task(system="sched", objective=objective)
    sampler: Searcher = plugins.get("searcher", options.searcher)(space, task, seed_of(options.seed, "search"))
    reference = dict(ask(start))
    progress = _Progress(objective=objective, best=start, best_loss=_loss(objective, reference), runs=[(start, reference)])
    sampler.tell([_trial(Proposal(config=start, origin=Origin(by=By.INCUMBENT)), reference)])
    for config in first:
        metrics = _simulated(ask, sampler, Proposal(config=config, origin=Origin(by=By.INCUMBENT)))
        if metrics is not None:
            progress.note(config, metrics)
    rng = stream(options.seed, "rejection")
    for iteration in range(options.trials):
        if model is not None and options.scope and model.is_ready:
            _narrow(space, model, progress, reference, iteration)
        asked = sampler.ask(1, progress.given) or sampler.ask(1)
        if not asked:
            break
        proposal = asked[0]
        chance = float(rng.random())
        predicted = model.predict([proposal.config], reference)[0] if model is not None and model.is_ready else None
        if predicted is not None and iteration >= options.first and chance < options.reject and _is_bad(progress, predicted, options.relax):
            sampler.tell([_trial(proposal, predicted, Fidelity.PREDICTED)])
            progress.rejected += 1
            continue
        metrics = _simulated(ask, sampler, proposal)
        if metrics is None:
            continue
        progress.note(proposal.config, metrics)
        if model is not None:
            if predicted is not None:
                model.check(predicted[objective.metric], metrics[objective.metric])
            model.add([(proposal.config, metrics)], reference)
            if len(progress.runs) % _FREEZE_ROUNDS == 0:
                model.fit()
    best = next(metrics for config, metrics in progress.runs if config == progress.best)
    return Found(
        best=progress.best,
        metrics=best,
        start=reference,
        runs=tuple(progress.runs),
        rejected=progress.rejected,
        frozen=progress.frozen,
    )


def _simulated(ask: Ask, sampler: Searcher, proposal: Proposal) -> Metrics | None:
    """Metrics of a proposal, which the sampler is told too; None where it does not work or cannot be the best."""
    try:
        metrics = dict(ask(proposal.config))
    except Infeasible:
        failed = Measurement(status=Status.INVALID, fidelity=Fidelity.SIMULATED)
        sampler.tell([Trial(proposal=proposal, measurement=failed)])
        return None
    except Pruned as error:
        bounds = {"time_s": error.least_s}
        stopped = Measurement(status=Status.BOUNDED, bounds=bounds, fidelity=Fidelity.SIMULATED, reason=str(error))
        sampler.tell([Trial(proposal=proposal, measurement=stopped)])
        return None
    sampler.tell([_trial(proposal, metrics)])
    return metrics


def _loss(objective: Objective, metrics: Metrics) -> float:
    return objective.loss(Measurement(status=Status.OK, metrics=metrics, fidelity=Fidelity.SIMULATED))


def _trial(proposal: Proposal, metrics: Metrics, fidelity: Fidelity = Fidelity.SIMULATED) -> Trial:
    return Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics=metrics, fidelity=fidelity))


def _is_bad(progress: _Progress, predicted: Metrics, relax: float) -> bool:
    """Whether the predicted reward is at most `relax` times the best one; a reward is how many times better than the start, above zero.

    Of a time only what is above the jobs' own work counts (`work_s`, which no settings change): it is most of the time in the system, and
    next to it everything looks alike.
    """
    if not math.isfinite(progress.best_loss):
        return False
    objective = progress.objective
    value = predicted[objective.metric]
    if objective.direction is Direction.MAXIMIZE:
        return value <= relax * -progress.best_loss
    least = min(progress.runs[0][1].get("work_s", 0.0), progress.best_loss) if objective.metric == "time_s" else 0.0
    return progress.best_loss - least <= relax * (value - least)


def _narrow(space: Space, model: CausalModel, progress: _Progress, reference: Metrics, iteration: int) -> None:
    """Freeze the knobs that by the model gain nothing over the best configuration, for a while; free them when the model is lost."""
    recent = model.errors[-5:]
    if recent and sum(recent) / len(recent) > _MOST_ERROR:
        progress.given, progress.until = Config(), iteration
        return
    if iteration < progress.until or iteration % _FREEZE_ROUNDS:
        return
    objective = progress.objective
    worth: dict[str, float] = {}
    here = model.predict([progress.best], reference)[0][objective.metric]
    for name, swept in model.what_if(progress.best, progress.best, reference).items():
        if len(swept) < 2:
            continue
        values = [value for _, value in swept]
        best = max(values) if objective.direction is Direction.MAXIMIZE else min(values)
        worth[name] = abs(best - here) / max(abs(here), 1e-12)
    order = sorted(worth, key=lambda name: worth[name])
    frozen = [name for name in order[: max(0, len(order) - _LEAST_FREE)] if worth[name] < _MIN_WORTH]
    frozen_part = progress.best.only(frozen)
    if frozen and space.feasible(frozen_part):
        progress.given, progress.until = frozen_part, iteration + _FREEZE_ROUNDS
        for name in frozen:
            progress.frozen[name] = progress.frozen.get(name, 0) + 1
    else:
        progress.given = Config()
