"""The protocols: the seams where plug-ins meet. Each carries its whole contract.

Siblings (search, evaluate, simulators, backends, execute, store, report, sched) know each other only through this page
and through plain data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from autoscout.core.config import Config
from autoscout.core.launch import Completed, Launch
from autoscout.core.task import Task
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import Fidelity, Measurement, Proposal, Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray


@runtime_checkable
class SpaceLike(Protocol):
    """What study, evaluators and stores need of a space; searchers use the full `autoscout.space.Space`."""

    def default(self) -> Config:
        """The engine's own setting of every active knob; always valid."""

    def check(self, config: Config) -> list[str]:
        """Why `config` is not a complete valid configuration, one sentence per broken rule; empty when it is."""

    def fingerprint(self) -> str:
        """Names this space: equal for spaces with the same knobs, conditions, constraints and facts."""


@runtime_checkable
class Searcher(Protocol):
    """Proposes configurations.

    Built by `cls(space, task, seed, options)`. Called by one thread only. See `LearnsFromPast` and `TakesPredictions` for more.

    - `ask` returns up to `n` valid, complete, distinct proposals that extend `given` (knobs pinned by the user) and are
      neither told nor pending; fewer or none means that nothing is left to propose for now.
    - `tell` takes any finished trials: unasked, repeated, failed, simulated or replayed, in any grouping. It alone
      rebuilds all state: after telling the same trials a fresh searcher asks for the same proposals.
    - `pending` holds proposals that are being evaluated elsewhere. It is an argument and not memory, because after a
      kill nobody remembers it. `ask` is a pure function of (seed, told trials, n, given, pending).

    A life, with two workers:

        ask(2)                      -> [A, B]       nothing told yet
        tell([trial of B])                          B was faster
        ask(1, pending=[A])         -> [C]          C differs from A and B
        tell([trial of A, trial of C])
        ask(1)                      -> [D]
    """

    def ask(self, n: int, given: Config = ..., pending: Sequence[Proposal] = ...) -> list[Proposal]: ...

    def tell(self, trials: Sequence[Trial]) -> None: ...


