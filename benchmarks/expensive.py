"""Seconds of engine time until a study has found something good: `python -m benchmarks.expensive [--seeds N] [--json] [--write]`.

Whole studies on a virtual clock. An engine takes 70 to 110 s to start, 5 s to warm up, and 40 s for its load with the default settings:
what was measured with vLLM and an 8B model on one H200. The load is a fixed number of requests, so a slower configuration takes longer in
proportion. A configuration that does not fit fails in the middle of its start. What a configuration measures comes from recorded
tables, or from a virtual serving cluster (simulated, with a lasting error of each configuration that no model knows). A measurement has
2 % noise, half of its variance of the start and half of the load.

Compared are the same studies as if trials were cheap, and with all that is done for expensive ones. Part of the cases served to choose
the method, the figures are those of the others.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import combinations, product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

import numpy as np

from autoscout.analysis.verdict import decide
from autoscout.backends.virtual import VirtualBackend
from autoscout.core import plugins
from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.protocols import Evaluator, StudyRecord
from autoscout.core.seeds import stream
from autoscout.core.task import Budget, Direction, Task
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.simulators.serving import ServingModel
from autoscout.space import Choice, Flag, Space
from autoscout.space.encode import Floats
from autoscout.study.final import Finals
from autoscout.study.study import Study
from autoscout_lab.bench.tables import Source, load_table

HERE = Path(__file__).parent
RECORDED = HERE / "tables"
SHARED = HERE.parent.parent / "shared" / "tables"
PAGE = HERE.parent / "docs" / "lab" / "results" / "expensive.md"
SEEDS, TRIALS, NEAR = 20, 40, 1.05
START_S, WARM_UP_S, LOAD_S = (70.0, 110.0), 5.0, 40.0
NOISE = 0.02
METHODS = {"as if cheap": frozenset[str](), "expensive": frozenset({"stop", "cost"})}
"""By name: what is done. `stop`: trials that cannot win are stopped; `cost`: the search learns what trials cost."""
PARTS = 4
"""Parts of a load: after each, the program that measures asks whether it can still win."""


@dataclass(frozen=True)
class Case:
    """Something to tune: a recorded table, or a workload on a virtual cluster."""

    name: str
    table: str = ""
    model: str = ""
    tokens: tuple[int, int] = (1024, 256)  # in, out
    concurrency: int = 64
    gpus: str = ""

    @property
    def simulated(self) -> bool:
        return not self.table


CHOSEN_ON = (
    Case("torch_training", table="torch_training"),
    Case("dnn_infer_tx2_inception", table="dnn_infer_tx2_inception"),
    Case("virtual qwen3-30b-a3b, 4xH100", model="qwen3-30b-a3b", tokens=(1024, 512), concurrency=256, gpus="4xH100"),
)
REPORTED = (
    Case("torch_decoding", table="torch_decoding"),
    Case("virtual llama-3.1-8b, 8xA100-80", model="llama-3.1-8b", tokens=(1024, 256), concurrency=64, gpus="8xA100-80"),
    Case("virtual llama-3.1-8b, 1xH100", model="llama-3.1-8b", tokens=(1024, 128), concurrency=512, gpus="1xH100"),
)


@dataclass(frozen=True)
class Truth:
    """What every configuration of a case really does.

    Attributes:
        space: What is searched.
        task: With its objective.
        value: The metric of a configuration; NaN where it fails.
        best: The best value there is.
        usual: The value with which the load takes `LOAD_S`: the default's, or the middle one where that fails.
    """

    space: Space
    task: Task
    value: Callable[[Config], float]
    best: float
    usual: float

    def loss(self, config: Config) -> float:
        """Relative to the best, 1 and more; infinite for a failure."""
        return self._longer(config, self.best)

    def slower(self, config: Config) -> float:
        """How many times longer the load takes than usual."""
        return self._longer(config, self.usual)

    def _longer(self, config: Config, than: float) -> float:
        value = self.value(config)
        if math.isnan(value):
            return math.inf
        return value / than if self.task.objective.direction is Direction.MINIMIZE else than / value


FURTHER = (
    Choice("block_size", [16, 32, 64, 128]),
    Choice("graphs", ["full", "pieces", "none"]),
    Flag("chunked_prefill", default=True),
    Flag("prefix_caching", default=True),
    Flag("async_scheduling"),
    Choice("attention", ["a", "b", "c"]),
)
"""Knobs of an engine that the serving model does not know."""
USUAL, LUCK, TOGETHER = -0.05, 0.08, 0.03
"""Logarithm of the throughput: a value that is not the default changes it by USUAL on average, because defaults are chosen with care, with
standard deviation LUCK; two of them together by another TOGETHER."""


def _folder(name: str) -> Path | None:
    """Where a table is; None where it is not."""
    return next((folder for folder in (RECORDED, SHARED) if any(folder.glob(f"{name}.*"))), None)


@cache
def _recorded(name: str) -> Truth:
    folder = _folder(name)
    table = load_table(Source(name=name, path=str(folder), kind="manifest"))
    values = dict(zip(table.configs, map(float, table.values), strict=True))
    default = values[table.space.default()]
    usual = float(np.nanmedian(table.values)) if math.isnan(default) else default
    best = float(np.nanmin(table.values) if table.task.objective.direction is Direction.MINIMIZE else np.nanmax(table.values))
    return Truth(table.space, table.task, values.__getitem__, best, usual)


@cache
def _served(case: Case) -> tuple[Space, Task, list[Config], Floats]:
    """A virtual engine, and what the serving model says of the knobs that it knows."""
    backend = VirtualBackend()
    load = {"model": case.model, "input_tokens": case.tokens[0], "output_tokens": case.tokens[1], "concurrency": case.concurrency}
    task = backend.task({"workload": load, "hardware": {"gpus": case.gpus}})
    known = backend.space(task)
    configs = list(known.enumerate())
    said = ServingModel().predict(configs, task)
    space = Space([*known.knobs.values(), *FURTHER])
    return space, task, configs, np.where(said.feasible > 0.5, said.value, np.nan)


def truth(case: Case, seed: int) -> Truth:
    """A recorded table, or a virtual engine: another one for every seed."""
    if case.table:
        return _recorded(case.table)
    space, task, configs, said = _served(case)
    default = space.default()
    known = {config: float(value) * _factor(seed, config, default) for config, value in zip(configs, said, strict=True)}
    further = [Config(dict(zip(_FURTHER_NAMES, values, strict=True))) for values in product(*(knob.values for knob in FURTHER))]
    factors = {config: _factor(seed, config, default) for config in further}

    def value(config: Config) -> float:
        own = Config({name: config[name] for name in config if name not in _FURTHER_NAMES})
        more = Config({name: config[name] for name in _FURTHER_NAMES})
        return math.nan if _refused(own, more) else known[own] * factors[more]

    pairs = [(config, more) for config in _best(known) for more in _best(factors) if not _refused(config, more)]
    best = max(known[config] * factors[more] for config, more in pairs)
    return Truth(space, task, value, best, value(default))


def _best(values: Mapping[Config, float]) -> list[Config]:
    """Enough of the best to hold the best pair: no more than half of the settings refuse half of the others."""
    return sorted((config for config in values if not math.isnan(values[config])), key=lambda config: -values[config])[:400]


def _refused(config: Config, more: Config) -> bool:
    return not more["chunked_prefill"] and int(str(config["max_num_batched_tokens"])) < 2048


def _factor(seed: int, config: Config, default: Config) -> float:
    """What the settings of some knobs do to the throughput besides what a model says."""
    changed = sorted(f"{name}={config[name]}" for name in config if config[name] != default[name])
    effect = sum(USUAL + LUCK * _drawn(seed, name) for name in changed if name.partition("=")[0] in _FURTHER_NAMES)
    effect += sum(TOGETHER * _drawn(seed, name) for name in changed if name.partition("=")[0] not in _FURTHER_NAMES)
    return math.exp(effect + sum(TOGETHER * _drawn(seed, "+".join(pair)) for pair in combinations(changed, 2)))


@cache
def _drawn(seed: int, name: str) -> float:
    return float(stream(seed, "expensive", "effect", name).standard_normal())


_FURTHER_NAMES = tuple(knob.name for knob in FURTHER)


class Engine(Evaluator):
    """Evaluates on a virtual clock; stops early where it is told to and cannot win."""

    slots = 1

    def __init__(self, truth: Truth, seed: int, clock: VirtualClock, part5: frozenset[str]) -> None:
        self.truth, self.seed, self.clock, self.part5 = truth, seed, clock, part5
        self.metric = truth.task.objective.metric
        self.lower = truth.task.objective.direction is Direction.MINIMIZE

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        found = [self._one(proposal) for proposal in proposals]
        for answer in found:
            self.clock.sleep(answer.cost_s)
        # As if trials were cheap: the search does not learn what they cost.
        return [answer if "cost" in self.part5 else replace(answer, cost_s=0.0, conditions={}) for answer in found]

    def cancel(self) -> None:
        pass

    def _one(self, proposal: Proposal) -> Measurement:
        lasting = stream(self.seed, "expensive", "start", proposal.config.key)
        passing = stream(self.seed, "expensive", "load", proposal.config.key, proposal.repeat)
        start_s = float(lasting.uniform(*START_S))
        value = self.truth.value(proposal.config)
        if math.isnan(value):
            return Measurement(status=Status.OOM_START, cost_s=start_s / 2, conditions={"start_s": start_s / 2}, reason="does not fit")
        share = NOISE / math.sqrt(2.0)
        value *= math.exp(share * float(passing.standard_normal()))
        parts = [value * math.exp(share * math.sqrt(PARTS) * float(passing.standard_normal())) for _ in range(PARTS)]
        part_s = LOAD_S * self.truth.slower(proposal.config) / PARTS
        samples: list[float] = []
        spent_s, why = 0.0, ""
        bounds: dict[str, float] = {}
        goal = proposal.to_beat if "stop" in self.part5 else None
        for part in parts:
            most_s = self._most_s(goal)
            if spent_s + part_s > most_s:  # even if all the rest came at once
                spent_s, why = most_s, "takes longer than what is to beat"
                bounds = {self.metric: goal.value} if goal is not None and goal.value is not None else {}
                break
            spent_s += part_s
            samples.append(part)
            bounds = goal.likely({self.metric: samples}) if goal is not None else {}
            if len(samples) < PARTS and goal is not None and (why := goal.lost(bounds)):
                break
        spent = {"start_s": start_s, "warm_up_s": WARM_UP_S, "measure_s": spent_s}
        answer = Measurement(status=Status.OK, cost_s=sum(spent.values()), conditions=spent)
        if why:
            return replace(answer, status=Status.BOUNDED, metrics={self.metric: fmean(samples or parts[:1])}, bounds=bounds, reason=why)
        return replace(answer, metrics={self.metric: fmean(samples)})

    def _most_s(self, goal: ToBeat | None) -> float:
        """How long the whole load may take at most to beat what is to beat, with room for noise."""
        if goal is None or goal.value is None:
            return math.inf
        ratio = goal.value / self.truth.usual if self.lower else self.truth.usual / goal.value
        return LOAD_S * ratio * (1.0 + 3.0 * goal.spread)


@dataclass(frozen=True)
class Row:
    """One study: seconds and trials until something within 5 % was measured to its end, seconds of the search, and its answer."""

    near_s: float
    near_trials: int
    search_s: float
    answer: float
    bounded: int
    failed: int


def study(case: Case, seed: int, part5: frozenset[str]) -> Row:
    known, clock = truth(case, seed), VirtualClock()
    task = replace(known.task, budget=Budget(trials=TRIALS))
    store = plugins.get("store", "memory")()
    record = store.open(StudyRecord(name="s", task=task, space=known.space.fingerprint(), spec={}))
    one = Study(
        record=record,
        space=known.space,
        searcher=plugins.get("searcher", "hybrid")(known.space, task, seed),
        evaluator=Engine(known, seed, clock, part5),
        store=store,
        observer=_Nobody(),
        worker="w",
        default=known.space.default(),
        repeat_default=True,
        finals=Finals(finalists=2, rounds=3, simplify=False),
        clock=clock,
    )
    one.run()
    search = [trial for trial in one.trials if trial.proposal.repeat <= 0]
    near = [number for number, trial in enumerate(search) if trial.ok and known.loss(trial.config) <= NEAR]
    end_s = search[-1].finished_s
    chosen = decide(task, one.trials, known.space.default()).answer
    return Row(
        near_s=search[near[0]].finished_s if near else 2.0 * end_s,
        near_trials=near[0] + 1 if near else 2 * len(search),
        search_s=end_s,
        answer=known.loss(chosen) if chosen is not None else math.inf,
        bounded=sum(trial.measurement.status is Status.BOUNDED for trial in search),
        failed=sum(trial.measurement.status.failed for trial in search),
    )


class _Nobody:
    def phase(self, name: str) -> None: ...

    def started(self, proposal: Proposal) -> None: ...

    def finished(self, trial: Trial) -> None: ...


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Means over the studies of a case; times and trials until something good was found are geometric."""
    return {
        "near_s": float(np.exp(np.mean(np.log([row.near_s for row in rows])))),
        "near_trials": float(np.exp(np.mean(np.log([row.near_trials for row in rows])))),
        "search_s": fmean(row.search_s for row in rows),
        "answer": fmean(row.answer for row in rows),
        "bounded": fmean(row.bounded for row in rows),
        "failed": fmean(row.failed for row in rows),
    }


