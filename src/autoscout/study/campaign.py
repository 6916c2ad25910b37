"""Campaign: the YAML file that describes a study, typed, with errors that point at the line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from autoscout.common.document import Item, PlainDumper, from_plain, load, unknown_keys
from autoscout.common.fields import Place, Refused, as_list, faults_from, goal_faults
from autoscout.common.text import suggestion
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault, SpaceError
from autoscout.core.secrecy import without_secrets
from autoscout.core.task import Goal, Guard, Limit
from autoscout.space import Knob, Space
from autoscout.space.yaml import space_from_item
from autoscout.study.space_file import SpaceFile, read_space_file

MOST_FINALISTS, MOST_ROUNDS = 1000, 1000
"""Of a final: it is planned as a whole before each of its rounds."""

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


def _bound(kind: type[Limit] | type[Guard]) -> Callable[[object], str]:
    def check(value: object) -> str:
        try:
            return str(kind.parse(str(value)))
        except ConfigError as error:
            raise ValueError(error.faults[0].rule) from error

    return check


def _goal(value: object) -> str:
    try:
        metric, direction = Goal.parse(str(value))
    except ConfigError as error:
        raise ValueError(error.faults[0].rule) from error
    return f"{metric}:{direction.value}" if direction else metric


def _baseline(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(name): _scalar(inner) for name, inner in value.items()}
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be knobs with their values, a launch command, or a file with one of these")
    return value


def _scalar(value: object) -> object:
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise ValueError("must be a number, text, true or false")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be finite")
    return value


def _entry(value: object) -> object:
    if not isinstance(value, str):
        return value
    name, colon, rest = value.partition(":")
    option, equals, text = rest.partition("=")
    if colon and not (equals and option):
        raise ValueError("must read NAME or NAME:OPTION=VALUE")
    return {"name": name, "options": {option: yaml.safe_load(text)} if colon else {}}


def _folder_name(name: str) -> str:
    if not name.strip() or not name.isprintable() or name in (".", "..") or "/" in name or "\\" in name:
        raise ValueError("must be a name that a folder can have: printable, without slashes")
    return name


SPACE_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "object", "additionalProperties": True}, {"type": "string"}, {"type": "null"}]}
Duration = Annotated[float, BeforeValidator(duration_s), Field(allow_inf_nan=False)]
Scalar = Annotated[Value, BeforeValidator(_scalar)]
Baseline = Annotated[dict[str, Value] | str, BeforeValidator(_baseline)]
Name = Annotated[str, AfterValidator(_folder_name)]
LimitText = Annotated[str, BeforeValidator(_bound(Limit))]
GoalText = Annotated[str, BeforeValidator(_goal)]
GuardText = Annotated[str, BeforeValidator(_bound(Guard))]


def _traffic(value: object) -> object:
    """A source alone is short for a block with it; so is a description."""
    return {"source": value} if isinstance(value, str) or (isinstance(value, dict) and "format" in value) else value


class CampaignBlock(BaseModel):
    """A block of the file: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class GoalBlock(CampaignBlock):
    """What to improve, and the limits to keep."""

    metric: str | None = Field(None, min_length=1, description="metric to improve; the backend's own when left out")
    metrics: Annotated[tuple[GoalText, ...], BeforeValidator(as_list)] = Field(
        (), description="several metrics to improve, the first is what best/ is chosen by; METRIC:minimize where the name does not say"
    )
    direction: Literal["minimize", "maximize"] | None = Field(None, description="which way is better")
    slo: tuple[LimitText, ...] = Field((), description="limits such as p95_ttft_ms<=500")
    guards: tuple[GuardText, ...] = Field((), description="limits relative to the default, such as p99_itl_ms<=1.2x")

    @model_validator(mode="after")
    def _either(self) -> GoalBlock:
        names = [text.partition(":")[0] for text in self.metrics]
        if names and (faults := goal_faults(self.metric, self.direction, names)):
            raise Refused(faults)
        return self


class Bounds(CampaignBlock):
    """What the study may spend; whichever runs out first ends the search."""

    trials: int | None = Field(None, gt=0, description="measured configurations, the default included")
    wall: Duration | None = Field(None, gt=0, description="time on the clock, the final included: 90s, 10m, 2h")
    cost: Duration | None = Field(None, gt=0, description="sum of the trials' own time")
    failures: int | None = Field(10, gt=0, description="failures in a row after which the study stops")
    patience: int | None = Field(None, gt=0, description="trials in a row without any improvement after which the search ends")


