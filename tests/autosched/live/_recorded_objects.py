"""Objects of a small Kubernetes cluster with Kueue and Volcano."""

from __future__ import annotations

from typing import Any

GPU = "nvidia.com/gpu"
FILE = "volcano-scheduler.conf"
QUEUE: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ClusterQueue",
    "metadata": {"name": "research"},
    "spec": {
        "cohort": "all",
        "queueingStrategy": "StrictFIFO",
        "preemption": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"},
        "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [{"name": "default-flavor", "resources": [{"name": GPU, "nominalQuota": "16"}]}]}
        ],
    },
}
LOCAL: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "LocalQueue",
    "metadata": {"name": "team", "namespace": "ns"},
    "spec": {"clusterQueue": "research"},
}
CONF = """actions: "enqueue, allocate, backfill"  # the order matters
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: binpack
    arguments:
      binpack.weight: 5  # measured
  - name: nodeorder
"""
NODES = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{n}"}, "status": {"allocatable": {GPU: "8"}}} for n in range(2)]


def workload(name: str, gpus: int, minute: int, **conditions: int) -> dict[str, Any]:
    moments = {kind: f"2024-05-01T11:{at:02d}:00Z" for kind, at in conditions.items()}
    containers = [{"resources": {"requests": {GPU: str(gpus)}}}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns", "creationTimestamp": f"2024-05-01T11:{minute:02d}:00Z"},
        "spec": {"queueName": "team", "podSets": [{"count": 2, "template": {"spec": {"containers": containers}}}]},
        "status": {"conditions": [{"type": kind, "status": "True", "lastTransitionTime": at} for kind, at in moments.items()]},
    }


WORKLOADS = [workload("done", 1, 1, Admitted=2, Finished=9), workload("runs", 4, 3, Admitted=5), workload("waits", 8, 10)]
