"""Kueue on a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import yaml
from pydantic import Field

from autosched.live._shared import kubernetes
from autosched.live._shared.kubernetes import Json, KubernetesJob, Setting, Target
from autosched.live._shared.scheduler import KubernetesLiveOptions, KubernetesScheduler
from autosched.live._shared.schema import broken_rules
from autosched.live.kueue.schema import CLUSTER_QUEUE, CONFIG_MAP, LOCAL_QUEUE
from autoscout.common.fields import read_fields, refuse_if
from autoscout.core.clock import Clock
from autoscout.core.config import Value
from autoscout.core.errors import Fault

MANAGER_FILE = "controller_manager_config.yaml"
"""Entry of the config map that holds the configuration of Kueue's manager."""


class _KueueOptions(KubernetesLiveOptions):
    cluster_queue: str = Field(min_length=1)
    flavor: str = "default-flavor"
    local_queues: list[str] = Field(default_factory=list)
    manager: str = ""


class Kueue(KubernetesScheduler):
    """One ClusterQueue of Kueue with its LocalQueues.

    The order of the queue is simulated as first come, first served, with or without overtaking; quotas, borrowing and preemption are
    for operators.

    Args:
        options: `cluster_queue`, `flavor`, `resource` (what a GPU is called), `local_queues` (NAMESPACE/NAME), `manager`
            (NAMESPACE/NAME of the manager's config map; empty: left alone), `objects` (a file of objects instead of a cluster),
            `command` (kubectl and its arguments), `apply` (whether kubectl may change anything), `timeout_s`.

    Raises:
        ConfigError: all faults of the options at once.
    """

    jobs: ClassVar[str] = "workloads.kueue.x-k8s.io"

    def __init__(self, options: Mapping[str, Any], clock: Clock | None = None) -> None:
        read, faults = read_fields(_KueueOptions, options, "live")
        for name in [*(read.local_queues if read else []), *([read.manager] if read and read.manager else [])]:
            if name.count("/") != 1:
                faults.append(Fault(where="live", value=name, rule="must read NAMESPACE/NAME"))
        refuse_if(faults)
        assert read is not None
        super().__init__(read, _settings(read), clock)

    def _job(self, item: Json) -> KubernetesJob:
        about, spec = item.get("metadata", {}), item.get("spec", {})
        gpus = sum(
            float(each.get("count", 1)) * kubernetes.pod_gpus(each.get("template", {}).get("spec", {}), self._resource)
            for each in spec.get("podSets", []) or []
        )
        return KubernetesJob(
            name=f"{about.get('namespace', '')}/{about.get('name', '')}",
            queue=str(spec.get("queueName", "")),
            gpus=gpus,
            submit_s=kubernetes.seconds(about.get("creationTimestamp")) or 0.0,
            start_s=kubernetes.condition_s(item, "Admitted"),
            end_s=kubernetes.condition_s(item, "Finished"),
        )

    def _faults(self, key: str, item: Json) -> list[Fault]:
        kind = key.split("/")[0]
        schema = LOCAL_QUEUE if kind.startswith("localqueue") else CLUSTER_QUEUE if kind.startswith("clusterqueue") else CONFIG_MAP
        faults = broken_rules(item, schema, key)
        spec = item.get("spec", {})
        quotas = [
            resource for group in spec.get("resourceGroups", []) for flavor in group.get("flavors", []) for resource in flavor["resources"]
        ]
        if not spec.get("cohort") and any(name in quota for quota in quotas for name in ("borrowingLimit", "lendingLimit")):
            faults.append(Fault(where=key, field="borrowingLimit", rule="needs a cohort to borrow from or lend to"))
        preemption = spec.get("preemption", {})
        borrow = preemption.get("borrowWithinCohort", {}).get("policy", "Never")
        if borrow != "Never" and preemption.get("reclaimWithinCohort", "Never") == "Never":
            faults.append(Fault(where=key, field="preemption.borrowWithinCohort", rule="needs reclaimWithinCohort other than Never"))
        return faults


def _settings(options: _KueueOptions) -> list[Setting]:
    queue = Target(kind="clusterqueues.kueue.x-k8s.io", name=options.cluster_queue)
    quota: tuple[str | int, ...] = (
        "spec",
        "resourceGroups",
        0,
        "flavors",
        f"name={options.flavor}",
        "resources",
        f"name={options.resource}",
    )

    def word(name: str, *path: str, default: str) -> Setting:
        return Setting(name=name, target=queue, path=("spec", *path), default=default)

    settings = [
        Setting(
            name="overtake",
            target=queue,
            path=("spec", "queueingStrategy"),
            default=True,
            write=lambda value, _: "BestEffortFIFO" if value else "StrictFIFO",
            read=lambda text: text == "BestEffortFIFO",
        ),
        word("within_cluster_queue", "preemption", "withinClusterQueue", default="Never"),
        word("reclaim_within_cohort", "preemption", "reclaimWithinCohort", default="Never"),
        word("borrow_within_cohort", "preemption", "borrowWithinCohort", "policy", default="Never"),
        word("when_can_borrow", "flavorFungibility", "whenCanBorrow", default="MayStopSearch"),
        word("when_can_preempt", "flavorFungibility", "whenCanPreempt", default="TryNextFlavor"),
        word("stop_policy", "stopPolicy", default="None"),
        Setting(name="fair_sharing_weight", target=queue, path=("spec", "fairSharing", "weight"), default="1"),
        Setting(name="nominal_quota", target=queue, path=(*quota, "nominalQuota"), default=""),
    ]
    for text in options.local_queues:
        namespace, _, name = text.partition("/")
        local = Target(kind="localqueues.kueue.x-k8s.io", name=name, namespace=namespace)
        settings.append(Setting(name=f"weight {text}", target=local, path=("spec", "fairSharing", "weight"), default="1"))
    if options.manager:
        namespace, _, name = options.manager.partition("/")
        manager = Target(kind="configmaps", name=name, namespace=namespace)
        settings += [_manager("usage_half_life_time", manager, "168h"), _manager("usage_sampling_interval", manager, "5m")]
    return settings


def _manager(name: str, target: Target, default: str) -> Setting:
    """A setting of admission fair sharing in the manager's configuration, which is YAML inside a config map."""
    first, *others = name.split("_")
    key = first + "".join(word.title() for word in others)

    def read(text: Any) -> Value:
        inside = yaml.safe_load(str(text)) or {}
        return str((inside.get("admissionFairSharing") or {}).get(key, default))

    def write(value: Value, text: Any) -> str:
        inside = yaml.safe_load(str(text or "")) or {}
        inside.setdefault("admissionFairSharing", {})[key] = value
        return yaml.safe_dump(inside, sort_keys=False)

    return Setting(name=name, target=target, path=("data", MANAGER_FILE), default=default, read=read, write=write)
