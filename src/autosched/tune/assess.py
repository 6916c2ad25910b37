"""Is it worth re-tuning? The strategies next to each other on one trace, and what follows from it, in words."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.arrivals.arrivals import DAY_S
from autosched.tune.case import Case
from autosched.tune.explain import causes, moment, told_steps, trust, why
from autosched.tune.loop import Loop, ModeRun, Shared
from autosched.tune.modes import MODES
from autoscout.common.text import show
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault

NOISE = 0.02
"""Ratios nearer to 1 than this cannot be told from chance on one window."""
REALISABLE = ("static", "fixed-history", "default", "paper", "selftune")
"""Strategies that know nothing of the future."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Assessment:
    """Runs by mode, in the order in which they were run."""

    case: Case
    runs: Mapping[str, ModeRun]

    def gain(self, mode: str, over: str = "static") -> float:
        """How many times better one mode was than another."""
        metric = self.case.metric
        return self.case.gain(self.runs[over].metrics[metric], self.runs[mode].metrics[metric])

    def rows(self) -> list[dict[str, object]]:
        """One row per mode, as JSON."""
        rows: list[dict[str, object]] = []
        for name, run in self.runs.items():
            rows.append(
                {
                    "mode": name,
                    "what": MODES[name].words,
                    "time_s": run.metrics["time_s"],
                    "fair_share": run.metrics["fair_share"],
                    "queue_s": run.metrics["queue_s"],
                    **{formula.name: run.metrics[formula.name] for formula in self.case.causes.formulas},
                    "gain": self.gain(name) if "static" in self.runs else None,
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
        if self.gain(best) < 1 + NOISE:
            sentences.append(
                "Leave the default settings: nothing that could have been known gains more than chance"
                f" (the best, {best}, {self.gain(best):.3f} times). Settings matter when the load is near or above capacity."
            )
        elif "fixed-history" in have and self.gain(best, "fixed-history") < 1 + NOISE:
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
        sentences.append(f"Simulated on one window; ratios within {NOISE:.0%} are noise.")
        return " ".join(sentences)

    @property
    def recommended(self) -> str:
        """The strategy that is recommended; the simplest of those that are alike but for noise."""
        have = [name for name in REALISABLE if name in self.runs]
        if "static" not in have:
            return have[0] if have else ""
        best = max(have, key=self.gain)
        if self.gain(best) < 1 + NOISE:
            return "static"
        return "fixed-history" if "fixed-history" in have and self.gain(best, "fixed-history") < 1 + NOISE else best

    def settings(self) -> Config:
        """Of the recommended strategy, as they are at the end of the window."""
        if not self.recommended:
            return self.case.space.default()
        run = self.runs[self.recommended]
        changed = [each.after for each in run.decisions if each.changed]
        return changed[-1] if changed else run.start

    def options(self) -> str:
        """The recommended settings as other commands take them."""
        values = {name: repr(value) if isinstance(value, float) else show(value) for name, value in self.settings().items()}
        return " \\\n  ".join(f"--set {shlex.quote(f'{name}={text}')}" for name, text in values.items())

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
            "## Strategies",
            "",
            "| strategy | gain | mean time in system s | fair share | changes | CPU s | what |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, run in self.runs.items():
            gain = f"{self.gain(name):.3f}x" if "static" in self.runs else ""
            metrics = run.metrics
            cells = [name, gain, f"{metrics['time_s']:,.0f}", f"{metrics['fair_share']:.3f}", str(run.changes), f"{run.cpu_s:.1f}"]
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


def assess(case: Case, modes: Sequence[str] = tuple(MODES), seed: int = 0, tell: Callable[[str], None] = lambda _: None) -> Assessment:
    """Run a case under several modes.

    Args:
        case: The cluster, its trace and the window.
        modes: Names; `static` is what the others are compared with.
        seed: Equal seeds, equal runs.
        tell: Called with the name of each mode before it is run.

    Raises:
        ConfigError: a mode is unknown.
    """
    unknown = [name for name in modes if name not in MODES]
    if unknown:
        raise ConfigError(Fault(where="assess", field="mode", value=", ".join(unknown), rule=f"must be among {', '.join(MODES)}"))
    runs, shared = {}, Shared()
    for name in modes:
        tell(name)
        runs[name] = Loop(case, replace(MODES[name]), name, seed, shared).run()
    return Assessment(case=case, runs=runs)
