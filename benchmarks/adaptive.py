"""The switch from simulation to measuring, on replayed real tables and on virtual clusters: `python -m benchmarks.adaptive [FIRST_SEED]`.

A search that knows nothing (random order) proposes; the evaluator decides what is simulated and what is measured. Counted are real
profiles until one within 5 % of the optimum has been measured, and profiles wasted on configurations that run out of memory.

Both see the same order and, where they measure the same, the same luck. Whether a run ends worse than profiling alone after the same
number of profiles is told in two ways, by true values that differ by more than 1 %: by the best that each has *measured*, which is all
that an evaluator can answer for; and by what a study would *recommend*: as in a study, a final measures the two best again, five times
each, and alone decides. A final is needed for that, since one measurement has 2 % noise and who measures more good configurations is more
often flattered by one of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy as np

from autoscout.backends.virtual import VirtualBackend
from autoscout.core.config import Config
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Evaluator
from autoscout.core.seeds import stream
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status
from autoscout.evaluate.adaptive import AdaptiveEvaluator, AdaptiveOptions
from autoscout.evaluate.ensemble import EnsembleEvaluator
from autoscout.evaluate.noisy import NoisyEvaluator, NoisyOptions
from autoscout.evaluate.virtual import VirtualEvaluator, VirtualOptions
from autoscout.simulators.training.model import TrainingModel
from benchmarks._simulator_tables import TABLES

SEEDS = 20
TIE = 0.01
"""True values closer than this share are equal."""
FINALISTS, ROUNDS = 2, 5
"""The final of a study (`autoscout.study.final`)."""
CLUSTERS = (
    ("dense on one kind of GPU", {"model": "llama-3.1-8b", "sequence": 4096, "global_batch": 128}, "16xA100-80"),
    ("mixture of experts", {"model": "qwen3-30b-a3b", "sequence": 4096, "global_batch": 256}, "32xH100"),
    ("mixed GPUs", {"model": "llama-3.2-3b", "sequence": 4096, "global_batch": 96}, "8xA100-80+4xA40"),
)
"""Virtual clusters: name, workload, GPUs."""


@dataclass
class Table(Evaluator):
    """A recorded table as an evaluator: a look-up, every one of which would have been a real run."""

    values: dict[Config, float | None]
    slots: int = 1

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        return [self._one(self.values[proposal.config]) for proposal in proposals]

    def cancel(self) -> None:
        pass

    def _one(self, value: float | None) -> Measurement:
        if value is None:
            return Measurement(status=Status.OOM_START, reason="recorded as failed")
        return Measurement(status=Status.OK, metrics={"step_s": value}, cost_s=value)


@dataclass
class SameLuck(Evaluator):
    """The first real look at a configuration sees the same noise whoever asks, be it as a recheck or as a proposal of the search."""

    inner: Evaluator
    slots: int = 1

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        return self.inner.evaluate([replace(proposal, repeat=max(0, proposal.repeat)) for proposal in proposals])

    def cancel(self) -> None:
        self.inner.cancel()


@dataclass(frozen=True)
class Outcome:
    """How one run went."""

    to_near: int  # profiles until within 5 % of the optimum; the whole budget twice when never
    wasted: int
    best: float  # true value of the best that was measured
    recommended: float  # true value of what won the final


Truth = Mapping[Config, float]
"""What each configuration really takes; infinite when it does not run."""


def run(evaluator: Evaluator, profiler: Evaluator, order: Sequence[Config], budget: int, truth: Truth) -> Outcome:
    """The loop of a study: rechecks first, then the next of a random order; the first of it is the baseline. Then the final."""
    measured: dict[Config, float] = {}
    profiles, near, optimum = 0, 0, min(truth.values())
    coming = iter(order)
    settled = False
    while profiles < budget:
        proposals = evaluator.recheck()[:1]
        if not proposals:
            config = next(coming, None)
            if config is None:
                if settled or not isinstance(evaluator, AdaptiveEvaluator):
                    break
                settled = True
                evaluator.settle()
                continue
            proposals = [Proposal(config=config, origin=Origin(by=By.DEFAULT if config is order[0] else "random"))]
        (answer,) = evaluator.evaluate(proposals)
        if answer.fidelity is not Fidelity.MEASURED:
            continue
        profiles += 1
        measured[proposals[0].config] = answer.metrics.get("step_s", float("inf"))
        if not near and truth[proposals[0].config] <= 1.05 * optimum:
            near = profiles
    return Outcome(
        to_near=near or 2 * budget,
        wasted=sum(np.isinf(value) for value in measured.values()),
        best=min(truth[config] for config in measured),
        recommended=truth[_winner(profiler, measured)],
    )


def _winner(profiler: Evaluator, measured: Mapping[Config, float]) -> Config:
    def value(config: Config) -> float:
        rounds = profiler.evaluate([Proposal(config=config, repeat=number) for number in range(1, ROUNDS + 1)])
        return median(answer.metrics.get("step_s", float("inf")) for answer in rounds)

    finalists = sorted(measured, key=lambda config: measured[config])[:FINALISTS]
    return min(finalists, key=value)


Real = Callable[[int], tuple[Evaluator, Truth]]
"""From a seed to a way to measure and the truth behind it."""


def compare(name: str, task: Task, configs: Sequence[Config], real: Real, budget: int, first: int) -> None:
    print(f"{name}: {len(configs)} configurations, budget {budget} profiles, seeds {first} to {first + SEEDS - 1}")
    plain = []
    for seed in range(first, first + SEEDS):
        profiler, truth = real(seed)
        plain.append(run(profiler, profiler, _order(configs, seed), budget, truth))
    _print("profiling alone", plain, plain)
    for noise in (0.0, 0.4, 0.8):
        found = []
        for seed in range(first, first + SEEDS):
            profiler, truth = real(seed)
            simulated: Evaluator = NoisyEvaluator(EnsembleEvaluator([TrainingModel()], task), NoisyOptions(noise=noise, seed=seed))
            adaptive = AdaptiveEvaluator(simulated, profiler, task, AdaptiveOptions(interval=4))
            found.append(run(adaptive, profiler, _order(configs, seed), budget, truth))
        _print(f"adaptive, noise {noise:.0%}", found, plain)


def _order(configs: Sequence[Config], seed: int) -> list[Config]:
    return [configs[place] for place in stream(seed, "order").permutation(len(configs))]


def _print(name: str, found: Sequence[Outcome], plain: Sequence[Outcome]) -> None:
    to_near = np.exp(np.mean(np.log([one.to_near for one in found])))
    ratio = to_near / np.exp(np.mean(np.log([one.to_near for one in plain])))
    pairs = list(zip(found, plain, strict=True))
    missed = sum(one.best > (1.0 + TIE) * other.best for one, other in pairs)
    worse = sum(one.recommended > (1.0 + TIE) * other.recommended for one, other in pairs)
    better = sum(one.recommended * (1.0 + TIE) < other.recommended for one, other in pairs)
    wasted = np.mean([one.wasted for one in found])
    print(
        f"  {name:22s} profiles to 5 %: {to_near:5.1f} ({ratio:4.0%} of profiling alone)  out of memory: {wasted:4.1f}  "
        f"recommends {np.mean([one.recommended for one in found]):.3f}, better than profiling alone in {better} of {len(found)}, "
        f"worse in {worse}, measured nothing as good in {missed}",
        flush=True,
    )


def recorded(first: int) -> None:
    for name, about in json.loads((TABLES / "tasks.json").read_text()).items():
        import pyarrow.parquet as parquet

        rows = parquet.read_table(TABLES / f"{name}.parquet").to_pylist()
        values = {Config({key: value for key, value in row.items() if key != "value"}): row["value"] for row in rows}
        shape = {**about["model"], "gated": bool(about["model"]["gated"])}
        task = Task(
            system="default",
            objective=Objective(metric="step_s"),
            workload={
                "model": shape,
                "sequence": about["seq_len"],
                "global_batch": about["global_batch"],
                "zero": about["zero"],
                "gradient_bytes": 2.0,
            },
            hardware={"gpus": about["gpus"], "gpu": "A100-80"},
        )
        compare(name, task, list(values), partial(_table, values), 40, first)


def _table(values: dict[Config, float | None], _: int) -> tuple[Evaluator, Truth]:
    return Table(values), {config: float("inf") if value is None else value for config, value in values.items()}


def virtual(name: str, workload: Mapping[str, object], gpus: str, first: int) -> None:
    """Every seed is another cluster: other surprises, other failures."""
    backend = VirtualBackend()
    task = backend.task({"workload": workload, "hardware": {"gpus": gpus}})
    space = backend.space(task)
    drawn = (space.sample(stream(1, "virtual", number)) for number in range(600))
    configs = sorted({config for config in drawn if config is not None}, key=lambda config: config.canonical)

    def cluster(seed: int, noise: float) -> Evaluator:
        return VirtualEvaluator(TrainingModel(), task, VirtualOptions(fidelity=Fidelity.MEASURED, surprise=0.1, noise=noise, seed=seed))

    def real(seed: int) -> tuple[Evaluator, Truth]:
        answers = cluster(seed, 0.0).evaluate([Proposal(config=config) for config in configs])
        truth = {config: answer.metrics.get("step_s", float("inf")) for config, answer in zip(configs, answers, strict=True)}
        return SameLuck(cluster(seed, 0.02)), truth

    compare(f"virtual cluster, {name}", task, configs, real, 60, first)


if __name__ == "__main__":
    given = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    if TABLES.is_dir():
        recorded(given)
    for cluster in CLUSTERS:
        virtual(*cluster, given)