@runtime_checkable
class Evaluator(Protocol):
    """Turns proposals into measurements.

    `evaluate` returns one Measurement per proposal, in order, and never raises for a bad configuration; it raises only
    when the world is broken (`LaunchError`). It may be called from up to `slots` threads at once. `recheck` names
    proposals whose answers it no longer trusts; the study evaluates them again before asking for new ones. `cancel`
    ends what is under way: the calls in flight return `aborted` measurements soon.
    """

    @property
    def slots(self) -> int: ...

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]: ...

    def recheck(self) -> list[Proposal]: ...

    def cancel(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A simulator's answers to n configs, as arrays of length n.

    Attributes:
        value: Predicted metric, in the metric's own unit.
        spread: One standard deviation of the expected relative error (0.1 = 10 %).
        feasible: Probability that the configuration runs at all.
        known: 1 within the calibration data, falling to 0 far away from it.
    """

    value: NDArray[np.float64]
    spread: NDArray[np.float64]
    feasible: NDArray[np.float64]
    known: NDArray[np.float64]


@runtime_checkable
class Simulator(Protocol):
    """A cheap predictor of one metric.

    Built by `cls()`, or by `cls(options)` where its constructor declares a dataclass `options`.

    - `predict` is vectorised and pure between calls of `fit`. A configuration that it has no answer for gets the value NaN.
    - `fit` learns from the measured trials of the task, failed ones included, and forgets what it learned before: it is called again
      with a longer list. Any trials are accepted, also none at all.
    - `knobs` names the knobs it reads; others are ignored.
    - It pickles.

    See `NeedsNoTrials`, `ExplainsTime` and `HasExampleTask` for what a simulator may offer besides.
    """

    @property
    def knobs(self) -> frozenset[str]: ...

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction: ...

    def fit(self, trials: Sequence[Trial], task: Task) -> None: ...


@runtime_checkable
class Backend(Protocol):
    """A system that can be configured. Pure: starts no process, asks no clock, so that it is tested without the engine.

    - `task(given)` fills a partial description (workload, hardware, objective) up with this engine's defaults and
      refuses what it does not understand with `ConfigError`, all faults at once.
    - `space(task)` declares the knobs; the default of each is what the engine itself would do.
    - `render(config, task, seed)` gives the launch that measures `config`; `seed` picks fresh inputs (prompts).
    - `parse(completed, task)` reads the outcome, and classifies every failure.
    - `export(config, task)` gives the files of the hand-over folder: at least `run.sh`, which runs the system for
      real use with this configuration, not the benchmark.

    See `Hints`, `TakesSpace`, `Simulated`, `Deterministic`, `LosesByTime`, `PrefersExecutor` and `core.sharing` for what it may offer.
    """

    def task(self, given: Mapping[str, object]) -> Task: ...

    def space(self, task: Task) -> SpaceLike: ...

    def render(self, config: Config, task: Task, seed: int) -> Launch: ...

    def parse(self, completed: Completed, task: Task) -> Measurement: ...

    def export(self, config: Config, task: Task) -> Mapping[str, str]: ...


@runtime_checkable
class Job(Protocol):
    """A launch under way, shaped like a Future."""

    def done(self) -> bool: ...

    def result(self, timeout_s: float | None = None) -> Completed:
        """Wait for the end. Raises `TimeoutError` when `timeout_s` passes first; never for what the process did."""

    def cancel(self) -> None:
        """Kill the whole process group; `result` then returns a Completed with `cancelled`. Safe to call twice."""


@runtime_checkable
class Executor(Protocol):
    """The only place that starts processes or talks to clusters.

    Built by `cls(options=...)` where its constructor declares a dataclass `options`, else by `cls()`. The fields of that dataclass are
    what users may set in a campaign. A study fills in two of them where they are declared and the user set nothing: `slots` (trials at
    once) and `folder` (the result folder; trials get `<folder>/trials/<name>/`). An executor without them chooses for itself.

    `submit` queues a launch and returns at once; at most `slots` run together, each on cores and GPUs of its own. No
    process of a launch outlives its job, whatever it forked. `close` cancels all jobs and may be called twice; the executor is a
    context manager.

    See `CallsInProcess` and `HandsOutSlotsOnly` for executors that offer less.
    """

    @property
    def slots(self) -> int: ...

    def submit(self, launch: Launch) -> Job: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """What a store knows of a study besides its trials."""

    name: str
    task: Task
    space: str  # fingerprint of the space
    spec: Mapping[str, object]  # the resolved campaign file
    created_s: float = 0.0


@runtime_checkable
class Store(Protocol):
    """Keeps what happened. Safe for many threads and many processes at once.

    Built by `cls(target, create=..., journal=...)`, chosen by the scheme of its place:

    - `schemes`, an attribute of the class, names the schemes it answers to, in lower case: `("postgresql", "postgres")`.
    - `target` is the place as the user wrote it, scheme included (`postgresql://me@host/tuning`, `jsonl:trials`). What follows a scheme
      without `//` is a path, and is made absolute before it is written down.
    - `create` says whether a store that does not exist is begun, or refused with `StoreError`.
    - `journal` is the `trials.jsonl` of the result folder: a store writes one line (`core.journal.encode`) per trial of the studies that
      were opened here, after the trial is durable. None: nobody wants one. A store may leave it unwritten; then `autoscout explain`
      and programs that read `trials.jsonl` find nothing.

    Its methods:

    - `open(record)` creates the study or joins it; returns the record in force. An existing one keeps its task and takes
      the newcomer's budget, space and spec; another task is refused with `ConfigError`, all differences at once.
    - `claim(study, proposals, worker, lease_s)` says which of them nobody has finished (at any fidelity) and nobody else
      holds, and holds those for `worker` until appended, released or the lease ends; a holder that died on this machine
      loses its claims at once. A slot is a configuration and a repeat. A worker's own claim is granted to it again.
    - `append(trials)` makes one batch durable before it returns, numbers it, and drops the claims. A trial whose
      identity is already there is dropped (somebody else was faster); the stored ones are returned as a later reader
      will see them. An aborted trial is not stored: it only gives its worker's claim back.
    - `batches(study, after)` yields the stored batches in order, those after batch number `after` only.
    - `studies()` lists all records, newest first.

    All failures of disk, network or schema are `StoreError`; nothing that was returned from `append` is ever lost.

    See `Volatile` and `HasExamplePlace` for more.
    """

    def open(self, record: StudyRecord) -> StudyRecord: ...

    def claim(self, study: str, proposals: Sequence[Proposal], worker: str, lease_s: float) -> list[Proposal]: ...

    def append(self, study: str, trials: Sequence[Trial]) -> list[Trial]: ...

    def batches(self, study: str, after: int = -1) -> Iterator[list[Trial]]: ...

    def studies(self) -> list[StudyRecord]: ...

    def close(self) -> None: ...


# What a plug-in may offer besides its protocol. A class that offers nothing leaves the name out.


@runtime_checkable
class Hints(Protocol):
    """A backend that knows configurations which often do well.

    `hints(task)` gives complete valid configurations, few and best first. They are tried right after the default, where the
    user's pinned knobs allow them, and count as trials like any other.
    """

    def hints(self, task: Task) -> Sequence[Config]: ...


@runtime_checkable
class RestsKnobs(Protocol):
    """A backend with more knobs than are worth searching.

    `resting(task)` names those that a study leaves at their default; a knob that the campaign sets, or tries first, is not one of them.
    """

    def resting(self, task: Task) -> Sequence[str]: ...


@runtime_checkable
class TakesSpace(Protocol):
    """A backend class whose knobs come from the campaign: it is built by `cls(space=...)`."""

    takes_space: bool


@runtime_checkable
class HasExample(Protocol):
    """A backend that brings a small task of its own, so that the conformance suite can run over every backend there is.

    `example()` is a class method. It gives a description for `task` that needs no special hardware, no download and at most a few
    seconds per launch here, and whose metric comes from what the launch prints or returns.
    """

    @classmethod
    def example(cls) -> Mapping[str, object]: ...


@runtime_checkable
class Simulated(Protocol):
    """A backend whose answers may not come from the real system: `fidelity(task)` labels every one of them."""

    def fidelity(self, task: Task) -> Fidelity: ...


@runtime_checkable
class Deterministic(Protocol):
    """A backend that may give the same answer to the same configuration every time.

    Where `deterministic(task)` is true nothing is measured twice: a busy machine does not matter, and there is no final.
    """

    def deterministic(self, task: Task) -> bool: ...


@runtime_checkable
class DescribesLoad(Protocol):
    """A backend that can say how the load is produced: `load(task)` is one sentence, with the path by which it reaches the system."""

    def load(self, task: Task) -> str: ...


@runtime_checkable
class LosesByTime(Protocol):
    """A backend whose launches may be ended from outside once they have taken too long to win.

    `lost_after_s(task, to_beat)` gives the seconds after which a launch cannot beat `to_beat` any more, whatever it would report; None
    where its time says nothing. For launches without a program of ours inside, which would stop by itself.
    """

    def lost_after_s(self, task: Task, to_beat: ToBeat) -> float | None: ...


@runtime_checkable
class StartsServer(Protocol):
    """A backend whose launch starts another program in the end: `serve(config, task)` is the command line of that, for people."""

    def serve(self, config: Config, task: Task) -> Sequence[str]: ...


@runtime_checkable
class PrefersExecutor(Protocol):
    """A backend class that names the executor to use where the campaign names none; without it, `local`."""

    executor: str


@runtime_checkable
class PrefersSearch(Protocol):
    """A backend that knows how its space is best searched where the campaign names no searcher.

    `search(task, space)` gives the name of a searcher and its options, or None for the usual one. The task has its budget.
    """

    def search(self, task: Task, space: SpaceLike) -> tuple[str, Mapping[str, object]] | None: ...


@runtime_checkable
class LearnsFromPast(Protocol):
    """A searcher class that takes past studies itself, as the option `past`; for others their winners are tried first."""

    learns_from_past: bool


@runtime_checkable
class TakesPredictions(Protocol):
    """A searcher class that takes a simulator as the keyword `simulator` and uses its predictions as a prior."""

    takes_predictions: bool


@runtime_checkable
class TakesSeveralGoals(Protocol):
    """A searcher class that looks for the front of a task with several goals (`Objective.losses`).

    For others a study weighs the goals anew for every proposal and tells them one loss.
    """

    takes_several_goals: bool


@runtime_checkable
class NeedsNoTrials(Protocol):
    """A simulator class that predicts a task it was told no trial of (physics, not regression).

    It refuses a task that it does not understand with `ConfigError`. Only such a simulator is used without being named.
    """

    needs_no_trials: bool


@runtime_checkable
class ExplainsTime(Protocol):
    """A simulator that can say where the predicted time goes: `breakdown(config, task)` gives seconds by part."""

    def breakdown(self, config: Config, task: Task) -> Mapping[str, float]: ...


@runtime_checkable
class PredictsMetrics(Protocol):
    """A simulator that predicts more than one metric at once: `metrics(config, task)` gives them by name; none where it does not run."""

    def metrics(self, config: Config, task: Task) -> Mapping[str, float]: ...


@runtime_checkable
class HasExampleTask(Protocol):
    """A simulator that understands few tasks, and brings one with a space, so that the conformance suite can run over every simulator.

    `example()` is a class method. A simulator without it must accept any task.
    """

    @classmethod
    def example(cls) -> tuple[SpaceLike, Task]: ...


@runtime_checkable
class CallsInProcess(Protocol):
    """An executor class that runs calls in this process: they need not pickle, and one that crashes or hangs cannot be ended."""

    calls_in_process: bool


@runtime_checkable
class HandsOutSlotsOnly(Protocol):
    """An executor class that does not know how many cores and GPUs there are: it takes every request for them as met."""

    hands_out_slots_only: bool


@runtime_checkable
class Volatile(Protocol):
    """A store class whose trials end with the process: every store that is opened is a new, empty one."""

    volatile: bool


@runtime_checkable
class HasExamplePlace(Protocol):
    """A store that can be begun in a folder: `example(folder)`, a class method, gives a place for it there.

    The conformance suite uses it. A store without it gets `<first scheme>:<folder>/store`.
    """

    @classmethod
    def example(cls, folder: Path) -> str: ...


@runtime_checkable
class Learns(Protocol):
    """An evaluator that learns from finished trials between two batches."""

    def learn(self, trials: Sequence[Trial]) -> None: ...


@runtime_checkable
class Settles(Protocol):
    """An evaluator that has something left to do when the search ends.

    `settle()` is called once when the searcher has nothing more to propose; what `recheck` names after that is still evaluated.
    """

    def settle(self) -> None: ...


class Observer(Protocol):
    """Somebody who watches a study; called from the thread that runs it."""

    def phase(self, name: str) -> None: ...

    def started(self, proposal: Proposal) -> None: ...

    def finished(self, trial: Trial) -> None: ...


__all__ = [
    "Backend",
    "CallsInProcess",
    "DescribesLoad",
    "Deterministic",
    "Evaluator",
    "Executor",
    "ExplainsTime",
    "HandsOutSlotsOnly",
    "HasExample",
    "HasExamplePlace",
    "HasExampleTask",
    "Hints",
    "Job",
    "Learns",
    "LearnsFromPast",
    "LosesByTime",
    "NeedsNoTrials",
    "Observer",
    "Prediction",
    "PrefersExecutor",
    "PrefersSearch",
    "RestsKnobs",
    "Searcher",
    "Settles",
    "Simulated",
    "Simulator",
    "SpaceLike",
    "StartsServer",
    "Store",
    "StudyRecord",
    "TakesPredictions",
    "TakesSpace",
    "Volatile",
]
