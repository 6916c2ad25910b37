"""The shipped suite over every live scheduler there is: those that need no cluster, and the others on one that stands for theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _recorded_api import RecordedApi

import _slurm as slurm
from _slurm import SlurmCluster
from autosched.live.kueue import Kueue
from autosched.live.slurm import LiveSlurm
from autosched.live.volcano import Volcano
from autosched.live_scheduler import LiveScheduler
from autosched.testing.live import LiveSuite
from autoscout.core import plugins

NEED_A_CLUSTER = ("kueue", "slurm", "volcano")


class TestEveryLiveScheduler(LiveSuite):
    @pytest.fixture(params=[name for name in plugins.available("live") if name not in NEED_A_CLUSTER])
    def live(self, request: pytest.FixtureRequest, tmp_path: Path) -> LiveScheduler:
        kind = plugins.get("live", request.param)
        options = kind.example(tmp_path)
        assert options is not None, "without an example it needs a class of its own here"
        live: LiveScheduler = kind(options)
        return live


def through_kubectl(api: RecordedApi, folder: Path) -> dict[str, Any]:
    return {"command": ["kubectl", f"--server=http://127.0.0.1:{api.port}", f"--cache-dir={folder / 'cache'}"], "apply": True}


class TestKueue(LiveSuite):
    @pytest.fixture
    def live(self, api: RecordedApi, tmp_path: Path) -> LiveScheduler:
        return Kueue({"cluster_queue": "research", "local_queues": ["ns/team"], **through_kubectl(api, tmp_path)})


class TestVolcano(LiveSuite):
    @pytest.fixture
    def live(self, api: RecordedApi, tmp_path: Path) -> LiveScheduler:
        return Volcano({"config_map": "vs/conf", **through_kubectl(api, tmp_path)})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := slurm.missing():
        pytest.skip(reason)
    options = {"PriorityType": "priority/multifactor", "PriorityWeightAge": 1000, "PriorityCalcPeriod": 1}
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=2, gpus=4, options=options) as cluster:
        yield cluster


@pytest.mark.slow
class TestSlurm(LiveSuite):
    @pytest.fixture
    def live(self, cluster: SlurmCluster) -> LiveScheduler:
        return LiveSlurm({"conf": cluster.environment["SLURM_CONF"]})
