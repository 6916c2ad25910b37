"""Is it worth re-tuning? The strategies next to each other on one trace, and what follows from it, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.arrivals.arrivals import DAY_S
from autosched.tune.case import Case
from autosched.tune.explain import causes, trust, why
from autosched.tune.loop import Course, Loop, Shared
from autosched.tune.modes import MODES
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault

NOISE = 0.02
"""Ratios nearer to 1 than this cannot be told from chance on one window."""
REALISABLE = ("static", "fixed-history", "default", "paper", "selftune")
"""Strategies that know nothing of the future."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Assessment:
    """Courses by mode, in the order in which they were run."""

    case: Case
    courses: Mapping[str, Course]

    def gain(self, mode: str, over: str = "static") -> float:
        """How many times better one mode was than another."""
        metric = self.case.metric
        return self.case.gain(self.courses[over].metrics[metric], self.courses[mode].metrics[metric])

    def rows(self) -> list[dict[str, object]]:
        """One row per mode, as JSON."""
        found: list[dict[str, object]] = []
        for name, course in self.courses.items():
            found.append(
                {
                    "mode": name,
                    "what": MODES[name].words,
                    "time_s": course.metrics["time_s"],
                    "fair_share": course.metrics["fair_share"],
                    "queue_s": course.metrics["queue_s"],
                    "gain": self.gain(name) if "static" in self.courses else None,
                    "changes": course.changes,
                    "decisions": len(course.decisions),
                    "cpu_s": course.cpu_s,
                    "start": course.start.to_json(),
                    "decided": [
                        {
                            "at_s": each.at_s,
                            "predicted": each.predicted,
                            "realised": each.realised if each.realised == each.realised else None,
                        }
                        for each in course.decisions
                        if each.changed
                    ],
                }
            )
        return found

    def recommendation(self) -> str:
        """What to do, in words."""
        have = [name for name in REALISABLE if name in self.courses]
        if "static" not in have or len(have) < 2:
            return "Too few strategies were run for a recommendation: static and one other are needed."
        best = max(have, key=self.gain)
        told = []
        if self.gain(best) < 1 + NOISE:
            told.append(
                "Leave the default settings: nothing that could have been known gains more than chance"
                f" (the best, {best}, {self.gain(best):.3f} times). Settings matter when the load is near or above capacity."
            )
        elif "fixed-history" in have and self.gain(best, "fixed-history") < 1 + NOISE:
            told.append(
                f"Tune once on the past and keep the settings: {self.gain('fixed-history'):.3f} times better than the default."
                " You need not re-tune: no strategy that follows the load gains more than chance over that"
                + (f" (the best, {best}, {self.gain(best, 'fixed-history'):.3f} times)." if best != "fixed-history" else ".")
            )
        else:
            told.append(f"Use {best} ({MODES[best].words}): {self.gain(best):.3f} times better than the default settings.")
            if "fixed-history" in have:
                told.append(f"Settings tuned once on the past gain {self.gain('fixed-history'):.3f} times.")
        for name, words in (
            ("fixed-oracle", "the best fixed settings in hindsight"),
            ("future-oracle", "perfect knowledge of the next hour"),
        ):
            if name in self.courses:
                told.append(f"With {words} it would have been {self.gain(name):.3f} times.")
        told.append(f"Simulated on one window; ratios within {NOISE:.0%} are noise.")
        return " ".join(told)

    def settings(self) -> Config:
        """Of the recommended strategy, as they are at the end of the window."""
        have = [name for name in ("static", "fixed-history", "default") if name in self.courses]
        if not have:
            return self.case.space.default()
        course = self.courses[max(have, key=lambda name: self.gain(name) if "static" in self.courses else 1.0)]
        changed = [each.after for each in course.decisions if each.changed]
        return changed[-1] if changed else course.start

    def told(self) -> str:
        """Everything as a page of Markdown."""
        case = self.case
        lines = [
            "# Is it worth re-tuning?",
            "",
            f"{case.scheduler} on {case.trace.source}, {case.cluster.gpus} GPUs, {(case.to_s - case.from_s) / DAY_S:.1f} days. Simulated.",
            "",
            self.recommendation(),
            "",
            "| strategy | gain | mean time in system s | fair share | changes | CPU s | what |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, course in self.courses.items():
            gain = f"{self.gain(name):.3f}x" if "static" in self.courses else ""
            metrics = course.metrics
            cells = [name, gain, f"{metrics['time_s']:,.0f}", f"{metrics['fair_share']:.3f}", str(course.changes), f"{course.cpu_s:.1f}"]
            lines.append("| " + " | ".join([*cells, MODES[name].words]) + " |")
        for name, course in self.courses.items():
            if course.decisions:
                lines += ["", f"## {name}", "", trust(course.decisions)]
                lines += ["", *(f"- {why(each, case.from_s)}" for each in course.decisions if each.changed)][:40]
            if course.model is not None:
                lines += ["", causes(course.model.graph)]
        return "\n".join(lines) + "\n"


def assess(case: Case, modes: Sequence[str] = tuple(MODES), seed: int = 0, tell: Callable[[str], None] = lambda _: None) -> Assessment:
    """Run a case under several modes.

    Args:
        case: The cluster, its trace and the window.
        modes: Names; `static` is what the others are compared with.
        seed: Equal seeds, equal courses.
        tell: Called with the name of each mode before it is run.

    Raises:
        ConfigError: a mode is unknown.
    """
    unknown = [name for name in modes if name not in MODES]
    if unknown:
        raise ConfigError(Fault(where="assess", field="mode", value=", ".join(unknown), rule=f"must be among {', '.join(MODES)}"))
    courses, shared = {}, Shared()
    for name in modes:
        tell(name)
        courses[name] = Loop(case, replace(MODES[name]), name, seed, shared).run()
    return Assessment(case=case, courses=courses)
