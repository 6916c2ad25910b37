"""What flows through a study: Proposal, Measurement, Trial, and the states they can be in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

from autoscout.core.config import Config
from autoscout.core.origin import Origin

if TYPE_CHECKING:
    from autoscout.core.to_beat import ToBeat


class Status(StrEnum):
    """How a configuration fared. Every kind but `OK` and `BOUNDED` is a failure that teaches the search something."""

    OK = "ok"
    OOM_START = "oom_start"
    OOM_RUN = "oom_run"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    INVALID = "invalid"
    WRONG_OUTPUT = "wrong_output"
    BOUNDED = "bounded"
    ABORTED = "aborted"

    @property
    def meaning(self) -> str:
        """What it says, in words."""
        return _STATUSES[self]

    @property
    def failed(self) -> bool:
        """Whether the configuration is to blame; a bounded or aborted trial is neither a success nor a failure."""
        return self not in (Status.OK, Status.BOUNDED, Status.ABORTED)

    @property
    def out_of_memory(self) -> bool:
        return self in (Status.OOM_START, Status.OOM_RUN)


_STATUSES = {
    Status.OK: "it ran, and its metrics count",
    Status.OOM_START: "ran out of memory while starting: the configuration does not fit",
    Status.OOM_RUN: "started, then ran out of memory under load",
    Status.TIMEOUT: "passed its wall-clock limit and was killed",
    Status.CRASHED: "ended with an error of its own",
    Status.INVALID: "the engine refused the combination of settings",
    Status.WRONG_OUTPUT: "claims success, but what it produced is not right or cannot be read",
    Status.BOUNDED: "works, but was stopped early because it could not win any more; `bounds` says how good it may be at most",
    Status.ABORTED: "cut off by us or the budget, or failed as others used its GPUs: says nothing about the configuration; never stored",
}


class Fidelity(IntEnum):
    """How far a number can be trusted; the best configuration is looked for at the highest fidelity present."""

    PREDICTED = 0
    SIMULATED = 1
    MEASURED = 2

    @property
    def label(self) -> str:
        return self.name.lower()

    @property
    def meaning(self) -> str:
        """What it says, in words."""
        return ("filled in by a searcher's own model; never reported as a result", "a simulator's answer", "the real system ran")[self]


SPENT = ("start_s", "warm_up_s", "measure_s")
"""Conditions that say what a trial spent its seconds on: until the system answered, until its numbers counted, and on them."""

EXPENSIVE_S = 20.0
"""Seconds of the default's own trial from which on trials are expensive: with forty of them somebody waits for a quarter of an hour."""

TOO_FEW = "too_few"
"""Condition above 0 where a percentile that is the objective or has a limit is of fewer requests than it needs."""

MACHINE_PROBE = "machine_probe_s"
"""Condition: seconds that a fixed piece of work took on the machine of a trial, just before it."""

SAVED = "saved_s"
"""Condition: seconds that a measurement would have taken longer in processes of its own, instead of those that others had started."""

VIRTUAL = "virtual"
"""Condition above 0 where a simulator has answered instead of a system: what else the machine did meanwhile makes no difference."""

COMPILED = "compile_s"
"""Condition: seconds in which the system compiled what it keeps. That happens once on a machine, so budgets of time do not count it."""

LONG = "long"
"""Condition above 0 where a measurement is of the longer run of a final."""

