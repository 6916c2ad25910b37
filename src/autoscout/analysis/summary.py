"""What a study found, as one frozen object: everything the terminal, the page and the hand-over folder show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from autoscout.analysis.curves import CurvePoint, busy_s, curve, ordered, shown_points
from autoscout.analysis.front import Front, find_front
from autoscout.analysis.gain import Gain
from autoscout.analysis.labels import SPENT_WORDS, Difference, KnobNote, differences, namer, one_line, show_limit
from autoscout.analysis.limits import LimitCheck
from autoscout.analysis.next_step import NextStep, next_step
from autoscout.analysis.pooled import PooledRuns
from autoscout.analysis.price import Cost, costs, costs_text
from autoscout.analysis.verdict import Finalist, Verdict, decide
from autoscout.common.stats import variation
from autoscout.common.text import show_number
from autoscout.core.config import Config
from autoscout.core.guards import bind
from autoscout.core.reference import References
from autoscout.core.task import Task
from autoscout.core.trial import MACHINE_PROBE, SPENT, TOO_FEW, Fidelity, Status, Trial

NOISY_ABOVE = 0.1
"""Relative standard deviation of a trial's own samples from which the trial counts as noisy."""

UNEVEN_ABOVE = 1.2
"""How many times as long the slowest machine may take for a fixed piece of work as the fastest before the report says so."""


