"""The small Slurm that tests start: it runs jobs, loses nodes, gets them back, and leaves nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from _slurm import SlurmCluster, missing
from _slurm.cluster import MARK
from autoscout.common import processes

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]


def test_a_cluster_with_accounting_runs_jobs_and_is_changed_while_it_runs(tmp_path: Path) -> None:
    with SlurmCluster(tmp_path / "slurm", nodes=2, gpus=4, options={"PriorityWeightAge": 1000}) as cluster:
        assert cluster.states() == {"n1": "idle", "n2": "idle"}
        job = cluster.run("sbatch", "--parsable", "--gres=gpu:a100:3", "--wrap", "sleep 3").strip()
        cluster.wait_until(lambda: cluster.jobs().get(int(job)) == "RUNNING", "the job runs")
        assert "IDX:0-2" in cluster.run("scontrol", "show", "job", "-d", job)
        cluster.configure({"SchedulerParameters": "bf_interval=7"})
        assert "bf_interval=7" in cluster.run("scontrol", "show", "config")
        cluster.wait_until(lambda: not cluster.jobs(), "the job has ended")
        listed = ""
        for _ in range(100):  # the database is told a moment later
            listed = cluster.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "state,alloctres")
            if "COMPLETED" in listed:
                break
            time.sleep(0.2)
        assert "gres/gpu=3" in listed
    assert not [value for _, value in processes.marked(MARK) if value.startswith(str(tmp_path.resolve()))]


def test_daemons_are_killed_and_come_back(tmp_path: Path) -> None:
    with SlurmCluster(tmp_path / "slurm", nodes=2, gpus=1, accounting=False, options={"SlurmdTimeout": 5}) as cluster:
        cluster.run("sbatch", "--nodelist=n1", "--requeue", "--wrap", "sleep 300")
        cluster.wait_until(lambda: "RUNNING" in cluster.jobs().values(), "the job runs")
        cluster.kill_node("n1")
        cluster.wait_until(lambda: cluster.states().get("n1", "").startswith("down"), "the node is missed")
        cluster.start_node("n1")
        cluster.wait_until(lambda: cluster.states()["n1"] in ("idle", "alloc", "mix"), "the node is back")
        cluster.kill_controller()
        cluster.start_controller()
        cluster.wait_until(lambda: len(cluster.jobs()) == 1, "the controller remembers the job")
        cluster.hang_controller()
        cluster.wake_controller()
        assert cluster.states()
