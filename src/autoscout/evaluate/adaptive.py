"""Simulate while the simulators prove to be right, then measure: the fidelity switch of the paper's section 3.3."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoscout.core.config import Config
from autoscout.core.errors import require
from autoscout.core.log import logger
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Evaluator
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.evaluate.agreement import MIN_RELATIVE_GAP, Check, Predicted, complete, cost_slope, error_of, mape, pairs_of, scale_of
from autoscout.evaluate.predicting import PREDICTED
from autoscout.evaluate.profile import as_measured, profile_of

log = logger(__name__)

REAL_FROM_THE_START = (By.DEFAULT, By.BASELINE, By.GIVEN, By.PROFILING)
"""Origins that are measured at once: what everything is compared with, what a person asked for, and what simulators learn from."""

MAX_RELATIVE_GAP = 0.2
"""Two values count as different when they are further apart than the simulators' error, but never more than this share is required."""
MIN_FIT_CHANCE = 0.05
"""A configuration with a smaller chance to fit into memory is not measured, however good it is predicted to be."""
RISKY_INTERVAL = 4
"""After the switch, one in this many measurements is of the configuration with the largest expected improvement that may not fit into
memory."""
MIN_WIN_CHANCE = 0.02
"""A configuration with a smaller chance to be the new best is not worth a measurement."""
MIN_RANK = 0.5
"""Kendall's tau of simulators that are followed, at least."""
MIN_CHECKS = 6
"""Checks that are made in any case: fewer say nothing about ranking."""
MIN_PAIRS = 6
"""Pairs of checks that a rank needs: in fewer a single outlier decides."""
SOLID_PAIRS = 12
"""Pairs of checks that a good rank needs to outweigh a large error: a few agree by luck."""

RULES = ("proven", "mape")


@dataclass(frozen=True, kw_only=True)
class AdaptiveOptions:
    """When to check the simulators, and when to leave them.

    Attributes:
        interval: Batches of simulated answers between two checks (the paper's tau), half of it until the simulators are proven; each
            check measures the incumbent.
        error: Mean absolute percentage error of the last checks, after one scale factor, above which simulation ends (epsilon).
        rank: Kendall's tau of predicted against measured over the last checks below which simulation ends, whatever the error;
            when it is good (0.5), a large error alone does not end it: ranking is what a search needs.
        window: How many of the last checks count; simulators that twice as many have not proven are left.
        least: Checks before anything is concluded.
        failures: Share of the last checks that failed though they were predicted to run, above which simulation ends.
        top: Best simulated configurations that are measured first after the switch: fewer when the simulators rank badly, and a quarter
            of them such as may not fit into memory.
        simulations: Simulated answers after which measuring begins anyway, so that every study ends with real numbers.
        screen: After the switch, answer proposals that look far behind with a simulated value, as long as the simulators are trusted.
        patience: Checks in a row that nothing simulated was worth, after which simulation has done its work.
        rule: `proven` as above; `mape` is the paper's bare rule: simulation ends when the mean absolute percentage error of the last
            checks, without a scale factor, is above `error`, and for no other reason; afterwards everything is measured.
        learn: Whether simulators also learn from what the search measures; otherwise from what was measured before it alone.
        profiler_fidelity: Of the profiler's answers. Where it simulates itself (a virtual cluster), cheap answers count as predicted, one
            step below its own.
    """

    interval: int = 4
    error: float = 0.2
    rank: float = 0.2
    window: int = 8
    least: int = 4
    failures: float = 0.5
    top: int = 8
    simulations: int = 600
    patience: int = 150
    screen: bool = True
    rule: str = "proven"
    learn: bool = True
    profiler_fidelity: Fidelity = Fidelity.MEASURED

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
            "rule": (self.rule in RULES, f"must be one of: {', '.join(RULES)}"),
            "patience": (self.patience >= 1, "must be at least 1"),
        }
        require("adaptive", self, checks)