class Search(CampaignBlock):
    """Who proposes."""

    searcher: str = Field("hybrid", description="name of the searcher plug-in")
    seed: int = Field(0, description="same seed, same history: same proposals")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the searcher")
    together: bool = Field(False, description="wait for a whole batch before asking again")
    workers: int | None = Field(None, gt=0, description="trials at once; what the executor can hold when left out")
    warm_start: bool = Field(True, description="learn from similar past studies in the same store")
    learn_from: tuple[str, ...] = Field(
        (), description="result folders, folders of them, stores, or Optuna's study.db to learn from as well"
    )


class PluginEntry(CampaignBlock):
    """One of several plug-ins."""

    name: str = Field(min_length=1, description="name of the plug-in")
    options: dict[str, Any] = Field(default_factory=dict, description="its options")

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{name}={value}" for name, value in self.options.items())])


class Simulate(CampaignBlock):
    """Simulators that save measurements."""

    simulator: str | None = Field(
        "auto",
        description="name of the simulator plug-in; auto: one that understands the task, where the searcher can be told; none: without",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="options of the simulator")
    simulators: tuple[Annotated[PluginEntry, BeforeValidator(_entry)], ...] = Field(
        (), description="several simulators, whose predictions are joined: names, NAME:OPTION=VALUE, or mappings with name and options"
    )
    weights: Literal["r2", "rank", "equal"] = Field(
        "r2", description="how several are joined: by R2 on trials they were not fitted to, by how well they rank those, or alike"
    )
    learn_from: Annotated[tuple[str, ...], BeforeValidator(as_list)] = Field(
        (), description="what simulators learn from before the search: result folders, stores, study.db files of Optuna, or CSV tables"
    )
    profile: int | None = Field(
        None,
        ge=0,
        description="configurations drawn at random and measured before the search, for simulators to learn from; when left out some where"
        " a simulator needs trials and learn_from names none",
    )
    use: Literal["auto", "prior", "adaptive"] = Field(
        "auto", description="prior: the searcher is told its predictions; adaptive: it answers proposals until it proves wrong"
    )
    adaptive: dict[str, Any] = Field(default_factory=dict, description="options of the adaptive evaluator")

    @property
    def entries(self) -> tuple[PluginEntry, ...]:
        """The simulators that are named; none for `auto` and `none`."""
        if self.simulators:
            return self.simulators
        return () if self.simulator in (None, "none", "auto") else (PluginEntry(name=str(self.simulator), options=self.options),)

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, data: Any) -> Any:
        """`simulator: a,b` is short for a list, as the flag gives it."""
        if not isinstance(data, Mapping) or not isinstance(text := data.get("simulator"), str) or not {",", ":"} & set(text):
            return data
        if data.get("simulators"):
            raise ValueError("give simulator or simulators, not both")
        rest = {name: value for name, value in data.items() if name != "simulator"}
        return {**rest, "simulators": [part.strip() for part in text.split(",")]}

    @model_validator(mode="after")
    def _named(self) -> Simulate:
        if self.simulators and self.simulator != "auto":
            raise ValueError("give simulator or simulators, not both")
        if self.simulators and self.options:
            raise ValueError("options of one of several simulators go with it, as {name: linear, options: {...}}")
        if not self.entries and (self.options or self.adaptive or self.use == "adaptive" or self.learn_from or self.profile):
            raise ValueError("options, adaptive, learn_from, profile and use: adaptive need a simulator by name")
        names = [str(entry) for entry in self.simulators]
        if len(set(names)) < len(names):
            raise ValueError("names a simulator twice with the same options")
        return self


class Execute(CampaignBlock):
    """Where trials run."""

    executor: str | None = Field(None, description="name of the executor plug-in; local, or what the backend prefers, when left out")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the executor")


class FinalBlock(CampaignBlock):
    """The final: best few against the default, again."""

    finalists: int | None = Field(
        None,
        ge=0,
        le=MOST_FINALISTS,
        description="how many of the best meet the default again; when left out 2, or 5 of the front with several goals",
    )
    rounds: int | None = Field(
        None,
        ge=0,
        le=MOST_ROUNDS,
        description="how often each is measured; when left out 5, 3 with several goals, 0 where answers are exact",
    )
    simplify: bool = Field(True, description="before the final, measure which of the winner's changes the gain does not need")


class Measure(CampaignBlock):
    """How carefully each trial is measured."""

    limit: Duration | None = Field(None, gt=0, description="wall-clock limit of one launch; the wall-clock budget when left out")
    repeats: int = Field(1, gt=0, description="launches per trial; the median counts")
    dirty_repeats: int = Field(2, ge=0, description="extra launches when other work disturbed a trial")
    stop_early: bool = Field(True, description="stop a trial of the search that cannot become a finalist any more")
    per_process: int = Field(1, gt=0, description="trials of the search that one process measures in turn, where the backend can")


