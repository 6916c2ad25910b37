"""The base classes of plug-ins: the seams where the parts meet. Each carries its whole contract.

Siblings (search, evaluate, simulators, backends, execute, store, report) know each other only through this page and through plain data.
What a plug-in may offer besides the abstract methods has a default here that offers nothing: callers ask the attribute or call the method,
never whether it is there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from autoscout.core.actions import Action, Pulse
from autoscout.core.closable import Closable
from autoscout.core.config import Config, Value
from autoscout.core.errors import ClusterError, ConfigError, Fault, StoreError
from autoscout.core.launch import Completed, Launch
from autoscout.core.per_task import once_per_task
from autoscout.core.room import Room
from autoscout.core.task import Task
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import Fidelity, Measurement, Proposal, Trial
from autoscout.core.user import Asked, UserLaunch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EMPTY = Config()


@runtime_checkable
class SpaceLike(Protocol):
    """What study, evaluators and stores need of a space; searchers use the full `autoscout.space.Space`."""

    def default(self) -> Config:
        """The engine's own setting of every active knob; always valid."""

    def check(self, config: Config) -> list[str]:
        """Why `config` is not a complete valid configuration, one sentence per broken rule; empty when it is."""

    def fingerprint(self) -> str:
        """Names this space: equal for spaces with the same knobs, conditions, constraints and facts."""