@dataclass(frozen=True, kw_only=True)
class FailureGroup:
    """Failures of one kind that say the same thing, numbers aside."""

    status: Status
    reason: str
    trials: tuple[int, ...]
    log_tail: str  # of the last of them

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status.value, "reason": self.reason, "count": len(self.trials), "trials": list(self.trials)}


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What the study cost."""

    trials: int
    wall_s: float  # during which at least one trial ran; pauses of a resumed study do not count
    cost_s: float  # sum of the trials' own cost
    configs: int  # different configurations looked at
    parts: Mapping[str, float] = field(default_factory=dict)  # seconds of `cost_s` by what they went into, as far as trials say
    bounded: int = 0  # trials that were stopped early

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "parts": dict(self.parts)}

    @property
    def describe(self) -> str:
        """What the seconds went into, in words: `84 % starting, 3 % warming up, 13 % measuring; 5 trials stopped early`."""
        total = sum(self.parts.values())
        shares = [f"{100 * seconds / total:.0f} % {SPENT_WORDS[name]}" for name, seconds in self.parts.items() if total]
        early = [f"{self.bounded} {'trial' if self.bounded == 1 else 'trials'} stopped early"] if self.bounded else []
        return "; ".join([", ".join(shares), *early] if shares else early)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The result of a study.

    Attributes:
        study: Its name.
        task: What was tuned, its guards bound to what the default measured.
        verdict: What may be claimed.
        reason: Why, in one sentence.
        gain: Of the best configuration over the reference.
        reference: What gains are measured against, its repeats pooled: the baseline where there is one that runs, else the default; None
            when it was never tried.
        best: The strongest contender, pooled; not always the answer, see `hands_over_best`.
        answer: The configuration to run: the reference, unless another one was shown to be better or the reference breaks a limit; None
            only when nothing ran.
        changes: Knobs on which `best` differs from the reference.
        finalists: All contenders compared, best first.
        fidelity: Of the numbers above.
        counts: Trials per fidelity label and status.
        failures: Grouped, most frequent first.
        spent: What it cost.
        noisy: Numbers of the trials whose own samples scatter widely.
        dirty: Numbers of the trials that were disturbed by other work on the machine.
        short: Numbers of the trials with too few requests for a percentile that counts.
        uneven: How many times as long the slowest machine behind the verdict took for a fixed piece of work as the fastest; 1 for one.
        points: The convergence curve.
        load: How the load was produced, in one sentence; empty when the backend does not say.
        front: With several goals, its points; the verdict is about the first goal.
        next: What would decide a study that is not decided.
        default: The engine's default, pooled; None when it was never tried.
        baseline: What the user runs today, likewise; None without one.
        over_default: The gain of `best` over the engine's default, where that is neither the reference nor `best`.
        baseline_gain: Of the baseline over the engine's default.
    """

    study: str
    task: Task
    verdict: Verdict
    reason: str
    gain: Gain
    reference: PooledRuns | None
    best: PooledRuns | None
    answer: Config | None
    changes: tuple[Difference, ...]
    finalists: tuple[Finalist, ...]
    fidelity: Fidelity
    counts: Mapping[str, Mapping[str, int]]
    failures: tuple[FailureGroup, ...]
    spent: Spent
    noisy: tuple[int, ...]
    dirty: tuple[int, ...]
    points: tuple[CurvePoint, ...]
    short: tuple[int, ...] = ()
    uneven: float = 1.0
    load: str = ""
    front: Front | None = None
    next: NextStep | None = None
    default: PooledRuns | None = None
    baseline: PooledRuns | None = None
    over_default: Gain | None = None
    baseline_gain: Gain | None = None

    @property
    def reference_name(self) -> str:
        """What to call the reference: the baseline, or the default."""
        return "baseline" if self.baseline is not None and self.reference == self.baseline else "default"

    @property
    def sides(self) -> dict[str, PooledRuns | None]:
        """What is shown next to each other, by title: the references, then the best where it is another."""
        sides = {"default": self.default, **({"baseline": self.baseline} if self.baseline else {})}
        is_reference = self.best is not None and any(side is not None and side.config == self.best.config for side in sides.values())
        return sides if is_reference else {**sides, self.contender: self.best}

    @property
    def hands_over_best(self) -> bool:
        """Whether the answer is the strongest contender, in place of the default."""
        return self.best is not None and self.answer == self.best.config

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the numbers behind the verdict less trustworthy than they look."""
        texts = []
        sides = [side for side in (self.default, self.baseline, self.best) if side is not None]
        used = {number for side in sides for number in side.trials}
        disturbed = len(used & set(self.dirty))
        if disturbed:
            texts.append(f"{disturbed} of the {len(used)} measurements behind this were disturbed by other work on the machine")
        short = len(used & set(self.short))
        if short:
            texts.append(f"{short} of the {len(used)} measurements behind this had too few requests for a percentile that counts")
        if self.uneven > UNEVEN_ABOVE:
            texts.append(
                f"the machines behind this are unequal: the slowest took {self.uneven:.1f} times as long for the same work as the fastest"
            )
        for title, side in (
            ("the default", self.default),
            ("the baseline", self.baseline),
            ("the best configuration" if self.contender == "best" else "the contender", self.best),
        ):
            if side is not None and side.spread is not None and side.spread > NOISY_ABOVE:
                texts.append(f"{title} scatters by {side.spread:.0%} between repeats")
        if self._unsteady:
            texts.append(f"{self._unsteady}: it may have been luck that this one did not")
        bound = {limit.guard for limit in self.task.objective.limits}
        loose = [str(guard) for guard in self.task.objective.guards if str(guard) not in bound]
        if loose:
            texts.append(f"nothing to hold {', '.join(loose)} against: the {self.reference_name} did not run or does not report it")
        return tuple(texts)

    @property
    def _unsteady(self) -> str:
        """What failed now and then in the final and shares a change with the best, which ran every time; empty without any."""
        if self.best is None or self.best.failures or not self.best.rounds:
            return ""
        changed = {change.knob for change in self.changes}
        others = [finalist.side for finalist in self.finalists if finalist.side.runs and finalist.side.failures]
        others = [side for side in others if any(side.config.get(knob, self) == self.best.config.get(knob, self) for knob in changed)]
        failed = sum(side.failures for side in others)
        runs = failed + sum(side.runs for side in others)
        names = " and ".join(side.name for side in others[:2])
        more = f" and {len(others) - 2} more" if len(others) > 2 else ""
        return f"{names}{more} failed in {failed} of {runs} runs of the final" if others else ""

    @property
    def gives_up(self) -> tuple[str, ...]:
        """What the changes give up that no metric shows, such as durability: as the knobs warn. Nothing where nobody would make them."""
        if self.verdict in (Verdict.NO_GAIN, Verdict.NONE):
            return ()
        return tuple(f"{change.knob}={change.after}: {change.warning}" for change in self.changes if change.warning)

    @property
    def caveat(self) -> str:
        """What the interval does not speak for; empty where there is none."""
        said = "The interval speaks for this run of the study on this machine: another day, machine or load may give another gain."
        return said if self.gain.enough else ""

    @property
    def scope(self) -> str:
        """What the interval speaks for, and what it does not."""
        load = f"Load: {one_line(self.load, 300)}" if self.load else ""
        return " ".join(filter(None, (self.caveat, load)))

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What the answer costs in other metrics, the worst first; none where it is the reference, because then nothing changes."""
        if not self.hands_over_best or self.reference is None or self.best is None:
            return ()
        is_paid = self.verdict is not Verdict.GAIN
        return costs(self.task.objective, self.reference.metrics, self.best.metrics, is_paid=is_paid)

    @property
    def price(self) -> str:
        """The costs in one line; empty where there are none."""
        return costs_text(self.costs)

    @property
    def contender(self) -> str:
        """What to call `best` in messages: it is the best only once the final has shown it."""
        return "best" if self.verdict in (Verdict.GAIN, Verdict.KEEPS) else "contender"

    @property
    def newly_kept_limits(self) -> tuple[tuple[LimitCheck, LimitCheck], ...]:
        """The limits that the reference breaks, each with what the best configuration does about it."""
        if self.verdict is not Verdict.KEEPS or self.reference is None or self.best is None:
            return ()
        pairs = zip(self.reference.limits, self.best.limits, strict=True)
        return tuple((before, after) for before, after in pairs if before.is_broken)

    @property
    def kept_limits_text(self) -> str:
        """`ratio 3.37 -> 3.82 (limit ratio>=3.8)`; empty where the reference keeps every limit too."""
        return ", ".join(
            f"{before.limit.metric} {show_number(before.value)} -> {show_number(after.value)} (limit {show_limit(before.limit)})"
            for before, after in self.newly_kept_limits
        )

    @property
    def change_text(self) -> str:
        """`9 -> 0` where a gain is no ratio; empty where it is one, or a side did not run."""
        values = [side.value for side in (self.reference, self.best) if side is not None and side.value is not None]
        is_ratio = self.verdict is not Verdict.GAIN or self.gain.ratio is not None
        return "" if is_ratio or len(values) < 2 else f"{show_number(values[0])} -> {show_number(values[1])}"

    @property
    def gain_text(self) -> str:
        """The ratio to the reference with its interval; as a cost where keeping the limits makes the goal worse."""
        metric, gain = self.task.objective.metric, self.gain
        if self.verdict is not Verdict.KEEPS or gain.ratio is None or not 0.0 < gain.ratio < 1.0:
            return f"{metric}: {gain}"
        ends = f" [{1 / gain.high:.3f}, {1 / gain.low:.3f}]" if gain.low is not None and gain.high is not None and gain.low > 0 else ""
        return f"{metric}: {1 / gain.ratio:.3f}x worse{ends}"

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        metric = self.task.objective.metric
        simulated = " (simulated)" if self.fidelity is Fidelity.SIMULATED else ""
        if self.verdict is Verdict.GAIN:
            return (
                f"{metric}: {self.gains_text}{simulated}"
                if self.gain.ratio is not None
                else f"{metric}{self.change_text and ' '}{self.change_text}: {self.reason}"
            )
        if self.verdict is Verdict.KEEPS:
            return f"Keeps the limits{simulated}: {self.kept_limits_text}" + (f"; {self.price}" if self.price else "")
        if self.verdict is Verdict.NO_GAIN:
            return f"No gain{simulated}: keep {self.reference_word} ({self.reason}{self._baseline_words})"
        if self.verdict is Verdict.NONE:
            return f"Nothing works: {self.reason}"
        return f"Not decided{simulated}: {self.reason}"

    @property
    def reference_word(self) -> str:
        """What to call the reference where the user is spoken to."""
        return "yours" if self.reference_name == "baseline" else "the default"

    @property
    def gains_text(self) -> str:
        """`1.210x [1.100, 1.330] over yours, 1.460x [1.350, 1.580] over the engine's default`; with one reference over the default."""
        both = f", {self.over_default} over the engine's default" if self.over_default and self.over_default.ratio is not None else ""
        return f"{self.gain} over {self.reference_word}{both}"

    @property
    def default_text(self) -> str:
        """The gain over the engine's default: the best's, or with `keep yours` the baseline's; empty without a baseline."""
        own = self.verdict not in (Verdict.GAIN, Verdict.KEEPS)
        gain, who = (self.baseline_gain, "yours") if own else (self.over_default, self.contender)
        return f"{who} over the engine's default: {gain}" if gain is not None and gain.ratio is not None else ""

    @property
    def _baseline_words(self) -> str:
        gain = self.baseline_gain
        return f"; yours is {gain} over the engine's default" if gain and gain.ratio is not None else ""

    def to_json(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "task": self.task.to_json(),
            "verdict": self.verdict.value,
            "reason": self.reason,
            "headline": self.headline,
            "warnings": list(self.warnings),
            "gives_up": list(self.gives_up),
            "next": self.next.to_json() if self.next else None,
            "gain": self.gain.to_json(),
            "costs": [cost.to_json() for cost in self.costs],
            "against": self.reference_name,
            "gain_over_default": self.over_default.to_json() if self.over_default else None,
            "baseline_gain": self.baseline_gain.to_json() if self.baseline_gain else None,
            "default": self.default.to_json() if self.default else None,
            "baseline": self.baseline.to_json() if self.baseline else None,
            "best": self.best.to_json() if self.best else None,
            "answer": self.answer.to_json() if self.answer is not None else None,
            "changes": [change.to_json() for change in self.changes],
            "finalists": [finalist.to_json() for finalist in self.finalists if finalist.side.rounds],
            "fidelity": self.fidelity.label,
            "counts": {fidelity: dict(counts) for fidelity, counts in self.counts.items()},
            "failures": [failure.to_json() for failure in self.failures],
            "spent": self.spent.to_json(),
            "noisy": list(self.noisy),
            "dirty": list(self.dirty),
            "load": self.load,
            **({"front": self.front.to_json()} if self.front else {}),
            "points": [self.points[index].to_json() for index in shown_points(self.points)],
        }


