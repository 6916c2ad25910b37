"""Trials as Jobs of a Kubernetes cluster."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import uuid
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from autoscout.core.errors import ClusterError, Fault, LaunchError
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.log import logger
from autoscout.core.protocols import Job
from autoscout.execute._shared.allocation import Share, SlotPool
from autoscout.execute._shared.call import pack_call, refuse_while_reimporting
from autoscout.execute._shared.executor import QueuedExecutor, check_launch
from autoscout.execute._shared.patience import Patience
from autoscout.execute._shared.remote.agent import Hello
from autoscout.execute._shared.remote.channel import Channel, Lost
from autoscout.execute._shared.remote.nodes import ClusterNode, node_faults
from autoscout.execute._shared.remote.order import LaunchOrder
from autoscout.execute._shared.remote.trial import Attempts, RemoteTrial
from autoscout.execute.kubernetes.manifest import LABEL, code_map, job, quantity, results_folder
from autoscout.execute.kubernetes.options import KubernetesOptions

LOOK_S = 1.0
CLIENT_S = 120.0
HELLO_S = 120.0

log = logger(__name__)


class KubernetesExecutor(QueuedExecutor):
    """Runs trials as Jobs of a Kubernetes cluster, driven through kubectl.

    Each pod runs an agent, which a config map brings along, and the agent runs the trial under the supervisor of the local executor.
    AutoScout stays attached to the pod: when it ends, however that happens, the trial ends. Files of a trial travel through the
    same connection; its folder is on the volume of the claim.
    """

    programs: ClassVar[tuple[str, ...]] = ("kubectl",)

    def __init__(self, options: KubernetesOptions | None = None) -> None:
        self.options = options or KubernetesOptions()
        super().__init__(self.options, SlotPool(self.options.slots), "kubernetes")
        self._study = f"autoscout-{uuid.uuid4().hex[:10]}"
        self._patience = Patience()
        self._beginning = threading.Lock()
        self._begun = False

    def submit(self, launch: Launch) -> Job:
        refuse_while_reimporting()
        check_launch(launch)
        packed = None if launch.call is None else pack_call(launch.call, launch.name)
        with self._beginning:
            if not self._begun:
                apply(self.options, code_map(self._study))
                self._begun = True
        if not self.options.elastic:
            faults = node_faults(cluster_nodes(self.options), launch.resources, f"launch {launch.name}".strip(), "the Kubernetes cluster")
            if faults:
                raise LaunchError(faults)
        inside = replace(self._settings, folder=results_folder(self._study, uuid.uuid4().hex[:8]))
        order = LaunchOrder(launch=replace(launch, call=None), settings=inside, packed=packed)
        attempts = Attempts(most=self.options.attempts)
        return self._queue.submit(
            launch,
            lambda share: RemoteTrial(
                order, share, OwnPods(self.options, self._study, launch.resources, self._patience), attempts, HELLO_S
            ),
        )

    def close(self) -> None:
        self._queue.close()
        if self._begun:
            delete(self.options, "job,configmap", f"--selector={LABEL}={self._study}")
            self._begun = False
        super().close()


class OwnPods:
    """A Job for one launch."""

    def __init__(self, options: KubernetesOptions, study: str, resources: Resources, patience: Patience) -> None:
        self._options = options
        self._study = study
        self._resources = resources
        self._patience = patience
        self._name = f"{study}-{uuid.uuid4().hex[:8]}"
        self._nodes: dict[str, str] = {}

    def take(self, share: Share, stopped: threading.Event) -> tuple[Share, ...] | None:  # noqa: ARG002 - the cluster chooses the machines
        apply(self._options, job(self._name, self._study, self._resources, self._options))
        started_s, pause_s = time.monotonic(), LOOK_S / 8
        while not stopped.wait(pause_s):
            pause_s = min(LOOK_S, pause_s * 2)
            pods = ask(self._options, "get", "pods", f"--selector=job-name={self._name}", "--output=json").get("items", [])
            running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
            failed = next((pod for pod in pods if pod["status"].get("phase") == "Failed"), None)
            if failed is not None:
                raise Lost(f"pod {failed['metadata']['name']} failed: {failed['status'].get('reason') or failed['status'].get('message')}")
            if len(running) == self._resources.nodes:
                self._nodes = {pod["metadata"]["name"]: str(pod["spec"].get("nodeName", "")) for pod in running}
                return tuple(Share(machine=name) for name in sorted(self._nodes))
            waits = _why(pods)
            self._patience.tell(time.monotonic() - started_s, waits, partial("waiting for Kubernetes: {}".format, waits))
        return None

    def open(self, part: Share) -> Channel:
        command = self._options.command("attach", "--stdin", "--quiet", part.machine)
        return Channel(command, os.environ, f"pod {part.machine}", self._options.silence_s)

    def address(self, part: Share, hello: Hello) -> str:  # noqa: ARG002 - pods reach each other by address
        return hello.address

    def ended(self, part: Share, completed: Completed) -> Completed:
        folder = completed.folder if self._options.claim else ""
        return replace(completed, folder=folder, machine=self._nodes.get(part.machine, ""))

    def lost(self, part: Share, why: str) -> None:
        """Nothing to do: the next try gets a Job of its own."""

    def give(self) -> None:
        delete(self._options, f"job/{self._name}")


def apply(options: KubernetesOptions, manifest: dict[str, Any]) -> None:
    """Make an object, or bring it up to date."""
    _client(options, "apply", "--filename=-", said=json.dumps(manifest))


def ask(options: KubernetesOptions, *question: str) -> dict[str, Any]:
    """What the cluster answers, as JSON."""
    answer: dict[str, Any] = json.loads(_client(options, *question))
    return answer


def delete(options: KubernetesOptions, *what: str) -> None:
    """Remove objects and, with them, their pods; a cluster that does not answer is told to the log, since this is the end anyway."""
    try:
        _client(options, "delete", *what, "--ignore-not-found", "--wait=false", "--cascade=foreground")
    except LaunchError as error:
        log.warning("%s could not be deleted: %s", " ".join(what), error)


def cluster_nodes(options: KubernetesOptions) -> list[ClusterNode]:
    """The machines that take trials."""
    selector = [f"--selector={','.join(f'{key}={value}' for key, value in options.node_selector.items())}"] if options.node_selector else []
    nodes: list[ClusterNode] = []
    for item in ask(options, "get", "nodes", *selector, "--output=json").get("items", []):
        there = item["status"].get("allocatable", {})
        if not item["spec"].get("unschedulable"):
            nodes.append(
                ClusterNode(
                    name=item["metadata"]["name"],
                    cores=int(quantity(there.get("cpu", "0"))),
                    gpus=int(quantity(there.get(options.gpu_resource, "0"))),
                    memory_gb=quantity(there.get("memory", "0")) / 1024**3,
                )
            )
    return nodes


def _why(pods: list[dict[str, Any]]) -> str:
    """What the pods of a trial wait for, in the words of the cluster."""
    for pod in pods:
        for condition in pod["status"].get("conditions", []):
            if condition.get("status") == "False" and condition.get("message"):
                return str(condition["message"])[:300]
        for container in pod["status"].get("containerStatuses", []):
            waiting = container.get("state", {}).get("waiting")
            if waiting:
                return f"{waiting.get('reason', '')} {waiting.get('message', '')}".strip()[:300]
    return "its pods have not started yet"


def _client(options: KubernetesOptions, *arguments: str, said: str = "") -> str:
    command = options.command(*arguments)
    try:
        done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=CLIENT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _fault(command, str(error)) from error
    if done.returncode:
        raise _fault(command, done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout


def _fault(command: list[str], reason: str) -> ClusterError:
    return ClusterError(
        Fault(
            where="executor kubernetes",
            value=" ".join(command)[:200],
            rule=f"the cluster refused or did not answer: {reason[:500]}",
            fix="Try the same command in your shell; `kubectl cluster-info` shows whether the cluster is up",
        )
    )


__all__ = ["KubernetesExecutor"]
