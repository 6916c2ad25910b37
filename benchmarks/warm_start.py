"""What a warm start saves on a sequence of related jobs: `python -m benchmarks.warm_start`.

- Virtual clusters: six training jobs, one after the other, each a variation of the one before (GPUs, sequence, batch, model). The
  world is the model of training with surprises of its own; the search knows nothing of it. Every study finds the earlier ones in the
  store as `autoscout tune` would.
- Recorded: the two LLM training tables, each after the other. They do not say how alike their jobs are; facts of `tasks.json` do.
- Recorded on a GPU: a matrix product in four sizes, in three orders.

Counted are evaluations to 10 % of the best known, and the area under regret.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.backends.virtual import VirtualBackend
from autoscout.core.config import Config
from autoscout.core.history import MIN_SIMILARITY, Past, recall
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Evaluator, Searcher, StudyRecord
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Proposal, Trial
from autoscout.evaluate.virtual import VirtualEvaluator, VirtualOptions
from autoscout.search.hybrid import HybridSearcher
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid_paper.searcher import HybridPaperOptions, HybridPaperSearcher
from autoscout.simulators.training.model import TrainingModel
from autoscout.space import Space
from autoscout.store.memory import MemoryStore
from autoscout_lab.bench import Table, find_tables, load_table
from autoscout_lab.bench.replay import Replay
from benchmarks._simulator_tables import TABLES

BUDGET, NEAR, DRAWN = 40, 0.10, 1500
JOBS: tuple[dict[str, Any], ...] = (
    {"model": "llama-3.1-8b", "gpus": "16xA100-80", "sequence": 4096, "global_batch": 128},
    {"model": "llama-3.1-8b", "gpus": "32xA100-80", "sequence": 4096, "global_batch": 128},
    {"model": "llama-3.1-8b", "gpus": "32xA100-80", "sequence": 8192, "global_batch": 128},
    {"model": "llama-3.1-8b", "gpus": "32xA100-80", "sequence": 8192, "global_batch": 256},
    {"model": "llama-3.1-8b", "gpus": "64xA100-80", "sequence": 8192, "global_batch": 256},
    {"model": "llama-3.2-3b", "gpus": "64xA100-80", "sequence": 8192, "global_batch": 256},
)
Make = Callable[[Space, Task, int, tuple[Past, ...]], Searcher]
MAKERS: dict[str, Make] = {
    "hybrid": lambda space, task, seed, past: HybridSearcher(space, task, seed, HybridOptions(past=past)),
    "hybrid-paper": lambda space, task, seed, past: HybridPaperSearcher(space, task, seed, HybridPaperOptions(past=past)),
}


@dataclass(frozen=True)
class Job:
    """Something to tune, with a world that answers."""

    name: str
    task: Task
    space: Space
    answer: Callable[[int], Callable[[Proposal], list[Trial]]]  # by seed
    best: float
    middle: float


@dataclass(frozen=True)
class Outcome:
    """One study: evaluations to 10 % (twice the budget when never), area under regret, and what it learnt from."""

    near: float
    area: float
    past: tuple[Past, ...]


def virtual_jobs() -> list[Job]:
    backend = VirtualBackend()
    found = []
    for about in JOBS:
        workload = {name: about[name] for name in ("model", "sequence", "global_batch")}
        task = backend.task({"workload": workload, "hardware": {"gpus": about["gpus"]}})
        space = backend.space(task)
        world = VirtualEvaluator(TrainingModel(), task, VirtualOptions(fidelity=Fidelity.SIMULATED, surprise=0.1))
        drawn = {space.sample(stream(1, "warm start", number)) for number in range(DRAWN)} - {None}
        answers = world.evaluate([Proposal(config=config) for config in drawn if config is not None])
        losses = [loss for answer in answers if math.isfinite(loss := task.objective.loss(answer))]
        name = " ".join(map(str, about.values()))
        found.append(Job(name, task, space, lambda _, world=world: _asking(world), min(losses), float(np.median(losses))))  # type: ignore[misc]
    return found


def _asking(world: Evaluator) -> Callable[[Proposal], list[Trial]]:
    return lambda proposal: [Trial(proposal=proposal, measurement=world.evaluate([proposal])[0])]


def recorded_jobs() -> list[Job]:
    names = ("llm_train_13b_64gpu", "llm_train_13b_8k_128gpu")
    return [_recorded(load_table(source)) for source in find_tables(str(TABLES), names)]


def kernel_jobs() -> list[Job]:
    return [
        _recorded(table)
        for source in find_tables(str(Path(__file__).parent / "tables"))
        if (table := load_table(source)).family == "triton_matmul"
    ]


def _recorded(table: Table) -> Job:
    workload = {name: value for name, value in table.task.workload.items() if name != "table"}
    task = replace(table.task, workload=workload)
    return Job(table.name, task, table.space, lambda _: _replaying(table), table.optimum, table.middle)


def _replaying(table: Table) -> Callable[[Proposal], list[Trial]]:
    source = Replay(table)
    return lambda proposal: [source.answer(proposal)]


def study(job: Job, searcher: Searcher, seed: int) -> tuple[list[Trial], list[float]]:
    """Ask and tell; the default first, as studies do. Answers that cost nothing (known rows of a table) do not count."""
    answer, told = job.answer(seed), []
    losses: dict[Config, float] = {}
    first = [Proposal(config=job.space.default(), origin=Origin(by=By.DEFAULT))]
    for _ in range(10 * BUDGET):
        if len(losses) >= BUDGET or not (proposals := first or searcher.ask(1)):
            break
        first = []
        trials = answer(proposals[0])
        searcher.tell(trials)
        told += trials[:1]
        losses.setdefault(trials[0].config, job.task.objective.loss(trials[0].measurement))
    return told, list(losses.values())


def judged(job: Job, losses: Sequence[float], past: tuple[Past, ...]) -> Outcome:
    best = np.minimum.accumulate([*losses, *[math.inf] * (BUDGET - len(losses))])
    regret = np.clip((best - job.best) / (job.middle - job.best), 0.0, 1.0)
    reached = np.flatnonzero(best <= job.best + NEAR * abs(job.best))
    return Outcome(float(reached[0] + 1) if len(reached) else 2.0 * BUDGET, float(regret.mean()), past)


def sequence(jobs: Sequence[Job], make: Make, seed: int, *, warm: bool) -> list[Outcome]:
    """One study after the other, all in one store."""
    store, found = MemoryStore(), []
    for number, job in enumerate(jobs):
        name = f"job {number}"
        past = recall(store, job.task, least=MIN_SIMILARITY, fidelity=Fidelity.SIMULATED) if warm else ()
        store.open(StudyRecord(name=name, task=job.task, space=job.space.fingerprint(), spec={}))
        told, losses = study(job, make(job.space, job.task, seed, past), seed)
        store.append(name, list({(trial.config, trial.measurement.fidelity): trial for trial in told}.values()))
        found.append(judged(job, losses, past))
    return found


def compare(title: str, jobs: Sequence[Job], seeds: int) -> None:
    print(f"{title}: budget {BUDGET}, {seeds} seeds; evaluations to 10 % of the best known, area under regret: cold, warm")
    for name, make in MAKERS.items():
        cold = [sequence(jobs, make, seed, warm=False) for seed in range(seeds)]
        warm = [sequence(jobs, make, seed, warm=True) for seed in range(seeds)]
        for number, job in enumerate(jobs):
            if not (past := warm[0][number].past):
                continue
            near = [float(np.mean([runs[number].near for runs in lot])) for lot in (cold, warm)]
            area = [float(np.mean([runs[number].area for runs in lot])) for lot in (cold, warm)]
            alike = ", ".join(f"{study.similarity:.2f}" for study in past)
            print(f"  {name:12s} {job.name:40s} {near[0]:5.1f} {near[1]:5.1f}   {area[0]:.3f} {area[1]:.3f}   from {len(past)} ({alike})")
        later = [number for number in range(len(jobs)) if warm[0][number].past]
        total = [np.array([[runs[number].near for number in later] for runs in lot]) for lot in (cold, warm)]
        areas = [np.array([[runs[number].area for number in later] for runs in lot]) for lot in (cold, warm)]
        ratio = math.exp(float(np.mean(np.log(total[1].mean(axis=0) / total[0].mean(axis=0)))))
        won = float(np.mean(areas[1] < areas[0]) + 0.5 * np.mean(areas[1] == areas[0]))
        print(
            f"  {name}: evaluations warm / cold {ratio:.2f}, area {areas[1].mean():.3f} / {areas[0].mean():.3f}, warm better in {won:.0%}"
        )


def main(seeds: int) -> None:
    kernels = kernel_jobs()
    compare("a kernel in four sizes", kernels, seeds)
    compare("a kernel in four sizes, the other way round", kernels[::-1], seeds)
    compare("a kernel in four sizes, the second and the fourth first", kernels[1::2] + kernels[::2], seeds)
    compare("virtual clusters", virtual_jobs(), seeds)
    if TABLES.is_dir():
        jobs = recorded_jobs()
        compare("recorded", jobs, seeds)
        compare("recorded, the other way round", jobs[::-1], seeds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
