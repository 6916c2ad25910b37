"""Schedules worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autosched.schedulers.fifo import FIFO
from autosched.schedulers.lucid import Lucid
from autosched.schedulers.qssf import QSSF
from autosched.schedulers.sjf import SJF
from autosched.schedulers.slurm import Slurm
from autosched.schedulers.srtf import SRTF
from autosched.schedulers.themis import Themis
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Change, Run, simulate
from autosched.sim.forecast import Forecast
from autosched.sim.interference import Interference
from autosched.sim.result import Result
from autosched.sim.scheduler import Scheduler
from autosched.sim.trace import Trace


def run(jobs: list[tuple[float, float, float]], cluster: str, scheduler: Scheduler, **more: object) -> Result:
    """Jobs as (arrival, duration, GPUs)."""
    submit, duration, gpus = zip(*jobs, strict=True)
    return simulate(Trace.of(submit, duration, gpus, **more), Cluster.parse(cluster), scheduler)  # type: ignore[arg-type]


def starts(result: Result) -> list[float]:
    return [float(value) for value in result.start_s]


def ends(result: Result) -> list[float]:
    return [float(value) for value in result.end_s]


def test_fifo_two_jobs_one_gpu() -> None:
    result = run([(0, 10, 1), (3, 5, 1)], "1x1", FIFO())
    assert starts(result) == [0, 10]
    assert ends(result) == [10, 15]


def test_fifo_blocks_behind_a_large_job_unless_it_may_overtake() -> None:
    jobs = [(0, 10, 3), (1, 10, 2), (2, 3, 1)]
    assert starts(run(jobs, "1x4", FIFO())) == [0, 10, 10]
    assert starts(run(jobs, "1x4", FIFO(overtake=True))) == [0, 10, 2]


def test_sjf_takes_the_shortest_of_those_waiting() -> None:
    result = run([(0, 10, 1), (1, 8, 1), (2, 2, 1)], "1x1", SJF())
    assert starts(result) == [0, 12, 10]


def test_qssf_weighs_estimates_with_gpus() -> None:
    jobs = [(0, 10, 2), (1, 4, 2), (1, 6, 1)]
    result = run(jobs, "1x2", QSSF(), extra={"estimate_s": [10, 4, 7]})
    assert starts(result) == [0, 16, 10]


def test_srtf_preempts_and_charges_for_it() -> None:
    result = run([(0, 100, 1), (10, 5, 1)], "1x1", SRTF())
    assert ends(result) == [10 + 5 + 90 + 18, 15]
    assert list(result.preemptions) == [1, 0]


def test_tiresias_demotes_at_the_threshold() -> None:
    """The first job sinks after 20 GPU-seconds, at 10 s; the second then runs through, sinking at 30 s without a rival above it."""
    scheduler = Tiresias(thresholds=(20.0,), round_s=0.0)
    result = run([(0, 30, 2), (5, 10, 2)], "1x2", scheduler)
    assert starts(result) == [0, 10]
    assert ends(result) == [20 + 20 + 22, 20]
    assert list(result.preemptions) == [1, 0]


def test_tiresias_decides_on_rounds_only() -> None:
    scheduler = Tiresias(queues=1, thresholds=(), round_s=60.0)
    result = run([(5, 10, 1), (70, 10, 1)], "1x1", scheduler)
    assert starts(result) == [60, 120]


def test_tiresias_counts_time_or_service() -> None:
    jobs = [(0, 30, 2), (5, 10, 2)]
    by_time = run(jobs, "1x2", Tiresias(priority="time", thresholds=(20.0,), round_s=0.0))
    assert starts(by_time) == [0, 20]


@pytest.mark.parametrize(("rule", "back_at"), [({"starve_limit_s": 40.0}, 50.0), ({"promote": 2.0}, 30.0)])
def test_tiresias_brings_starving_jobs_back(rule: dict[str, float], back_at: float) -> None:
    """Job 0 runs for 10 s, sinks and waits while short jobs stream past; by either rule it returns to the first queue."""
    stream = [(10.0 + 5 * number, 5.0, 1.0) for number in range(40)]
    jobs = [(0.0, 20.0, 1.0), *stream]
    without = run(jobs, "1x1", Tiresias(thresholds=(10.0,), round_s=0.0))
    assert without.end_s[0] > 200
    result = simulate(
        Trace.of(*zip(*jobs, strict=True)), Cluster.parse("1x1"), Tiresias(thresholds=(10.0,), round_s=0.0, **rule), Run(log=True)
    )
    taken = result.log[(result.log[:, 1] == 0) & (result.log[:, 3] > 0), 0]
    assert taken[1] == back_at


def test_gittins_prefers_jobs_likely_to_end_soon() -> None:
    """Past jobs took 10 or 1,000: one that has run 5 is likely to end within the quantum, one that has run 50 is not."""
    scheduler = Tiresias(priority="gittins", thresholds=(2_000.0,), round_s=0.0, history=(10.0, 10.0, 10.0, 1_000.0))
    result = run([(0, 60, 1), (50, 10, 1)], "1x1", scheduler)
    assert starts(result) == [0, 50]
    assert result.preemptions[0] == 1


def test_themis_keeps_leases() -> None:
    """The second job waits until the first one's lease ends, however unfairly it is treated."""
    result = run([(0, 1_000, 1), (60, 60, 1)], "1x1", Themis(lease_s=300.0, fairness=0.0))
    assert starts(result)[1] == 300
    assert list(result.preemptions) == [1, 0]


