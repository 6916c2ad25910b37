"""The recorded API server with the objects of a small cluster."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from _recorded_api import KUEUE, VOLCANO, RecordedApi
from _recorded_objects import CONF, FILE, GPU, LOCAL, NODES, QUEUE, WORKLOADS


@pytest.fixture
def api() -> Iterator[RecordedApi]:
    if shutil.which("kubectl") is None:
        pytest.skip("KUBERNETES NOT TESTED: no kubectl; apt-get install kubernetes-client")
    config_map = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "conf", "namespace": "vs"}, "data": {FILE: CONF}}
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "pg", "namespace": "ns", "creationTimestamp": "2024-05-01T11:00:00Z"},
        "spec": {"queue": "default", "minResources": {GPU: "4"}},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Scheduled", "status": "True", "lastTransitionTime": "2024-05-01T11:30:00Z"}],
        },
    }
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}, "spec": {"weight": 1}}
    made = RecordedApi(
        {
            f"{KUEUE}/clusterqueues/research": json.loads(json.dumps(QUEUE)),
            f"{KUEUE}/namespaces/ns/localqueues/team": json.loads(json.dumps(LOCAL)),
            f"{KUEUE}/workloads": {"kind": "WorkloadList", "apiVersion": "kueue.x-k8s.io/v1beta1", "items": WORKLOADS},
            f"{VOLCANO}/queues/default": queue,
            f"{VOLCANO}/podgroups": {"kind": "PodGroupList", "apiVersion": "scheduling.volcano.sh/v1beta1", "items": [group]},
            "/api/v1/nodes": {"kind": "NodeList", "apiVersion": "v1", "items": NODES},
            "/api/v1/namespaces/vs/configmaps/conf": config_map,
        }
    )
    yield made
    made.close()
