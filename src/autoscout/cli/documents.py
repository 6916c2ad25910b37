"""The JSON documents that `--json` prints, as types: their published schema is made of these, and tests hold what is printed to it.

A dataclass that is printed field by field stands here itself; the models are of what is printed in another form.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from autoscout.analysis.contributions import Contribution
from autoscout.analysis.curves import CurvePoint
from autoscout.analysis.gain import Gain
from autoscout.analysis.importance import Importance, KnobShare
from autoscout.analysis.limits import LimitState
from autoscout.analysis.price import Cost
from autoscout.analysis.summary import Spent
from autoscout.analysis.verdict import Verdict
from autoscout.core.config import Value
from autoscout.core.errors import Fault

Number = float | None


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LimitDocument(_Document):
    """A limit, and whether it was kept."""

    limit: str
    value: Number
    holds: bool = Field(description="whether the median keeps it; `state` says whether that is certain")
    state: str = Field(description=", ".join(state.value for state in LimitState))
    low: Number
    high: Number


class SideDocument(_Document):
    """A configuration with its runs pooled."""

    config: dict[str, Value]
    key: str
    name: str = Field(description="the knobs that it changes: `parallel=8, flash_attention=on`")
    runs: int
    failures: int
    value: Number
    spread: Number
    metrics: dict[str, float]
    limits: list[LimitDocument]
    trials: list[int]


class FinalistDocument(SideDocument):
    """A contender of the final."""

    gain: Gain
    gain_over_default: Gain | None = Field(description="over the engine's default, where `gain` is over the baseline")
    eligible: bool


class ChangeDocument(_Document):
    """A knob that the best configuration sets differently."""

    knob: str
    default: Value
    best: Value
    default_active: bool
    best_active: bool
    unit: str
    help: str
    warning: str


class FailureDocument(_Document):
    """Trials that failed in the same way."""

    status: str
    reason: str
    count: int
    trials: list[int]


class FilesDocument(_Document):
    """Where everything was written."""

    folder: str
    report: str
    journal: str
    best: str | None = None
    front: str | None = None


class NextStepDocument(_Document):
    """What would decide."""

    measurements: int
    seconds: Number
    command: str


class ResultDocument(_Document):
    """What `tune`, `resume` and `report` print with `--json`; `report.json` holds the same without `stop`, `ended` and `files`."""

    study: str
    task: dict[str, Any]
    verdict: str = Field(description=", ".join(verdict.value for verdict in Verdict))
    reason: str
    next: NextStepDocument | None = Field(description="what would decide a study that is not decided")
    headline: str
    warnings: list[str]
    gives_up: list[str]
    gain: Gain
    against: str = Field(description="what `gain` is measured against: baseline (what the user runs today) or default")
    gain_over_default: Gain | None = Field(description="of the best over the engine's default, where `gain` is over the baseline")
    baseline_gain: Gain | None = Field(description="of the baseline over the engine's default")
    costs: list[Cost]
    default: SideDocument | None
    baseline: SideDocument | None
    best: SideDocument | None
    answer: dict[str, Value] | None = Field(description="the configuration to run; null only when nothing worked")
    changes: list[ChangeDocument]
    finalists: list[FinalistDocument]
    fidelity: str = Field(description="measured or simulated")
    counts: dict[str, dict[str, int]]
    failures: list[FailureDocument]
    spent: Spent
    noisy: list[int]
    dirty: list[int]
    load: str
    points: list[CurvePoint]
    importance: Importance | None
    distribution: dict[str, Any] | None = Field(default=None, description="how many configurations are near the best, and how many failed")
    ablation: dict[str, Any] | None
    contributions: list[Contribution]
    front: dict[str, Any] | None = None
    predicted: dict[str, Any] | None = None
    machine: dict[str, str] | None = Field(default=None, description="the machine that ran the study, in words")
    stop: str | None = Field(default=None, description="why the study ended; null while it is under way")
    ended: str = Field(default="", description="the same in a line for people, with what was left of a budget of time")
    files: FilesDocument | None = None


class LaunchDocument(_Document):
    """What one trial would start."""

    by: str = Field(description="default, baseline, given (tried first), or the searcher that proposes it")
    config: dict[str, Value]
    serve: list[str] | None = None
    argv: list[str]
    env: dict[str, str]
    files: list[str]


class DryRunDocument(_Document):
    """What `tune --dry-run --json` prints; nothing was started or written."""

    campaign: dict[str, Any]
    folder: str
    stored: int = Field(description="trials that the study has already")
    launches: list[LaunchDocument]


class ErrorDocument(_Document):
    """What any verb prints with `--json` instead of its result, with exit code 2."""

    error: str
    faults: list[Fault]


def documents_schema() -> dict[str, Any]:
    """The JSON Schema of what `--json` prints: a result, a dry run, or an error."""
    schema: dict[str, Any] = TypeAdapter(ResultDocument | DryRunDocument | ErrorDocument).json_schema()
    for kind in (Gain, Cost, Spent, CurvePoint, Importance, KnobShare, Contribution):
        definition = schema["$defs"][kind.__name__]
        definition |= {"additionalProperties": False, "required": list(definition["properties"])}  # all of a dataclass is printed
        definition["description"] = definition["description"].partition("\n")[0]
    schema["$defs"]["Fault"]["additionalProperties"] = False  # what is empty is left out
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "What autoscout tune, resume and report print with --json"}
    return head | schema


__all__ = ["DryRunDocument", "ErrorDocument", "ResultDocument", "documents_schema"]
