"""How much of a front few trials find: `python -m benchmarks.pareto [--seeds N] [--first SEED] [--json] [--write]`.

Two goals on two virtual serving clusters (simulated, 2 % noise) and on recorded tables (measured on an H200): `hybrid`, the searcher of
Optuna's multi-objective TPE, Optuna's NSGA-II, and random configurations, with the same number of trials. Counted is the hypervolume of
what was tried, by noiseless values, as a share of that of the true front. The page has seeds from 0; a change of method is tried on
others. Needs Optuna: `pip install 'autoscout[optuna]'`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.backends.virtual import VirtualBackend
from autoscout.common.front import Floats, hypervolume, on_front
from autoscout.common.stats import standard_error, student_quantile
from autoscout.core import plugins
from autoscout.core.config import Config, Value
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Goal, Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.evaluate.virtual import VirtualEvaluator, VirtualOptions
from autoscout.simulators.serving import ServingModel
from autoscout.space import Space
from autoscout_lab.bench.tables import find_tables, load_table

SEEDS, TRIALS, NOISE, SURPRISE = 20, 40, 0.02, 0.02
MARKS = (10, 20, 40)
"""Trials after which the share is read."""
BEYOND = 1.1
"""Reference: this share of the way from the best to the worst value on the true front, in each goal and by ratios."""
POPULATION = 10
"""Of NSGA-II: the default of 50 would draw all trials at random."""
TABLES = Path(__file__).parent / "tables"
PAGE = Path(__file__).parent.parent / "docs" / "lab" / "results" / "pareto.md"
OUR_SEARCHERS = {"hybrid": "hybrid", "Optuna TPE": "optuna-tpe", "random": "random"}
NSGA = "Optuna NSGA-II"
METHODS = ("hybrid", "Optuna TPE", NSGA, "random")


@dataclass(frozen=True)
class Problem:
    """Two goals over a space whose every answer is known.

    Attributes:
        task: With its goals.
        space: What may be chosen.
        answers: By configuration; empty where it fails.
        noise: Relative standard deviation of a measurement.
    """

    task: Task
    space: Space
    answers: Mapping[Config, Mapping[str, float]]
    noise: float = 0.0

    def measured(self, config: Config, seed: int) -> Measurement:
        """What a trial reports."""
        truth = self.answers[config]
        if not truth:
            return Measurement(status=Status.OOM_START, reason="recorded as a failure")
        draw = stream(seed, "pareto", config.key)
        noisy = {name: value * math.exp(self.noise * float(draw.standard_normal())) for name, value in sorted(truth.items())}
        return Measurement(status=Status.OK, metrics=noisy)

    def losses(self, config: Config) -> tuple[float, ...]:
        """Without noise."""
        return self.task.objective.losses(Measurement(status=Status.OK, metrics=self.answers[config]))


def virtual(latency: str, **workload: float) -> Problem:
    """A serving cluster that is not there: throughput against a latency."""
    backend = VirtualBackend()
    task = backend.task({"workload": dict(workload), "goal": {"metrics": ["output_throughput", latency]}})
    space = backend.space(task)
    configs = list(space.enumerate())
    cluster = VirtualEvaluator(ServingModel(), task, VirtualOptions(noise=0.0, surprise=SURPRISE))
    answers = cluster.evaluate([Proposal(config=config) for config in configs])
    known = {
        config: {goal.metric: answer.metrics[goal.metric] for goal in task.objective.goals} if answer.ok else {}
        for config, answer in zip(configs, answers, strict=True)
    }
    return Problem(task, space, known, NOISE)


def two_tables(one: str, other: str) -> Problem:
    """One configuration for two shapes: what is fast on the one may be slow on the other."""
    first, second = (load_table(find_tables(str(TABLES), [name])[0]) for name in (one, other))
    goals = Objective(metric="first_ms", also=(Goal(metric="second_ms"),))
    answers: dict[Config, dict[str, float]] = {}
    for row, config in enumerate(first.configs):
        there = second.row(config)
        values = (first.losses[row], math.inf if there is None else second.losses[there])
        answers[config] = dict(zip(("first_ms", "second_ms"), map(float, values), strict=True)) if np.isfinite(values).all() else {}
    return Problem(Task(system="table", objective=goals), first.space, answers)


def decoding() -> Problem:
    """A step of decoding, by batch: sequences per second against milliseconds per step."""
    table = load_table(find_tables(str(TABLES), ["torch_decoding"])[0])
    goals = Objective(metric="sequences_per_s", direction=Direction.MAXIMIZE, also=(Goal(metric="step_ms"),))
    answers = {}
    for row, config in enumerate(table.configs):
        step_ms = float(table.losses[row]) * int(str(config["batch"]))  # the table holds milliseconds per sequence
        answers[config] = {"sequences_per_s": 1000.0 / float(table.losses[row]), "step_ms": step_ms} if math.isfinite(step_ms) else {}
    return Problem(Task(system="table", objective=goals), table.space, answers)


PROBLEMS: dict[str, tuple[str, Callable[[], Problem]]] = {
    "virtual_clients": (
        "virtual cluster with 64 clients: output_throughput and p95_ttft_ms (simulated)",
        lambda: virtual("p95_ttft_ms", concurrency=64),
    ),
    "virtual_long": (
        "virtual cluster with long prompts: output_throughput and p95_tpot_ms (simulated)",
        lambda: virtual("p95_tpot_ms", input_tokens=4096, output_tokens=128, concurrency=32),
    ),
    "decoding": ("decoding step on an H200: sequences per second and milliseconds per step (recorded)", decoding),
    "matmul": (
        "matrix product on an H200: milliseconds with 128 rows and with 2048 rows (recorded)",
        lambda: two_tables("triton_matmul_128", "triton_matmul_2048"),
    ),
}
"""Name -> title and maker."""


@lru_cache(maxsize=8)
def problem(name: str) -> Problem:
    """A problem with all its answers; made once in a process."""
    return PROBLEMS[name][1]()


def shares(found: Floats, front: Floats) -> Floats:
    """Losses as shares of the way from the best to the worst value on the true front, by ratios."""
    scaled, ends = (np.sign(losses) * np.log(np.abs(losses)) for losses in (found, front))
    low, high = ends.min(axis=0), ends.max(axis=0)
    return np.asarray((scaled - low) / np.where(high > low, high - low, 1.0))


def run_ours(case: Problem, name: str, seed: int) -> list[Config]:
    """The configurations that one of our searchers tries."""
    kind: Any = plugins.get("searcher", OUR_SEARCHERS[name])
    searcher = kind(case.space, case.task, seed)
    tried: list[Config] = []
    while len(tried) < TRIALS and (proposals := searcher.ask(1)):
        tried.append(proposals[0].config)
        searcher.tell([Trial(proposal=proposals[0], measurement=case.measured(proposals[0].config, seed))])
    return tried


def run_nsga(case: Problem, seed: int) -> list[Config]:
    """The same for Optuna's NSGA-II, run as Optuna's guide says; what it suggests is moved to the nearest valid configuration.

    A configuration that it has tried before costs no trial; it is told the same values again.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=seed)
    study = optuna.create_study(directions=["minimize"] * len(case.task.objective.goals), sampler=sampler)
    tried: list[Config] = []
    for _ in range(20 * TRIALS):
        if len(tried) == TRIALS:
            break
        trial = study.ask()
        config = case.space.project(_suggested(case.space, trial))
        if config not in tried:
            tried.append(config)
        losses = case.task.objective.losses(case.measured(config, seed))
        if math.isfinite(losses[0]):
            study.tell(trial, losses)
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return tried


