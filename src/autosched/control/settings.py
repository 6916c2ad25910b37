"""The file of a controller, typed, with errors that point at the line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, model_validator

from autosched.control.bounds import Bounds
from autoscout.common.fields import Refused, faults_from
from autoscout.core.errors import ConfigError, Fault
from autoscout.study.campaign import CampaignBlock, Duration, Scalar, read_document

if TYPE_CHECKING:
    from autosched.control.decide import Adviser
    from autosched.tune.formulas import Formula
    from autosched.tune.goals import Causes, Goal
    from autosched.tune.modes import Mode


class BoundsBlock(CampaignBlock):
    """What the controller may do by itself."""

    ranges: dict[str, tuple[Scalar, ...]] = Field(default_factory=dict, description="knob: [least, most], or the values allowed")
    frozen: tuple[str, ...] = Field((), description="knobs that are never changed")
    most_steps: int = Field(0, ge=0, description="places along its values that one change may move a knob; 0: any")
    quiet: tuple[str, ...] = Field((), description="hours without changes, such as 22:00-06:00")
    zone: str = Field("UTC", description="time zone of the quiet hours")
    changes_per_day: int = Field(4, ge=0, description="changes in any 24 hours")

    def bounds(self) -> Bounds:
        """As the controller uses them."""
        return Bounds(**dict(self))


class CausesBlock(CampaignBlock):
    """What is known of causes and effects; the causal model learns the rest."""

    metrics: tuple[str, ...] = Field((), description="metrics between settings and goal; the usual ones when left out")
    edges: tuple[str, ...] = Field((), description="FROM -> TO: a setting or metric that acts on a metric, whatever the data shows")
    no_edges: tuple[str, ...] = Field((), description="FROM -> TO: one that does not")


class TuningBlock(CampaignBlock):
    """How settings are looked for."""

    mode: Literal["default", "paper"] = Field(
        "default", description="default: past arrivals from several moments; paper: AutoSched's similar hour, causal model and aggregation"
    )
    metrics: dict[str, str] = Field(default_factory=dict, description="metrics of your own: name: formula over jobs, for goal and causes")
    goal: str = Field("time", description="time, fair, or a metric such as queue_s; all but time as long as jobs take no longer")
    limits: tuple[str, ...] = Field((), description="what settings must keep: queue_s<=600, or preemptions<=1.5x of those in force")
    causes: CausesBlock = Field(default_factory=CausesBlock)
    draws: int = Field(6, ge=2, le=64, description="futures that every candidate is tried on; one with paper where left out")
    horizon: Duration = Field(3600.0, gt=0, description="how long jobs keep coming in a future")
    back: tuple[Duration, ...] = Field(
        (), description="with mode default: how long ago the arrivals that are replayed began, one for each draw in turn"
    )
    trials: int = Field(40, ge=1, description="candidates that are tried")
    searcher: str = Field("hybrid", description="who proposes them; bluefin with paper")
    predictor: str = Field("", description="model of remaining times; random-forest when left out, xgboost with paper")
    least_gain: float = Field(1.1, ge=1, description="threshold: change only when predicted to be this many times better; 1 with paper")
    least_share: float = Field(0.75, ge=0, le=1, description="and when at least this share of the futures gets better; 0 with paper")
    least_jobs: int = Field(100, ge=1, description="with apply: jobs that must be known before anything is changed")
    least_past: Duration = Field(2 * 86400.0, gt=0, description="with apply: how far back they must reach; two days at least")
    slack: float = Field(1.1, ge=1, description="with policies: times worse that the worst user and the longest wait may get")
    seed: int = Field(0, description="equal seeds, equal decisions")

    @model_validator(mode="after")
    def _fits(self) -> TuningBlock:
        if self.mode == "paper" and self.back:
            raise ValueError("back goes with mode: default; paper replays what followed the most similar hour")
        if self.mode == "default" and (self.causes.metrics or self.causes.edges or self.causes.no_edges):
            raise ValueError("causes go with mode: paper, which has a causal model")
        if self.model_fields_set & {"goal", "metrics", "causes", "limits"}:
            self._aims()
        return self

    def _aims(self) -> tuple[Goal, Causes]:
        """What is improved, and the causes that are reasoned about.

        Raises:
            Refused: metrics, goal or causes mean nothing; all faults at once, with the names of their fields in this block.
        """
        from autosched.tune.goals import Causes, Goal  # with the simulator, which verbs that only read the ledger do not need

        formulas: tuple[Formula, ...] = ()
        faults: list[Fault] = []
        causes, goal = Causes(), Goal()
        try:
            causes = Causes.of(**dict(self.causes), formulas=self.metrics)
            formulas = causes.formulas
        except ConfigError as error:
            faults += [replace(fault, field=".".join(part for part in (fault.where, fault.field) if part)) for fault in error.faults]
        if not faults or self.goal not in self.metrics:
            try:
                goal = Goal.of(self.goal, formulas, () if faults else self.limits)  # which may be of metrics that are at fault
            except ConfigError as error:
                faults += [replace(fault, field=fault.where) for fault in error.faults]
        if faults:
            raise Refused(faults)
        return goal, causes

    def adviser(self, model: str) -> Adviser:
        """Who looks for settings.

        Args:
            model: The scheduler that simulates the live one.

        Raises:
            ConfigError: searcher or predictor do not exist; all at once.
        """
        from autosched.control.decide import Adviser  # with the simulator, which verbs that only read the ledger do not need
        from autosched.sim.policies import JOIN

        try:
            mode = self._mode()
        except ConfigError as error:
            raise ConfigError([replace(fault, where=f"tuning.{fault.where}") for fault in error.faults]) from error
        goal, causes = self._aims()
        if JOIN in model:
            goal = goal.guarded(self.slack)
        return Adviser(model, mode, goal, causes, self.seed)

    def _mode(self) -> Mode:
        """The mode, with what the operator says otherwise."""
        from autosched.arrivals.arrivals import Generator
        from autosched.tune.modes import LIVE, MODES

        base = MODES["paper"] if self.mode == "paper" else LIVE
        said = self.model_fields_set
        search = replace(base.search, **{name: getattr(self, name) for name in ("trials", "searcher") if name in said})
        changes: dict[str, Any] = {name: getattr(self, name) for name in ("draws", "least_gain", "least_share") if name in said}
        if "horizon" in said:
            changes |= {"horizon_s": self.horizon, "cap_s": max(base.cap_s, self.horizon)}
        if self.back:
            changes["generators"] = tuple(Generator(method="back", back_s=back) for back in self.back)
        if self.predictor:
            changes["predictor"] = replace(base.predictor, model=self.predictor)
        least = changes.get("least_gain", base.least_gain)
        changes["watch_gain"] = max(base.watch_gain, least) if self.mode == "paper" else least
        return replace(base, search=search, **changes)


class RollBackBlock(CampaignBlock):
    """When a change is taken back."""

    worse_than: Literal["before", "predicted"] = Field(
        "before", description="before: worse than the settings before it; predicted: worse than its predicted gain"
    )
    tolerance: float = Field(0.05, ge=0, lt=1, description="share by which it may be worse")


class ServiceBlock(CampaignBlock):
    """The gRPC service; without this block there is none."""

    address: str = Field("127.0.0.1:7433", description="host:port; other hosts than this machine need tokens and TLS")
    tokens: str | None = Field(None, description="file with one `NAME ROLE TOKEN` a line; roles: reader, operator")
    certificate: str | None = Field(None, description="PEM file of the server's certificate")
    key: str | None = Field(None, description="PEM file of its private key")
    metrics: str | None = Field(None, description="host:port of Prometheus metrics over HTTP")
    most_bytes: int = Field(1_048_576, gt=0, description="bytes of one message")
    per_second: float = Field(50.0, gt=0, description="calls a second of one client, on average")


class Settings(CampaignBlock):
    """Everything a controller is told."""

    cluster: str = Field(min_length=1, max_length=200, description="name of the cluster in the repository")
    live: dict[str, Any] = Field(description="kind: slurm, kueue, volcano or replay, and its options")
    folder: str = Field("control", description="where the controller keeps its files")
    store: str | None = Field(None, description="SQLite file or postgresql:// URL; control.db in the folder when left out")
    mode: Literal["observe", "propose", "apply"] = Field("observe", description="observe: change nothing; propose: wait for approval")
    every: Duration = Field(3600.0, gt=0, description="seconds between decisions")
    watch: Duration = Field(300.0, ge=0, description="seconds between decisions in the background; 0: none")
    look: Duration = Field(10.0, gt=0, description="seconds between two looks at the cluster")
    period: Duration | None = Field(None, gt=0, description="after a change, until it is judged; `every` when left out")
    memory: Duration = Field(30 * 86400.0, gt=0, description="how far back jobs are learned from")
    keep: Duration = Field(90 * 86400.0, gt=0, description="how long events of ended jobs are kept")
    verify: Duration = Field(10.0, gt=0, description="how long the scheduler may take to report a change")
    bounds: BoundsBlock = Field(default_factory=BoundsBlock)
    tuning: TuningBlock = Field(default_factory=TuningBlock)
    roll_back: RollBackBlock = Field(default_factory=RollBackBlock)
    service: ServiceBlock | None = None

    @property
    def period_s(self) -> float:
        return self.period or self.every

    @property
    def simulated(self) -> bool:
        """Whether the cluster itself is a simulation."""
        return self.live.get("kind") == "replay"

    @property
    def target(self) -> str:
        """The store."""
        return self.store or str(Path(self.folder) / "control.db")


def read_settings(path: Path) -> Settings:
    """Read the file of a controller; its folder, store, tokens and certificates are relative to the file.

    Raises:
        ConfigError: all faults of the file at once, each with its line.
    """
    root, lines = read_document(path)
    return build_settings(root.value, str(path), lines, path.absolute().parent)


def build_settings(data: Mapping[str, Any], where: str, lines: Any = None, home: Path | None = None) -> Settings:
    """Check the settings of a controller given as plain data.

    Raises:
        ConfigError: all faults at once.
    """
    try:
        settings = Settings.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(faults_from(error, where, Settings, lines)) from error
    if "kind" not in settings.live:
        raise ConfigError(Fault(where=where, field="live.kind", rule="is required", fix="slurm, kueue, volcano or replay"))
    if home is None:
        return settings
    moved: dict[str, Any] = {"folder": str(home / settings.folder)}
    if settings.store and "://" not in settings.store:
        moved["store"] = str(home / settings.store)
    if settings.service is not None:
        files = {name: path for name in ("tokens", "certificate", "key") if (path := getattr(settings.service, name))}
        moved["service"] = settings.service.model_copy(update={name: str(home / path) for name, path in files.items()})
    return settings.model_copy(update=moved)
