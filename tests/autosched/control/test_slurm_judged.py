"""On a real Slurm with real jobs: a change that makes it worse is measured and taken back after one period."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import _slurm as slurm
from _slurm import SlurmCluster
from autosched.control import actions
from autosched.control.controller import Controller
from autosched.control.settings import build_settings
from autosched.live.slurm import LiveSlurm

START = {
    "PriorityType": "priority/multifactor",
    "PriorityWeightJobSize": 100_000,
    "PriorityFavorSmall": "YES",
    "PriorityCalcPeriod": 1,
    "SchedulerParameters": "bf_interval=1,bf_resolution=1,bf_window=60,sched_min_interval=100000",
}
"""Small jobs first, and intervals for a cluster in which jobs take seconds."""
PERIOD_S, EVERY_S = 40.0, 20.0

pytestmark = [pytest.mark.slow, pytest.mark.soak]


def keep_submitting(cluster: SlurmCluster, stop: threading.Event, sent: list[str]) -> None:
    """Many small jobs and a few that need the whole cluster, a little more than it can do."""
    number = 0
    while not stop.is_set():
        wide = number % 12 == 0
        shape = ["--nodes=2", "--gpus-per-node=4"] if wide else ["--nodes=1", "--gpus-per-node=1"]
        command = ["sbatch", "--parsable", *shape, "--time=1", "--no-requeue", "--output=/dev/null", "--mem=0"]
        sent.append(cluster.run(*command, "--wrap", f"sleep {4 if wide else 2}").strip())
        number += 1
        stop.wait(0.5)


def test_a_change_that_is_worse_is_rolled_back_after_one_period(tmp_path: Path) -> None:
    if reason := slurm.missing():
        pytest.skip(reason)
    with SlurmCluster(tmp_path / "slurm", nodes=2, gpus=4, options=START) as cluster:
        given = {
            "cluster": "scratch", "live": {"kind": "slurm"}, "folder": str(tmp_path / "control"), "mode": "apply", "look": 1, "watch": 0,
            "every": EVERY_S, "period": PERIOD_S, "tuning": {"draws": 2, "trials": 1, "horizon": 60, "back": [20, 40], "least_gain": 1_000},
        }  # fmt: skip
        live = LiveSlurm({"conf": cluster.environment["SLURM_CONF"]})
        controller = Controller(build_settings(given, "test"), live)
        controller.tick()
        start = live.settings()
        stop, sent = threading.Event(), list[str]()
        people = threading.Thread(target=keep_submitting, args=(cluster, stop, sent))
        people.start()
        try:
            controller.run(until_s=time.time() + 1.5 * EVERY_S)
            forced = actions.propose(controller.ledger, {"priority_favor_small": False}, "test", time.time(), approved=True).id
            controller.run(until_s=time.time() + PERIOD_S + 15.0)
        finally:
            stop.set()
            people.join()
        entry = controller.ledger.entry(forced)
        undo = controller.ledger.rollbacks(entry)
        assert entry.state == "undone", (entry.state, entry.why)
        assert entry.measured < 0.95, entry.why
        assert [each.state for each in undo] == ["kept"]
        assert PERIOD_S <= undo[0].applied_s - entry.applied_s < PERIOD_S + 15.0, "after one period"
        assert live.settings() == start
        cluster.wait_until(lambda: not cluster.jobs(), "all jobs have ended", 600.0)
        columns = "--format=JobID,State"

        def known() -> str:
            return cluster.run("sacct", "--noheader", "--parsable2", "--allusers", "--allocations", "--duplicates", columns)

        cluster.wait_until(lambda: known().count("COMPLETED") >= len(sent), "accounting knows all of them")
        assert sorted(known().split()) == sorted(f"{job}|COMPLETED" for job in sent), "none was lost or requeued"
        controller.close()
