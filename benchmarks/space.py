"""How fast spaces open, answer and propose: `python -m benchmarks.space [--json] [--limit-s 30]`.

Beside AutoScout: ConfigSpace, which draws from ranges and conditions and must throw away what breaks a constraint, and
python-constraint, which finds one solution by backtracking or lists them all. Each rival gets `--limit-s` seconds a space.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from autoscout.core.clock import RealClock
from autoscout.core.config import Config
from autoscout.space import Space
from autoscout_lab.configspace import write_configspace
from benchmarks._space_cases import CASES, Case

CLOCK = RealClock()
MOST_LISTED = 1_000_000


@contextmanager
def timed(into: dict[str, float], name: str) -> Iterator[None]:
    start = CLOCK.span_s()
    yield
    into[name] = CLOCK.span_s() - start


def median_s(function: Callable[[], Any], repeats: int) -> float:
    spans = []
    for _ in range(repeats):
        start = CLOCK.span_s()
        function()
        spans.append(CLOCK.span_s() - start)
    return statistics.median(spans)


def autoscout(case: Case, proposals: int) -> dict[str, Any]:
    found: dict[str, Any] = {"open_ms": 1e3 * median_s(case.make, 5)}
    space = case.make()
    found["raw_points"] = math.prod(len(knob.values) for knob in space.knobs.values())
    rng = np.random.default_rng(0)
    start = CLOCK.span_s()
    case.make().sample(rng)
    found["first_ms"] = 1e3 * (CLOCK.span_s() - start)
    cold, walks = walk_all(space, random.Random(0))
    warm = [again(space, walks) for _ in range(5)]
    found |= {"choices_cold_us": 1e6 * cold, "choices_warm_us": 1e6 * statistics.median(warm)}
    start = CLOCK.span_s()
    count = space.count()
    found |= {"count_ms": 1e3 * (CLOCK.span_s() - start), "valid": count.value, "exact": count.exact}
    start = CLOCK.span_s()
    drawn = [space.sample(rng) for _ in range(proposals)]
    found["proposals_per_s"] = proposals / (CLOCK.span_s() - start)
    if count.exact and count.value <= MOST_LISTED:
        start = CLOCK.span_s()
        listed = sum(1 for _ in case.make().enumerate())
        found["list_all_ms"] = 1e3 * (CLOCK.span_s() - start)
        assert listed == count.value
    assert all(config is not None and not space.check(config) for config in drawn[:200])
    return found


def walk_all(space: Space, chance: random.Random) -> tuple[float, list[list[tuple[str, Config]]]]:
    """Random walks through random legal orders: seconds a call of `choices`, and the calls to be made again."""
    walks, spent, calls = [], 0.0, 0
    for _ in range(20):
        partial, walk = Config(), []
        while names := space.undecided(partial):
            ready = [name for name in names if not space.ancestors(name) & set(names)]
            name = chance.choice(ready)
            walk.append((name, partial))
            start = CLOCK.span_s()
            choices = space.choices(name, partial)
            spent += CLOCK.span_s() - start
            calls += 1
            partial = partial.extend({name: chance.choice(choices)})
        walks.append(walk)
    return spent / calls, walks


def again(space: Space, walks: list[list[tuple[str, Config]]]) -> float:
    start = CLOCK.span_s()
    for walk in walks:
        for name, partial in walk:
            space.choices(name, partial)
    return (CLOCK.span_s() - start) / sum(map(len, walks))


def configspace(case: Case, limit_s: float) -> dict[str, Any]:
    """Ranges and conditions told to ConfigSpace, constraints by throwing away."""
    from ConfigSpace import ConfigurationSpace

    data = json.loads(write_configspace(case.make()).text)
    data |= {"forbiddens": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "space.json"
        path.write_text(json.dumps(data))
        spans: dict[str, float] = {}
        with timed(spans, "open"):
            space = ConfigurationSpace.from_json(path)
    space.seed(0)
    drawn = kept = 0
    first_s = math.nan
    start = CLOCK.span_s()
    while CLOCK.span_s() - start < limit_s and kept < 2000:
        for configuration in space.sample_configuration(500):
            drawn += 1
            if case.valid(dict(configuration)):
                kept += 1
                first_s = first_s if kept > 1 else CLOCK.span_s() - start
    spent = CLOCK.span_s() - start
    return {
        "open_ms": 1e3 * spans["open"],
        "first_ms": 1e3 * (spans["open"] + first_s) if kept else None,
        "proposals_per_s": kept / spent,
        "accepted": kept / drawn,
        "drawn": drawn,
    }


def clauses(case: Case, limit_s: float) -> dict[str, Any] | None:
    """Constraints told to ConfigSpace too, as the forbidden clauses of our own export; None when they cannot be said."""
    from ConfigSpace import ConfigurationSpace

    export = write_configspace(case.make())
    if export.lost:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "space.json"
        path.write_text(export.text)
        spans: dict[str, float] = {}
        with timed(spans, "open"):
            space = ConfigurationSpace.from_json(path)
    space.seed(0)
    kept, first_s = 0, math.nan
    start = CLOCK.span_s()
    while CLOCK.span_s() - start < limit_s and kept < 2000:
        kept += len(space.sample_configuration(20))
        first_s = first_s if kept > 20 else CLOCK.span_s() - start
    spent = CLOCK.span_s() - start
    return {"open_ms": 1e3 * spans["open"], "first_ms": 1e3 * (spans["open"] + first_s), "proposals_per_s": kept / spent}


def python_constraint(case: Case, everything: bool) -> dict[str, Any]:
    """One solution, or all of them; an inactive knob holds None."""
    from constraint import OptimizedBacktrackingSolver, Problem

    start = CLOCK.span_s()
    problem = Problem(OptimizedBacktrackingSolver())
    for name, knob in case.make().knobs.items():
        problem.addVariable(name, [*knob.values, *([None] if name in case.activity else [])])
    for name, (active, reads) in case.activity.items():
        problem.addConstraint(lambda value, *others, active=active: (value is not None) == active(*others), (name, *reads))
    for text in case.texts:
        problem.addConstraint(text)
    for rule, reads in () if case.texts else case.rules:
        problem.addConstraint(rule, reads)
    solutions = len(problem.getSolutions()) if everything else len([problem.getSolution()])
    return {"ms": 1e3 * (CLOCK.span_s() - start), "valid": solutions}


def in_time(name: str, what: str, limit_s: float) -> dict[str, Any] | None:
    """python-constraint in a process of its own, so that it can be stopped."""
    command = [sys.executable, "-m", "benchmarks.space", "--rival", name, "--what", what]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=True)
    except subprocess.TimeoutExpired:
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(limit_s: float, proposals: int) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    for name, make in CASES.items():
        case = make()
        ours = autoscout(case, proposals)
        listed = in_time(name, "all", limit_s)
        found: dict[str, Any] = {
            "title": case.name,
            "autoscout": ours,
            "configspace": configspace(case, limit_s),
            "configspace_clauses": clauses(case, limit_s),
            "python_constraint": {"first": in_time(name, "one", limit_s), "all": listed},
        }
        if listed is not None and ours["exact"]:
            assert listed["valid"] == ours["valid"], "two ways of counting must agree"
        rivals = [found[key] for key in ("configspace", "configspace_clauses") if found[key] is not None]
        best = max(rival["proposals_per_s"] for rival in rivals)
        found["proposals_ratio"] = ours["proposals_per_s"] / best if best else None
        if "list_all_ms" in ours:
            found["list_ratio"] = (listed["ms"] if listed else 1e3 * limit_s) / ours["list_all_ms"]
        results[name] = found
    return results


def number(value: float | None, missing: str = "-") -> str:
    return missing if value is None else f"{value:,.1f}"


def show(results: dict[str, dict[str, Any]], limit_s: float) -> None:
    console = Console(width=160)
    late = f"> {1e3 * limit_s:,.0f}"
    for found in results.values():
        ours, draws, clauses_, search = (found[key] for key in ("autoscout", "configspace", "configspace_clauses", "python_constraint"))
        count = f"{ours['valid']:,}" if ours["exact"] else f"about {ours['valid']:.2g}"
        table = Table(title=f"{found['title']}: {ours['raw_points']:.2g} raw points, {count} valid ({ours['count_ms']:.1f} ms to count)")
        for column in ("", "open ms", "first valid ms", "list all ms", "proposals/s", "choices cold us", "choices warm us", "note"):
            table.add_column(column, justify="left" if column in ("", "note") else "right")
        keys = ("open_ms", "first_ms", "list_all_ms", "proposals_per_s", "choices_cold_us", "choices_warm_us")
        table.add_row("AutoScout", *(number(ours.get(key)) for key in keys), "every proposal valid, uniform")
        note = f"{draws['accepted']:.2g} of {draws['drawn']:,} draws valid"
        first = number(draws["first_ms"], late)
        table.add_row("ConfigSpace, rejection", number(draws["open_ms"]), first, "-", number(draws["proposals_per_s"]), "-", "-", note)
        if clauses_ is None:
            table.add_row("ConfigSpace, clauses", *"------", "cannot express the constraints")
        else:
            cells = (number(clauses_["open_ms"]), number(clauses_["first_ms"]), "-", number(clauses_["proposals_per_s"]), "-", "-")
            table.add_row("ConfigSpace, clauses", *cells, "clauses tabulated by our export")
        one, everything = (number(search[key] and search[key]["ms"], late) for key in ("first", "all"))
        table.add_row("python-constraint", "-", one, everything, "-", "-", "-", "backtracking from the first value on")
        console.print(table)
        ratio = found["proposals_ratio"]
        words = [f"{ratio:,.1f} x the valid proposals of ConfigSpace" if ratio else "ConfigSpace found no valid proposal"]
        if "list_ratio" in found:
            words.append(f"lists all {'' if search['all'] else 'more than '}{found['list_ratio']:,.1f} x as fast as python-constraint")
        console.print(f"  {'; '.join(words)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast spaces open, answer and propose.")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--limit-s", type=float, default=30.0, help="seconds each rival gets on each space")
    parser.add_argument("--proposals", type=int, default=5000, help="proposals drawn by AutoScout")
    parser.add_argument("--rival", choices=sorted(CASES), help=argparse.SUPPRESS)
    parser.add_argument("--what", choices=["one", "all"], default="all", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rival:
        print(json.dumps(python_constraint(CASES[given.rival](), given.what == "all")))
        return
    results = measure(given.limit_s, given.proposals)
    show(results, given.limit_s)
    if given.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
