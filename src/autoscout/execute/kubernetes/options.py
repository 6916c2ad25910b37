"""What users may set about Kubernetes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoscout.core.errors import require
from autoscout.execute._shared.executor import LaunchOptions


@dataclass(frozen=True, kw_only=True)
class KubernetesOptions(LaunchOptions):
    """How trials use a Kubernetes cluster, and how they are treated there.

    Attributes:
        image: Image of the trials; it needs Python 3.11 or newer, AutoScout itself is brought along.
        kubectl: How to reach the cluster: `kubectl --context=lab`.
        namespace: Where the Jobs are made; the one of the context when empty.
        python: Python inside the image.
        claim: Persistent volume claim for the folders of trials; they are gone with the Job when empty.
        gpu_resource: What GPUs are called.
        node_selector: Labels that the nodes must have, to pin trials to one kind of machine.
        tolerations: As in a pod.
        service_account: Of the pods.
        image_pull_policy: As in a pod; the cluster's default when empty.
        elastic: Whether machines may join: a trial that no machine holds now waits instead of being refused.
        attempts: How often a trial is tried whose machine is lost or which is evicted.
        silence_s: How long a pod may say nothing before it counts as lost.
    """

    image: str = ""
    kubectl: str = "kubectl"
    namespace: str = ""
    python: str = "python3"
    claim: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    service_account: str = ""
    image_pull_policy: str = ""
    elastic: bool = False
    attempts: int = 3
    silence_s: float = 30.0

    def __post_init__(self) -> None:
        rules = {
            "image": (bool(self.image), "must name an image with Python 3.11 or newer"),
            "kubectl": (bool(self.kubectl.strip()), "must be a command"),
            "attempts": (self.attempts >= 1, "must be at least 1"),
            "silence_s": (self.silence_s >= 5, "must be at least 5"),
            "image_pull_policy": (
                self.image_pull_policy in ("", "Always", "IfNotPresent", "Never"),
                "must be Always, IfNotPresent or Never",
            ),
        }
        require("executor kubernetes", self, self.checks() | rules)

    def command(self, *arguments: str) -> list[str]:
        """A command of kubectl."""
        namespace = [f"--namespace={self.namespace}"] if self.namespace else []
        return [*shlex.split(self.kubectl), *namespace, *arguments]