class TrafficBlock(CampaignBlock):
    """What users ask, read from a source."""

    source: str | dict[str, Any] = Field(description="an address, a file, or a description; see the guide Tune on your own traffic")
    over: Duration | None = Field(None, gt=0, description="how long a live page is read, or how far a Prometheus server is asked back")
    windows: int = Field(0, ge=0, le=12, description="windows to judge on; 0 for what suits the source")


class Campaign(CampaignBlock):
    """A whole study as a file. Every block but `system` may be left out."""

    system: str = Field(description="name of the backend: what is tuned")
    name: Name | None = Field(None, description="name of the study and of its result folder")
    workload: dict[str, Any] = Field(default_factory=dict, description="the load; see the backend's page")
    traffic: Annotated[TrafficBlock | None, BeforeValidator(_traffic)] = Field(
        None, description="what users ask, in the place of lengths in `workload`: a source, or a block of source, over and windows"
    )
    hardware: dict[str, Any] = Field(default_factory=dict, description="the machine; detected when left out")
    goal: GoalBlock = Field(default_factory=GoalBlock)
    budget: Bounds = Field(default_factory=Bounds)
    space: Annotated[dict[str, Any] | None, WithJsonSchema(SPACE_SCHEMA)] = Field(
        None, description="knobs and constraints, or a file of them; narrows the knobs that a backend declares itself"
    )
    set: dict[str, Scalar] = Field(default_factory=dict, description="pinned knobs")
    launch: str | None = Field(
        None,
        alias="from",
        min_length=1,
        description="the launch that you run today, or a file with it: its workload, hardware and knobs; the knobs are the baseline",
    )
    baseline: Baseline = Field(
        default_factory=dict,
        description="what you run today: knobs with their values (the others are as the engine has them), a launch, or a file with either",
    )
    first: tuple[dict[str, Scalar], ...] = Field(
        (), description="known-good configurations, tried right after the default and the baseline"
    )
    search: Search = Field(default_factory=Search)
    simulate: Simulate = Field(default_factory=Simulate)
    execute: Execute = Field(default_factory=Execute)
    measure: Measure = Field(default_factory=Measure)
    finals: FinalBlock = Field(default_factory=FinalBlock)
    track: Annotated[tuple[Annotated[PluginEntry, BeforeValidator(_entry)], ...], BeforeValidator(as_list)] = Field(
        (), description="trackers that show the study: names, NAME:OPTION=VALUE, or mappings with name and options"
    )
    store: str | None = Field(
        None, description="store: a path, or a URL (postgresql:// for teams); a file in the result folder when left out"
    )

    _space_block: Item | None = PrivateAttr(None)  # the block where it stands in its file, for messages

    def declared_space(self) -> Space | None:
        """The space of the `space` block; facts of hardware and workload may be used in it.

        Raises:
            SpaceError: all faults of the block at once, each with its line.
        """
        if self.space is None:
            return None
        values = {**(self.workload.get("facts") or {}), **self.hardware}
        facts = {name: value for name, value in values.items() if isinstance(value, (bool, int, float, str))}
        return space_from_item(self._space_block or from_plain(self.space, "space"), facts)

    def knob_entries(self) -> dict[str, dict[str, Any]]:
        """The entries of `space.knobs`, for backends that declare knobs themselves; `[a, b]` is short for `{values: [a, b]}`."""
        knobs = (self.space or {}).get("knobs")
        entries = knobs.items() if isinstance(knobs, Mapping) else ()
        return {str(name): dict(entry) if isinstance(entry, Mapping) else {"values": entry} for name, entry in entries}

    def placed(self, faults: Iterable[Fault]) -> list[Fault]:
        """Faults of entries of `space.knobs` with their lines, as far as the block comes from a file."""
        if self._space_block is None:
            return list(faults)
        places = places_of(self._space_block, [])
        lines = {"space." + ".".join(map(str, path)): place for path, place in places.items()}
        return [replace(fault, where=lines.get(f"{fault.where}.{fault.field}", fault.where)) for fault in faults]

    def narrowing(self, space: Space, keys: Sequence[str] = ("values", "range"), added: Collection[str] = ()) -> list[str]:
        """The `space` block as further constraints on knobs that the backend declares itself.

        Args:
            space: The knobs and their values.
            keys: What an entry of a knob may say.
            added: Knobs that exist by their entry: nothing is left to narrow.

        Raises:
            SpaceError: the block says more, or names values that a knob lacks; all faults at once.
        """
        root = self._space_block or from_plain(self.space or {}, "space")
        faults: list[Fault] = []
        block = root.entries(faults)
        faults += unknown_keys(block, ("knobs", "constraints"))
        rules = [str(item.value) for item in block["constraints"].items(faults)] if "constraints" in block else []
        for name, item in (block["knobs"].entries(faults) if "knobs" in block else {}).items():
            entry = {"values": item} if isinstance(item.node, yaml.SequenceNode) else item.entries(faults)
            faults += unknown_keys(entry, keys)
            if name not in space.knobs:
                faults.append(item.fault("there is no such knob", suggestion(name, space.knobs), shown=False))
            elif name not in added:
                rules += _narrowed(space.knobs[name], entry, faults)
        if faults:
            raise SpaceError(faults)
        return rules

    @property
    def description(self) -> dict[str, Mapping[str, object]]:
        """The blocks that a backend makes a task of."""
        goal = self.goal
        named = {"metric": goal.metric, "metrics": list(goal.metrics), "direction": goal.direction}
        objective = {**named, "limits": list(goal.slo), "guards": list(goal.guards)}
        blocks: dict[str, Mapping[str, object]] = {
            "workload": self.workload,
            "hardware": self.hardware,
            "objective": {name: value for name, value in objective.items() if value},
        }
        return {name: block for name, block in blocks.items() if block}

    def to_yaml(self) -> str:
        """The file that gives this campaign again; blocks at their defaults are left out."""
        return to_yaml(self.model_dump(mode="json", exclude_defaults=True, by_alias=True))

    def shown(self) -> str:
        """The same file for people who look on, without secrets."""
        return to_yaml(without_secrets(self.model_dump(mode="json", exclude_defaults=True, by_alias=True)))


