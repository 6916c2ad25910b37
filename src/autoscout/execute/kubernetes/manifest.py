"""The objects of one trial: a Job whose pods run an agent, and a config map with the agent's code."""

from __future__ import annotations

import base64
import io
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from autoscout.core.launch import Resources
from autoscout.execute._shared.supervisor.client import PACKAGE
from autoscout.execute.kubernetes.options import KubernetesOptions

LABEL = "autoscout.study"
CODE, RESULTS, UNPACKED = "/mnt/autoscout-code", "/mnt/autoscout-results", "/mnt/autoscout-agent"
CARRIED = ("core", "common", "execute/_shared")
"""Parts of AutoScout that an agent needs."""

_START = """
import sys, zipfile
zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])
sys.path.insert(0, sys.argv[2])
sys.argv[1:] = sys.argv[3:]
from autoscout.execute._shared.remote.agent import main
main()
"""


def code_map(name: str) -> dict[str, Any]:
    """The config map, one for all trials of an executor."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {LABEL: name}},
        "binaryData": {"agent.zip": base64.b64encode(agent_code()).decode()},
        "immutable": True,
    }


def job(name: str, study: str, resources: Resources, options: KubernetesOptions) -> dict[str, Any]:
    """The Job of one trial, with a pod for each of its machines."""
    results: dict[str, Any] = {"persistentVolumeClaim": {"claimName": options.claim}} if options.claim else {"emptyDir": {}}
    container = {
        "name": "trial",
        "image": options.image,
        "command": [options.python, "-P", "-c", _START, f"{CODE}/agent.zip", UNPACKED, f"{options.silence_s:g}", ""],
        "stdin": True,
        "stdinOnce": True,
        "resources": _resources(resources, options.gpu_resource),
        "volumeMounts": [
            {"name": "code", "mountPath": CODE, "readOnly": True},
            {"name": "agent", "mountPath": UNPACKED},
            {"name": "results", "mountPath": RESULTS},
        ],
    }
    if options.image_pull_policy:
        container["imagePullPolicy"] = options.image_pull_policy
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "code", "configMap": {"name": study}}, {"name": "agent", "emptyDir": {}}, {"name": "results", **results}],
    }
    if options.node_selector:
        pod["nodeSelector"] = dict(options.node_selector)
    if options.tolerations:
        pod["tolerations"] = [dict(each) for each in options.tolerations]
    if options.service_account:
        pod["serviceAccountName"] = options.service_account
    labels = {LABEL: study}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 0,  # who repeats a trial is AutoScout
            "completions": resources.nodes,
            "parallelism": resources.nodes,
            "completionMode": "Indexed",
            "ttlSecondsAfterFinished": 300,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _resources(resources: Resources, gpu_resource: str) -> dict[str, dict[str, str]]:
    asked = {"cpu": str(resources.cpus)}
    if resources.memory_gb:
        asked["memory"] = f"{round(resources.memory_gb * 1024)}Mi"
    if resources.gpus:
        asked[gpu_resource] = str(resources.gpus)
    return {"requests": asked, "limits": asked}


@cache
def agent_code() -> bytes:
    """A zip of the modules that an agent needs; the limit of a config map is one MiB."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for part in CARRIED for path in (PACKAGE / part).rglob("*.py")):
            archive.write(path, f"autoscout/{path.relative_to(PACKAGE)}")
        for name in ("autoscout/__init__.py", "autoscout/execute/__init__.py"):
            archive.writestr(name, "")
    return buffer.getvalue()


def quantity(text: str) -> float:
    """A quantity of Kubernetes as a number: `500m`, `16Gi`, `2`."""
    units = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
    match = re.fullmatch(r"([\d.]+)([A-Za-z]*)", text)
    return float(match[1]) * units.get(match[2], 1.0) if match else 0.0


def results_folder(study: str, trial: str) -> Path:
    """Where the folder of a trial is inside its pod; several pods may share the volume."""
    return Path(RESULTS) / study / trial
