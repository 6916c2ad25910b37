"""Changes of regime under the controller, and a choice of policies that it may make: on a replayed trace and on a toy."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _file_scheduler import FileScheduler

from autosched.arrivals.synthetic import Recipe, generate
from autosched.control.controller import Controller
from autosched.control.decide import Proof
from autosched.control.settings import build_settings
from autosched.live.replay import Replay
from autosched.live_scheduler import ClusterState
from autosched.predict.estimates import ESTIMATE
from autosched.sim.cluster import Cluster
from autosched.sim.export import trace_columns, write_table
from autosched.sim.trace import Trace, concatenate
from autosched.tune.futures import Future
from autosched.tune.proof import jackknife
from autosched.tune.tuner import Tuner

DAY_S, HOUR_S = 86_400.0, 3_600.0
BEGIN_S = 3 * DAY_S


class Fading(FileScheduler):
    """Nodes come and go."""

    nodes = 2

    def look(self) -> ClusterState:
        return replace(super().look(), cluster=Cluster.parse(f"{self.nodes}x8"))


def test_a_dead_node_is_answered_at_the_next_look(tmp_path: Path) -> None:
    live = Fading(tmp_path / "settings.json")
    given = {"cluster": "lab", "live": {"kind": "file"}, "folder": str(tmp_path), "look": "30s", "watch": "5m", "every": "1h"}
    controller = Controller(build_settings(given, "test"), live)
    start_s = live.clock.now_s()
    controller.run(until_s=start_s + 60)
    live.nodes = 1
    controller.run(until_s=start_s + 150)
    looks = [entry for entry in controller.ledger.history() if entry.kind == "watch"]
    assert len(looks) == 1, "once, though the next look in between is not due"
    assert looks[0].at_s - start_s <= 120
    assert "nodes have come or gone: 16 -> 8 GPUs" in looks[0].words
    assert any(event == "alarm" for _, _, _, event, _ in controller.ledger.log())
    live.nodes = 2
    controller.run(until_s=start_s + 240)
    assert len([entry for entry in controller.ledger.history() if entry.kind == "watch"]) == 2, "and when it is back"


def replayed(folder: Path, jobs: Trace, mode: str, live: dict[str, Any], **more: Any) -> Controller:
    write_table(trace_columns(jobs), folder / "jobs.csv")
    options = {"trace": str(folder / "jobs.csv"), "cluster": "3x8", "scheduler": "tiresias", "start": str(BEGIN_S), **live}
    tuning = {"draws": 2, "trials": 6, "searcher": "random", "least_gain": 1.02, **more.pop("tuning", {})}
    given = {"cluster": "toy", "live": {"kind": "replay", **options}, "folder": str(folder), "mode": mode, "tuning": tuning, **more}
    return Controller(build_settings(given, "test"), Replay(options))


def test_a_burst_is_seen_within_minutes_and_answered_if_that_pays(tmp_path: Path) -> None:
    jobs = generate(Recipe(profile="philly", jobs=500, days=4, load=0.8, cluster_gpus=24, start_s=0.0, seed=4))
    at_s = BEGIN_S + 1_700
    names = [f"burst-{number}" for number in range(90)]
    more = Trace.of(at_s + np.arange(90.0), [4_000.0] * 90, [4.0] * 90, job_id=names)
    both = concatenate(jobs, more)
    both = both.take(np.argsort(both.submit_s, kind="stable"))
    controller = replayed(tmp_path, both, "observe", {}, look="1m", watch="5m", every="6h")
    controller.run(until_s=at_s + 900)
    seen = [(moment_s, words) for _, moment_s, _, event, words in controller.ledger.log() if event == "alarm"]
    assert seen
    assert "a burst" in seen[0][1]
    assert seen[0][0] - at_s <= 600
    answer = next(entry for entry in controller.ledger.history() if entry.at_s == seen[0][0])
    assert answer.kind == "watch"
    assert "Alarm: a burst" in answer.words
    assert answer.state == "same" or answer.predicted >= 1.02


def test_a_replayed_cluster_may_change_its_policy(tmp_path: Path) -> None:
    jobs = generate(Recipe(profile="philly", jobs=700, days=4, load=1.5, cluster_gpus=24, start_s=0.0, seed=5))
    jobs = jobs.keep(jobs.gpus <= 8, "fits")
    more = [(100.0, 30_000.0, 8.0), (110.0, 30_000.0, 8.0), *((200.0 + 30 * number, 400.0, 1.0) for number in range(100))]
    times, durations, gpus = (np.asarray(column) for column in zip(*more, strict=True))
    jobs = concatenate(jobs, Trace.of(BEGIN_S + times, durations, gpus, job_id=[f"more-{number}" for number in range(102)]))
    jobs = jobs.take(np.argsort(jobs.submit_s, kind="stable"))
    live = {"scheduler": "fifo", "policies": ["srtf"], "cluster": "2x8"}
    tuning = {"slack": 1e6, "least_gain": 1.0, "least_share": 0.0, "least_jobs": 1}
    controller = replayed(tmp_path, jobs, "apply", live, look="30m", watch=0, every="1h", tuning=tuning)
    assert controller.adviser.tuner.goal.bounds
    controller.run(until_s=BEGIN_S + 3 * HOUR_S)
    snapshot = controller.live.session.snapshot()  # type: ignore[attr-defined]
    assert len(snapshot.jobs)
    assert np.isfinite(snapshot.jobs.extra[ESTIMATE]).all()
    assert not np.isclose(snapshot.jobs.extra[ESTIMATE], snapshot.jobs.duration_s).any(), "nobody is told true durations"
    policies = [entry.after.get("policy") for entry in controller.ledger.history()]
    assert "srtf" in policies
    applied = [entry for entry in controller.ledger.history() if entry.state in ("applied", "kept", "undone") and entry.kind != "rollback"]
    assert applied, "a change of policy is made like any other"


def test_settings_that_mean_nothing_are_not_put_in_force(tmp_path: Path) -> None:
    jobs = generate(Recipe(profile="philly", jobs=100, days=4, start_s=0.0, seed=5))
    live = replayed(tmp_path, jobs, "observe", {}).live
    assert isinstance(live, Replay)
    live._set(live.settings().extend({"starve_limit_s": 600.0, "threshold": 5_000.0}))
    assert live.session.scheduler.starve_limit_s == 0.0  # type: ignore[attr-defined]
    assert live.session.scheduler.thresholds == (5_000.0,), "also between the listed ones"  # type: ignore[attr-defined]


def test_orders_that_share_their_jobs_are_not_taken_for_weeks() -> None:
    orders = (1.10, 1.12, 1.11, 1.13, 1.09, 1.10)
    alike = Proof(gains=orders, jobs=500, past_s=7 * DAY_S)
    assert alike.doubt(100, 2 * DAY_S) == ""
    steady = replace(alike, days=(1.10, 1.11, 1.10, 1.09, 1.10, 1.11, 1.10))
    assert steady.doubt(100, 2 * DAY_S) == ""
    one_day = replace(alike, days=(1.12, 1.12, 1.12, 0.95, 1.12, 1.12, 1.12))
    assert one_day.interval[0] < 1
    assert "cannot tell" in one_day.doubt(100, 2 * DAY_S)
    logs = np.log([1.2, 1.0, 1.1])
    assert jackknife((1.2, 1.0, 1.1)) == pytest.approx(math.sqrt(2 / 3 * float(((logs - logs.mean()) ** 2).sum())))
    assert jackknife((1.2,)) == 0.0


def test_a_week_without_a_day_has_the_others() -> None:
    jobs = Trace.of(np.arange(0, 7 * DAY_S, HOUR_S), [60] * 168, [1] * 168)
    weeks = Tuner.without_parts(Future(at_s=0.0, arrivals=jobs), 7 * DAY_S)
    assert [len(each.arrivals) for each in weeks] == [144] * 7
    for number, each in enumerate(weeks):
        assert np.array_equal(each.arrivals.submit_s, np.arange(0, 6 * DAY_S, HOUR_S))
        gone = set(jobs.job_id.tolist()) - set(each.arrivals.job_id.tolist())
        assert gone == set(jobs.between(number * DAY_S, (number + 1) * DAY_S).job_id.tolist())


def test_a_change_that_breaks_a_guard_is_not_applied() -> None:
    broken = Proof(gains=(1.2,) * 6, jobs=500, past_s=7 * DAY_S, broken="longest_queue_s would be 9, at most 3 is allowed")
    assert "breaks limits" in broken.doubt(100, 2 * DAY_S)