def test_themis_lease_in_gpu_seconds() -> None:
    result = run([(0, 1_000, 2), (60, 60, 2)], "1x2", Themis(priority="service", lease_s=300.0, fairness=0.0))
    assert starts(result)[1] == 180  # 150 s, seen at the next round


def test_slurm_backfills_without_delaying_the_first() -> None:
    jobs = [(0, 100, 3), (1, 100, 4), (2, 50, 1), (2, 150, 1)]
    result = run(jobs, "1x4", Slurm(bf_interval_s=0.0))
    assert starts(result) == [0, 100, 2, 200]
    assert starts(run(jobs, "1x4", Slurm(bf_interval_s=0.0, bf_max_job_test=0))) == [0, 100, 200, 200]


def test_slurm_reserves_for_jobs_that_only_lack_a_node() -> None:
    """Two GPUs are free but on two nodes: until the first job ends, only what ends before then may slip in."""
    jobs = [(0, 100, 3), (0, 200, 3), (1, 50, 2), (2, 50, 1), (2, 150, 1)]
    assert starts(run(jobs, "2x4", Slurm(bf_interval_s=0.0))) == [0, 0, 100, 2, 100]
    assert starts(run(jobs, "2x4", Slurm(bf_interval_s=0.0, bf_conservative=True))) == [0, 0, 100, 2, 2], (
        "a plan by count sees that enough is left then"
    )


def test_slurm_reservations_for_all_or_for_the_first_alone() -> None:
    """The last job ends before the first reservation, but would delay the second one."""
    jobs = [(0, 100, 2), (0, 50, 1), (1, 100, 4), (2, 49, 2), (3, 97, 1)]
    easy = Slurm(bf_interval_s=0.0)
    assert starts(run(jobs, "1x4", easy)) == [0, 0, 100, 200, 3]
    conservative = Slurm(bf_interval_s=0.0, bf_resolution_s=1.0, bf_conservative=True)
    assert starts(run(jobs, "1x4", conservative)) == [0, 0, 100, 50, 200]
    assert starts(run(jobs, "1x4", replace(conservative, bf_window_s=30.0))) == [0, 0, 100, 200, 3], "no reservation so far ahead"
    assert starts(run(jobs, "1x4", replace(conservative, bf_max_job_test=1))) == [0, 0, 100, 200, 200], "the third is looked at"
    assert starts(run(jobs, "1x4", replace(conservative, bf_max_job_test=0))) == [0, 0, 100, 200, 200]


def test_slurm_quality_of_service() -> None:
    jobs = Trace.of([0, 1, 2], [100, 10, 10], [1, 1, 1]).with_extra(qos=[0, 0, 50])
    weighted = Slurm(bf_interval_s=0.0, priority_weight_qos=100_000)
    assert starts(simulate(jobs, Cluster.parse("1x1"), Slurm(bf_interval_s=0.0))) == [0, 100, 110]
    assert starts(simulate(jobs, Cluster.parse("1x1"), weighted)) == [0, 110, 100]


def test_slurm_fair_share_prefers_who_used_less() -> None:
    jobs = [(0, 100, 1), (1, 10, 1), (2, 10, 1)]
    unfair = run(jobs, "1x1", Slurm(bf_interval_s=0.0), user=["a", "a", "b"])
    fair = run(jobs, "1x1", Slurm(bf_interval_s=0.0, priority_calc_period_s=0.0, priority_weight_fairshare=100_000), user=["a", "a", "b"])
    assert starts(unfair) == [0, 100, 110]
    assert starts(fair) == [0, 110, 100]


