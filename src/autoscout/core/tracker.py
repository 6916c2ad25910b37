"""Trackers: where a team looks at its experiments. The base class of the plug-ins, and what they are shown: plain data without secrets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from autoscout.core.closable import Closable
from autoscout.core.config import Value
from autoscout.core.state import State
from autoscout.core.task import Goal
from autoscout.core.trial import Status

NAME_CHARS, TEXT_CHARS = 250, 5_000
"""Of a name and of a text that every tracker takes: MLflow's limits are 250 and 6,000."""


@dataclass(frozen=True, kw_only=True)
class TrackedKnob:
    """A knob: its values, or the ends of a range of too many to list."""

    values: tuple[Value, ...] = ()
    ends: tuple[Value, ...] = ()
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class TrackedStudy:
    """A study.

    Attributes:
        name: As people call it.
        key: Twelve hex digits that name it in all the world, the same whenever it is resumed.
        system: What is tuned.
        goals: What is improved, the first is what the answer is chosen by.
        settings: What was asked, flat: `budget.trials`. Values of variables are hidden.
        knobs: By name.
        space: The space as a campaign writes it; empty where it cannot be written down.
        task: The task as JSON.
        begun_s: In seconds since the epoch.
    """

    name: str
    key: str
    system: str
    goals: tuple[Goal, ...]
    settings: Mapping[str, Value] = field(default_factory=dict)
    knobs: Mapping[str, TrackedKnob] = field(default_factory=dict)
    space: str = ""
    task: str = "{}"
    begun_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TrackedTrial:
    """A trial.

    Attributes:
        number: Counts within the study from 0.
        name: The trial for people: number, who proposed it.
        config: Its knobs; those that are inactive are left out.
        status: How it fared.
        metrics: All numbers.
        goals: Those of them that are improved, in the study's order; empty where one is missing, as after a failure.
        best: Per goal of the study: the best value that met all limits up to this trial; empty before there is one.
        samples: Raw repeats behind a metric, or values by step of the program, by name.
        violations: By limit: how far it is broken, at most 0 where it holds.
        notes: Who proposed it, the phase, the fidelity, the reason of a failure.
        begun_s: In seconds since the epoch.
        ended_s: Likewise.
    """

    number: int
    name: str
    config: Mapping[str, Value]
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    goals: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, float] = field(default_factory=dict)
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    violations: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, Value] = field(default_factory=dict)
    begun_s: float = 0.0
    ended_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TrackedResult:
    """What came of a study.

    Attributes:
        state: How it stands.
        metrics: Numbers of the verdict: gain, its interval, the value of default and best.
        notes: Texts of the verdict, the knobs of the answer, the machine.
        files: Report, tables and the files that run the answer: name with `/` between folders -> text.
        ended_s: When its last trial ended, in seconds since the epoch.
    """

    state: State
    metrics: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, Value] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    ended_s: float = 0.0


class Tracker(Closable):
    """Shows a study as a run of its own, and each trial as another. Built by `cls(options)`.

    It lives in a process of its own and is called by one thread of it, so whatever it does costs the study nothing: it may take its time,
    and raise anything; it is asked again later. Options named `folder` are given the result folder. A life:

        begin(study)        -> "http://127.0.0.1:5000"
        sent()              -> {0, 1}       of an earlier run of the study
        add(trial 2)
        end(result)                         the study has ended, at least for now
        close()
    """

    @abstractmethod
    def begin(self, study: TrackedStudy) -> str:
        """Find the study's run by its `key`, or begin it; returns where people see it: an address, a path, or the command that shows it.

        May be called again after it has raised, but not after it has returned.
        """

    @abstractmethod
    def sent(self) -> Collection[int]:
        """Numbers of the trials that are there whole."""

    @abstractmethod
    def add(self, trial: TrackedTrial) -> None:
        """Show a trial that `sent` did not name. One that is there in part, because a process was killed, ends up there once."""

    @abstractmethod
    def end(self, result: TrackedResult) -> None:
        """Show what came of the study, in the place of what an earlier call showed."""

    def close(self) -> None:
        """Let go of everything; may be called twice."""


__all__ = ["NAME_CHARS", "TEXT_CHARS", "TrackedKnob", "TrackedResult", "TrackedStudy", "TrackedTrial", "Tracker"]
