"""How right answers are: `python -m benchmarks.answer [--studies N] [--first SEED] [--only FAMILY ...] [--json] [--write]`.

Seeded studies of functions whose truth is known (`benchmarks/_answer_families.py`), each a whole study in this process: search, simplify,
final, verdict. Counted is what the answer claims against what is true. Some families served to develop the method; the others, with
knobs, effect sizes and seeds of their own, are only reported. Seeds from 0 are reported: a change of method is tried on others.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.analysis.contributions import Contribution
from autoscout.analysis.verdict import Verdict
from autoscout.backends.function import FunctionBackend
from autoscout.core.config import Config
from autoscout.core.origin import Phase
from autoscout.space.simple import simple_space
from autoscout.study.assemble import run
from autoscout.study.campaign import build_campaign
from autoscout.study.outcome import Outcome
from autoscout.study.setup import prepare
from benchmarks._answer_families import DEVELOPMENT, REPORTED, Family

STUDIES = 100
PAGE = Path(__file__).parent.parent / "docs" / "results" / "answer.md"
TIE = 1e-6
"""Ratios nearer to 1 than this are 1."""
Z = 1.96


@dataclass(frozen=True)
class Row:
    """One study.

    Attributes:
        verdict: What was claimed.
        is_false_gain: A gain where there is none, or of an answer that breaks a limit; limits kept by an answer that breaks one, or
            where the default keeps them, too.
        is_false_none: Nothing works, where something does.
        inert: Knobs without effect that the answer changes.
        share: Goal of the best possible configuration that the answer reaches; none for one that breaks a limit.
        holds: Whether the interval of the gain contains the true one; None without an interval.
        known: Shown contributions; of them, how many have an interval with the truth in it.
        known_right: See `known`.
        product: Product of the contributions over the headline; None where not every change has one.
        extra: Trials after the search.
    """

    verdict: Verdict
    is_false_gain: bool
    is_false_none: bool
    inert: int
    share: float
    holds: bool | None
    known: int
    known_right: int
    product: float | None
    extra: int


def tuned(family: Family, seed: int) -> Outcome:
    """One study in this process; nothing is kept."""
    data = {
        "system": "function",
        "workload": {"metrics": list(family.base), "deterministic": False},
        "goal": {"metric": family.metric, "direction": "maximize" if family.maximize else "minimize", "slo": list(family.limits)},
        "budget": {"trials": family.trials},
        "search": {"seed": seed, "warm_start": False},
        "simulate": {"simulator": "none"},
        "measure": {"dirty_repeats": 0},
    }
    space = simple_space({knob: range(levels) for knob, levels in family.levels.items()})
    return run(prepare(build_campaign(data, where="benchmarks.answer"), FunctionBackend(space, family.measured(seed))))


def row(family: Family, outcome: Outcome) -> Row:
    """What came of one study."""
    summary, default = outcome.summary, outcome.setup.default
    answer = summary.answer or default
    best = family.best()
    keeps, claims = family.keeps(answer), summary.verdict in (Verdict.GAIN, Verdict.KEEPS)
    is_needless = summary.verdict is Verdict.KEEPS and family.keeps(default)
    no_gain = summary.verdict is Verdict.GAIN and family.gain(answer, default) <= 1.0 + TIE
    gain = summary.gain
    truth = family.gain(summary.best.config, default) if summary.best else 1.0
    known = [one for one in outcome.contributions if one.ratio is not None] if summary.hands_over_best else []
    right = [one for one in known if one.low is not None and one.high is not None]
    right = [one for one in right if (one.low or 0.0) <= contributed(family, answer, one) <= (one.high or math.inf)]
    whole = summary.verdict is Verdict.GAIN and bool(known) and len(known) == len(summary.changes) and gain.ratio is not None
    return Row(
        verdict=summary.verdict,
        is_false_gain=claims and (not keeps or no_gain or is_needless),
        is_false_none=summary.verdict is Verdict.NONE and best is not None,
        inert=sum(answer[knob] != default[knob] for knob in family.idle),
        share=family.gain(answer, best) if keeps and best is not None else 0.0,
        holds=gain.low - TIE <= truth <= gain.high + TIE if gain.low is not None and gain.high is not None else None,
        known=len(known),
        known_right=len(right),
        product=math.prod(one.ratio or 1.0 for one in known) / gain.ratio if whole and gain.ratio else None,
        extra=sum(trial.proposal.origin.phase is not Phase.SEARCH for trial in outcome.trials),
    )


def contributed(family: Family, answer: Config, one: Contribution) -> float:
    """What a change truly contributes to the goal, or to the metric of a limit."""
    without = {**answer, one.knob: 0}
    if not one.metric:
        return family.gain(answer, without)
    with_it, before = family.truth(answer)[one.metric], family.truth(without)[one.metric]
    return before / with_it if any(limit.startswith(f"{one.metric}<") for limit in family.limits) else with_it / before


def share_of(rows: Sequence[Any], is_so: Callable[[Any], bool]) -> dict[str, Any]:
    """How many of these, as a share with Wilson's 95 % interval."""
    count, total = sum(map(is_so, rows)), len(rows)
    if not total:
        return {"count": 0, "of": 0, "share": None, "low": None, "high": None}
    share, square = count / total, Z**2 / total
    middle = (share + square / 2) / (1 + square)
    reach = Z * math.sqrt(share * (1 - share) / total + square / (4 * total)) / (1 + square)
    return {"count": count, "of": total, "share": share, "low": max(0.0, middle - reach), "high": min(1.0, middle + reach)}