def test_consolidated_jobs_wait_for_one_node_relaxed_ones_spread() -> None:
    jobs = [(0, 10, 3), (0, 10, 3), (1, 10, 2)]
    assert starts(run(jobs, "2x4", FIFO())) == [0, 0, 10]
    spread = run(jobs, "2x4", FIFO(placement="relaxed"))
    assert starts(spread) == [0, 0, 1]
    assert spread.end_s[2] == pytest.approx(1 + 10 / 0.9)
    assert spread.nodes[2] == 2


def test_best_fit_leaves_whole_nodes_whole() -> None:
    jobs = [(0, 50, 2), (1, 50, 2), (2, 50, 4)]
    assert starts(run(jobs, "2x4", FIFO())) == [0, 1, 2]


def test_multi_node_jobs_need_whole_nodes_and_one_for_the_rest() -> None:
    jobs = [(0, 10, 1), (1, 5, 10)]
    assert starts(run(jobs, "3x4", FIFO())) == [0, 1]
    assert starts(run(jobs, "2x4+1x4", FIFO())) == [0, 1]
    assert starts(run([(0, 10, 1), (0, 10, 3), (0, 10, 3), (1, 5, 8)], "3x4", FIFO())) == [0, 0, 0, 10]


def test_gpu_types_and_speeds() -> None:
    result = run([(0, 10, 1), (0, 10, 1), (0, 10, 1)], "1x1@fast*2+1x1@slow*0.5", FIFO(overtake=True), kind=["slow", "fast", "fast"])
    assert ends(result) == [20, 5, 10]


def test_shares_of_one_gpu() -> None:
    result = run([(0, 10, 0.5), (0, 10, 0.3), (0, 10, 0.3), (0, 10, 0.2)], "1x1", FIFO(overtake=True))
    assert starts(result) == [0, 0, 10, 0]
    assert starts(run([(0, 10, 0.5), (1, 10, 1)], "1x2", FIFO())) == [0, 1]


def test_virtual_clusters_do_not_share() -> None:
    trace = Trace.of([0, 0, 0], [10, 10, 10], [1, 1, 1], vc=["a", "a", "b"])
    result = simulate(trace, Cluster.of_vcs({"a": 1, "b": 1}, gpus=1), FIFO())
    assert starts(result) == [0, 10, 0]


def test_zero_durations_end_at_once() -> None:
    result = run([(0, 0, 1), (0, 5, 1), (0, 0, 1)], "1x1", FIFO())
    assert ends(result) == [0, 5, 5]


def test_a_configuration_change_takes_over_in_flight() -> None:
    jobs = Trace.of([0, 5], [300, 10], [1, 1])
    never = Tiresias(thresholds=(1_000.0,), round_s=10.0)
    soon = Tiresias(thresholds=(20.0,), round_s=10.0)
    unchanged = simulate(jobs, Cluster.parse("1x1"), never)
    changed = simulate(jobs, Cluster.parse("1x1"), never, Run(changes=[Change(at_s=100.0, scheduler=soon)]))
    assert starts(unchanged) == [0, 300]
    assert starts(changed) == [0, 100]


def test_placement_order_and_scheduler_can_change_in_flight() -> None:
    trace, cluster = Trace.of([0, 0, 1], [100, 100, 10], [3, 3, 2]), Cluster.parse("2x4")
    spread = simulate(trace, cluster, FIFO(), Run(changes=[Change(at_s=50.0, scheduler=FIFO(placement="relaxed"))]))
    assert starts(spread) == [0, 0, 50]
    blocked = Trace.of([0, 1, 2], [100, 10, 10], [3, 4, 1])
    overtaking = simulate(blocked, Cluster.parse("1x4"), FIFO(), Run(changes=[Change(at_s=30.0, scheduler=FIFO(overtake=True))]))
    assert starts(overtaking) == [0, 100, 30]
    shorter = simulate(blocked, Cluster.parse("1x4"), FIFO(), Run(changes=[Change(at_s=30.0, scheduler=SRTF())]))
    assert starts(shorter) == [0, 30, 40], "the first is preempted at once"
    assert ends(shorter) == [40 + 70 + 29, 40, 50]


