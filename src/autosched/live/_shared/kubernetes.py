"""Objects of Kubernetes: read through kubectl or from a file, changed by merge patches, and through kubectl only when told to."""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import yaml

from autosched.events import JobEvent
from autosched.live._shared.commands import run
from autosched.live_scheduler import ChangePlan, LiveError
from autosched.sim.cluster import Cluster
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace
from autoscout.common.document import load
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault

Json = dict[str, Any]
UNKNOWN_S = 3_600.0  # work left of a job that says nothing about it


@dataclass(frozen=True, kw_only=True)
class Target:
    """One object."""

    kind: str
    name: str
    namespace: str = ""

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


class Objects(Protocol):
    """Where objects are read and changed."""

    def get(self, target: Target) -> Json:
        """One object."""

    def all(self, kind: str) -> list[Json]:
        """All objects of a kind."""

    def patch(self, target: Target, patch: Json) -> None:
        """Lay a merge patch over an object."""


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """The cluster itself, through kubectl.

    Attributes:
        command: Program and arguments that say which cluster.
        timeout_s: How long it may take.
        may_change: Whether patches are sent at all.
    """

    command: tuple[str, ...] = ("kubectl",)
    timeout_s: float = 30.0
    may_change: bool = False

    def _ask(self, *arguments: str) -> Json:
        text = run((*self.command, *arguments, "--output=json"), timeout_s=self.timeout_s)
        try:
            document = json.loads(text)
        except ValueError as error:
            raise LiveError(Fault(where=" ".join(self.command), rule=f"did not answer in JSON: {error}")) from error
        if not isinstance(document, dict):
            raise LiveError(Fault(where=" ".join(self.command), rule="did not answer with an object"))
        return document

    def get(self, target: Target) -> Json:
        return self._ask("get", target.kind, target.name, *_space(target))

    def all(self, kind: str) -> list[Json]:
        return list(self._ask("get", kind, "--all-namespaces").get("items", []))

    def patch(self, target: Target, patch: Json) -> None:
        if not self.may_change:
            rule, fix = "kubectl may not change anything here", "Set `apply: true` under `live`, or apply the patch by hand"
            raise LiveError(Fault(where=target.key, rule=rule, fix=fix))
        self._ask("patch", target.kind, target.name, *_space(target), "--type=merge", f"--patch={json.dumps(patch)}")


@dataclass(frozen=True, kw_only=True)
class Manifests:
    """Objects in a file, as `kubectl get -o yaml` prints them; nothing is ever changed."""

    path: Path
    listed: list[Json] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Manifests:
        """Read a list of objects, or one."""
        document = load(path).value
        items = document.get("items", [document]) if isinstance(document, dict) else []
        return cls(path=path, listed=[item for item in items if isinstance(item, dict)])

    def get(self, target: Target) -> Json:
        for item in self.all(target.kind):
            about = item.get("metadata", {})
            if about.get("name") == target.name and (not target.namespace or about.get("namespace") == target.namespace):
                return item
        raise LiveError(Fault(where=str(self.path), value=target.key, rule="there is no such object"))

    def all(self, kind: str) -> list[Json]:
        singular = kind.split(".")[0]
        return [item for item in self.listed if str(item.get("kind", "")).lower() in (singular, singular.removesuffix("s"))]

    def patch(self, target: Target, patch: Json) -> None:  # noqa: ARG002 - the protocol's
        raise LiveError(Fault(where=str(self.path), value=target.key, rule="a file of objects is not a cluster: apply the patch by hand"))