def _narrowed(knob: Knob, entry: Mapping[str, Item], faults: list[Fault]) -> list[str]:
    """The constraints that an entry stands for; a value that the knob lacks is a fault."""
    rules = []
    if "values" in entry:
        values = []
        for item in entry["values"].items(faults):
            try:
                values.append(item.value if knob.position(item.value) is not None else knob.parse(str(item.value)))
            except SpaceError as error:
                faults += [replace(fault, where=item.place, field=item.field) for fault in error.faults]
        rules.append(f"`{knob.name}` in [{', '.join(map(repr, values))}]")
    bounds = entry["range"].items(faults) if "range" in entry else []
    if len(bounds) == 2:
        rules.append(f"{bounds[0].value!r} <= `{knob.name}` <= {bounds[1].value!r}")
    return rules


def to_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as a YAML file that `read_campaign` reads."""
    return yaml.dump(dict(data), Dumper=PlainDumper, sort_keys=False, allow_unicode=True)


def campaign_schema() -> dict[str, Any]:
    """JSON Schema of campaign files, for editors."""
    return Campaign.model_json_schema()


def read_campaign(path: Path, change: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda data: data) -> Campaign:
    """Read a campaign file; `change` may lay flags over it before it is checked.

    Raises:
        ConfigError: all faults of the file at once, each with its line.
    """
    root, places = read_document(path)
    data = change(root.value)
    campaign = build_campaign(data, where=str(path), places=places)
    if not isinstance(data.get("space"), str):
        campaign._space_block = root.entries([]).get("space")
    return campaign


def read_document(path: Path) -> tuple[Item, dict[Place, str]]:
    """A YAML file, and where each of its values stands.

    Raises:
        ConfigError: it cannot be read, or keys stand twice.
    """
    root = load(path)
    faults: list[Fault] = []
    places = places_of(root, faults)
    if not faults and not isinstance(root.value, dict):  # `!!set {a, b}` is written like a mapping
        faults.append(root.fault("must be a mapping", "Write key: value lines", shown=False))
    if faults:
        raise ConfigError(faults)
    return root, places


def places_of(item: Item, faults: list[Fault], path: Place = ()) -> dict[Place, str]:
    """Where every value of a document stands; keys that stand twice go to `faults`."""
    places = {path: item.place}
    inside: dict[str | int, Item] = {}
    if isinstance(item.node, yaml.MappingNode) or not path:
        inside.update(item.entries(faults))
    elif isinstance(item.node, yaml.SequenceNode):
        inside.update(enumerate(item.items(faults)))
    for name, value in inside.items():
        places |= places_of(value, faults, (*path, name))
    return places


def build_campaign(data: Mapping[str, Any], where: str, places: Mapping[Place, str] | None = None) -> Campaign:
    """Check a campaign given as plain data.

    Args:
        data: What a YAML file would hold.
        where: The file, or "command line", for messages.
        places: Place of each value in the file.
    """
    file = SpaceFile()
    if isinstance(name := data.get("space"), str):
        file = read_space_file(Path(name).expanduser(), str(data.get("system", "")))
        data = {**data, "space": file.block, **({"workload": {**(data.get("workload") or {}), **file.workload}} if file.workload else {})}
    try:
        campaign = Campaign.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(faults_from(error, where, Campaign, places)) from error
    campaign._space_block = file.item
    return campaign
