"""Volcano on a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from autosched.live._shared import kubernetes
from autosched.live._shared.kubernetes import Json, KubernetesJob, Setting, Target
from autosched.live._shared.scheduler import KubernetesLiveOptions, KubernetesScheduler
from autosched.live._shared.schema import broken_rules
from autosched.live.volcano.conf import actions, argument, faults_of, with_action, with_argument
from autoscout.common.fields import read_fields, refuse_if
from autoscout.core.clock import Clock
from autoscout.core.config import Value
from autoscout.core.errors import Fault

FILE = "volcano-scheduler.conf"
QUEUE = {
    "fields": {
        "spec": {
            "fields": {
                "weight": {"type": "integer", "minimum": 1},
                "priority": {"type": "integer"},
                "reclaimable": {"type": "boolean"},
                "parent": {"type": "string"},
                "type": {"type": "string"},
                "capability": {"type": "object"},
                "deserved": {"type": "object"},
                "guarantee": {"type": "object"},
                "affinity": {"type": "object"},
                "extendClusters": {"type": "array"},
            },
            "open": False,
        }
    },
    "needs": ("spec",),
}
"""The part of Volcano's published schema of a Queue (scheduling.volcano.sh/v1beta1) that patches may touch, in our own words."""


class _VolcanoOptions(KubernetesLiveOptions):
    config_map: str = "volcano-system/volcano-scheduler-configmap"
    queues: list[str] = Field(default=["default"])


class Volcano(KubernetesScheduler):
    """Volcano's scheduler and its queues.

    Its order is simulated as first come, first served, with the action backfill as overtaking and bin packing as consolidated placement;
    weights, over-commitment and preemption are for operators.

    Args:
        options: `config_map` (NAMESPACE/NAME), `queues`, `resource` (what a GPU is called), `objects` (a file of objects instead of a
            cluster), `command` (kubectl and its arguments), `apply` (whether kubectl may change anything), `timeout_s`.

    Raises:
        ConfigError: all faults of the options at once.
    """

    jobs: ClassVar[str] = "podgroups.scheduling.volcano.sh"

    def __init__(self, options: Mapping[str, Any], clock: Clock | None = None) -> None:
        read, faults = read_fields(_VolcanoOptions, options, "live")
        if read is not None and read.config_map.count("/") != 1:
            faults.append(Fault(where="live", field="config_map", value=read.config_map, rule="must read NAMESPACE/NAME"))
        refuse_if(faults)
        assert read is not None
        super().__init__(read, _settings(read), clock)

    def _job(self, item: Json) -> KubernetesJob:
        about, spec, status = item.get("metadata", {}), item.get("spec", {}), item.get("status", {})
        submit_s = kubernetes.seconds(about.get("creationTimestamp")) or 0.0
        phase = status.get("phase", "Pending")
        moved = [kubernetes.seconds(each.get("lastTransitionTime")) for each in status.get("conditions", []) or []]
        last_s = max((moment for moment in moved if moment is not None), default=submit_s)
        started_s = kubernetes.condition_s(item, "Scheduled")
        return KubernetesJob(
            name=f"{about.get('namespace', '')}/{about.get('name', '')}",
            queue=str(spec.get("queue", "default")),
            gpus=kubernetes.quantity((spec.get("minResources") or {}).get(self._resource)),
            submit_s=submit_s,
            start_s=(started_s or last_s) if phase in ("Running", "Completed", "Unknown") else None,
            end_s=last_s if phase == "Completed" else None,
        )

    def _faults(self, key: str, item: Json) -> list[Fault]:
        if key.startswith("configmaps"):
            return faults_of(str(item.get("data", {}).get(FILE, "")))
        return broken_rules(item, QUEUE, key)


def _settings(options: _VolcanoOptions) -> list[Setting]:
    namespace, _, name = options.config_map.partition("/")
    scheduler = Target(kind="configmaps", name=name, namespace=namespace)

    def plugin(name: str, plugin: str, key: str, default: Value) -> Setting:
        def read(text: Any) -> Value:
            text_value = argument(str(text), plugin, key)
            return default if text_value is None else type(default)(text_value)  # type: ignore[misc]

        def write(value: Value, text: Any) -> str:
            return with_argument(str(text or ""), plugin, key, str(value))

        return Setting(name=name, target=scheduler, path=("data", FILE), default=default, read=read, write=write)

    def action(name: str, word: str) -> Setting:
        return Setting(
            name=name,
            target=scheduler,
            path=("data", FILE),
            default=False,
            read=lambda text: word in actions(str(text)),
            write=lambda value, text: with_action(str(text or ""), word, bool(value)),
        )

    settings = [
        action("overtake", "backfill"),
        action("preempt", "preempt"),
        action("reclaim", "reclaim"),
        plugin("binpack_weight", "binpack", "binpack.weight", 1),
        plugin("least_requested_weight", "nodeorder", "leastrequested.weight", 1),
        plugin("most_requested_weight", "nodeorder", "mostrequested.weight", 0),
        plugin("balanced_resource_weight", "nodeorder", "balancedresource.weight", 1),
        plugin("overcommit_factor", "overcommit", "overcommit-factor", 1.2),
        plugin("sla_waiting_time", "sla", "sla-waiting-time", ""),
    ]
    for queue in options.queues:
        target = Target(kind="queues.scheduling.volcano.sh", name=queue)
        settings.append(Setting(name=f"weight {queue}", target=target, path=("spec", "weight"), default=1))
        settings.append(Setting(name=f"reclaimable {queue}", target=target, path=("spec", "reclaimable"), default=True))
    return settings