def summarise(
    task: Task,
    trials: Sequence[Trial],
    default_config: Config,
    *,
    knobs: Iterable[KnobNote] = (),
    study: str = "",
    name_of: Callable[[Config], str] | None = None,
    exact: bool = False,
    load: str = "",
    folder: str = "",
    baseline: Config | None = None,
) -> Summary:
    """Gather the result of a study from its trials; pure, so that it may be called at any moment of a running one.

    Args:
        task: What was tuned.
        trials: All trials so far, in any order; predictions of a searcher's own model are ignored.
        default_config: The engine's default.
        knobs: The space's knobs, for units, help and order.
        study: Name shown to people; taken from the trials when empty.
        name_of: Gives configurations their readable names.
        exact: Every answer is the same each time it is asked for, so that one of each tells all.
        load: How the load was produced, in one sentence.
        folder: Where the study lives, for the command that continues it.
        baseline: What the user runs today: gains are measured against it, where it runs.
    """
    history = ordered(trials)
    references = References(default_config, baseline)
    reference = references.reference(history)
    task = bind(task, history, reference)
    knobs = tuple(knobs)
    name_of = name_of or namer(reference, knobs, references.titles)
    decision = decide(task, history, default_config, name_of, exact=exact, baseline=baseline)
    exact = exact or decision.fidelity is Fidelity.SIMULATED
    return Summary(
        study=study or next((trial.study for trial in history if trial.study), ""),
        task=task,
        verdict=decision.verdict,
        reason=decision.reason,
        gain=decision.gain,
        reference=decision.reference,
        default=decision.default,
        baseline=decision.baseline,
        over_default=decision.over_default,
        baseline_gain=decision.baseline_gain,
        best=decision.best,
        answer=decision.answer,
        changes=differences(reference, decision.best.config, knobs) if decision.best else (),
        finalists=decision.finalists,
        fidelity=decision.fidelity,
        counts=_counts(history),
        failures=_failures(history),
        spent=Spent(
            trials=len(history),
            wall_s=busy_s(history),
            cost_s=sum(trial.measurement.cost_s for trial in history),
            configs=len({trial.config for trial in history}),
            parts=_parts(history),
            bounded=sum(trial.measurement.status is Status.BOUNDED for trial in history),
        ),
        noisy=tuple(trial.number for trial in history if _noisy(task, trial)),
        dirty=tuple(trial.number for trial in history if is_dirty(trial)),
        short=tuple(trial.number for trial in history if trial.measurement.conditions.get(TOO_FEW)),
        uneven=_uneven(
            history, {number for side in (decision.default, decision.baseline, decision.best) if side is not None for number in side.trials}
        ),
        points=curve(task, history),
        load=load,
        next=next_step(decision, history, task.budget, busy_s(history), folder),
        front=find_front(task, history, reference, name_of, exact=exact, title=references.titles[reference]),
    )


