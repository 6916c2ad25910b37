"""The Kubernetes executor: what it renders, against the published schema, and the shipped suite through a stand-in for kubectl."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import _kubectl
from autoscout.core.errors import ClusterError, ConfigError, LaunchError
from autoscout.core.launch import Launch, Resources
from autoscout.execute.kubernetes.executor import KubernetesExecutor
from autoscout.execute.kubernetes.manifest import agent_code, code_map, job, quantity
from autoscout.execute.kubernetes.options import KubernetesOptions
from autoscout.testing.executor import ExecutorSuite

OPTIONS = KubernetesOptions(
    image="python:3.12",
    claim="results",
    node_selector={"gpu": "a100"},
    tolerations=({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},),
    service_account="tuner",
    image_pull_policy="IfNotPresent",
)
LARGE = Resources(cpus=4, gpus=2, memory_gb=1.5, nodes=2)


def test_what_a_job_asks_for() -> None:
    made = job("trial-1", "study-1", LARGE, OPTIONS)
    pod = made["spec"]["template"]["spec"]
    limits = {"cpu": "4", "memory": "1536Mi", "nvidia.com/gpu": "2"}
    assert pod["containers"][0]["resources"] == {"requests": limits, "limits": limits}
    assert pod["volumes"][2] == {"name": "results", "persistentVolumeClaim": {"claimName": "results"}}
    assert (made["spec"]["completions"], made["spec"]["backoffLimit"]) == (2, 0)


@pytest.mark.parametrize("options", [OPTIONS, KubernetesOptions(image="x")])
def test_manifests_keep_the_published_schema(options: KubernetesOptions) -> None:
    validate: Any = pytest.importorskip("kubernetes_validate", reason="the schema of Kubernetes is not installed")
    for manifest in (job("trial-1", "study-1", LARGE, options), code_map("study-1")):
        validate.validate(json.loads(json.dumps(manifest)), "1.32", strict=True)
    broken = job("trial-1", "study-1", LARGE, options)
    broken["spec"]["template"]["spec"]["restartpolicy"] = "Never"
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, "1.32", strict=True)


def test_the_agent_fits_into_a_config_map() -> None:
    assert len(agent_code()) < 700_000, "a config map holds one MiB, and the code is written in base 64"
    names = zipfile.ZipFile(BytesIO(agent_code())).namelist()
    assert "autoscout/execute/_shared/remote/agent.py" in names


@pytest.mark.parametrize(("text", "number"), [("500m", 0.5), ("2", 2.0), ("16Gi", 16 * 2**30), ("1k", 1000.0), ("", 0.0)])
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == number


def test_an_image_is_needed() -> None:
    with pytest.raises(ConfigError, match="image"):
        KubernetesOptions()


@pytest.fixture
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> str:
    reason = _kubectl.missing()
    if reason:
        pytest.skip(reason)
    return f"{sys.executable} {_kubectl.__file__} {tmp_path_factory.mktemp('state')}"


@pytest.mark.soak
class TestKubernetes(ExecutorSuite):
    """With a stand-in for the cluster: no real one runs in tests."""

    @pytest.fixture
    def executor(self, kubectl: str) -> Iterator[KubernetesExecutor]:
        with KubernetesExecutor(KubernetesOptions(image="x", kubectl=kubectl, python=sys.executable, grace_s=0.5, slots=2)) as executor:
            yield executor


@pytest.mark.slow
def test_a_trial_runs_in_a_pod_and_again_when_its_pod_is_lost(kubectl: str, tmp_path: Path) -> None:
    state = Path(kubectl.split()[-1])
    line = 'echo x >> "$WHERE/starts"; if [ $(wc -l < "$WHERE/starts") = 1 ]; then sleep 3600; fi; echo done'
    options = KubernetesOptions(image="x", kubectl=kubectl, python=sys.executable, grace_s=0.5)
    with KubernetesExecutor(options) as executor:
        job = executor.submit(Launch(argv=(line,), shell=True, env={"WHERE": str(tmp_path)}))
        deadline_s = time.monotonic() + 60
        while not (tmp_path / "starts").exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        (pod,) = state.glob("pod-*/pod.json")
        os.killpg(json.loads(pod.read_text())["pid"], signal.SIGKILL)
        completed = job.result(60)
    assert (completed.returncode, completed.stdout, completed.machine) == (0, "done\n", "k1")
    assert (tmp_path / "starts").read_text() == "x\nx\n"
    assert not list(state.glob("pod-*")), "nothing is left"


def test_a_cluster_that_does_not_answer_is_told() -> None:
    with (
        KubernetesExecutor(KubernetesOptions(image="x", kubectl="false")) as executor,
        pytest.raises(ClusterError, match="kubectl cluster-info"),
    ):
        executor.submit(Launch(argv=("true",)))


def test_what_no_node_has_is_refused(kubectl: str) -> None:
    with KubernetesExecutor(KubernetesOptions(image="x", kubectl=kubectl)) as executor, pytest.raises(LaunchError, match="more than 4"):
        executor.submit(Launch(argv=("true",), resources=Resources(gpus=5)))