def _suggested(space: Space, trial: Any) -> Config:
    partial = Config()
    for name, knob in space.knobs.items():
        choices = space.choices(name, partial)
        if not choices:
            continue
        last = len(knob.values) - 1
        place = trial.suggest_int(name, 0, last) if knob.ordered and last else trial.suggest_categorical(name, list(range(last + 1)))
        wanted: Value = knob.values[place]
        partial = partial.extend({name: knob.nearest(wanted, choices)})
    return partial


def one_run(job: tuple[str, str, int]) -> dict[str, Any]:
    """One searcher on one problem with one seed: the share of the front's hypervolume at every mark, and the time that it took."""
    name, method, seed = job
    case = problem(name)
    worked = [config for config, answer in case.answers.items() if answer]
    everything = np.array([case.losses(config) for config in worked])
    front = everything[on_front(everything)]
    reference = np.full(front.shape[1], BEYOND)
    began_s = time.process_time()
    tried = run_nsga(case, seed) if method == NSGA else run_ours(case, method, seed)
    took_s = time.process_time() - began_s
    whole = hypervolume(shares(front, front), reference)
    found = []
    for mark in MARKS:
        losses = np.array([case.losses(config) for config in tried[:mark] if case.answers[config]]).reshape(-1, front.shape[1])
        found.append(hypervolume(shares(losses, front), reference) / whole)
    size = {"front": len(front), "configs": len(case.answers)}
    return {"problem": name, "method": method, "seed": seed, "shares": found, **size, "cpu_s": took_s}