DEFAULT_AGAIN = -101
"""First repeat of the default's further measurements during the search; they count downwards."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A configuration somebody wants to know the cost of.

    Attributes:
        config: A complete, valid configuration.
        origin: Who proposed it and why.
        repeat: 0 for the first look at a configuration; 1, 2, ... for its rounds in the final and in simplifying, which count on together;
            -1, -2, ... for a recheck of an answer (a simulated one, say) that is no longer trusted; -101, -102, ... for the default
            measured again during the search. Only one trial per config, fidelity and repeat.
        to_beat: What a trial must still be able to reach, or it may be stopped early; None where the number itself is wanted.
            Not stored.
        curves: What the default came to step by step, to compare with (`core/curves.py`). Not stored.
        is_long: Whether it is the longer run in which learning is compared (`Backend.long_run`). Not stored.
    """

    config: Config
    origin: Origin = field(default_factory=Origin)
    repeat: int = 0
    to_beat: ToBeat | None = field(default=None, compare=False)
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict, compare=False)
    is_long: bool = field(default=False, compare=False)

    @property
    def again(self) -> bool:
        """Whether it measures the default once more during the search; a budget of trials does not count it."""
        return self.repeat <= DEFAULT_AGAIN

    def to_json(self) -> dict[str, Any]:
        return {"config": self.config.to_json(), "origin": self.origin.to_json(), "repeat": self.repeat}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Proposal:
        return cls(config=Config(data["config"]), origin=Origin.from_json(data.get("origin", {})), repeat=int(data.get("repeat", 0)))


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The answer to a proposal; a failed configuration is a value, not an exception.

    Attributes:
        status: How it fared.
        metrics: Finite numbers, units in the names (`output_throughput`, `median_ttft_ms`, `peak_mem_gib`). For a bounded trial what it
            had reached when it was stopped; nobody takes these for results.
        bounds: Of a bounded trial: the best value that each metric could still have reached.
        samples: Raw repeats behind a metric, where there are any.
        fidelity: Who answered.
        cost_s: What the answer cost, in seconds of the measured system's time.
        conditions: Circumstances: CPU pressure, process CPU seconds and wall seconds, dirty repeats, and what was spent (`SPENT`).
        reason: One line for a person, for everything but `OK`.
        log_tail: The end of the engine's log, for everything but `OK`.
        folder: Name of the folder below `trials/` of the result folder that holds command, files and logs of its last launch; or empty.
        machine: Where it was measured; empty for the machine of the study.
    """

    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    fidelity: Fidelity = Fidelity.MEASURED
    cost_s: float = 0.0
    conditions: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    log_tail: str = ""
    bounds: Mapping[str, float] = field(default_factory=dict)
    folder: str = ""
    machine: str = ""

    def __post_init__(self) -> None:
        for name, value in [*self.metrics.items(), *self.bounds.items()]:
            if not math.isfinite(value):
                raise ValueError(f"metric {name!r} must be finite, not {value!r}; report wrong_output instead")

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    @property
    def is_disturbed(self) -> bool:
        """Whether other work on the machine spoiled it, however often it was repeated."""
        return self.conditions.get("dirty", 0.0) > 0

    @property
    def spent(self) -> dict[str, float]:
        """Seconds by what they were spent on, as far as the system's driver says."""
        return {name: self.conditions[name] for name in SPENT if name in self.conditions}

    @property
    def usual_s(self) -> float:
        """What it would cost again: without what happens once, and with what sharing a process has saved."""
        return self.cost_s - self.compiled_s + self.conditions.get(SAVED, 0.0)

    @property
    def compiled_s(self) -> float:
        """Seconds of its cost in which something was compiled."""
        return min(self.cost_s, self.conditions.get(COMPILED, 0.0))

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "status": self.status.value,
            "metrics": dict(self.metrics),
            "fidelity": self.fidelity.label,
            "cost_s": self.cost_s,
        }
        if self.bounds:
            data["bounds"] = dict(self.bounds)
        if self.samples:
            data["samples"] = {name: list(values) for name, values in self.samples.items()}
        if self.conditions:
            data["conditions"] = dict(self.conditions)
        if self.reason:
            data["reason"] = self.reason
        if self.log_tail:
            data["log_tail"] = self.log_tail
        if self.folder:
            data["folder"] = self.folder
        if self.machine:
            data["machine"] = self.machine
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        return cls(
            status=Status(data["status"]),
            metrics={name: float(value) for name, value in data.get("metrics", {}).items()},
            samples={name: tuple(map(float, values)) for name, values in data.get("samples", {}).items()},
            fidelity=Fidelity[str(data.get("fidelity", "measured")).upper()],
            cost_s=float(data.get("cost_s", 0.0)),
            conditions={name: float(value) for name, value in data.get("conditions", {}).items()},
            reason=str(data.get("reason", "")),
            log_tail=str(data.get("log_tail", "")),
            bounds={name: float(value) for name, value in data.get("bounds", {}).items()},
            folder=str(data.get("folder", "")),
            machine=str(data.get("machine", "")),
        )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One proposal with its measurement: append-only, never edited.

    The only thing that flows from evaluation to store, search and report. `number` counts within the study from 0 and
    is given by the store; `batch` groups the trials that were told to the searcher together.
    """

    proposal: Proposal
    measurement: Measurement
    study: str = ""
    number: int = -1  # -1 until a store has taken it
    batch: int = -1
    started_s: float = 0.0  # seconds since the epoch
    finished_s: float = 0.0
    worker: str = ""

    @property
    def config(self) -> Config:
        return self.proposal.config

    @property
    def ok(self) -> bool:
        return self.measurement.ok

    @property
    def identity(self) -> tuple[str, str, int]:
        """What may stand only once in a study: configuration, fidelity, repeat."""
        return self.config.canonical, self.measurement.fidelity.label, self.proposal.repeat

    def to_json(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "number": self.number,
            "batch": self.batch,
            "key": self.config.key,
            **self.proposal.to_json(),
            **self.measurement.to_json(),
            "started_s": self.started_s,
            "finished_s": self.finished_s,
            "worker": self.worker,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trial:
        return cls(
            proposal=Proposal.from_json(data),
            measurement=Measurement.from_json(data),
            study=str(data.get("study", "")),
            number=_whole(data, "number"),
            batch=_whole(data, "batch"),
            started_s=float(data.get("started_s", 0.0)),
            finished_s=float(data.get("finished_s", 0.0)),
            worker=str(data.get("worker", "")),
        )


def _whole(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name, -1)
    if type(value) is not int or not -1 <= value < 2**63:
        raise ValueError(f"{name} must be a whole number from -1 on, not {value!r}")
    return value