class Searcher(ABC):
    """Proposes configurations. Built by `cls(space, task, seed, options)`. Called by one thread only. A life, with two workers:

        ask(2)                      -> [A, B]       nothing told yet
        tell([trial of B])                          B was faster
        ask(1, pending=[A])         -> [C]          C differs from A and B
        tell([trial of A, trial of C])
        ask(1)                      -> [D]

    Attributes:
        learns_from_past: Whether it takes past studies itself, as the option `past`; for others their winners are tried first.
        takes_predictions: Whether it takes a simulator as the keyword `simulator` and uses its predictions as a prior.
        ends_by_itself: Whether it goes through a list: no patience that nobody asked for cuts it short.
        takes_several_goals: Whether it looks for the front (`Objective.losses`); others are told one loss, weighed anew for each proposal.
    """

    learns_from_past: ClassVar[bool] = False
    takes_predictions: ClassVar[bool] = False
    takes_several_goals: ClassVar[bool] = False
    ends_by_itself: ClassVar[bool] = False

    @abstractmethod
    def ask(self, n: int, given: Config = EMPTY, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        """Up to `n` valid, complete, distinct proposals that extend `given` and are neither told nor pending.

        Fewer or none means that nothing is left to propose for now. A pure function of (seed, told trials, n, given, pending).

        Args:
            n: How many.
            given: Knobs pinned by the user.
            pending: Proposals that are being evaluated elsewhere: an argument and not memory, because after a kill nobody remembers it.
        """

    @abstractmethod
    def tell(self, trials: Sequence[Trial]) -> None:
        """Take any finished trials: unasked, repeated, failed, simulated or replayed, in any grouping.

        It alone rebuilds all state: after telling the same trials a fresh searcher asks for the same proposals.
        """


class Evaluator(ABC):
    """Turns proposals into measurements."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """From how many threads at once `evaluate` may be called."""

    @abstractmethod
    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        """One measurement per proposal, in order.

        A bad configuration is an answer. Raises `LaunchError` when the world is broken, and only then.
        """

    def recheck(self) -> list[Proposal]:
        """Proposals whose answers it no longer trusts; the study evaluates them again before asking for new ones."""
        return []

    @abstractmethod
    def cancel(self) -> None:
        """End what is under way: the calls in flight return `aborted` measurements soon."""

    @property
    def learns(self) -> bool:
        """Whether `learn` changes its answers."""
        return False

    def learn(self, trials: Sequence[Trial]) -> None:
        """Take in finished trials: those of the store when a study resumes, or what was measured between two batches."""

    def settle(self) -> None:
        """Called once when the searcher has nothing more to propose; what `recheck` names after that is still evaluated."""


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


class Simulator(ABC):
    """A cheap predictor of one metric.

    Built by `cls()`, or by `cls(options)` where its constructor declares a dataclass `options`. It pickles.

    Attributes:
        needs_no_trials: Whether it predicts a task it was told no trial of (physics, not regression). It then refuses a task that it does
            not understand with `ConfigError`. Only such a simulator is used without being named.
    """

    needs_no_trials: ClassVar[bool] = False

    @property
    @abstractmethod
    def knobs(self) -> frozenset[str]:
        """Names of the knobs it reads; others are ignored.

        An attribute of the class where they are always the same: a study that has none of them then need not build it.
        """

    @abstractmethod
    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        """Vectorised, and pure between calls of `fit`. A configuration that it has no answer for gets the value NaN."""

    @abstractmethod
    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        """Learn from the measured trials of the task, failed ones included, and forget what it learned before.

        It is called again with a longer list. Any trials are accepted, also none at all.
        """

    def breakdown(self, config: Config, task: Task) -> Mapping[str, float]:
        """Where the predicted time goes, in seconds by part; empty for a simulator that cannot say."""
        return {}

    def metrics(self, config: Config, task: Task) -> Mapping[str, float]:
        """Metrics by name, for a simulator that predicts several at once; none where the configuration does not run."""
        return {}

    @classmethod
    def example(cls) -> tuple[SpaceLike, Task] | None:
        """A space and a task that it understands, for the conformance suite; a simulator without must accept any task."""
        return None


class Backend(ABC):
    """A system that can be configured. Pure: starts no process, asks no clock, so that it is tested without the engine.

    Built by `cls()`.

    Attributes:
        takes_space: Whether its knobs come from the campaign: it is then built by `cls(space=...)`.
        takes_traffic: Whether its workload can be a traffic description: it serves requests of an API.
        executor: The executor to use where the campaign names none.
        requires: Import names of the packages that its launches need; to declare, render and export it needs none of them.
        space_file: Field of the workload that takes a file of candidates in the system's own form, where a campaign names one as its space.
        shares_process: Whether one launch can measure several configurations in turn, by `process_of`, `render_together`, `divide`.
        curves: Samples by step; the default is measured first, and its curves are told to all other launches (`core/curves.py`).
        reads_any: Whether it reads the launch of any program of its kind: a backend that reads the same one knows it better.
        knob_keys: What an entry of `space.knobs` may say of one of its knobs; more than these where `widened` adds knobs.
    """

    takes_space: ClassVar[bool] = False
    takes_traffic: ClassVar[bool] = False
    executor: ClassVar[str] = "local"
    requires: ClassVar[tuple[str, ...]] = ()
    space_file: ClassVar[str] = ""
    shares_process: ClassVar[bool] = False
    curves: ClassVar[tuple[str, ...]] = ()
    reads_any: ClassVar[bool] = False
    knob_keys: ClassVar[tuple[str, ...]] = ("values", "range")

    @abstractmethod
    def task(self, given: Mapping[str, object]) -> Task:
        """A partial description (workload, hardware, objective) filled up with this engine's defaults.

        Refuses what it does not understand with `ConfigError`, all faults at once.
        """

    @abstractmethod
    def space(self, task: Task) -> SpaceLike:
        """The knobs; the default of each is what the engine itself would do."""

    @abstractmethod
    def render(self, config: Config, task: Task, seed: int) -> Launch:
        """The launch that measures `config`; `seed` picks fresh inputs (prompts)."""

    @abstractmethod
    def parse(self, completed: Completed, task: Task) -> Measurement:
        """The outcome; classifies every failure."""

    @abstractmethod
    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        """The files of the hand-over folder: at least `run.sh`, which runs the system for real use, not the benchmark."""

    @classmethod
    def example(cls) -> Mapping[str, object] | None:
        """A small description for `task`, so that the conformance suite can run over every backend there is.

        It needs no special hardware, no download and at most a few seconds per launch here; its metric comes from what the launch prints
        or returns.
        """
        return None

    def read_launch(self, text: str, name: str) -> UserLaunch:
        """What the user runs today (a command line, or the contents of a file), for `--from` and `--baseline`; `name` says where it stands.

        Refuses with `ConfigError` what it does not understand, all faults at once; so does a backend that reads no launches. A text without
        a launch of this system is refused with `NoLaunchError`, so that the others are asked.
        """
        rule = "this backend does not read launches"
        raise ConfigError([Fault(where=name, rule=rule, fix="Give the settings as KNOB=VALUE, or as a file of knobs and values")])

    def widened(self, task: Task, asked: Asked) -> Backend:
        """This backend with knobs and values that a campaign names and the space lacks; `ConfigError` for what the system does not take."""
        return self

    def pinned(self, task: Task) -> Mapping[str, Value]:
        """Knobs that the task itself holds fixed, in every configuration; what a campaign sets goes before."""
        return {}

    def hints(self, task: Task) -> Sequence[Config]:
        """Complete valid configurations that often do well, few and best first.

        They are tried right after the default, where the user's pinned knobs allow them, and count as trials like any other.
        """
        return ()

    def hints_after(self, default: Measurement, task: Task) -> Sequence[Config]:
        """The same in view of the default's first measurement: what helps where other work disturbed it, say. They replace `hints`."""
        return ()

    def resting(self, task: Task) -> Sequence[str]:
        """Knobs that are not worth searching: a study leaves them at their default unless the campaign sets them or tries them first."""
        return ()

    def fidelity(self, task: Task) -> Fidelity:
        """The label of every answer; another one where answers may not come from the real system."""
        return Fidelity.MEASURED

    def deterministic(self, task: Task) -> bool:
        """Whether the same configuration gives the same answer every time.

        Nothing is measured twice then: a busy machine does not matter, and there is no final.
        """
        return False

    def packages(self, task: Task) -> Sequence[str]:
        """Those of `requires` that the launches of this task need from AutoScout's own environment."""
        return self.requires

    def check(self, task: Task) -> None:
        """Refuse a task whose trials start what is not there; asked right before a study runs, never when one is only read."""

    def load(self, task: Task) -> str:
        """How the load is produced: one sentence, with the path by which it reaches the system. Empty where there is nothing to say."""
        return ""

    def lost_after_s(self, task: Task, to_beat: ToBeat) -> float | None:
        """Seconds after which a launch cannot beat `to_beat` any more, whatever it would report; it is then ended from outside.

        None where its time says nothing. For launches without a program of ours inside, which would stop by itself.
        """
        return None

    def serve(self, config: Config, task: Task) -> Sequence[str]:
        """The command line, for people, of the other program that a launch starts in the end; empty where there is none."""
        return ()

    def search(self, task: Task, space: Any) -> tuple[str, Mapping[str, object]] | None:
        """The searcher, and its options, that suit the space best where the campaign names none; None for the usual one.

        The task has its budget; `space` is an `autoscout.space.Space`.
        """
        return None

    def long_run(self, task: Task) -> tuple[Task, int]:
        """The longer run in which the last round of a final compares what is learned: its task, for `render`, and steps; 0 for none."""
        return task, 0

    def process_of(self, config: Config, task: Task) -> Config | None:
        """What a process cannot change once it runs: configurations with the same may share a launch. None for a launch of its own."""
        return None

    def render_together(self, configs: Sequence[Config], task: Task, seed: int) -> Launch:
        """The launch that measures configurations with the same process, in this order."""
        raise NotImplementedError

    def divide(self, completed: Completed, count: int) -> list[Completed | None]:
        """For each configuration what a launch of its own would have come back with, for `parse`, its own share of the time included.

        None for those that the launch did not come to.
        """
        raise NotImplementedError


@runtime_checkable
class Job(Protocol):
    """A launch under way, shaped like a Future."""

    def done(self) -> bool: ...

    def result(self, timeout_s: float | None = None) -> Completed:
        """Wait for the end. Raises `TimeoutError` when `timeout_s` passes first; never for what the process did."""

    def cancel(self) -> None:
        """Kill the whole process group; `result` then returns a Completed with `cancelled`. Safe to call twice."""


class Executor(Closable):
    """The only place that starts processes or talks to clusters. A context manager.

    Built by `cls(options=...)` where its constructor declares a dataclass `options`, whose fields users may set, else by `cls()`. A study
    fills in `slots` (trials at once) and `folder` (of the results) where they are declared and the user set nothing.

    Attributes:
        calls_in_process: Whether it runs calls in this process: they need not pickle, and one that crashes or hangs cannot be ended.
        hands_out_slots_only: Whether it does not know how many cores and GPUs there are, and takes every request for them as met.
    """

    calls_in_process: ClassVar[bool] = False
    hands_out_slots_only: ClassVar[bool] = False

    @property
    @abstractmethod
    def slots(self) -> int:
        """Launches that run together at most."""

    @abstractmethod
    def submit(self, launch: Launch) -> Job:
        """Queue a launch and return at once; at most `slots` run together, each on cores and GPUs of its own. Nothing outlives it."""

    def lost(self) -> ClusterError | None:
        """Why nothing can be launched any more; None as long as something can. Launches that ran then have ended as cancelled."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Cancel all jobs; may be called twice."""


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """What a store knows of a study besides its trials."""

    name: str
    task: Task
    space: str  # fingerprint of the space
    spec: Mapping[str, object]  # the resolved campaign file
    created_s: float = 0.0


class Store(Closable):
    """Keeps what happened. Safe for many threads and many processes at once. A context manager.

    Built by `cls(target, create=..., journal=...)`, chosen by the scheme of its place:

    - `target` is the place as the user wrote it, scheme included (`postgresql://me@host/tuning`, `jsonl:trials`). What follows a scheme
      without `//` is a path, and is made absolute before it is written down.
    - `create` says whether a store that does not exist is begun, or refused with `StoreError`.
    - `journal` is the `trials.jsonl` of the result folder: a store writes one line (`core.journal.encode`) per trial of the studies that
      were opened here, after the trial is durable. None: nobody wants one. Where it is left unwritten, `autoscout explain` finds nothing.

    All failures of disk, network or schema are `StoreError`; nothing that was returned from `append` is ever lost.

    Attributes:
        schemes: The schemes it answers to, in lower case: `("postgresql", "postgres")`.
        volatile: Whether its trials end with the process: every store that is opened is a new, empty one.
        takes_actions: Whether a running study can be watched and steered through its `act`, `actions`, `answer` and `pulses`.
    """

    schemes: ClassVar[tuple[str, ...]] = ()
    volatile: ClassVar[bool] = False
    takes_actions: ClassVar[bool] = False

    @classmethod
    def example(cls, folder: Path) -> str:
        """A place in a folder where the conformance suite can begin a store."""
        return f"{cls.schemes[0]}:{folder / 'store'}"

    @abstractmethod
    def open(self, record: StudyRecord) -> StudyRecord:
        """Create the study or join it; returns the record in force.

        An existing one keeps its task and takes the newcomer's budget, space and spec; another task is a `ConfigError`: all differences.
        """

    @abstractmethod
    def claim(self, study: str, proposals: Sequence[Proposal], worker: str, lease_s: float, room: Room | None = None) -> list[Proposal]:
        """Hold for `worker`, until appended, released or the lease ends, those that nobody has finished (at any fidelity) or holds.

        A holder that died on this machine loses its claims at once; a worker's own are granted again, and no more than `room` leaves.
        """

    @abstractmethod
    def append(self, study: str, trials: Sequence[Trial]) -> list[Trial]:
        """Make one batch durable before returning, number it, and drop the claims.

        A trial whose identity is already there is dropped (somebody else was faster); the stored ones are returned as a later reader will
        see them. An aborted trial is not stored: it only gives its worker's claim back.
        """

    @abstractmethod
    def batches(self, study: str, after: int = -1) -> Iterator[list[Trial]]:
        """The stored batches in order, those after batch number `after` only."""

    @abstractmethod
    def studies(self) -> list[StudyRecord]:
        """All records, newest first, but for those that cannot be read."""

    def damage(self) -> dict[str, Fault]:
        """What is wrong with the studies that `studies` leaves out, by name."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def act(self, study: str, action: Action) -> Action:
        """Keep an action and return it with its number and time."""
        raise StoreError(Fault(where=type(self).__name__, rule="this store keeps no actions"))

    def actions(self, study: str) -> list[Action]:
        """All actions of a study in order, with their answers."""
        return []

    def answer(self, study: str, number: int, text: str) -> None:
        """Note what came of one."""
        raise StoreError(Fault(where=type(self).__name__, rule="this store keeps no actions"))

    def pulses(self) -> Mapping[str, Pulse]:
        """How far every study is: cheap, whatever they hold, because somebody asks every second."""
        return {}


class Observer(Protocol):
    """Somebody who watches a study; called from the thread that runs it."""

    def phase(self, name: str) -> None: ...
    def started(self, proposal: Proposal) -> None: ...
    def finished(self, trial: Trial) -> None: ...


__all__ = [
    "Asked",
    "Backend",
    "Evaluator",
    "Executor",
    "Job",
    "Observer",
    "Prediction",
    "Searcher",
    "Simulator",
    "SpaceLike",
    "Store",
    "StudyRecord",
    "UserLaunch",
    "once_per_task",
]