def _space(target: Target) -> tuple[str, ...]:
    return (f"--namespace={target.namespace}",) if target.namespace else ()


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of an object.

    Attributes:
        name: As operators and the model call it.
        target: The object.
        path: Keys, positions, and `name=...` for an entry of a list.
        default: What holds where nothing is written; its type is that of the setting.
        write: From a value and what the object holds to what it shall hold; the value itself when None.
        read: From what the object holds.
    """

    name: str
    target: Target
    path: tuple[str | int, ...]
    default: Value
    write: Callable[[Value, Any], Any] | None = None
    read: Callable[[Any], Value] | None = None

    def value(self, items: Mapping[str, Json]) -> Value:
        here: Any = items[self.target.key]
        for part in self.path:
            here = _step(here, part)
            if here is None:
                return self.default
        if self.read is not None:
            return self.read(here)
        return type(self.default)(here) if self.default is not None else here

    def put(self, items: Mapping[str, Json], value: Value) -> None:
        here: Any = items[self.target.key]
        for part in self.path[:-1]:
            inner = _step(here, part)
            if inner is None:
                if not isinstance(here, dict) or not isinstance(part, str):
                    rule = f"there is no {part} to change"
                    raise ConfigError(Fault(where=self.target.key, field=".".join(map(str, self.path)), rule=rule))
                inner = here[part] = {}
            here = inner
        last = self.path[-1]
        here[last] = self.write(value, _step(here, last)) if self.write else value


def _step(here: Any, part: str | int) -> Any:
    if isinstance(part, int):
        return here[part] if isinstance(here, list) and part < len(here) else None
    if isinstance(here, list) and part.startswith("name="):
        return next((item for item in here if isinstance(item, dict) and item.get("name") == part[5:]), None)
    return here.get(part) if isinstance(here, dict) else None


def merge_patch(old: Any, new: Any) -> Any:
    """What turns one object into another, as RFC 7386 writes it."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    changed = {key: merge_patch(old.get(key), value) for key, value in new.items() if old.get(key) != value}
    return {**changed, **{key: None for key in old if key not in new}}


def settings_of(objects: Objects, settings: Sequence[Setting]) -> Config:
    """What the objects say now."""
    items = {setting.target.key: objects.get(setting.target) for setting in {each.target.key: each for each in settings}.values()}
    return Config({setting.name: setting.value(items) for setting in settings})


def plan_of(objects: Objects, settings: Sequence[Setting], after: Config, check: Callable[[str, Json], list[Fault]]) -> ChangePlan:
    """Patches that give some settings, as manifests and as a diff, checked against the schemas.

    Raises:
        ConfigError: the objects would not be valid; all faults at once.
    """
    old = {each.target.key: objects.get(each.target) for each in {one.target.key: one for one in settings}.values()}
    new = copy.deepcopy(old)
    for setting in settings:
        if setting.name in after and setting.value(old) != after[setting.name]:
            setting.put(new, after[setting.name])
    faults = [fault for key in new if new[key] != old[key] for fault in check(key, new[key])]
    if faults:
        raise ConfigError(faults)
    patches = {key: merge_patch(old[key], new[key]) for key in new if new[key] != old[key]}
    back = {key: merge_patch(new[key], old[key]) for key in patches}
    diff = "".join(_diff(key, old[key], new[key]) for key in patches)
    before = {setting.name: setting.value(old) for setting in settings}
    changes = {name: value for name, value in after.items() if name in before}
    return ChangePlan(diff=diff, data={"patches": patches, "back": back, "before": before, "after": {**before, **changes}})


def _diff(key: str, old: Json, new: Json) -> str:
    def lines(item: Json) -> list[str]:
        fields = {name: value for name, value in item.items() if name != "status"}
        return yaml.safe_dump(fields, sort_keys=True).splitlines(keepends=True)

    return "".join(difflib.unified_diff(lines(old), lines(new), f"a/{key}", f"b/{key}", n=2))


def send(objects: Objects, settings: Sequence[Setting], patches: Mapping[str, Json]) -> None:
    """Send patches, object by object."""
    targets = {setting.target.key: setting.target for setting in settings}
    for key, patch in patches.items():
        objects.patch(targets[key], patch)