def _counts(trials: Iterable[Trial]) -> dict[str, Counter[str]]:
    """Trials per fidelity label and status."""
    kinds = Counter((trial.measurement.fidelity, trial.measurement.status) for trial in trials)
    counts: dict[str, Counter[str]] = {}
    for (fidelity, status), count in kinds.items():
        counts.setdefault(fidelity.label, Counter())[status.value] = count
    return counts


def _parts(trials: Iterable[Trial]) -> dict[str, float]:
    """Seconds by what trials spent them on."""
    parts: dict[str, float] = {}
    for trial in trials:
        for name, seconds in trial.measurement.spent.items():
            parts[name] = parts.get(name, 0.0) + seconds
    return {name: parts[name] for name in SPENT if name in parts}


def is_dirty(trial: Trial) -> bool:
    """Whether other work on the machine disturbed what was kept, in spite of all repeats."""
    return trial.measurement.is_disturbed


def _uneven(trials: Iterable[Trial], used: Collection[int]) -> float:
    """By how much the speed of the machines differs on which these trials ran."""
    probes: dict[str, list[float]] = {}
    for trial in trials:
        if trial.number in used and MACHINE_PROBE in trial.measurement.conditions:
            probes.setdefault(trial.measurement.machine, []).append(trial.measurement.conditions[MACHINE_PROBE])
    speeds = [median(seconds) for seconds in probes.values()]
    return max(speeds) / min(speeds) if speeds and min(speeds) > 0 else 1.0


def _noisy(task: Task, trial: Trial) -> bool:
    spread = variation(trial.measurement.samples.get(task.objective.metric, ()))
    return spread is not None and spread > NOISY_ABOVE


def _failures(trials: Sequence[Trial]) -> tuple[FailureGroup, ...]:
    groups: dict[tuple[Status, str], list[Trial]] = {}
    for trial in trials:
        if trial.measurement.status.failed:
            # The same complaint about other sizes or addresses is the same failure.
            pattern = re.sub(r"0x[0-9a-fA-F]+|\d+(\.\d+)?", "#", one_line(trial.measurement.reason, 200))
            groups.setdefault((trial.measurement.status, pattern), []).append(trial)
    result = [
        FailureGroup(
            status=status,
            reason=one_line(members[-1].measurement.reason, 200) or "no reason given",
            trials=tuple(trial.number for trial in members),
            log_tail=next((trial.measurement.log_tail for trial in reversed(members) if trial.measurement.log_tail), ""),
        )
        for (status, _), members in groups.items()
    ]
    return tuple(sorted(result, key=lambda group: (-len(group.trials), group.trials)))
