"""Runs of one workload on a small real Slurm under one slurm.conf, for `benchmarks.slurm_model`.

A worker has a cluster of its own and makes its runs one after the other. Before each run slurmctld starts anew, without jobs and without
usage, and users, qualities of service and the database stay. Jobs are sleeps; what became of them is what accounting says.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from autosched.live.slurm.conf import fragment
from autosched.live.slurm.knobs import options_of
from autoscout.core.config import Config, Value

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from _slurm import SlurmCluster  # noqa: E402 - the small cluster of the tests

NODES, GPUS, CPUS = 4, 4, 8
USERS = ("games", "man", "lp", "mail")
"""Accounts that every Debian has; sbatch of root submits in their names."""
PARTITIONS = ("main", "fast")
LOW, HIGH = 1, 1_000
"""Priorities of the two qualities of service, and factors of the two partitions."""
WORK_GPU_S = NODES * GPUS * 190.0
"""GPU-seconds of one workload: some four minutes for the cluster, of which slurmctld recalculates priorities every one."""
SHORTEST_S, LONGEST_S = 6, 90
"""Of a sleep: accounting counts whole seconds; time limits are whole minutes."""
SPREAD_S = 170.0
"""Over which jobs arrive, but for a burst."""
LOOK_S = 2.0
"""Between two questions whether a run is over: with thirty clusters on one machine, asking is most of the load."""
SHAPES = ("stream", "waves", "burst")
START: Mapping[str, Value] = {
    "priority_weight_age": 1_000,
    "priority_max_age_s": 3_600.0,
    "bf_max_job_test": 500,
    "bf_window_s": 3_600.0,
    "bf_resolution_s": 1.0,
    "bf_interval_s": 1.0,
}
"""First come, first served with backfill, at the intervals of a cluster in which jobs take seconds."""
FIXED: Mapping[str, object] = {
    "PriorityType": "priority/multifactor",
    "PriorityCalcPeriod": 1,
    "AccountingStorageEnforce": "limits",
    "MinJobAge": 600,
}
COLUMNS = "JobIDRaw,JobName,User,QOS,Partition,State,Submit,Start,End,Timelimit,ReqTRES,NodeList"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One knob, moved once.

    Attributes:
        knob: Its name.
        base: Settings around it, over `START`.
        change: Settings that differ in the second run.
        options: Lines of slurm.conf of both runs.
        option_change: Those that differ in the second run.
        limits: What `sacctmgr` sets of the quality of service `low` before the second run, and what takes it back.
    """

    knob: str
    base: Mapping[str, Value] = field(default_factory=dict)
    change: Mapping[str, Value] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    option_change: Mapping[str, object] = field(default_factory=dict)
    limits: tuple[str, str] | None = None

    def settings(self, *, changed: bool) -> Config:
        """Of one of its two runs, by the names of the model."""
        return Config({**START, **self.base, **(self.change if changed else {})})


