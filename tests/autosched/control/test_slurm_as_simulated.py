"""A real Slurm starts jobs in the order that its simulation says, under settings that change the order."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

import _slurm as slurm
from _slurm import SlurmCluster
from autosched.schedulers.slurm import Slurm
from autosched.sim.cluster import Cluster
from autosched.sim.engine import simulate
from autosched.sim.trace import Trace

SLEEPS_S = (15, 5, 5)
OPTIONS = {"PriorityType": "priority/multifactor", "PriorityWeightAge": 1000, "PriorityCalcPeriod": 1}
LINE = "bf_interval=1,bf_resolution={resolution},bf_window={window},bf_max_job_test={depth}"
CASES = {  # settings, time limit of the third job in minutes, and whether it overtakes the second one
    "in front of a reservation": ({"resolution": 1, "window": 60, "depth": 500}, 1, True),
    "a coarse grid reserves from now on": ({"resolution": 3600, "window": 60, "depth": 500}, 1, False),
    "too long for the gap": ({"resolution": 1, "window": 60, "depth": 500}, 4, False),
    "nothing is reserved beyond the window": ({"resolution": 1, "window": 1, "depth": 500}, 4, True),
    "only the first is tried": ({"resolution": 1, "window": 60, "depth": 1}, 1, False),
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := slurm.missing():
        pytest.skip(reason)
    options = OPTIONS | {"SchedulerParameters": LINE.format(resolution=1, window=60, depth=500)}
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=2, gpus=4, options=options) as made:
        yield made


def submit(cluster: SlurmCluster, nodes: int, minutes: int, seconds: int) -> str:
    command = ["sbatch", "--parsable", f"--nodes={nodes}", "--gpus-per-node=4", f"--time={minutes}", "--output=/dev/null", "--mem=0"]
    return cluster.run(*command, "--wrap", f"sleep {seconds}").strip()


def moments(cluster: SlurmCluster, jobs: list[str]) -> dict[str, list[float]]:
    text = cluster.run("sacct", "--parsable2", "--noheader", "--allocations", f"--jobs={','.join(jobs)}", "--format=JobID,Submit,Start,End")
    rows = {row[0]: row[1:] for row in (line.split("|") for line in text.splitlines())}
    if any(cell[0] not in "12" for job in jobs for cell in rows.get(job, ["-"])):
        return {}
    return {job: [time.mktime(time.strptime(cell, "%Y-%m-%dT%H:%M:%S")) for cell in rows[job]] for job in jobs}


@pytest.mark.parametrize("case", list(CASES))
def test_the_order_of_starts(cluster: SlurmCluster, case: str) -> None:
    """One node is taken for two minutes at most, then a job wants both nodes, then one wants a node."""
    settings, minutes, overtakes = CASES[case]
    cluster.configure({"SchedulerParameters": LINE.format(**settings)})
    limits = (2, 1, minutes)
    jobs = []
    for nodes, limit, seconds in zip((1, 2, 1), limits, SLEEPS_S, strict=True):
        jobs.append(submit(cluster, nodes, limit, seconds))
        time.sleep(1.1)  # accounting counts whole seconds
    cluster.wait_until(lambda: not cluster.jobs(), "all jobs have ended", every_s=0.5)
    cluster.wait_until(lambda: bool(moments(cluster, jobs)), "accounting knows", every_s=0.5)
    known = moments(cluster, jobs)
    real = known[jobs[2]][1] < known[jobs[1]][1]
    submit_s = np.asarray([known[job][0] for job in jobs])
    trace = Trace.of(submit_s, SLEEPS_S, [4.0, 8.0, 4.0], extra={"estimate_s": 60.0 * np.asarray(limits)})
    about = {
        "bf_resolution_s": float(settings["resolution"]),
        "bf_window_s": 60.0 * settings["window"],
        "bf_max_job_test": settings["depth"],
    }
    scheduler = Slurm(**about, bf_conservative=True, bf_interval_s=1.0, priority_calc_period_s=60.0)  # type: ignore[arg-type]
    start_s = simulate(trace, Cluster.parse("2x4"), scheduler).start_s
    assert (real, bool(start_s[2] < start_s[1])) == (overtakes, overtakes)
