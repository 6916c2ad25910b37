"""Simulate while the simulators can be trusted, then measure: the fidelity switch of the paper's section 3.3."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscout.core.config import Config
from autoscout.core.errors import require
from autoscout.core.log import logger
from autoscout.core.protocols import Evaluator
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial

log = logger(__name__)

REAL_FROM_THE_START = ("default", "given")
"""Origins that are measured at once: the baseline everybody compares with, and what a person asked for."""

NOTABLE = 0.05
"""Measured values closer than this share are equals."""

HOPELESS = 0.05
"""Chance to fit below which nothing is tried, whatever it promises."""
SLOW = 1.5
"""How many times worse than the best measured a proposal must look to be left out after the switch."""
GOOD = 0.5
"""Kendall's tau among the best, where differences are small, from which on a large error is forgiven."""
TRUST = 6
"""Checks that are made whatever they promise: fewer say nothing about ranking."""
PAIRS = 12
"""Pairs of checks that must agree for a good rank to outweigh a large error: a few agree by luck."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveOptions:
    """When to check the simulators, and when to leave them.

    Attributes:
        interval: Batches of simulated answers between two checks (the paper's tau), half of it until the simulators are proven; each
            check measures the incumbent.
        error: Mean absolute percentage error of the last checks, after one scale factor, above which simulation ends (epsilon).
        rank: Kendall's tau of predicted against measured over the last checks below which simulation ends, whatever the error;
            when it is good (0.5), a large error alone does not end it: ranking is what a search needs.
        window: How many of the last checks count.
        least: Checks before anything is concluded.
        failures: Share of the last checks that failed though they were predicted to run, above which simulation ends.
        top: Best simulated configurations that are measured first after the switch: fewer when the simulators rank badly, and a quarter
            of them such as promise most but may not fit into memory.
        simulations: Simulated answers after which measuring begins anyway, so that every study ends with real numbers.
        screen: After the switch, answer proposals that look far behind with a simulated value, as long as the simulators rank well.
        patience: Checks in a row that nothing simulated was worth, after which simulation has done its work.
        virtual: The profiler itself simulates (a virtual cluster): cheap answers then count as predicted, one step below its own.
    """

    interval: int = 4
    error: float = 0.2
    rank: float = 0.2
    window: int = 8
    least: int = 4
    failures: float = 0.5
    top: int = 8
    simulations: int = 600
    patience: int = 75
    screen: bool = True
    virtual: bool = False

    def __post_init__(self) -> None:
        checks = {
            "interval": (self.interval >= 1, "must be at least 1"),
            "error": (self.error > 0, "must be above zero"),
            "rank": (-1 <= self.rank <= 1, "is a rank correlation between -1 and 1"),
            "window": (self.window >= 2, "must be at least 2"),
            "least": (self.least >= 1, "must be at least 1"),
            "failures": (0 < self.failures <= 1, "is a share between 0 and 1"),
            "top": (self.top >= 0, "must not be negative"),
            "simulations": (self.simulations >= 1, "must be at least 1"),
            "patience": (self.patience >= 1, "must be at least 1"),
        }
        require("adaptive", self, checks)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One prediction met by a measurement; both are losses (lower is better), None for a failure."""

    config: Config
    predicted: float | None
    measured: float | None


class AdaptiveEvaluator:
    """An evaluator of two: cheap simulated answers, checked by real ones, until they stop being worth it.

    Every `interval` batches `recheck` names the best simulated configuration if it promises more than what was measured; the study
    measures it and so learns how wrong the simulators are. Answers are corrected by one scale factor from the checks so far. The switch to
    measuring is for good; then `recheck` names the best simulated configurations first, and later one more now and then: a search does not
    ask again for what it was told, and a simulator that goes on learning stays useful. Nothing is forgotten: searchers keep what
    simulated trials taught them. Deliberate repeats and the baseline are always measured. A measured answer carries what was
    predicted for it in its conditions (`predicted`).

    Args:
        simulated: Who answers cheaply; told measured trials through its `learn`, if it has one.
        profiler: Who measures.
        task: Names the objective.
        options: Interval, thresholds.
        trials: Earlier trials of the study, from a store: the state is rebuilt from them.
    """

    def __init__(
        self, simulated: Evaluator, profiler: Evaluator, task: Task, options: AdaptiveOptions | None = None, trials: Sequence[Trial] = ()
    ) -> None:
        self._simulated, self._profiler, self._task = simulated, profiler, task
        self._options = options or AdaptiveOptions()
        self._cheap = Fidelity.PREDICTED if self._options.virtual else Fidelity.SIMULATED
        self._lock = threading.RLock()
        self._teach: Callable[[Sequence[Trial]], None] | None = getattr(simulated, "learn", None)
        self._predictions: dict[Config, float] = {}  # uncorrected losses of simulated answers
        self._unlikely: dict[Config, tuple[float, float]] = {}  # loss and chance to fit of what is expected to fail
        self._measured: dict[Config, Trial] = {}
        self._checks: list[Check] = []
        self._batches = 0
        self._idle = 0  # checks in a row without a gain
        self._wanted: list[Proposal] = []
        self._switched = ""
        self._turns = 0
        self._fresh = 0  # proposals of the search that were measured since the last recheck
        for trial in trials:
            self._replay(trial)
        if self._measured:
            self._learn()

    @property
    def slots(self) -> int:
        return self._profiler.slots

    @property
    def switched(self) -> str:
        """Why measuring has taken over; empty while simulating."""
        return self._switched

    @property
    def checks(self) -> tuple[Check, ...]:
        """Predicted beside measured, oldest first."""
        return tuple(self._checks)

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        with self._lock:
            screened = self._screened(proposals)
            real = [self._is_real(proposal) and proposal.config not in screened for proposal in proposals]
            foretold = {proposal.config: self._predict(proposal) for proposal, yes in zip(proposals, real, strict=True) if yes}
        cheap = [proposal for proposal, yes in zip(proposals, real, strict=True) if not yes]
        dear = [proposal for proposal, yes in zip(proposals, real, strict=True) if yes]
        simulated = iter(self._simulate(cheap))
        measured = iter(self._measure(dear, foretold))
        return [next(measured if yes else simulated) for yes in real]

    def recheck(self) -> list[Proposal]:
        with self._lock:
            self._wanted = [proposal for proposal in self._wanted if proposal.config not in self._measured]
            if self._switched and not self._wanted and (self._fresh >= 1 or not self._trusted()):
                self._fresh = 0
                self._wanted = self._revisit()
            return list(self._wanted)

    def cancel(self) -> None:
        self._simulated.cancel()
        self._profiler.cancel()

    def settle(self) -> None:
        """The search has nothing more to propose: measure the best of what was simulated, if that has not begun."""
        with self._lock:
            if not self._switched and self._predictions:
                self._switch("the search has nothing more to propose")

    def _screened(self, proposals: Sequence[Proposal]) -> set[Config]:
        """After the switch: proposals not worth a measurement, because simulators that rank well see them far behind or hopeless."""
        fresh = [proposal for proposal in proposals if proposal.repeat == 0 and proposal.origin.get("by") not in REAL_FROM_THE_START]
        if not (self._switched and self._options.screen and fresh and self._trusted()):
            return set()
        for proposal, answer in zip(fresh, self._simulated.evaluate(fresh), strict=True):
            self._note(proposal.config, answer)
        best = min((self._loss(trial) for trial in self._measured.values()), default=math.inf)
        behind = best * SLOW if best > 0 else best / SLOW
        chances = {config: chance for config, (_, chance) in self._unlikely.items()}
        return {
            proposal.config
            for proposal in fresh
            if self._predictions[proposal.config] * self._scale() > behind and chances.get(proposal.config, 0.0) < HOPELESS
        }

    def _is_real(self, proposal: Proposal) -> bool:
        return bool(self._switched) or proposal.repeat != 0 or proposal.origin.get("by") in REAL_FROM_THE_START

    def _simulate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        if not proposals:
            return []
        answers = self._simulated.evaluate(proposals)
        with self._lock:
            for proposal, answer in zip(proposals, answers, strict=True):
                self._note(proposal.config, answer)
            self._batches += 1
            if len(self._predictions) >= self._options.simulations:
                self._switch(f"{len(self._predictions)} configurations were simulated")
            elif self._batches % self._interval() == 0 and not self.recheck():
                self._plan_check()
            factor = self._scale()
        return [replace(_scaled(answer, factor, self._task), fidelity=self._cheap) for answer in answers]

    def _interval(self) -> int:
        """Twice as many checks until the simulators are proven: less is then owed to the search if they are not worth it."""
        return self._options.interval if self._proven() else max(1, self._options.interval // 2)

    def _measure(self, proposals: Sequence[Proposal], foretold: dict[Config, float]) -> list[Measurement]:
        if not proposals:
            return []
        answers = self._profiler.evaluate(proposals)
        out = []
        with self._lock:
            for proposal, answer in zip(proposals, answers, strict=True):
                predicted = foretold[proposal.config]
                if math.isfinite(predicted) and answer.status is not Status.ABORTED:
                    answer = replace(answer, conditions={**answer.conditions, "predicted": abs(predicted) * self._scale()})
                self._fresh += proposal.repeat == 0
                if answer.status is not Status.ABORTED and proposal.repeat <= 0:
                    self._take(Trial(proposal=proposal, measurement=answer), predicted)
                out.append(answer)
            self._learn()
            self._judge()
        return out

    def _predict(self, proposal: Proposal) -> float:
        """The loss that the simulators give a configuration, from memory where it was asked before."""
        if proposal.config not in self._predictions and not self._switched:
            self._note(proposal.config, self._simulated.evaluate([proposal])[0])
        return self._predictions.get(proposal.config, math.inf)

    def _note(self, config: Config, answer: Measurement, scale: float = 1.0) -> None:
        """Remember a simulated answer; of one that will probably not fit, also what it would be worth and its chance."""
        self._predictions[config] = self._task.objective.loss(answer) / scale
        self._unlikely.pop(config, None)
        if answer.status.out_of_memory and "value" in answer.conditions:
            sign = 1.0 if self._task.objective.direction is Direction.MINIMIZE else -1.0
            self._unlikely[config] = (sign * answer.conditions["value"], answer.conditions.get("feasible", 0.0))

    def _take(self, trial: Trial, predicted: float) -> None:
        if trial.config in self._measured:
            return
        before = min((self._loss(other) for other in self._measured.values()), default=math.inf)
        self._measured[trial.config] = trial
        loss = self._loss(trial)
        self._checks.append(
            Check(
                config=trial.config,
                predicted=predicted if math.isfinite(predicted) else None,
                measured=loss if math.isfinite(loss) else None,
            )
        )
        if trial.proposal.origin.get("by") == "check":
            self._idle = 0 if loss < before else self._idle + 1

    def _replay(self, trial: Trial) -> None:
        """Rebuild from a stored trial what evaluating it had done."""
        answer = trial.measurement
        if answer.fidelity is self._cheap:
            self._note(trial.config, answer, answer.conditions.get("scale", 1.0))
            return
        if answer.fidelity > self._cheap and trial.proposal.repeat <= 0:
            self._take(trial, self._predictions.get(trial.config, math.inf))
            if trial.proposal.origin.get("by") == "top":
                self._switched = "the study had switched before it was resumed"

    def _learn(self) -> None:
        if self._teach is not None:
            # To the simulators a virtual cluster is the world.
            self._teach(
                [replace(trial, measurement=replace(trial.measurement, fidelity=Fidelity.MEASURED)) for trial in self._measured.values()]
            )

    def _scale(self, upto: int | None = None) -> float:
        """Measured over predicted, the middle of the checks: a constant bias is mended, not punished.

        Simulators that learn mend it themselves.
        """
        if self._teach is not None:
            return 1.0
        ratios = _ratios(self._checks[:upto])
        return float(np.median(ratios)) if ratios else 1.0

    def _judge(self) -> None:
        if self._switched:
            return
        checks = self._checks[-self._options.window :]
        foretold = [check for check in checks if check.predicted is not None]
        if self._idle >= self._options.patience:
            self._switch(f"the last {self._idle} checks found nothing better")
        if len(foretold) < self._options.least or self._switched:
            return
        error, rank = self.error(), self.rank()
        failed = sum(check.measured is None for check in foretold) / len(foretold)
        if failed > self._options.failures:
            self._switch(f"{failed:.0%} of what was predicted to run failed")
        elif rank is not None and rank < self._options.rank:
            self._switch(f"rank agreement {rank:.2f} is below {self._options.rank:.2f}")
        elif error > self._options.error and (rank is None or rank < GOOD):
            self._switch(f"error {error:.0%} is above {self._options.error:.0%}")

    def error(self) -> float:
        """Mean absolute percentage error of the last checks, each corrected by the scale known before it."""
        errors = []
        for place, check in enumerate(self._checks):
            if check.predicted is None or check.measured is None:
                continue
            if _ratios(self._checks[:place]):  # the first check sets the scale
                errors.append(abs(check.predicted * self._scale(place) / check.measured - 1.0))
        return float(np.mean(errors[-self._options.window :])) if errors else 0.0

    def rank(self) -> float | None:
        """Kendall's tau over the last checks, counting only pairs that really differ; None for fewer than four such pairs.

        Checks are all near the top: among equals no simulator can rank, and none should be blamed for it. How close equals are the
        error says, as long as it is one that would be tolerated.
        """
        agreed = self._pairs()
        return 2.0 * sum(agreed) / len(agreed) - 1.0 if len(agreed) >= 4 else None

    def _pairs(self) -> list[bool]:
        """For every two of the last checks that really differ: whether they were foretold in the right order."""
        notable = max(NOTABLE, min(self.error(), self._options.error))
        both = [check for check in self._checks if check.predicted is not None and check.measured is not None][-self._options.window :]
        return [
            (one.predicted < other.predicted) == (one.measured < other.measured)  # type: ignore[operator]  # None was left out above
            for place, one in enumerate(both)
            for other in both[:place]
            if abs(one.measured - other.measured) > notable * abs(other.measured)  # type: ignore[operator,arg-type]
        ]

    def _proven(self) -> bool:
        """Whether enough was checked to simulate on without measuring what promises nothing."""
        if sum(check.predicted is not None for check in self._checks) < max(TRUST, self._options.least):
            return False
        rank = self.rank()
        return self.error() <= self._options.error or (rank is not None and rank >= GOOD and len(self._pairs()) >= PAIRS)

    def _trusted(self) -> bool:
        """Whether the simulators order well: proven by rank, or by errors too small to matter where there is little to rank."""
        rank = self.rank()
        if rank is None:
            return len(_ratios(self._checks)) >= self._options.least and self.error() <= self._options.error
        return rank >= GOOD

    def _switch(self, why: str) -> None:
        log.info("from simulation to measuring: %s", why)
        self._switched = why
        rank = self.rank()
        trust = 1.0 if rank is None else max(0.0, rank)  # the favourites of a simulator that cannot rank are not worth much
        count = math.ceil(self._options.top * trust)
        gambles = self._gambles(count // 4)
        self._wanted = self._best(count - len(gambles), "top") + gambles

    def _revisit(self) -> list[Proposal]:
        """After the switch: one that was only simulated.

        Of simulators that rank well the best, between two new proposals, now and then one that may not fit. Otherwise the oldest, as the
        search had wanted it, before anything new: simulators that were not worth it shall have cost the search nothing.
        """
        self._turns += 1
        if not self._trusted():
            oldest = (config for config in self._predictions if config not in self._measured)
            return [Proposal(config=config, origin={"by": "top"}, repeat=-1) for config in itertools.islice(oldest, 1)]
        gambles = self._gambles(1) if self._turns % 4 == 0 else []
        return gambles or self._best(1, "top")

    def _gambles(self, count: int) -> list[Proposal]:
        """What promises more than everything expected to fit and left, though it may not fit: best chance first."""
        left = (loss for config, loss in self._predictions.items() if math.isfinite(loss) and config not in self._measured)
        best = min(left, default=math.inf)
        promising = [
            (-chance, loss, config.canonical, config)
            for config, (loss, chance) in self._unlikely.items()
            if loss < best and chance > HOPELESS and config not in self._measured
        ]
        return [Proposal(config=config, origin={"by": "top"}, repeat=-1) for *_, config in sorted(promising)[:count]]

    def _plan_check(self) -> None:
        """Have the incumbent measured; once the simulators are proven only if it promises more than what was measured before."""
        done = min((self._loss(trial) for trial in self._measured.values()), default=math.inf)
        proven = self._proven()
        promising = [
            proposal for proposal in self._best(1, "check") if not proven or self._predictions[proposal.config] * self._scale() < done
        ]
        if promising:
            self._wanted = promising
        else:
            self._idle += 1
            self._judge()

    def _best(self, count: int, by: str) -> list[Proposal]:
        if self._teach is not None and self._predictions:  # what was asked before the simulators learned is out of date
            asked = list(self._predictions)
            answers = self._simulated.evaluate([Proposal(config=config) for config in asked])
            for config, answer in zip(asked, answers, strict=True):
                self._note(config, answer)
        ranked = sorted((loss, config.canonical, config) for config, loss in self._predictions.items() if math.isfinite(loss))
        fresh = [config for _, _, config in ranked if config not in self._measured]
        return [Proposal(config=config, origin={"by": by}, repeat=-1) for config in fresh[:count]]

    def _loss(self, trial: Trial) -> float:
        return self._task.objective.loss(trial.measurement)


def _ratios(checks: Sequence[Check]) -> list[float]:
    pairs = [(check.measured, check.predicted) for check in checks if check.measured is not None and check.predicted is not None]
    return [measured / predicted for measured, predicted in pairs if predicted and measured / predicted > 0]


def _scaled(answer: Measurement, factor: float, task: Task) -> Measurement:
    metric = task.objective.metric
    if not answer.ok or metric not in answer.metrics or factor == 1.0:
        return answer
    metrics = {**answer.metrics, metric: answer.metrics[metric] * factor}
    return replace(answer, metrics=metrics, conditions={**answer.conditions, "scale": factor})


__all__ = ["AdaptiveEvaluator"]