def figures(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the seeds with 95 % intervals, and how often `hybrid` ends ahead of each other."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(run["problem"] for run in runs):
        mine = [run for run in runs if run["problem"] == name]
        by_method = {method: sorted((run for run in mine if run["method"] == method), key=lambda run: run["seed"]) for method in METHODS}
        rows = {
            method: [_interval([run["shares"][mark] for run in some]) for mark in range(len(MARKS))] for method, some in by_method.items()
        }
        last = {method: [run["shares"][-1] for run in some] for method, some in by_method.items()}
        ahead = {
            method: sum(one > other for one, other in zip(last["hybrid"], values, strict=True))
            for method, values in last.items()
            if method != "hybrid"
        }
        cpu_s = {method: statistics.mean(run["cpu_s"] for run in some) for method, some in by_method.items()}
        found[name] = {
            "title": PROBLEMS[name][0],
            "front": mine[0]["front"],
            "configs": mine[0]["configs"],
            "seeds": len(by_method["hybrid"]),
            "shares": rows,
            "hybrid_ahead": ahead,
            "cpu_s": cpu_s,
        }
    return found


def _interval(values: Sequence[float]) -> dict[str, float]:
    reach = student_quantile(0.975, len(values) - 1) * standard_error(values) if len(values) > 1 else 0.0
    return {"mean": statistics.mean(values), "reach": reach, "lowest": min(values)}


def page(found: Mapping[str, Any]) -> str:
    """The figures as a page of results."""
    seeds = next(iter(found.values()))["seeds"]
    lines = [
        "# How much of a front few trials find",
        "",
        f"Two goals, {TRIALS} trials, {seeds} seeds: `python -m benchmarks.pareto --write`. The figures are the hypervolume of what was",
        "tried, by noiseless values, as a share of that of the true front: the mean over the seeds, ± its 95 % interval. The reference is",
        f"{BEYOND} of the way from the best to the worst value on the true front, in each goal and by ratios. No searcher is told a",
        f"simulator's predictions. Virtual clusters are simulated: the serving model, {SURPRISE:.0%} off at random for each",
        f"configuration, and {NOISE:.0%} noise of each measurement. The tables were measured. NSGA-II has a population of {POPULATION}:",
        f"its default of 50 would draw all {TRIALS} trials at random.",
    ]
    for row in found.values():
        lines += ["", f"## {row['title'][0].upper()}{row['title'][1:]}", ""]
        lines += [f"{row['configs']:,} configurations, {row['front']} of them on the front.", ""]
        marks = " | ".join(f"{mark} trials" for mark in MARKS)
        lines += [f"| | {marks} | worst seed | hybrid ahead | CPU s |", "|---|" + "---|" * (len(MARKS) + 3)]
        for method, values in row["shares"].items():
            cells = " | ".join(f"{value['mean']:.3f} ± {value['reach']:.3f}" for value in values)
            ahead = "" if method == "hybrid" else f"{row['hybrid_ahead'][method]} of {seeds}"
            lines.append(f"| {method} | {cells} | {values[-1]['lowest']:.3f} | {ahead} | {row['cpu_s'][method]:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run everything and print or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/lab/results/pareto.md")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    jobs = [(name, method, seed) for name in given.problems for method in given.methods for seed in seeds]
    with ProcessPoolExecutor(given.workers) as pool:
        runs = list(pool.map(one_run, jobs, chunksize=max(1, len(seeds) // 4)))
    found = figures(runs)
    if given.write:
        PAGE.write_text(page(found), encoding="utf-8")
    print(json.dumps(found, indent=2) if given.json else page(found))


if __name__ == "__main__":
    main()
