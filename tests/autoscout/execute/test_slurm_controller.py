"""A study on a Slurm whose controller is killed and comes back with what it last wrote down."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from _slurm import SlurmCluster, missing
from autoscout.core.launch import Launch
from autoscout.execute.slurm.executor import SlurmExecutor
from autoscout.execute.slurm.options import SlurmOptions

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing(accounting=False)), reason=missing(accounting=False))]


def test_jobs_that_ended_before_the_controller_was_killed_hold_no_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run again, on paper: found by a study that waited for hours behind its own jobs."""
    line = f"touch {tmp_path}/runs; while [ ! -e {tmp_path}/end ]; do sleep 0.1; done"
    with SlurmCluster(tmp_path / "slurm", nodes=1, gpus=0, cpus=1, accounting=False) as cluster:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, cluster.environment[name])
        with SlurmExecutor(SlurmOptions(grace_s=0.5)) as executor:
            first = executor.submit(Launch(argv=(line,), shell=True))
            cluster.wait_until((tmp_path / "runs").exists, "the trial runs")
            remember(cluster, tmp_path / "state")
            (tmp_path / "end").touch()
            assert first.result(120).returncode == 0
            cluster.wait_until(lambda: not cluster.jobs(), "its job has ended")
            cluster.kill_controller()
            shutil.copytree(tmp_path / "state", cluster.folder / "state", dirs_exist_ok=True)
            cluster.start_controller()
            assert list(cluster.jobs().values()) == ["RUNNING"], "as the controller has it"
            assert executor.submit(Launch(argv=("true",))).result(120).returncode == 0
        assert not cluster.jobs()


def test_a_job_that_the_controller_forgets_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`salloc` itself waits for it for ever."""
    monkeypatch.setattr("autoscout.execute.slurm.granted.SWEEP_S", 1.0)
    monkeypatch.setattr("autoscout.execute.slurm.granted.FORGOTTEN_S", 4.0)
    line = f"touch {tmp_path}/runs; while [ ! -e {tmp_path}/end ]; do sleep 0.1; done"
    with SlurmCluster(tmp_path / "slurm", nodes=1, gpus=0, cpus=1, accounting=False) as cluster:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, cluster.environment[name])
        with SlurmExecutor(SlurmOptions(grace_s=0.5, slots=2)) as executor:
            first = executor.submit(Launch(argv=(line,), shell=True))
            cluster.wait_until((tmp_path / "runs").exists, "the trial runs")
            remember(cluster, tmp_path / "state")
            second = executor.submit(Launch(argv=("true",)))
            cluster.wait_until(lambda: len(cluster.jobs()) == 2, "the second one waits")
            cluster.kill_controller()
            shutil.copytree(tmp_path / "state", cluster.folder / "state", dirs_exist_ok=True)
            cluster.start_controller()
            assert len(cluster.jobs()) == 1, "the second one is forgotten"
            (tmp_path / "end").touch()
            assert [job.result(120).returncode for job in (first, second)] == [0, 0]
        assert not cluster.jobs()


def remember(cluster: SlurmCluster, folder: Path) -> None:
    """Keep what the controller writes down now, with the jobs that run."""
    (job,) = cluster.jobs()
    asked_s = time.time()
    cluster.run("scontrol", "update", f"JobId={job}", "AdminComment=seen")
    states = cluster.folder / "state" / "job_state"
    cluster.wait_until(lambda: states.exists() and states.stat().st_mtime > asked_s, "it is written down")
    shutil.copytree(cluster.folder / "state", folder)