class AdaptiveEvaluator(Evaluator):
    """An evaluator of two: cheap simulated answers, checked by real ones, until they stop being worth it.

    Every `interval` batches `recheck` names the best simulated configuration if it is predicted to beat what was measured; the study
    measures it and so learns how wrong the simulators are. Answers are corrected by one scale factor from the checks so far. The switch to
    measuring is permanent; then `recheck` names the best simulated configurations first, and later one more now and then, all of them once
    the search has ended: a search does not ask again for what it was told. Nothing is forgotten: searchers keep what simulated trials
    taught them. Deliberate repeats and the default are always measured. A measured answer carries what was predicted for it in its
    conditions (`predicted`).

    Ending no worse than profiling alone rests on this: checks are chosen among what the search proposed anyway, and while the simulators
    are not trusted the oldest proposal that was only simulated is measured before anything new. Simulators that are found out soon have
    then changed the order of the first measurements, not what is measured. What trusted ones name is ordered by expected improvement.

    Args:
        simulated: Who answers cheaply; told measured trials.
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
        self._cheap = Fidelity(self._options.profiler_fidelity - 1)
        self._lock = threading.RLock()
        self._predicted: dict[Config, Predicted] = {}  # in the order in which the search asked
        self._taught = 0  # trials that the simulators have learned from
        self._stale = False  # the simulators have learned since they were asked
        self._measured: dict[Config, Trial] = {}
        self._checks: list[Check] = []
        self._batches = 0
        self._idle = 0  # checks in a row without a gain
        self._queue: list[Proposal] = []
        self._switched = ""
        self._settled = False
        self._turns = 0
        self._fresh = 0  # proposals of the search since the last recheck
        self.learn(trials)

    @property
    def slots(self) -> int:
        return self._profiler.slots

    @property
    def switched(self) -> str:
        """Why measuring has taken over; empty while simulating."""
        return self._switched

    @property
    def checks(self) -> tuple[Check, ...]:
        """Predicted and measured, oldest first."""
        return tuple(self._checks)

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        with self._lock:
            screened = self._screened(proposals)
            real = [self._is_real(proposal) and proposal.config not in screened for proposal in proposals]
            predictions = {proposal.config: self._predict(proposal) for proposal, yes in zip(proposals, real, strict=True) if yes}
        cheap = [proposal for proposal, yes in zip(proposals, real, strict=True) if not yes]
        costly = [proposal for proposal, yes in zip(proposals, real, strict=True) if yes]
        simulated = iter(self._simulate(cheap))
        measured = iter(self._measure(costly, predictions))
        return [next(measured if yes else simulated) for yes in real]

    def recheck(self) -> list[Proposal]:
        with self._lock:
            self._queue = [proposal for proposal in self._queue if proposal.config not in self._measured]
            if self._switched and not self._queue:
                trusted = self._is_trusted()
                if self._fresh >= self._options.interval or self._settled or not trusted:
                    self._fresh = 0
                    self._queue = self._revisit() if trusted else self._oldest()
            return list(self._queue)

    def cancel(self) -> None:
        self._simulated.cancel()
        self._profiler.cancel()

    @property
    def learns(self) -> bool:
        return True

    def learn(self, trials: Sequence[Trial]) -> None:
        """Rebuild the state from trials of the store."""
        for trial in trials:
            self._replay(trial)
        if self._measured:
            self._teach()

    def settle(self) -> None:
        """The search has nothing more to propose: measure what was simulated, the best first, as long as the study lasts."""
        with self._lock:
            self._settled = True
            if not self._switched and self._predicted:
                self._switch("the search has nothing more to propose")

    def _screened(self, proposals: Sequence[Proposal]) -> set[Config]:
        """After the switch: proposals not worth a measurement, because trusted simulators see them far behind or failing."""
        fresh = [proposal for proposal in proposals if proposal.repeat == 0 and proposal.origin.by not in REAL_FROM_THE_START]
        if self._is_bare or not (self._switched and self._options.screen and fresh and self._is_trusted()):
            return set()
        for proposal, answer in zip(fresh, self._simulated.evaluate(fresh), strict=True):
            self._note(proposal.config, answer)
        best, scale, error = self._standard()
        return {
            proposal.config for proposal in fresh if self._predicted[proposal.config].chance_to_win(best, scale, error) < MIN_WIN_CHANCE
        }

    @property
    def _is_bare(self) -> bool:
        """Whether the paper's rule alone decides."""
        return self._options.rule == "mape"

    def _is_real(self, proposal: Proposal) -> bool:
        return bool(self._switched) or proposal.repeat != 0 or proposal.origin.by in REAL_FROM_THE_START

    def _simulate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        if not proposals:
            return []
        answers = self._simulated.evaluate(proposals)
        with self._lock:
            for proposal, answer in zip(proposals, answers, strict=True):
                self._note(proposal.config, answer)
            self._batches += 1
            self._fresh += len(proposals)
            if self._switched:
                pass
            elif len(self._predicted) >= self._options.simulations:
                self._switch(f"{len(self._predicted)} configurations were simulated")
            elif self._batches % self._interval() == 0 and not self.recheck():
                self._plan_check()
            factor = self._scale()
        return [replace(_scaled(answer, factor, self._task), fidelity=self._cheap) for answer in answers]

    def _interval(self) -> int:
        """Twice as many checks until the simulators are proven: less is then owed to the search if they are not worth it."""
        return self._options.interval if self._is_bare or self._is_trusted() else max(1, self._options.interval // 2)

    def _measure(self, proposals: Sequence[Proposal], predictions: dict[Config, float]) -> list[Measurement]:
        if not proposals:
            return []
        answers = self._profiler.evaluate(proposals)
        out = []
        with self._lock:
            for proposal, answer in zip(proposals, answers, strict=True):
                predicted = predictions[proposal.config]
                if math.isfinite(predicted) and answer.status is not Status.ABORTED:
                    answer = replace(answer, conditions={**answer.conditions, PREDICTED: abs(predicted) * self._scale()})
                self._fresh += self._options.interval * (proposal.repeat == 0)
                if answer.status is not Status.ABORTED and proposal.repeat <= 0:
                    self._take(Trial(proposal=proposal, measurement=answer), predicted)
                out.append(answer)
            self._teach()
            self._judge()
        return out

    def _predict(self, proposal: Proposal) -> float:
        """The loss that the simulators give a configuration, from memory where it was asked before; infinite when it should fail.

        They are asked after the switch, too: who lost trust by bad luck can win it back.
        """
        if proposal.config not in self._predicted:
            self._note(proposal.config, self._simulated.evaluate([proposal])[0])
        said = self._predicted[proposal.config]
        return said.loss if said.runs else math.inf

    def _note(self, config: Config, answer: Measurement, scale: float = 1.0) -> None:
        """Remember a simulated answer; of one that will probably not fit, also what it would be worth and its chance."""
        loss, chance = self._task.objective.loss(answer) / scale, answer.conditions.get("feasible", float(answer.ok))
        if answer.status.out_of_memory and "value" in answer.conditions:
            loss = (1.0 if self._task.objective.direction is Direction.MINIMIZE else -1.0) * answer.conditions["value"]
        self._predicted[config] = Predicted(loss=loss, chance=chance, runs=answer.ok)

    def _take(self, trial: Trial, predicted: float) -> None:
        if trial.config in self._measured:
            return
        before = min((self._loss(other) for other in self._measured.values()), default=math.inf)
        self._measured[trial.config] = trial
        if trial.proposal.origin.by == By.PROFILING:
            return  # simulators learn from it: what they said before is no test of them
        loss = self._loss(trial)
        self._checks.append(
            Check(
                config=trial.config,
                predicted=predicted if math.isfinite(predicted) else None,
                measured=loss if math.isfinite(loss) else None,
            )
        )
        if trial.proposal.origin.by == By.CHECK:
            self._idle = 0 if loss < before else self._idle + 1

    def _replay(self, trial: Trial) -> None:
        """Rebuild from a stored trial what evaluating it had done."""
        answer = trial.measurement
        if answer.fidelity is self._cheap:
            self._note(trial.config, answer, answer.conditions.get("scale", 1.0))
            return
        if answer.fidelity > self._cheap and trial.proposal.repeat <= 0:
            said = self._predicted.get(trial.config)
            self._take(trial, said.loss if said is not None and said.runs else math.inf)
            if trial.proposal.origin.by == By.TOP:
                self._switched = "the study had switched before it was resumed"

    def _teach(self) -> None:
        trials = list(self._measured.values())
        taught = as_measured(trials) if self._options.learn else profile_of(trials)
        if self._simulated.learns and (self._options.learn or len(taught) > self._taught):
            self._stale, self._taught = True, len(taught)
            self._simulated.learn(taught)

    def _scale(self) -> float:
        """Factor that corrects a constant bias; 1 for simulators that learn, which correct it themselves."""
        return 1.0 if self._simulated.learns or self._is_bare else scale_of(self._checks)

    def _judge(self) -> None:
        if self._switched:
            return
        if self._is_bare:
            recent = self._recent()
            if len(recent) >= self._options.least and (bare := mape(recent)) > self._options.error:
                self._switch(f"error {bare:.0%} is above {self._options.error:.0%}")
            return
        checks = self._checks[-self._options.window :]
        predicted = [check for check in checks if check.predicted is not None]
        if self._idle >= self._options.patience:
            self._switch(f"the last {self._idle} checks found nothing better")
        if len(predicted) < self._options.least or self._switched:
            return
        if len(self._checks) >= 2 * self._options.window and not self._is_trusted():
            self._switch(f"{len(self._checks)} checks have not proven the simulators")
            return
        error = self.error() if len(self._recent()) >= self._options.least else 0.0
        rank = self.rank()
        failed = sum(check.measured is None for check in predicted) / len(predicted)
        if failed > self._options.failures:
            self._switch(f"{failed:.0%} of what was predicted to run failed")
        elif rank is not None and rank < self._options.rank:
            self._switch(f"rank agreement {rank:.2f} is below {self._options.rank:.2f}")
        elif error > self._options.error and (rank is None or rank < MIN_RANK):
            self._switch(f"error {error:.0%} is above {self._options.error:.0%}")

    def error(self) -> float:
        """Mean absolute percentage error of the last checks, corrected by one scale factor."""
        return error_of(self._recent())

    def rank(self) -> float | None:
        """Kendall's tau over the last checks, counting only pairs that really differ; None for too few such pairs."""
        return self._tau(self._pairs(self._recent()))

    def _tau(self, agreed: Sequence[bool]) -> float | None:
        return 2.0 * sum(agreed) / len(agreed) - 1.0 if len(agreed) >= MIN_PAIRS else None

    def _pairs(self, both: Sequence[tuple[float, float]]) -> list[bool]:
        """Whether pairs were ordered rightly; values closer than the error (within bounds) count as equal."""
        return pairs_of(both, max(MIN_RELATIVE_GAP, min(self.error(), MAX_RELATIVE_GAP)))

    def _complete_checks(self) -> list[tuple[float, float]]:
        """All checks that have both numbers; of simulators that learn not the first, which taught them the scale."""
        return complete(self._checks)[int(self._simulated.learns) :]

    def _recent(self) -> list[tuple[float, float]]:
        return self._complete_checks()[-self._options.window :]

    def _is_trusted(self) -> bool:
        """Whether the simulators have proven that they tell good from bad.

        A small error is not enough: where all values are alike, every simulator has one. So the simulators must have ordered enough
        pairs of all checks (the last of which are all alike) and, with a large error, enough pairs of the last ones too.
        """
        if sum(check.predicted is not None for check in self._checks) < max(MIN_CHECKS, self._options.least):
            return False
        small = self.error() <= self._options.error
        agreed = self._pairs(self._complete_checks() if small else self._recent())
        rank = self._tau(agreed)
        return rank is not None and rank >= MIN_RANK and (small or len(agreed) >= SOLID_PAIRS)

    def _switch(self, why: str) -> None:
        log.info("from simulation to measuring: %s", why)
        self._switched = why
        rank = self.rank()
        trust = (
            1.0 if rank is None or self._is_bare else max(0.0, rank)
        )  # the favourites of a simulator that cannot rank are not worth much
        count = math.ceil(self._options.top * trust)
        gambles = self._best(count // RISKY_INTERVAL, By.TOP, runs=False)
        self._queue = self._best(count - len(gambles), By.TOP) + gambles

    def _revisit(self) -> list[Proposal]:
        """What trusted simulators expect most of among all that was only simulated, in the end all others.

        Every RISKY_INTERVAL-th is one that may not fit; the other way round when nothing that should run is likely to win any more, but
        never all of them, because a row of failures looks like a broken system.
        """
        self._turns += 1
        likely, gambles = self._best(1, By.TOP), self._best(1, By.TOP, runs=False)
        dry = not any(self._predicted[proposal.config].chance_to_win(*self._standard()) >= MIN_WIN_CHANCE for proposal in likely)
        return (gambles if (self._turns % RISKY_INTERVAL == 0) is not dry else []) or likely or self._oldest()

    def _oldest(self) -> list[Proposal]:
        """What the search had wanted first, before anything new: simulators that were not worth it shall have cost it nothing."""
        oldest = next((config for config in self._predicted if config not in self._measured), None)
        return [] if oldest is None else [Proposal(config=oldest, origin=Origin(by=By.TOP), repeat=-1)]

    def _plan_check(self) -> None:
        """Have the incumbent measured; once the simulators are trusted only if it looks better than all that was measured."""
        best, scale, _ = self._standard()
        trusted = self._is_trusted() and not self._is_bare
        better = [
            proposal
            for proposal in self._best(1, By.CHECK)
            if not trusted or not self._measured or self._predicted[proposal.config].ahead(best, scale) > 0
        ]
        if better:
            self._queue = better
        else:
            self._idle += 1
            self._judge()

    def _best(self, count: int, by: By, *, runs: bool = True) -> list[Proposal]:
        """Largest expected improvements for what a profile costs, of what was only simulated and should run (or should not but may); of
        equals the oldest."""
        if self._stale:
            self._stale = False
            asked = list(self._predicted)
            answers = self._simulated.evaluate([Proposal(config=config) for config in asked])
            for config, answer in zip(asked, answers, strict=True):
                self._note(config, answer)
        standard, slope = self._standard(), self._cost_slope()
        candidates = [
            (-said.improvement(*standard) / max(abs(said.loss) ** slope, 1e-300), said.loss, place, config)
            for place, (config, said) in enumerate(self._predicted.items())
            if config not in self._measured and said.runs is runs and said.chance > MIN_FIT_CHANCE
        ]
        return [Proposal(config=config, origin=Origin(by=by), repeat=-1) for *_, config in sorted(candidates)[:count]]

    def _cost_slope(self) -> float:
        """How the cost of a profile grows with the loss, as far as measurements tell; 0 while they are few."""
        costs = [(self._loss(trial), trial.measurement.cost_s) for trial in self._measured.values() if trial.ok]
        return cost_slope([pair for pair in costs if math.isfinite(pair[0])]) if len(costs) >= MIN_CHECKS else 0.0

    def _standard(self) -> tuple[float, float, float]:
        """What expected improvements refer to: the best loss so far, the scale of predictions and their error."""
        scale = self._scale()
        best = min((self._loss(trial) for trial in self._measured.values()), default=math.inf)
        if not math.isfinite(best):
            best = min((said.loss * scale for said in self._predicted.values() if said.runs), default=math.inf)
        has_error = len(self._recent()) >= self._options.least
        return best, scale, max(MIN_RELATIVE_GAP, self.error() if has_error else self._options.error)

    def _loss(self, trial: Trial) -> float:
        return self._task.objective.loss(trial.measurement)


def _scaled(answer: Measurement, factor: float, task: Task) -> Measurement:
    metric = task.objective.metric
    if not answer.ok or metric not in answer.metrics or factor == 1.0:
        return answer
    metrics = {**answer.metrics, metric: answer.metrics[metric] * factor}
    return replace(answer, metrics=metrics, conditions={**answer.conditions, "scale": factor})


__all__ = ["AdaptiveEvaluator"]
