"""The JSON documents that `--json` prints, as types: their published schema is made of these, and tests hold what is printed to it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from autoscout.core.config import Value

Number = float | None


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class GainDocument(_Document):
    """How many times better than the default (1.25 = 25 % better), with its interval where there were enough pairs."""

    ratio: Number
    low: Number
    high: Number
    pairs: int
    confidence: float
    compared: int
    method: str


class LimitDocument(_Document):
    """A limit, and whether it was kept."""

    limit: str
    value: Number
    holds: bool


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

    gain: GainDocument
    eligible: bool


class CostDocument(_Document):
    """A metric that got worse by more than a fifth."""

    metric: str
    default: float
    best: float
    times: Number


class ChangeDocument(_Document):
    """A knob that the best configuration sets differently."""

    knob: str
    default: Value
    best: Value
    default_active: bool
    best_active: bool
    unit: str
    help: str


class FailureDocument(_Document):
    """Trials that failed in the same way."""

    status: str
    reason: str
    count: int
    trials: list[int]


class SpentDocument(_Document):
    """What the study cost."""

    trials: int
    wall_s: float
    cost_s: float
    configs: int
    parts: dict[str, float]
    bounded: int


class PointDocument(_Document):
    """A trial on the convergence curve."""

    number: int
    elapsed_s: float
    spent_s: float
    value: Number
    best: Number
    improved: bool
    fidelity: str
    status: str
    phase: str
    allowed: bool


class KnobDocument(_Document):
    """A knob's importance with a 90 % interval."""

    name: str
    share: float
    low: float
    high: float


class ImportanceDocument(_Document):
    """How much each knob matters."""

    knobs: list[KnobDocument]
    unvaried: list[str]
    fit: float
    configs: int
    note: str


class ContributionDocument(_Document):
    """How many times worse the answer would be with this knob at its default."""

    knob: str
    ratio: Number
    low: Number
    high: Number
    source: str


class FilesDocument(_Document):
    """Where everything was written."""

    folder: str
    report: str
    journal: str
    best: str | None = None
    front: str | None = None


class ResultDocument(_Document):
    """What `tune`, `resume` and `report` print with `--json`; `report.json` holds the same without `stop` and `files`."""

    study: str
    task: dict[str, Any]
    verdict: str = Field(description="gain, no significant gain, worse, no valid configuration")
    reason: str
    headline: str
    warnings: list[str]
    gain: GainDocument
    costs: list[CostDocument]
    default: SideDocument | None
    best: SideDocument | None
    answer: dict[str, Value] | None = Field(description="the configuration to run; null only when nothing worked")
    changes: list[ChangeDocument]
    finalists: list[FinalistDocument]
    fidelity: str = Field(description="measured or simulated")
    counts: dict[str, dict[str, int]]
    failures: list[FailureDocument]
    spent: SpentDocument
    noisy: list[int]
    dirty: list[int]
    load: str
    points: list[PointDocument]
    importance: ImportanceDocument | None
    ablation: dict[str, Any] | None
    contributions: list[ContributionDocument]
    front: dict[str, Any] | None = None
    predicted: dict[str, Any] | None = None
    stop: str | None = Field(default=None, description="why the study ended; null while it is under way")
    files: FilesDocument | None = None


class LaunchDocument(_Document):
    """What one trial would start."""

    config: dict[str, Value]
    serve: list[str] | None = None
    argv: list[str]
    env: dict[str, str]
    files: list[str]


class DryRunDocument(_Document):
    """What `tune --dry-run --json` prints; nothing was started or written."""

    campaign: dict[str, Any]
    folder: str
    launches: list[LaunchDocument]


class FaultDocument(_Document):
    """One thing to fix."""

    rule: str
    where: str | None = None
    field: str | None = None
    value: str | None = None
    fix: str | None = None


class ErrorDocument(_Document):
    """What any verb prints with `--json` instead of its result, with exit code 2."""

    error: str
    faults: list[FaultDocument]


def documents_schema() -> dict[str, Any]:
    """The JSON Schema of what `--json` prints: a result, a dry run, or an error."""
    schema: dict[str, Any] = TypeAdapter(ResultDocument | DryRunDocument | ErrorDocument).json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "What autoscout tune, resume and report print with --json"}
    return head | schema


__all__ = ["DryRunDocument", "ErrorDocument", "ResultDocument", "documents_schema"]