def stored_of(now: Config, plan: ChangePlan) -> str:
    """Whether the objects are as before a plan, as after it, or in between."""
    for name in ("after", "before"):
        if all(now.get(key) == value for key, value in plan.data[name].items()):
            return name
    return "other"


@dataclass(frozen=True, kw_only=True)
class KubernetesJob:
    """A job as an object tells of it; moments that have not come are None."""

    name: str
    queue: str
    gpus: float
    submit_s: float
    start_s: float | None = None
    end_s: float | None = None


def quantity(text: object) -> float:
    """A number as Kubernetes writes it: `8`, `"8"`, and `1k` for a thousand.

    Raises:
        ValueError: it is none.
    """
    digits = str(text or 0).strip()
    factor = next((value for suffix, value in _FACTORS.items() if digits.endswith(suffix)), None)
    return float(digits) if factor is None else float(digits.rstrip("".join(_FACTORS))) * factor


_FACTORS = {
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)},
    **{letter: 1000.0**power for power, letter in enumerate("kMGTPE", start=1)},
    "m": 1e-3,
}
"""Suffix of a quantity -> its factor; the longer ones first."""


def seconds(text: str | None) -> float | None:
    """A moment of Kubernetes as seconds."""
    return None if not text else datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def condition_s(item: Json, kind: str) -> float | None:
    """When a condition of an object became true; None while it is not."""
    for each in item.get("status", {}).get("conditions", []) or []:
        if each.get("type") == kind and each.get("status") == "True":
            return seconds(each.get("lastTransitionTime"))
    return None


def snapshot_of(jobs: Sequence[KubernetesJob], at_s: float) -> Snapshot:
    """The jobs that wait and run."""
    here = sorted((job for job in jobs if job.end_s is None and job.gpus > 0 and job.submit_s <= at_s), key=lambda job: job.submit_s)
    executed = np.asarray([0.0 if job.start_s is None else max(0.0, at_s - job.start_s) for job in here])
    remaining_s = np.full(len(here), UNKNOWN_S)
    trace = Trace.of(
        [job.submit_s for job in here],
        executed + remaining_s,
        [job.gpus for job in here],
        job_id=[job.name for job in here],
        user=[job.queue for job in here],
        source="kubectl",
    )
    running = np.asarray([job.start_s is not None for job in here], bool)
    return Snapshot(at_s=at_s, jobs=trace, remaining_s=remaining_s, executed_s=executed, running=running)


def events_of(jobs: Sequence[KubernetesJob]) -> list[JobEvent]:
    """The same jobs as events."""
    events = []
    for job in jobs:
        if job.gpus <= 0:
            continue
        events.append(JobEvent(job=job.name, kind="submit", at_s=job.submit_s, attributes={"gpus": job.gpus, "user": job.queue}))
        events += [JobEvent(job=job.name, kind="start", at_s=job.start_s)] if job.start_s is not None else []
        events += [JobEvent(job=job.name, kind="end", at_s=job.end_s)] if job.end_s is not None else []
    return events


def nodes_of(objects: Objects, resource: str) -> Cluster:
    """Nodes that have GPUs and take jobs.

    Raises:
        LiveError: there is none.
    """
    nodes = []
    for item in objects.all("nodes"):
        gpus = quantity(item.get("status", {}).get("allocatable", {}).get(resource))
        if gpus > 0 and not item.get("spec", {}).get("unschedulable"):
            nodes.append((int(gpus), ""))
    if not nodes:
        raise LiveError(Fault(where="nodes", rule=f"no node offers {resource}"))
    return Cluster.of_nodes(sorted(nodes, reverse=True))


def pod_gpus(spec: Json, resource: str) -> float:
    """GPUs that one pod asks for."""
    asked = 0.0
    for container in spec.get("containers", []) or []:
        wants = container.get("resources", {}) or {}
        asked += quantity((wants.get("requests") or {}).get(resource) or (wants.get("limits") or {}).get(resource))
    return asked