def test_lucid_can_be_reconfigured_in_flight() -> None:
    cluster = Cluster.parse("2x1")
    jobs = Trace.of([0, 5], [100, 100], [1, 1], job_id=["a", "b"]).with_extra(sharing=[0.0, 0.0])
    alone = Lucid(profiler_nodes=1, profiler_s=1.0, profiler_gpus_per_node=1.0, pack=-1)
    packing = replace(alone, pack=2)
    unchanged, changed = (simulate(jobs, cluster, alone, Run(changes=changes)) for changes in ((), (Change(at_s=50.0, scheduler=packing),)))
    assert starts(unchanged) == [1, 101]
    assert starts(changed) == [1, 50], "the second joins the first as soon as it may"
    longer = replace(alone, profiler_s=200.0)
    profiled = simulate(jobs, cluster, alone, Run(changes=[Change(at_s=3.0, scheduler=longer)]))
    assert profiled.extra["finished_in_profiler"].tolist() == [0, 1], "the profiler's time limit changes too"
    assert ends(profiled) == [101, 105]
    for other in (Lucid(profiler_nodes=0), FIFO()):
        both = simulate(jobs, cluster, alone, Run(changes=[Change(at_s=50.0, scheduler=other)]))
        assert starts(both) == [1, 50], "the node of the profiler is there for all"
    taken = simulate(jobs, cluster, FIFO(), Run(changes=[Change(at_s=50.0, scheduler=alone)]))
    assert ends(taken) == [100, 100 + 55 + 18], "the second loses its node to the profiler"


def test_pairs_are_split_when_another_scheduler_takes_over() -> None:
    lucid = Lucid(profiler_nodes=1, profiler_s=5.0, profiler_gpus_per_node=0.5, interference=Interference.of([("m", "n", 0.5, 0.5)]))
    trace = Trace.of([0, 10], [100, 100], [1, 1], **LUCID_TRACE)
    result = simulate(
        trace,
        Cluster.parse("2x1"),
        lucid,
        Run(changes=[Change(at_s=30.0, scheduler=replace(lucid, profiler_nodes=0)), Change(at_s=40.0, scheduler=FIFO())]),
    )
    assert starts(result) == [0, 10]
    assert ends(result) == [40 + 75, 40 + 85 + 18], "the first has done 10 + 15, the second 15, and it starts again on the free node"


def test_work_since_the_last_checkpoint_is_lost() -> None:
    class Forgetful(SRTF):
        def plan(self, trace, cluster):  # type: ignore[no-untyped-def]
            plan = super().plan(trace, cluster)
            return replace(plan, workload=replace(plan.workload, checkpoint_s=4.0, preemption_cost_s=((None, 0.0),)))

    result = run([(0, 100, 1), (10, 5, 1)], "1x1", Forgetful())
    assert ends(result) == [15 + 92, 15]


LUCID_TRACE = {"extra": {"sharing": [1, 1], "memory_mb": [1_000, 1_000], "gpu_util": [20, 20]}, "name": ["m", "n"]}


def test_lucid_packs_and_restores_speed() -> None:
    """Job 1 joins job 0 at 10 s; both at half speed; job 1 ends at 30 s, then job 0 needs its last 80 s alone."""
    lucid = Lucid(profiler_nodes=1, profiler_s=5.0, profiler_gpus_per_node=0.5, interference=Interference.of([("m", "n", 0.5, 0.5)]))
    result = run([(0, 100, 1), (10, 10, 1)], "2x1", lucid, **LUCID_TRACE)
    assert starts(result) == [0, 10]
    assert ends(result) == [30 + 80, 30]
    assert result.extra["packed_at_s"][1] == 10


def test_lucid_profiles_first_and_short_jobs_end_there() -> None:
    lucid = Lucid(profiler_nodes=1, profiler_s=20.0, pack=-1)
    result = run([(0, 100, 1), (0, 10, 1)], "2x2", lucid)
    assert list(result.extra["finished_in_profiler"]) == [0, 1]
    assert starts(result) == [20, 0]
    assert ends(result) == [120, 10]


def test_lucid_stops_packing_in_quiet_times() -> None:
    quiet = Forecast(np.asarray([0.0, 600.0]), np.asarray([1.0, 1.0]), np.asarray([1.0, 1.0]))
    lucid = Lucid(profiler_nodes=1, profiler_s=5.0, profiler_gpus_per_node=0.5, forecast=quiet)
    result = run([(0, 100, 1), (10, 10, 1)], "2x1", lucid, **LUCID_TRACE)
    assert starts(result) == [0, 100]


@pytest.mark.parametrize("pack", [-1, 0, 1, 2])
def test_lucid_pack_knob(pack: int) -> None:
    lucid = Lucid(profiler_nodes=1, profiler_s=5.0, profiler_gpus_per_node=0.5, pack=pack)
    result = run([(0, 100, 1), (10, 10, 1)], "2x1", lucid, **LUCID_TRACE)
    assert bool(np.isfinite(result.extra["packed_at_s"][1])) == (pack == 2)