_SMALL = {"priority_weight_job_size": 1_000, "priority_favor_small": True}
EXPERIMENTS: Mapping[str, Experiment] = {
    each.knob: each
    for each in (
        Experiment(knob="none"),
        Experiment(knob="priority_weight_age", base={**_SMALL, "priority_weight_age": 0}, change={"priority_weight_age": 100_000}),
        Experiment(knob="priority_weight_job_size", change={"priority_weight_job_size": 100_000}),
        Experiment(knob="priority_favor_small", base={"priority_weight_job_size": 100_000}, change={"priority_favor_small": True}),
        Experiment(knob="priority_weight_fairshare", change={"priority_weight_fairshare": 100_000}),
        Experiment(knob="priority_weight_qos", change={"priority_weight_qos": 100_000}),
        Experiment(knob="priority_weight_partition", change={"priority_weight_partition": 100_000}),
        Experiment(knob="priority_max_age_s", base={**_SMALL, "priority_max_age_s": 604_800.0}, change={"priority_max_age_s": 60.0}),
        Experiment(
            knob="priority_decay_half_life_s", base={"priority_weight_fairshare": 100_000}, change={"priority_decay_half_life_s": 60.0}
        ),
        Experiment(knob="bf_max_job_test", change={"bf_max_job_test": 1}),
        Experiment(knob="bf_window_s", change={"bf_window_s": 60.0}),
        Experiment(knob="bf_resolution_s", change={"bf_resolution_s": 3_600.0}),
        Experiment(knob="bf_interval_s", change={"bf_interval_s": 30.0}),
        Experiment(
            knob="preemption",
            options={"PreemptType": "preempt/none", "PreemptMode": "OFF"},
            option_change={"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"},
        ),
        Experiment(knob="qos_limit", limits=("MaxJobsPerUser=2", "MaxJobsPerUser=-1")),
    )
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One sleep."""

    at_s: float
    seconds: int
    gpus: int
    minutes: int
    user: str
    qos: str
    partition: str


def workload(shape: str, seed: int) -> list[Job]:
    """Jobs until they are enough work, a few large and long ones among many small and short; one user has half of them."""
    draw = np.random.default_rng([seed, SHAPES.index(shape)])
    jobs: list[Job] = []
    work = 0.0
    while work < WORK_GPU_S:
        gpus = int(draw.choice([1, 2, 4, 8, 16], p=[0.46, 0.22, 0.19, 0.09, 0.04]))
        seconds = int(np.clip(np.exp(draw.normal(2.65, 0.8)), SHORTEST_S, LONGEST_S))
        minutes = -(-(seconds + 8) // 60) + int(draw.choice([0, 1, 3], p=[0.6, 0.25, 0.15]))
        small = gpus * seconds < 60
        at_s = {
            "burst": draw.uniform(0, 3),
            "stream": draw.uniform(0, SPREAD_S),
            "waves": float(draw.integers(3)) * SPREAD_S / 2.5 + draw.uniform(0, 4),
        }[shape]
        user = USERS[0] if draw.random() < 0.5 else str(draw.choice(USERS[1:]))
        is_high, is_fast = (draw.random() < (0.7 if small else 0.15) for _ in range(2))
        qos, partition = "high" if is_high else "low", PARTITIONS[int(is_fast)]
        jobs.append(Job(at_s=float(at_s), seconds=seconds, gpus=gpus, minutes=minutes, user=user, qos=qos, partition=partition))
        work += gpus * seconds
    return sorted(jobs, key=lambda job: job.at_s)


def slurm_conf(settings: Config, lines: Mapping[str, object]) -> dict[str, object]:
    """Lines of slurm.conf, by name, that give some settings of the model."""
    text, missing = fragment(settings)
    if missing:
        raise ValueError(f"slurm.conf cannot say {missing}")
    values = dict(line.split("=", 1) for line in text.splitlines())
    return {**FIXED, **values, **lines}


def new_cluster(folder: Path) -> SlurmCluster:
    """A cluster with the partitions that the workloads use; not started."""
    shared = "Nodes=ALL MaxTime=INFINITE State=UP"
    partitions = [
        f"PartitionName={PARTITIONS[0]} {shared} Default=YES PriorityJobFactor={LOW}",
        f"PartitionName={PARTITIONS[1]} {shared} PriorityJobFactor={HIGH}",
    ]
    folder.parent.chmod(0o755)  # jobs of other users start in it
    return SlurmCluster(folder, nodes=NODES, gpus=GPUS, cpus=CPUS, partitions=partitions, options=slurm_conf(Config(START), {}))


def people(cluster: SlurmCluster) -> None:
    """The users and qualities of service of the workloads."""
    for name, priority in (("low", LOW), ("high", HIGH)):
        cluster.run("sacctmgr", "-i", "add", "qos", name, f"Priority={priority}")
    cluster.run("sacctmgr", "-i", "modify", "qos", "high", "set", "Preempt=low")
    cluster.run("sacctmgr", "-i", "add", "user", ",".join(USERS), "account=research")
    cluster.run("sacctmgr", "-i", "modify", "account", "research", "set", "qos=normal,low,high", "DefaultQOS=low")


def run(cluster: SlurmCluster, experiment: Experiment, jobs: list[Job], *, changed: bool) -> dict[str, Any]:
    """One run of a workload; what accounting says of its jobs."""
    lines = {**experiment.options, **(experiment.option_change if changed else {})}
    settings = experiment.settings(changed=changed)
    if experiment.limits is not None:
        cluster.run("sacctmgr", "-i", "modify", "qos", "low", "set", experiment.limits[0 if changed else 1])
    began_s = cluster.begin_anew(slurm_conf(settings, lines))
    shown = cluster.run("scontrol", "show", "config")
    begin_s = time.time() + 1.0
    for job in jobs:
        wait_s = begin_s + job.at_s - time.time()
        if wait_s > 0:
            time.sleep(wait_s)
        nodes = -(-job.gpus // GPUS)
        each = job.gpus // nodes
        cluster.run(
            "sbatch", "--parsable", f"--nodes={nodes}", "--ntasks-per-node=1", f"--gpus-per-node={each}",
            f"--cpus-per-task={each * CPUS // GPUS}", f"--time={job.minutes}", f"--uid={job.user}", f"--qos={job.qos}",
            f"--partition={job.partition}", "--job-name=slurm-model", "--output=/dev/null", "--chdir=/", "--mem=0", "--wrap",
            f"sleep {job.seconds}",
        )  # fmt: skip
    cluster.wait_until(lambda: not cluster.jobs(), "all jobs have ended", 1_500.0, LOOK_S)

    def ended() -> list[str]:
        text = cluster.run("sacct", "--parsable2", "--noheader", "--allusers", "--allocations", "--duplicates", f"--format={COLUMNS}",
                           f"--starttime={time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(begin_s - 2.0))}")  # fmt: skip
        return [line for line in text.splitlines() if "|slurm-model|" in line]

    with contextlib.suppress(RuntimeError):  # accounting is told a little later
        cluster.wait_until(lambda: sum("|COMPLETED|" in line for line in ended()) >= len(jobs), "accounting knows", 60.0, LOOK_S)
    return {
        "knob": experiment.knob,
        "changed": changed,
        "settings": dict(settings.items()),
        "lines": {key: str(value) for key, value in lines.items()},
        "parameters": options_of(next(line for line in shown.splitlines() if line.startswith("SchedulerParameters")).split("=", 1)[1]),
        "controller_began_s": began_s,
        "begin_s": begin_s,
        "jobs": len(jobs),
        "load": Path("/proc/loadavg").read_text().split()[0],
        "sacct": ended(),
    }


def slurm_version() -> str:
    """As slurmctld says it."""
    words = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=False).stdout.split()
    return words[-1] if words else "?"
