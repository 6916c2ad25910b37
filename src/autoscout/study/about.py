"""What a study's record tells readers who do not have its system: knobs, default, how the load is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from autoscout.analysis.labels import KnobNote
from autoscout.common.machine import describe_machine
from autoscout.core.config import Config, Value
from autoscout.core.errors import SpaceError
from autoscout.core.origin import By
from autoscout.core.protocols import StudyRecord
from autoscout.core.trial import Fidelity, Trial
from autoscout.space import Listed, Space, write_space
from autoscout.study.setup import Setup

ABOUT = "about"
"""Entry of a study's record."""
VALUES = 64  # of a knob that are kept; a longer list is told by its ends
SPACE_CHARS = 100_000


@dataclass(frozen=True, kw_only=True)
class KnobAbout:
    """One knob, as people read it."""

    name: str
    unit: str = ""
    help: str = ""
    warning: str = ""
    values: tuple[Value, ...] = ()  # empty when there are too many to list
    ends: tuple[Value, ...] = ()  # the first and the last then
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class About:
    """A study in words and data.

    Attributes:
        default: The engine's default; None where nobody knows.
        baseline: What the user runs today; None without one.
        knobs: In the order in which the space declares them.
        exact: Whether every answer is the same each time.
        simulated: Whether the system's own answers are simulated.
        space: As a campaign writes it; empty where that is long, or cannot be written.
        load: How the load is produced, in one sentence.
        machine: The machine that ran the study last, and the versions of what ran it; executors may use others for the trials.
    """

    default: dict[str, Value] | None = None
    baseline: dict[str, Value] | None = None
    knobs: tuple[KnobAbout, ...] = field(default=())
    exact: bool = False
    simulated: bool = False
    space: str = ""
    load: str = ""
    machine: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, setup: Setup) -> Self:
        """Of a study that is about to run."""
        return cls(
            default=setup.default.to_json(),
            baseline=setup.baseline.to_json() if setup.baseline is not None else None,
            knobs=tuple(_knob(knob, knob.values, knob.log) for knob in setup.space.knobs.values()),
            exact=setup.deterministic,
            simulated=setup.fidelity is Fidelity.SIMULATED,
            space=_written(setup.space),
            load=setup.backend.load(setup.task),
            machine=describe_machine(),
        )

    @classmethod
    def from_record(cls, record: StudyRecord) -> Self:
        """As the record says; little where an earlier version wrote it."""
        try:
            return TypeAdapter(cls).validate_python(record.spec.get(ABOUT) or {})
        except ValidationError:
            return cls()

    def default_config(self, trials: Sequence[Trial]) -> Config:
        """The default; where the record has none, the configuration that was measured as such, else the first."""
        if self.default is not None:
            return Config(self.default)
        named = (trial.config for trial in trials if trial.proposal.origin.by == By.DEFAULT)
        return next(named, trials[0].config if trials else Config())

    @property
    def baseline_config(self) -> Config | None:
        """The baseline as a configuration."""
        return None if self.baseline is None else Config(self.baseline)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _written(space: Space) -> str:
    if isinstance(space, Listed) and len(space) > VALUES:
        return ""
    try:
        text = write_space(space)
    except SpaceError:  # a rule is a Python function
        return ""
    return text if len(text) <= SPACE_CHARS else ""


def _knob(knob: KnobNote, values: Sequence[Value], log: bool) -> KnobAbout:
    few = len(values) <= VALUES
    ends = () if few else (values[0], values[len(values) - 1])
    listed = tuple(islice(values, VALUES)) if few else ()
    return KnobAbout(name=knob.name, unit=knob.unit, help=knob.help, warning=knob.warning, values=listed, ends=ends, log=log)


__all__ = ["ABOUT", "About", "KnobAbout"]