def saved(plain: Sequence[Row], rows: Sequence[Row]) -> tuple[float, float]:
    """Share of the engine time that is saved, and its standard error over the seeds."""
    ratios = np.log([row.near_s / other.near_s for row, other in zip(rows, plain, strict=True)])
    ratio = float(np.exp(ratios.mean()))
    return 1.0 - ratio, ratio * float(ratios.std(ddof=1)) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan


def overall(pairs: Sequence[tuple[Sequence[Row], Sequence[Row]]]) -> tuple[float, float]:
    """What is saved over all cases, a geometric mean, and its standard error."""
    shares, errors = zip(*(saved(*pair) for pair in pairs), strict=True)
    share = 1 - _mean([1 - one for one in shares])
    variance = sum((error / (1 - one)) ** 2 for one, error in zip(shares, errors, strict=True))
    return share, (1 - share) * math.sqrt(variance) / len(shares)


def run(cases: Sequence[Case], seeds: Sequence[int], jobs: int, kept: Path | None) -> dict[str, dict[str, list[Row]]]:
    """Rows by case and method; those that `kept` holds are not run again."""
    wanted = [(case, method, seed) for seed in seeds for case in cases for method in METHODS]
    rows = dict(_read(kept)) if kept is not None and kept.exists() else {}
    missing = [(case, method, seed) for case, method, seed in wanted if (case.name, method, seed) not in rows]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(study, case, seed, METHODS[method]): (case.name, method, seed) for case, method, seed in missing}
        for future in as_completed(futures):
            rows[futures[future]] = future.result()
            if kept is not None:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([*futures[future], asdict(future.result())]) + "\n")
    return {case.name: {method: [rows[case.name, method, seed] for seed in seeds] for method in METHODS} for case in cases}


