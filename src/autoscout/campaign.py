"""Campaign: the YAML file that describes a study, typed, with errors that point at the line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Limit

_UNITS_S = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def duration_s(value: object) -> float:
    """Seconds from 90, '90', '90s', '10m', '2h', '1h30m' or '1d'."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    text = str(value).strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    if (
        not parts
        or "".join(number + unit for number, unit in parts) != re.sub(r"\s", "", text)
        or any(unit not in _UNITS_S for _, unit in parts)
    ):
        raise ValueError("a duration reads like 90, 90s, 10m, 2h or 1h30m")
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def _limit(value: object) -> str:
    try:
        return str(Limit.parse(str(value)))
    except ConfigError as error:
        raise ValueError(error.faults[0].rule) from error


Duration = Annotated[float, BeforeValidator(duration_s)]
LimitText = Annotated[str, BeforeValidator(_limit)]


class Block(BaseModel):
    """A block of the file: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Goal(Block):
    """What to improve, and the limits to keep."""

    metric: str | None = Field(None, description="metric to improve; the backend's own when left out")
    direction: Literal["minimize", "maximize"] | None = Field(None, description="which way is better")
    slo: tuple[LimitText, ...] = Field((), description="limits such as p95_ttft_ms<=500")


class Bounds(Block):
    """What the study may spend; whichever runs out first ends the search."""

    trials: int | None = Field(None, gt=0, description="measured configurations, the default included")
    wall: Duration | None = Field(None, gt=0, description="time on the clock, the final included: 90s, 10m, 2h")
    cost: Duration | None = Field(None, gt=0, description="sum of the trials' own time")
    failures: int | None = Field(20, gt=0, description="failures in a row after which the study stops")


class Search(Block):
    """Who proposes."""

    searcher: str = Field("random", description="name of the searcher plug-in")
    seed: int = Field(0, description="same seed, same history: same proposals")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the searcher")
    together: bool = Field(False, description="wait for a whole batch before asking again")
    workers: int | None = Field(None, gt=0, description="trials at once; what the executor can hold when left out")


class Execute(Block):
    """Where trials run."""

    executor: str = Field("local", description="name of the executor plug-in")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the executor")


class FinalBlock(Block):
    """The final: best few against the default, again."""

    finalists: int = Field(2, ge=0)
    rounds: int = Field(5, ge=0)


class Measure(Block):
    """How carefully each trial is measured."""

    limit: Duration | None = Field(None, gt=0, description="wall-clock limit of one trial")
    repeats: int = Field(1, gt=0, description="launches per trial; the median counts")
    dirty_repeats: int = Field(2, ge=0, description="extra launches when other work disturbed a trial")


class Campaign(Block):
    """A whole study as a file. Every block but `system` may be left out."""

    system: str = Field(description="name of the backend: what is tuned")
    name: str | None = Field(None, description="name of the study and of its result folder")
    workload: dict[str, Any] = Field(default_factory=dict, description="the load; see the backend's page")
    hardware: dict[str, Any] = Field(default_factory=dict, description="the machine; detected when left out")
    goal: Goal = Field(default_factory=Goal)
    budget: Bounds = Field(default_factory=Bounds)
    space: dict[str, Any] | None = Field(None, description="knobs and constraints; replaces the backend's own space")
    set: dict[str, Value] = Field(default_factory=dict, description="pinned knobs")
    first: tuple[dict[str, Value], ...] = Field((), description="known-good configurations, tried right after the default")
    search: Search = Field(default_factory=Search)
    execute: Execute = Field(default_factory=Execute)
    measure: Measure = Field(default_factory=Measure)
    finals: FinalBlock = Field(default_factory=FinalBlock)
    store: str | None = Field(None, description="postgresql:// URL for teams; a file in the result folder when left out")

    def to_yaml(self) -> str:
        """The file that gives this campaign again; blocks at their defaults are left out."""
        return yaml.safe_dump(self.model_dump(mode="json", exclude_defaults=True), sort_keys=False)


def campaign_schema() -> dict[str, Any]:
    """JSON Schema of campaign files, for editors."""
    return Campaign.model_json_schema()
