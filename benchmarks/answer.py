"""How much of what is handed over is there by chance: `python -m benchmarks.answer [--studies N] [--first SEED] [--json] [--write]`.

A function with two knobs that matter and eight that change nothing, measured with 2 % noise. Seeded studies, with and without
simplifying the winner before the final. Counted are the studies whose answer changes an inert knob, and how much slower (without
noise) the answer is than the best configuration that the search tried. The page has seeds from 0; a change of method is tried on others.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.analysis.verdict import Verdict
from autoscout.backends.function import FunctionBackend
from autoscout.core.config import Config
from autoscout.core.origin import Phase
from autoscout.core.seeds import stream
from autoscout.space.simple import simple_space
from autoscout.study.assemble import run
from autoscout.study.campaign import build_campaign
from autoscout.study.outcome import Outcome
from autoscout.study.setup import prepare

STUDIES, TRIALS, NOISE = 200, 40, 0.02
LEVELS = 5
MATTER = {"a": (1.0, 0.85, 0.7, 0.6, 0.75), "b": (1.0, 0.9, 0.8, 0.85, 0.95)}
"""Factor of the time at each level; together at best 0.48 of the default's, a gain of 2.08x."""
INERT = tuple(f"inert_{number}" for number in range(8))
PAGE = Path(__file__).parent.parent / "docs" / "lab" / "results" / "answer.md"


@dataclass(frozen=True)
class Row:
    """One study.

    Attributes:
        inert: Inert knobs that the answer changes.
        measured: Share of the changed knobs whose contribution was measured.
        loss: How much slower the answer is than the best configuration tried, without noise.
        extra: Trials after the search.
        gain: Whether a gain was shown.
        holds: Whether the interval of the gain contains the true one.
    """

    inert: int
    measured: float
    loss: float
    extra: int
    gain: bool
    holds: bool


def truth(config: Config) -> float:
    """Seconds without noise."""
    value = 10.0
    for name, factors in MATTER.items():
        value *= factors[int(str(config[name]))]
    return value


def noisy(seed: int) -> Callable[[Config], float]:
    """The function as it is measured; every call draws anew."""
    draw = stream(seed, "benchmarks", "answer")
    return lambda config: truth(config) * float(max(0.5, 1.0 + NOISE * draw.standard_normal()))


def tuned(seed: int, simplify: bool) -> Outcome:
    """One study in this process; nothing is kept."""
    space = simple_space({name: range(LEVELS) for name in (*MATTER, *INERT)})
    data = {
        "system": "function",
        "workload": {"metrics": ["time_s"], "deterministic": False},
        "goal": {"metric": "time_s", "direction": "minimize"},
        "budget": {"trials": TRIALS},
        "search": {"seed": seed, "warm_start": False},
        "simulate": {"simulator": "none"},
        "measure": {"dirty_repeats": 0},
        "finals": {"simplify": simplify},
    }
    return run(prepare(build_campaign(data, where="benchmarks.answer"), FunctionBackend(space, noisy(seed))))


def row(outcome: Outcome) -> Row:
    """What came of one study."""
    answer = outcome.summary.answer
    assert answer is not None
    default = outcome.setup.default
    search = [trial for trial in outcome.trials if trial.proposal.origin.phase is Phase.SEARCH]
    best = min(truth(trial.config) for trial in search)
    inert = sum(answer[name] != default[name] for name in INERT)
    summary, known = outcome.summary, outcome.contributions
    low, high = summary.gain.low or 0.0, summary.gain.high or 0.0
    return Row(
        inert=inert,
        measured=statistics.mean(one.source == "measured" for one in known) if known else 1.0,
        loss=truth(answer) / best - 1.0,
        extra=len(outcome.trials) - len(search),
        gain=summary.verdict is Verdict.GAIN,
        holds=low <= truth(default) / truth(answer) <= high,
    )


def figures(rows: list[Row]) -> dict[str, Any]:
    """The figures of a run of studies."""
    return {
        "studies": len(rows),
        "share_with_inert": sum(row.inert > 0 for row in rows) / len(rows),
        "mean_inert": statistics.mean(row.inert for row in rows),
        "mean_measured": statistics.mean(row.measured for row in rows),
        "median_loss": statistics.median(row.loss for row in rows),
        "mean_loss": statistics.mean(row.loss for row in rows),
        "gains": sum(row.gain for row in rows) / len(rows),
        "intervals_that_hold": sum(row.holds for row in rows) / len(rows),
        "mean_trials_after_the_search": statistics.mean(row.extra for row in rows),
    }


def page(found: dict[str, dict[str, Any]]) -> str:
    """The figures as a page of results."""
    lines = [
        "# What is handed over by chance",
        "",
        f"A function with two knobs that matter (at best 2.08x together) and eight that change nothing, {LEVELS} values each,",
        f"{NOISE:.0%} noise; {TRIALS} trials of the default searcher, then the final, with and without simplifying the winner first.",
        f"{found['simplified']['studies']} seeded studies: `python -m benchmarks.answer --write`.",
        "",
        "| | without | with |",
        "|---|---|---|",
    ]
    titles = {
        "share_with_inert": ("answers that change an inert knob", "{:.1%}"),
        "mean_inert": ("inert knobs changed per answer, mean", "{:.2f}"),
        "mean_measured": ("changed knobs whose contribution was measured, mean", "{:.1%}"),
        "median_loss": ("slower than the best configuration tried, median", "{:.2%}"),
        "mean_loss": ("the same, mean", "{:.2%}"),
        "gains": ("studies that showed a gain", "{:.1%}"),
        "intervals_that_hold": ("95 % intervals that contain the true gain", "{:.1%}"),
        "mean_trials_after_the_search": ("trials after the search, mean", "{:.1f}"),
    }
    for name, (title, form) in titles.items():
        lines.append(f"| {title} | {form.format(found['plain'][name])} | {form.format(found['simplified'][name])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the studies and print or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--first", type=int, default=0, help="seed of the first study")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/lab/results/answer.md")
    given = parser.parse_args()
    found = {
        name: figures([row(tuned(seed, simplify)) for seed in range(given.first, given.first + given.studies)])
        for name, simplify in {"plain": False, "simplified": True}.items()
    }
    if given.write:
        PAGE.write_text(page(found), encoding="utf-8")
    print(json.dumps(found, indent=2) if given.json else page(found))


if __name__ == "__main__":
    main()