def figures(family: Family, rows: Sequence[Row]) -> dict[str, Any]:
    """The figures of a family."""
    known = [is_right for row in rows for is_right in [True] * row.known_right + [False] * (row.known - row.known_right)]
    products = [row.product for row in rows if row.product is not None]
    return {
        "family": family.name,
        "reported_only": family.reported,
        "text": family.text,
        "noise": str(family.disturbance),
        "trials": family.trials,
        "studies": len(rows),
        "verdicts": {verdict.value: count for verdict in Verdict if (count := sum(row.verdict is verdict for row in rows))},
        "false_gains": share_of(rows, lambda row: row.is_false_gain),
        "false_nothing_works": share_of(rows, lambda row: row.is_false_none),
        "with_inert": share_of(rows, lambda row: row.inert > 0),
        "median_share_of_best": statistics.median(row.share for row in rows),
        "mean_share_of_best": statistics.mean(row.share for row in rows),
        "intervals_that_hold": share_of([row for row in rows if row.holds is not None], lambda row: row.holds),
        "contributions_that_hold": share_of(known, bool),
        "median_product_over_headline": statistics.median(products) if products else None,
        "mean_trials_after_the_search": statistics.mean(row.extra for row in rows),
    }


def shown(share: dict[str, Any]) -> str:
    """A share with its interval."""
    if share["share"] is None:
        return "-"
    return f"{share['share']:.0%} [{share['low']:.0%}, {share['high']:.0%}]"


def table(some: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each family."""
    head = (
        'family | noise | false gains | false "nothing works" | with an idle knob | share of the best, median (mean) | intervals that hold'
    )
    lines = [f"| {head} | contributions that hold | trials: search + after |", "|---|---|---|---|---|---|---|---|---|"]
    for each in some:
        shares = [shown(each[name]) for name in ("false_gains", "false_nothing_works", "with_inert")]
        best = f"{each['median_share_of_best']:.3f} ({each['mean_share_of_best']:.3f})"
        holds = [shown(each[name]) for name in ("intervals_that_hold", "contributions_that_hold")]
        trials = f"{each['trials']} + {each['mean_trials_after_the_search']:.0f}"
        lines.append(f"| {' | '.join([each['family'], each['noise'], *shares, best, *holds, trials])} |")
    return lines


def page(results: Sequence[dict[str, Any]]) -> str:
    """The figures as a page of results."""
    parts = [[each for each in results if each["reported_only"]], [each for each in results if not each["reported_only"]]]
    lines = ["# How right answers are", ""]
    lines += [
        f"Seeded studies of functions whose truth is known, {STUDIES} of each family: the default searcher, then simplify and final.",
        "In brackets are 95 % intervals of the shares (Wilson). `python -m benchmarks.answer --write` writes this page.",
        "",
        '- *False gains*: a gain where there is none, or an answer that breaks a limit, or a limit "kept" that the default keeps, too.',
        "- *With an idle knob*: the answer changes a knob that does nothing.",
        "- *Share of the best*: the answer's goal against the best configuration of the space that truly keeps the limits.",
        "- *Intervals that hold*: 95 % intervals of the gain, and of the contributions of knobs, that contain the truth.",
    ]
    titles = ("Families that were only reported", "Families that served to develop the method")
    for title, some in ((title, some) for title, some in zip(titles, parts, strict=True) if some):
        lines += ["", f"## {title}", "", *table(some), "", *(f"- *{each['family']}*: {each['text']}; {_verdicts(each)}." for each in some)]
    return "\n".join(lines) + "\n"


def _verdicts(each: dict[str, Any]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in each["verdicts"].items())


def main() -> None:
    """Run the studies and print or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=STUDIES, help="of each family")
    parser.add_argument("--first", type=int, default=0, help="seed of the first study")
    parser.add_argument("--only", nargs="*", default=[], help="these families")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/results/answer.md")
    given = parser.parse_args()
    families = [family for family in (*REPORTED, *DEVELOPMENT) if not given.only or family.name in given.only]
    seeds = range(given.first, given.first + given.studies)
    results = [figures(family, [row(family, tuned(family, seed)) for seed in seeds]) for family in families]
    if given.write:
        PAGE.write_text(page(results), encoding="utf-8")
    print(json.dumps(results, indent=2) if given.json else page(results))


if __name__ == "__main__":
    main()
