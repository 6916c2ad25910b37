"""What each setting of Slurm does in the simulation, on queues small enough to follow by hand.

The same settings were measured on a real Slurm: `docs/autosched/results/slurm-model.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from autosched.schedulers.slurm import Slurm
from autosched.sim.cluster import Cluster
from autosched.sim.engine import simulate
from autosched.sim.simulation import Simulation
from autosched.sim.trace import Trace

LIVE = {"bf_conservative": True, "bf_interval_s": 0.0, "bf_resolution_s": 1.0, "priority_calc_period_s": 0.0}
"""As a live Slurm is simulated, but that everything is up to date at every event."""


def starts(jobs: Sequence[tuple[float, float, float]], cluster: str, users: Sequence[str] = (), **settings: object) -> list[float]:
    """When jobs (submit, duration, GPUs) start; the duration is also the limit, unless `limits` or another column is among the settings."""
    extra = {name: np.asarray(settings.pop(name), np.float64) for name in ("estimate_s", "qos", "partition_priority") if name in settings}
    submit, duration, gpus = (np.asarray(column, np.float64) for column in zip(*jobs, strict=True))
    trace = Trace.of(submit, duration, gpus, user=list(users) or None, extra=extra)
    return simulate(trace, Cluster.parse(cluster), Slurm(**{**LIVE, **settings})).start_s.tolist()  # type: ignore[arg-type]


def burst(seed: int) -> Trace:
    """Sixty jobs at once, as the review had them: 1 to 16 GPUs, 2 to 25 s, limits of two minutes."""
    draw = np.random.default_rng(seed)
    gpus, duration = draw.choice([1, 2, 4, 8, 16], 60, p=[0.4, 0.2, 0.2, 0.12, 0.08]), draw.integers(2, 26, 60)
    return Trace.of(draw.uniform(0, 1, 60), duration, gpus, extra={"estimate_s": np.full(60, 120.0)})


@pytest.mark.parametrize("seed", range(3))
def test_a_coarse_grid_promises_nothing(seed: int) -> None:
    """It promised 2.57 times, because everything ended before the rounded end of what ran; a real Slurm gave 1.00."""
    question = Simulation(trace=burst(seed), cluster=Cluster.parse("4x4"), scheduler="slurm")
    mean = {
        step: simulate(question.trace, question.cluster, Slurm(**{**LIVE, "bf_interval_s": 1.0, "bf_resolution_s": step})).end_s.mean()  # type: ignore[arg-type]
        for step in (1.0, 3_600.0)
    }
    assert mean[1.0] / mean[3_600.0] < 1.1


def test_a_coarse_grid_reserves_from_the_step_before() -> None:
    """Both nodes are reserved for the large job from 100 on; on a grid of an hour from its beginning on, so nobody fits before."""
    jobs = [(0.0, 100.0, 4.0), (1.0, 50.0, 8.0), (2.0, 20.0, 4.0)]
    assert starts(jobs, "2x4") == [0, 100, 2]
    assert starts(jobs, "2x4", bf_resolution_s=3_600.0) == [0, 100, 150]


def test_reservations_are_of_whole_nodes() -> None:
    """The second job waits for two of four GPUs; while its node is reserved nobody else gets the other two."""
    jobs = [(0.0, 100.0, 3.0), (1.0, 50.0, 2.0), (2.0, 200.0, 1.0)]
    assert starts(jobs, "1x4") == [0, 100, 100]


def test_jobs_beyond_the_window_are_overtaken() -> None:
    jobs = [(0.0, 100.0, 2.0), (1.0, 50.0, 4.0), (2.0, 300.0, 2.0)]
    assert starts(jobs, "1x4") == [0, 100, 150]
    assert starts(jobs, "1x4", bf_window_s=60.0) == [0, 302, 2]


def test_between_backfills_only_the_first_in_order_start() -> None:
    jobs = [(0.0, 40.0, 3.0), (1.0, 10.0, 4.0), (2.0, 15.0, 1.0), (70.0, 5.0, 1.0)]
    assert starts(jobs, "1x4") == [0, 40, 2, 70]
    assert starts(jobs, "1x4", bf_interval_s=30.0, began_s=-10.0) == [0, 40, 20, 70]


def test_only_so_many_jobs_are_tried() -> None:
    """Of those behind: the first job tried cannot start, and with a depth of one nobody else is asked."""
    jobs = [(0.0, 100.0, 3.0), (1.0, 50.0, 4.0), (2.0, 20.0, 1.0)]
    assert starts(jobs, "1x4", bf_max_job_test=500) == [0, 100, 2]
    assert starts(jobs, "1x4", bf_max_job_test=1) == [0, 100, 150]


def test_ends_of_running_jobs_are_looked_at_in_windows() -> None:
    """Limits end at 40, 70 and 200. Those up to 90 are one window, so the reservation begins at 70 and a job of 45 s goes before it."""
    jobs = [(0.0, 40.0, 2.0), (0.0, 70.0, 1.0), (1.0, 50.0, 3.0), (2.0, 45.0, 1.0)]
    assert starts(jobs, "1x4") == [0, 0, 47, 2]


def test_size_counts_nodes_and_gpus() -> None:
    """One job has a node, the other half as many GPUs; both are found smaller than the whole cluster, and the smaller goes first."""
    jobs = [(0.0, 100.0, 16.0), (1.0, 10.0, 16.0), (2.0, 10.0, 4.0), (3.0, 10.0, 2.0)]
    weights = {"priority_weight_age": 0, "priority_weight_job_size": 1_000}
    assert starts(jobs, "4x4", **weights)[1:] == [100, 110, 110]
    assert starts(jobs, "4x4", **weights, priority_favor_small=True)[1:] == [110, 100, 100]


def test_priorities_are_whole_numbers() -> None:
    """Size differs by less than one: the order of arrival decides."""
    jobs = [(0.0, 100.0, 4.0), (1.0, 10.0, 3.0), (2.0, 10.0, 2.0)]
    small = {"priority_weight_age": 0, "priority_favor_small": True, "bf_max_job_test": 1}
    assert starts(jobs, "1x4", **small, priority_weight_job_size=1)[1:] == [100, 110]
    assert starts(jobs, "1x4", **small, priority_weight_job_size=1_000)[1:] == [110, 100]


def test_age_counts_from_the_last_calculation() -> None:
    """The large job is older, but priorities were not calculated since both came; then the small one goes first, by its size."""
    jobs = [(0.0, 100.0, 4.0), (1.0, 10.0, 4.0), (90.0, 10.0, 1.0)]
    ageing = {
        "priority_weight_age": 100_000,
        "priority_max_age_s": 1_000.0,
        "priority_weight_job_size": 1_000,
        "priority_favor_small": True,
    }
    assert starts(jobs, "1x4", **ageing)[1:] == [100, 110]
    assert starts(jobs, "1x4", **ageing, priority_calc_period_s=1_000.0, began_s=-1.0)[1:] == [110, 100]


def test_age_is_full_at_the_maximum() -> None:
    """With a day both ages differ, after a minute both are full, and size decides."""
    jobs = [(0.0, 200.0, 4.0), (1.0, 10.0, 4.0), (60.0, 10.0, 1.0)]
    ageing = {"priority_weight_age": 100_000, "priority_weight_job_size": 1_000, "priority_favor_small": True}
    assert starts(jobs, "1x4", **ageing, priority_max_age_s=3_600.0)[1:] == [200, 210]
    assert starts(jobs, "1x4", **ageing, priority_max_age_s=60.0)[1:] == [210, 200]


def test_fair_share_is_the_place_among_users() -> None:
    """Who used a hundred times as much has no less than who used twice as much: it is a rank, and ranks differ by a third here."""
    jobs = [(0.0, 300.0, 3.0), (0.0, 200.0, 1.0), (201.0, 10.0, 4.0), (202.0, 10.0, 4.0)]
    users = ["heavy", "light", "heavy", "light"]
    assert starts(jobs, "1x4", users)[2:] == [300, 310]
    assert starts(jobs, "1x4", users, priority_weight_fairshare=100_000)[2:] == [310, 300]


def test_a_short_half_life_forgets() -> None:
    """`a` used more, but long ago; with a week of memory `b` goes first, with a minute `a` does."""
    jobs = [(0.0, 300.0, 1.0), (800.0, 100.0, 1.0), (850.0, 10.0, 1.0), (860.0, 10.0, 1.0)]
    users = ["a", "b", "b", "a"]
    share = {"priority_weight_fairshare": 100_000, "priority_weight_age": 0}
    assert starts(jobs, "1x1", users, **share, priority_decay_half_life_s=604_800.0)[2:] == [900, 910]
    assert starts(jobs, "1x1", users, **share, priority_decay_half_life_s=60.0)[2:] == [910, 900]


@pytest.mark.parametrize(("column", "weight"), [("qos", "priority_weight_qos"), ("partition_priority", "priority_weight_partition")])
def test_what_a_job_is_called_weighs(column: str, weight: str) -> None:
    jobs = [(0.0, 100.0, 1.0), (1.0, 10.0, 1.0), (2.0, 10.0, 1.0)]
    column_of = {column: [0.0, 1.0, 1_000.0]}
    assert starts(jobs, "1x1", **column_of)[1:] == [100, 110]
    assert starts(jobs, "1x1", **column_of, **{weight: 100_000})[1:] == [110, 100]


def test_weights_without_their_column_are_not_searched() -> None:
    question = Simulation(trace=burst(0), cluster=Cluster.parse("4x4"), scheduler="slurm")
    offered = question.offered().knobs
    assert [len(offered[name].values) for name in ("priority_weight_qos", "priority_weight_partition", "priority_weight_age")] == [1, 1, 7]