def _read(kept: Path) -> Iterator[tuple[tuple[str, str, int], Row]]:
    for line in kept.read_text(encoding="utf-8").splitlines():
        name, method, seed, row = json.loads(line)
        yield (name, method, seed), Row(**row)


def page(found: Mapping[str, Mapping[str, Sequence[Row]]], seeds: int) -> str:
    """The figures as a page of results."""
    start, load = f"{START_S[0]:g} to {START_S[1]:g} s", f"{LOAD_S:g} s of load"
    lines = [
        "# Expensive trials",
        "",
        f"Seconds of engine time until a study has measured a configuration within {NEAR - 1:.0%} of the best, on a virtual clock.",
        f"An engine takes {start} to start, {WARM_UP_S:g} s to warm up and {load} with the default settings (as vLLM with an 8B",
        "model on one H200); a slower configuration takes longer in proportion, one that does not fit half of its start. Searches of",
        f"{TRIALS} trials with {NOISE:.0%} noise, {seeds} seeds each; one that finds nothing as good counts with twice its time.",
        "`torch_decoding` was recorded on an H200. `virtual` cases are simulated: the serving model, and six further knobs whose",
        "effects are drawn anew for every seed. The method was chosen on other cases and other seeds. A recorded table of vLLM is not",
        f"among the cases because its default lies within {NEAR - 1:.0%} already. `python -m benchmarks.expensive --seeds {seeds} --write`",
        "",
        "| case | method | s to 5 % | saved | trials to 5 % | s of the search | stopped early | failed | answer / best |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, methods in found.items():
        for method, rows in methods.items():
            share, error = saved(methods["as if cheap"], rows)
            one = figures(rows)
            gain = "" if method == "as if cheap" else f"{share:.0%} ± {error:.0%}"
            cells = [f"{one['near_s']:.0f}", gain, f"{one['near_trials']:.1f}", f"{one['search_s']:.0f}", f"{one['bounded']:.1f}"]
            lines.append(f"| {' | '.join([name, method, *cells, format(one['failed'], '.1f'), format(one['answer'], '.3f')])} |")
    pairs = [(methods["as if cheap"], methods["expensive"]) for methods in found.values()]
    share, error = overall(pairs)
    whole = 1 - _mean([figures(rows)["search_s"] / figures(plain)["search_s"] for plain, rows in pairs])
    answer = _mean([figures(rows)["answer"] / figures(plain)["answer"] for plain, rows in pairs]) - 1
    lines += [
        "",
        f"Over all cases (geometric means) {share:.0%} ± {error:.0%} of the engine time to {NEAR - 1:.0%} is saved, "
        f"{whole:.0%} of that of a whole search.",
        f"The answers differ by {answer:+.1%} (less is better).",
    ]
    if seeds >= 4:
        first, second = (
            overall([(plain[part], rows[part]) for plain, rows in pairs]) for part in (slice(seeds // 2), slice(seeds // 2, None))
        )
        lines.append(
            f"By the first half of the seeds alone it is {first[0]:.0%} ± {first[1]:.0%}, by the second {second[0]:.0%} ± {second[1]:.0%}."
        )
    return "\n".join(lines) + "\n"


def _mean(ratios: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def main() -> None:
    """Run the studies and print or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--choose", action="store_true", help="the cases on which the method was chosen")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rows", type=Path, help="keep finished studies in this file, and resume from it")
    parser.add_argument("--json", action="store_true", help="every study as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/lab/results/expensive.md")
    given = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    cases = [case for case in (CHOSEN_ON if given.choose else REPORTED) if not case.table or _folder(case.table) is not None]
    found = run(cases, range(given.first, given.first + given.seeds), given.jobs, given.rows)
    if given.write:
        PAGE.write_text(page(found, given.seeds), encoding="utf-8")
    rows = {name: {method: list(map(asdict, rows)) for method, rows in methods.items()} for name, methods in found.items()}
    print(json.dumps(rows) if given.json else page(found, given.seeds))


if __name__ == "__main__":
    main()
