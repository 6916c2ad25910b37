"""Kueue and Volcano: patches, diffs and schemas; the real kubectl against a recorded API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from _recorded_api import KUEUE, RecordedApi
from _recorded_objects import CONF, FILE, GPU, LOCAL, NODES, QUEUE, WORKLOADS, workload

from autosched.live._shared.kubernetes import merge_patch, quantity
from autosched.live.kueue import Kueue
from autosched.live.volcano import Volcano
from autosched.live.volcano.conf import argument, with_action, with_argument
from autosched.live_scheduler import LiveError
from autoscout.core.clock import VirtualClock
from autoscout.core.errors import ConfigError

NOW_S = 1_714_564_800.0  # 2024-05-01T12:00:00Z


def kueue(api: RecordedApi, folder: Path, **more: Any) -> Kueue:
    command = ["kubectl", f"--server=http://127.0.0.1:{api.port}", f"--cache-dir={folder / 'cache'}"]
    return Kueue({"cluster_queue": "research", "local_queues": ["ns/team"], "command": command, **more}, VirtualClock(NOW_S))


def test_kueue_through_kubectl(api: RecordedApi, tmp_path: Path) -> None:
    live = kueue(api, tmp_path, apply=True)
    cluster_state = live.look()
    assert cluster_state.cluster.gpus == 16
    assert cluster_state.snapshot.jobs.job_id.tolist() == ["ns/runs", "ns/waits"]
    assert cluster_state.snapshot.running.tolist() == [True, False]
    assert cluster_state.snapshot.jobs.gpus.tolist() == [8.0, 16.0]
    assert [event.kind for event in cluster_state.events] == ["submit", "start", "end", "submit", "start", "submit"]
    assert cluster_state.settings["overtake"] is False
    assert cluster_state.settings["nominal_quota"] == "16"
    after = cluster_state.settings.extend({"overtake": True, "nominal_quota": "24", "weight ns/team": "2"})
    plan = live.plan(after)
    assert "-  queueingStrategy: StrictFIFO" in plan.diff
    assert "+  queueingStrategy: BestEffortFIFO" in plan.diff
    assert api.patches == [], "a plan changes nothing"
    live.apply(plan)
    assert live.settings() == after
    assert len(api.patches) == 2
    assert live.stored(plan) == "after"
    live.restore(plan)
    assert live.settings() == cluster_state.settings
    assert live.stored(plan) == "before"
    assert api.objects[f"{KUEUE}/clusterqueues/research"]["spec"] == QUEUE["spec"]


def manifests(folder: Path, *items: dict[str, Any]) -> Kueue:
    (folder / "objects.yaml").write_text(yaml.safe_dump({"items": [QUEUE, *items]}))
    return Kueue({"cluster_queue": "research", "objects": str(folder / "objects.yaml")}, VirtualClock(NOW_S))


@pytest.mark.parametrize(
    ("text", "number"), [("8", 8.0), ("1k", 1_000.0), ("2Ki", 2_048.0), (4, 4.0), ("500m", 0.5), (None, 0.0), ("", 0.0)]
)
def test_numbers_as_kubernetes_writes_them(text: object, number: float) -> None:
    assert quantity(text) == number


def test_a_job_of_a_thousand_gpus(tmp_path: Path) -> None:
    huge = workload("huge", 1, 10)
    huge["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"][GPU] = "1k"
    assert manifests(tmp_path, huge, *NODES).look().snapshot.jobs.gpus.tolist() == [2_000.0]


@pytest.mark.parametrize(
    "odd",
    [{"metadata": {"creationTimestamp": "yesterday"}}, {"spec": "many"}, {"status": {"conditions": "soon"}}],
    ids=lambda odd: next(iter(odd)),
)
def test_an_object_of_another_shape_is_an_answer_that_is_not_understood(tmp_path: Path, odd: dict[str, Any]) -> None:
    odd = workload("odd", 1, 10) | odd
    with pytest.raises(LiveError, match="not as Kubernetes describes it"):
        manifests(tmp_path, odd, *NODES).look()


def test_kubectl_changes_nothing_unless_told_to(api: RecordedApi, tmp_path: Path) -> None:
    live = kueue(api, tmp_path)
    with pytest.raises(LiveError, match="may not change anything"):
        live.apply(live.plan(live.settings().extend(overtake=True)))
    assert api.patches == []


def test_a_refused_patch_is_an_error(api: RecordedApi, tmp_path: Path) -> None:
    live = kueue(api, tmp_path, apply=True)
    api.refuse = True
    with pytest.raises(LiveError, match="Forbidden"):
        live.apply(live.plan(live.settings().extend(overtake=True)))
    assert live.settings()["overtake"] is False


def test_volcano_through_kubectl(api: RecordedApi, tmp_path: Path) -> None:
    command = ["kubectl", f"--server=http://127.0.0.1:{api.port}", f"--cache-dir={tmp_path / 'cache'}"]
    live = Volcano({"config_map": "vs/conf", "command": command, "apply": True}, VirtualClock(NOW_S))
    cluster_state = live.look()
    assert cluster_state.snapshot.jobs.gpus.tolist() == [4.0]
    assert cluster_state.snapshot.executed_s.tolist() == [1_800.0]
    assert cluster_state.settings["binpack_weight"] == 5
    after = cluster_state.settings.extend({"overtake": False, "binpack_weight": 10, "most_requested_weight": 2, "weight default": 3})
    plan = live.plan(after)
    live.apply(plan)
    text = api.objects["/api/v1/namespaces/vs/configmaps/conf"]["data"][FILE]
    assert "binpack.weight: 10  # measured" in text, "comments stay"
    assert yaml.safe_load(text)["tiers"][1]["plugins"][1] == {"name": "nodeorder", "arguments": {"mostrequested.weight": 2}}
    assert yaml.safe_load(text)["actions"] == "enqueue, allocate"
    assert live.settings() == after
    live.restore(plan)
    assert api.objects["/api/v1/namespaces/vs/configmaps/conf"]["data"][FILE] == CONF


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump({"kind": "List", "items": [QUEUE, LOCAL, *WORKLOADS, *NODES]}))
    return path


@pytest.mark.parametrize(
    ("wanted", "rule"),
    [
        ({"within_cluster_queue": "Sometimes"}, "must be one of Never, LowerPriority"),
        ({"nominal_quota": "-3"}, "not negative"),
        ({"borrow_within_cohort": "LowerPriority"}, "needs reclaimWithinCohort"),
        ({"stop_policy": "Halt"}, "must be one of None, Hold"),
        ({"weight ns/team": "a lot"}, "must be an amount"),
    ],
)
def test_patches_that_the_schema_forbids(objects: Path, wanted: dict[str, str], rule: str) -> None:
    live = Kueue({"cluster_queue": "research", "local_queues": ["ns/team"], "objects": str(objects)}, VirtualClock(NOW_S))
    with pytest.raises(ConfigError, match=rule):
        live.plan(live.settings().extend(wanted))


def test_manifests_without_a_cluster(objects: Path) -> None:
    live = Kueue({"cluster_queue": "research", "objects": str(objects)}, VirtualClock(NOW_S))
    assert live.look().cluster.gpus == 16
    plan = live.plan(live.settings().extend(overtake=True))
    assert plan.data["patches"] == {"clusterqueues.kueue.x-k8s.io//research": {"spec": {"queueingStrategy": "BestEffortFIFO"}}}
    with pytest.raises(LiveError, match="not a cluster"):
        live.apply(plan)


def test_merge_patches_say_what_goes() -> None:
    assert merge_patch({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"c": 3}}) == {"a": None, "b": {"c": 3, "d": None}}


def test_options_name_all_faults() -> None:
    with pytest.raises(ConfigError) as caught:
        Kueue({"cluster_queue": "", "local_queues": ["x"], "colour": "red"})
    assert len(caught.value.faults) >= 2


def test_volcano_text() -> None:
    assert argument(CONF, "binpack", "binpack.weight") == "5"
    assert argument(CONF, "nodeorder", "leastrequested.weight") is None
    with pytest.raises(ConfigError, match="in no tier"):
        with_argument(CONF, "sla", "sla-waiting-time", "1h")
    assert with_action(CONF, "preempt", True).startswith('actions: "enqueue, allocate, backfill, preempt"  # the order matters\n')
    assert with_action(CONF, "backfill", True) == CONF
