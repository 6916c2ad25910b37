"""Is it worth re-tuning? The strategies next to each other on one trace, and what follows from it, in words."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autosched.arrivals.arrivals import DAY_S, HOUR_S
from autosched.sim.policies import POLICY
from autosched.tune.case import Case
from autosched.tune.explain import causes, moment, told_steps, trust, why
from autosched.tune.loop import Loop, ModeRun, Shared
from autosched.tune.modes import MODES, Mode
from autosched.tune.who import Share, shares, table
from autoscout.common.text import show
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault

NOISE = 0.02
"""Ratios nearer to 1 than this cannot be told from chance on one window, however alike the seeds are."""
REALISABLE = ("static", "fixed-history", "default", "paper", "selftune")
"""Strategies that know nothing of the future."""
SEEDS = 3
"""With which strategies are run that draw anything and decide less often than hourly."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Assessment:
    """Runs by mode, in the order in which they were run; one run for each seed."""

    case: Case
    each: Mapping[str, Sequence[ModeRun]]

    @property
    def runs(self) -> dict[str, ModeRun]:
        """Of each mode the run in the middle, or right below it."""
        return {name: sorted(runs, key=lambda run: -self.value(run))[len(runs) // 2] for name, runs in self.each.items()}

    def value(self, run: ModeRun) -> float:
        """How good a run was; more is better."""
        return self.case.gain(1.0, run.metrics[self.case.metric])

    def gains(self, mode: str, over: str = "static") -> list[float]:
        """How many times better one mode was than the median of another, seed by seed."""
        base = self.runs[over].metrics[self.case.metric]
        return [self.case.gain(base, run.metrics[self.case.metric]) for run in self.each[mode]]

    def gain(self, mode: str, over: str = "static") -> float:
        """How many times better one mode was than another: the median."""
        return statistics.median_low(self.gains(mode, over))

    def noise(self, mode: str, over: str = "static") -> float:
        """Below which distance from 1 a gain cannot be told from chance: half of what the seeds of both differ by."""
        spreads = [(max(gains) - min(gains)) / 2 for gains in (self.gains(mode, over), self.gains(over, over))]
        return max(NOISE, *spreads)

    def is_better(self, mode: str, over: str = "static") -> bool:
        """Whether a mode gains more than chance."""
        return self.gain(mode, over) >= 1 + self.noise(mode, over)

    @property
    def load(self) -> float:
        """GPU time of the jobs that come in the window, over that of the cluster."""
        case = self.case
        return case.trace.between(case.from_s, case.to_s).gpu_seconds / (case.cluster.gpus * (case.to_s - case.from_s))

    @property
    def queue(self) -> tuple[int, float]:
        """When the window begins: jobs in the system, and the GPUs that they want over those there are."""
        case, result = self.case, next(iter(self.runs.values())).result
        here = (result.trace.submit_s < case.from_s) & ~(result.ended & (result.end_s <= case.from_s))
        return int(here.sum()), float(result.trace.gpus[here].sum()) / case.cluster.gpus

    def rows(self) -> list[dict[str, object]]:
        """One row per mode, as JSON."""
        rows: list[dict[str, object]] = []
        for name, run in self.runs.items():
            rows.append(
                {
                    "mode": name,
                    "what": MODES[name].words,
                    "seeds": len(self.each[name]),
                    "time_s": run.metrics["time_s"],
                    "fair_share": run.metrics["fair_share"],
                    "queue_s": run.metrics["queue_s"],
                    **{formula.name: run.metrics[formula.name] for formula in self.case.causes.formulas},
                    "worst_slowdown": run.metrics["worst_slowdown"],
                    "longest_queue_s": run.metrics["longest_queue_s"],
                    "gain": self.gain(name) if "static" in self.runs else None,
                    "gains": self.gains(name) if "static" in self.runs else None,
                    "changes": run.changes,
                    "decisions": len(run.decisions),
                    "cpu_s": run.cpu_s,
                    "start": run.start.to_json(),
                    "decided": [
                        {
                            "at_s": each.at_s,
                            "predicted": each.predicted,
                            "realised": each.realised if each.realised == each.realised else None,
                        }
                        for each in run.decisions
                        if each.changed
                    ],
                }
            )
        return rows

    def recommendation(self) -> str:
        """What to do, in words."""
        have = [name for name in REALISABLE if name in self.runs]
        if "static" not in have or len(have) < 2:
            return "Too few strategies were run for a recommendation: static and one other are needed."
        best = max(have, key=self.gain)
        sentences = []
        if not self.is_better(best):
            sentences.append(
                "Leave the default settings: nothing that could have been known gains more than chance"
                f" (the best, {best}, {self.gain(best):.3f} times). Settings matter when the load is near or above capacity."
            )
        elif "fixed-history" in have and not self.is_better(best, "fixed-history"):
            sentences.append(
                f"Tune once on the past and keep the settings: {self.gain('fixed-history'):.3f} times better than the default."
                " You need not re-tune: no strategy that follows the load gains more than chance over that"
                + (f" (the best, {best}, {self.gain(best, 'fixed-history'):.3f} times)." if best != "fixed-history" else ".")
            )
        else:
            sentences.append(f"Use {best} ({MODES[best].words}): {self.gain(best):.3f} times better than the default settings.")
            if "fixed-history" in have:
                sentences.append(f"Settings tuned once on the past gain {self.gain('fixed-history'):.3f} times.")
        for name, words in (
            ("fixed-oracle", "the best fixed settings in hindsight"),
            ("future-oracle", "perfect knowledge of the next hour"),
        ):
            if name in self.runs:
                sentences.append(f"With {words} it would have been {self.gain(name):.3f} times.")
        sentences.append(f"Simulated on one window; {self._chance(best)}")
        return " ".join(sentences)

    def _chance(self, mode: str) -> str:
        if len(self.each[mode]) < 2:
            return f"of {mode} one seed was run, and ratios within {self.noise(mode):.1%} are taken for noise."
        gains = self.gains(mode)
        seeds = f"over {len(gains)} seeds {mode} gained {min(gains):.3f} to {max(gains):.3f} times"
        return f"{seeds}, so ratios within {self.noise(mode):.1%} are noise."

    @property
    def recommended(self) -> str:
        """The strategy that is recommended; the simplest of those that are alike but for noise."""
        have = [name for name in REALISABLE if name in self.runs]
        if "static" not in have:
            return have[0] if have else ""
        best = max(have, key=self.gain)
        if not self.is_better(best):
            return "static"
        return "fixed-history" if "fixed-history" in have and not self.is_better(best, "fixed-history") else best

    def settings(self) -> Config:
        """Of the recommended strategy, as they are at the end of the window."""
        if not self.recommended:
            return self.case.space.default()
        run = self.runs[self.recommended]
        changed = [each.after for each in run.decisions if each.changed]
        return changed[-1] if changed else run.start

    def options(self) -> str:
        """The recommended settings as other commands take them."""
        name, settings = self.case.scheduler, self.settings()
        policy = str(settings.get(POLICY, ""))
        if policy:
            name = policy
            settings = Config({knob.removeprefix(f"{name}_"): value for knob, value in settings.items() if knob != POLICY})
        values = {name: repr(value) if isinstance(value, float) else show(value) for name, value in settings.items()}
        chosen = [f"--scheduler {name}"] if policy else []
        return " \\\n  ".join([*chosen, *(f"--set {shlex.quote(f'{name}={text}')}" for name, text in values.items())])

    def situation(self) -> str:
        """What the window is like: it decides how much settings matter."""
        jobs, demand = self.queue
        begun = f"it begins with {jobs:,} jobs in the system, which want {demand:.2f} times the GPUs there are"
        return f"The jobs of the window are {self.load:.2f} times what the cluster can do in it; {begun}."

    @property
    def whom(self) -> list[Share]:
        """What the recommended strategy changes for whom; nothing where nothing is to be changed."""
        if self.recommended in ("", "static"):
            return []
        return shares(self.case, self.runs["static"], self.runs[self.recommended])

    def _whom(self) -> list[str]:
        groups = self.whom
        return (
            ["## What changes for whom", "", f"Under {self.recommended}, next to the settings in force:", "", *table(groups), ""]
            if groups
            else []
        )

    def shown(self, mode: str) -> str:
        """The gain of a mode, with its range over seeds."""
        if "static" not in self.each:
            return ""
        gains = self.gains(mode)
        return f"{self.gain(mode):.3f}x" + (f" ({min(gains):.3f}-{max(gains):.3f})" if len(gains) > 1 else "")

    def told(self, more: Sequence[str] = ()) -> str:
        """Everything as a page of Markdown.

        Args:
            more: Lines below the recommended settings.
        """
        case = self.case
        lines = [
            "# Is it worth re-tuning?",
            "",
            f"{case.scheduler} on {case.trace.source}, {case.cluster.gpus} GPUs, {(case.to_s - case.from_s) / DAY_S:.1f} days. Simulated.",
            self.situation(),
            "",
            self.recommendation(),
            "",
            "## Recommended settings",
            "",
            "For `autoscout sched simulate`, `compare` and `tune`:",
            "",
            "```bash",
            self.options(),
            "```",
            "",
            *([*more, ""] if more else []),
            *self._whom(),
            "## Strategies",
            "",
            "| strategy | gain | seeds | mean time in system s | fair share | changes | CPU s | what |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for name, run in self.runs.items():
            metrics = run.metrics
            cells = [
                name,
                self.shown(name),
                str(len(self.each[name])),
                f"{metrics['time_s']:,.0f}",
                f"{metrics['fair_share']:.3f}",
                str(run.changes),
                f"{run.cpu_s:.1f}",
            ]
            lines.append("| " + " | ".join([*cells, MODES[name].words]) + " |")
        for name, run in self.runs.items():
            if run.decisions:
                lines += ["", f"## {name}", "", trust(run.decisions)]
                lines += ["", *(f"- {why(each, case.from_s)}" for each in run.decisions if each.changed)][:40]
                first = next((each for each in run.decisions if each.changed), run.decisions[0])
                lines += ["", f"How a decision is made, at {moment(first.at_s, case.from_s)}:", "", told_steps(first)]
            if run.model is not None:
                lines += ["", causes(run.model.graph)]
        return "\n".join(lines) + "\n"


def seeds_of(mode: Mode, seeds: int) -> int:
    """How many seeds tell what chance does: the published default draws nothing, and hourly strategies take minutes each."""
    draws_nothing = mode.start == "default" and not np.isfinite(mode.every_s)
    return 1 if draws_nothing or mode.every_s <= HOUR_S else seeds


def assess(
    case: Case,
    modes: Sequence[str] = tuple(MODES),
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
    seeds: int = 1,
    keep: Callable[[Assessment], None] = lambda _: None,
) -> Assessment:
    """Run a case under several modes.

    Args:
        case: The cluster, its trace and the window.
        modes: Names; `static` is what the others are compared with.
        seed: Equal seeds, equal runs.
        tell: Called with the name of each mode before it is run.
        seeds: How many, from `seed` on; see `seeds_of`.
        keep: Called with what there is after each mode, so that nothing is lost when a later one is interrupted.

    Raises:
        ConfigError: a mode is unknown.
    """
    unknown = [name for name in modes if name not in MODES]
    if unknown:
        raise ConfigError(Fault(where="assess", field="mode", value=", ".join(unknown), rule=f"must be among {', '.join(MODES)}"))
    runs: dict[str, list[ModeRun]] = {}
    shared = Shared()
    for name in modes:
        for number in range(seed, seed + seeds_of(MODES[name], seeds)):
            tell(name if number == seed else f"{name}, seed {number}")
            runs.setdefault(name, []).append(Loop(case, replace(MODES[name]), name, number, shared).run())
        keep(Assessment(case=case, each=dict(runs)))
    return Assessment(case=case, each=runs)
