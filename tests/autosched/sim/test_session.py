"""Stopping and resuming changes nothing, whoever schedules and whenever it is stopped."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.schedulers.fifo import FIFO
from autosched.schedulers.lucid import Lucid
from autosched.schedulers.sjf import SJF
from autosched.schedulers.slurm import Slurm
from autosched.schedulers.srtf import SRTF
from autosched.schedulers.themis import Themis
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.forecast import Forecast
from autosched.sim.result import Result
from autosched.sim.scheduler import Scheduler
from autosched.sim.session import Session
from autosched.sim.snapshot import Snapshot
from autosched.sim.stream import stream
from autosched.sim.trace import Trace
from autosched.testing.scheduler import never_too_many
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.seeds import stream as seeded
from autoscout_lab.reference.lucid import LucidLucid, LucidQSSF, LucidSRTF, LucidTiresias
from autoscout_lab.reference.symbiotic import SymbioticFIFO, SymbioticTiresias
from autoscout_lab.reference.titan import TitanThemis

CLUSTERS = (Cluster.parse("4x8"), Cluster.parse("2x8+3x4"), Cluster.of_vcs({"a": 3, "b": 3}))
SPIKES = Forecast(np.arange(0, 20_000, 600.0), np.arange(34) % 7.0, np.arange(34) % 50.0)

SCHEDULERS: dict[str, Scheduler] = {
    "fifo": FIFO(),
    "fifo overtaking": FIFO(overtake=True, placement="relaxed"),
    "fifo by count": SymbioticFIFO(),
    "sjf": SJF(),
    "qssf with newcomers": LucidQSSF(),
    "srtf": SRTF(),
    "srtf in seconds": LucidSRTF(),
    "tiresias": Tiresias(thresholds=(2_000.0,)),
    "tiresias at events": Tiresias(thresholds=(900.0, 4_000.0), queues=3, starve_limit_s=700.0, round_s=0.0),
    "tiresias promoting": Tiresias(thresholds=(900.0,), promote=1.5, placement="relaxed", pack_limit=2.0),
    "tiresias gittins": Tiresias(priority="gittins", thresholds=(3_000.0,)),
    "tiresias of lucid": LucidTiresias(round_offset_s=17.0),
    "tiresias of symbiotic": SymbioticTiresias(),
    "themis": Themis(lease_s=300.0),
    "themis spreading": Themis(lease_s=400.0, priority="service", fairness=0.3, spread_above=1.5),
    "themis of titan": TitanThemis(lease_s=300.0),
    "slurm": Slurm(),
    "slurm by fair share": Slurm(priority_weight_fairshare=10_000, priority_weight_qos=10, bf_interval_s=0.0),
    "slurm with reservations": Slurm(bf_conservative=True, priority_weight_job_size=100),
    "lucid": Lucid(profiler_nodes=1, profiler_s=120.0),
    "lucid without profiler": Lucid(profiler_nodes=0),
    "lucid that pauses": Lucid(profiler_nodes=1, profiler_s=60.0, forecast=SPIKES, quiet_jobs=3.0),
    "lucid that borrows": Lucid(profiler_nodes=1, profiler_s=300.0, forecast=SPIKES, elastic_from="a", profiler_from=("b",)),
}


def draw_trace(seed: int, vcs: tuple[str, ...] = ("",), jobs: int = 90) -> Trace:
    """Jobs for about one and a half times the GPUs there are, some of them together, with moments that are no whole seconds."""
    draw = seeded(seed, "session")
    at = np.sort(draw.integers(0, 6_000, jobs) + np.where(draw.random(jobs) < 0.5, draw.random(jobs), 0.0))
    return Trace.of(
        at,
        np.where(draw.random(jobs) < 0.05, 0.0, np.round(draw.lognormal(6.3, 1.4, jobs), 3)),
        draw.choice([0.25, 0.5, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 8.0, 12.0, 16.0], jobs),
        user=[f"u{number}" for number in draw.integers(0, 4, jobs)],
        vc=[vcs[number] for number in draw.integers(0, len(vcs), jobs)],
        extra={
            "sharing": draw.integers(0, 3, jobs),
            "memory_mb": draw.integers(0, 14_000, jobs),
            "gpu_util": draw.integers(5, 90, jobs),
            "skew": draw.choice([1.0, 3.0], jobs),
            "qos": draw.integers(0, 5, jobs),
        },
    )


def of(name: str, number: int, seed: int) -> tuple[Trace, Cluster, Scheduler]:
    """A trace, a cluster and a scheduler; who lends nodes needs virtual clusters of these names."""
    number = 2 if "borrows" in name else number
    cluster = CLUSTERS[number]
    trace = draw_trace(seed, cluster.vcs)
    if "symbiotic" in name:  # it knows whole seconds and whole GPUs only
        whole = {column: np.ceil(getattr(trace, column)) for column in ("submit_s", "duration_s", "gpus")}
        trace = replace(trace, **whole)
    return trace, cluster, SCHEDULERS[name]


def columns(result: Result) -> dict[str, np.ndarray]:
    """Everything about each job, by its name."""
    order = np.argsort(result.trace.job_id)
    names = ("start_s", "end_s", "executed_s", "preemptions", "nodes")
    return {name: np.asarray(getattr(result, name))[order] for name in names} | {
        name: column[order] for name, column in sorted(result.extra.items())
    }


def same(one: Result, other: Result) -> None:
    ours, theirs = columns(one), columns(other)
    assert list(ours) == list(theirs)
    for name, column in ours.items():
        assert np.array_equal(column, theirs[name], equal_nan=True), name
    for name, count in one.counters.items():
        assert other.counters[name] == pytest.approx(count), name


def ends(*results: Result) -> dict[str, float]:
    """When each job ended, whoever saw it."""
    found = {}
    for result in results:
        found |= {str(job): float(end) for job, end in zip(result.trace.job_id, result.end_s, strict=True) if np.isfinite(end)}
    return found


quick = settings(max_examples=3, deadline=None)
moments = st.lists(st.floats(1.0, 9_000.0), min_size=1, max_size=3).map(sorted)


@pytest.mark.parametrize("name", SCHEDULERS)
@given(seed=st.integers(0, 10_000), number=st.integers(0, 2), stops=moments)
@quick
def test_steps_change_nothing(name: str, seed: int, number: int, stops: list[float]) -> None:
    trace, cluster, scheduler = of(name, number, seed)
    whole = simulate(trace, cluster, scheduler, Run(log=True))
    session = Session(trace, cluster, scheduler, log=True)
    for stop in stops:
        session.step(max(stop, session.at_s))
        session.reconfigure(replace(scheduler))  # type: ignore[type-var]
    session.step()
    same(whole, session.result())
    assert np.array_equal(session.result().log, whole.log)


@pytest.mark.parametrize("name", SCHEDULERS)
@given(seed=st.integers(0, 10_000), number=st.integers(0, 2), stops=moments)
@quick
def test_snapshots_change_nothing(name: str, seed: int, number: int, stops: list[float]) -> None:
    """The jobs of a snapshot, and those that arrive later, end when they would have ended."""
    trace, cluster, scheduler = of(name, number, seed)
    whole = ends(simulate(trace, cluster, scheduler))
    seen: list[Result] = []
    snapshot: Snapshot | None = None
    before = 0.0
    for stop in [*stops, np.inf]:
        now = trace.submit_s[0] if snapshot is None else snapshot.at_s
        session = Session(trace.between(before, np.inf), cluster, scheduler, snapshot=snapshot)
        session.step(max(stop, now))
        seen.append(session.result())
        if np.isfinite(stop):
            snapshot = session.snapshot()
            before = snapshot.at_s
    assert ends(*seen) == whole


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if "fair share" not in name])
def test_a_chain_of_hours_with_jobs_submitted_as_they_come(name: str) -> None:
    """Nobody knows the future; ended jobs are forgotten on the way. (Fair shares go by how many users there are, so they must be known.)"""
    trace, cluster, scheduler = of(name, 0, 77)
    whole = ends(simulate(trace, cluster, scheduler))
    session = Session(trace.between(0, 600), cluster, scheduler)
    seen = []
    for start, end in pairwise(np.arange(600.0, 9_000.0, 600.0)):
        session.step(start)
        seen.append(session.forget())
        session.submit(trace.between(start, end))
        snapshot = session.snapshot()
        session = Session(trace.between(start, end), cluster, scheduler, snapshot=snapshot)
    session.step()
    assert ends(*seen, session.result()) == whole


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_can_take_over_from_every_other(name: str) -> None:
    trace, cluster, scheduler = of("tiresias of symbiotic", 2, 5)[0], CLUSTERS[2], SCHEDULERS[name]
    for number, (other, first) in enumerate(SCHEDULERS.items()):
        if number % 3 != len(name) % 3 and not any(word in other for word in ("count", "borrows", "slurm by")):
            continue  # a third of all pairs, and all with the odd ones
        session = Session(trace, cluster, first, log=True)
        session.step(1_500.0 + 10 * number)
        session.reconfigure(scheduler)
        session.step(3_000.0)
        session.reconfigure(first)
        session.step()
        result = session.result()
        restless = "promoting" in name + other or "at events" in name + other  # they may stop jobs faster than these get on
        assert result.ended.all() or (restless and result.endless), other
        assert np.nan_to_num(result.jct_s - trace.duration_s).min() >= -1e-6
        if result.ended.all() and "count" not in name + other and "symbiotic" not in name + other and "borrows" not in name + other:
            never_too_many(result)


def test_another_number_of_profiler_nodes_takes_over() -> None:
    trace, cluster = draw_trace(3), CLUSTERS[0]
    session = Session(trace, cluster, Lucid(profiler_nodes=1, profiler_s=300.0), log=True)
    for at, nodes in ((1_000.0, 2), (2_000.0, 0), (3_000.0, 1)):
        session.step(at)
        session.reconfigure(Lucid(profiler_nodes=nodes, profiler_s=300.0))
        kept = session.snapshot()
        assert (kept.profiler is not None) == (nodes > 0)
    again = Session(trace.between(3_000.0, np.inf), cluster, session.scheduler, snapshot=kept)
    session.step()
    again.step()
    never_too_many(session.result())
    later = ends(again.result())
    assert session.result().ended.all()
    assert later.items() <= ends(session.result()).items()
    assert len(later) > 20


def test_a_configuration_is_one_of_the_same_scheduler() -> None:
    trace, cluster = draw_trace(4), CLUSTERS[0]
    session = Session(trace, cluster, Tiresias())
    session.step(1_000.0)
    session.reconfigure(Config(threshold=240.0, queues=2))
    assert session.scheduler == Tiresias(thresholds=(240.0,))
    session.step()
    assert session.result().preemptions.sum() > simulate(trace, cluster, Tiresias()).preemptions.sum()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_with_the_remaining_work_as_it_is_nothing_changes(name: str) -> None:
    trace, cluster, scheduler = of(name, 0, 8)
    session = Session(trace.between(0, 2_500), cluster, scheduler)
    session.step(2_500.0)
    twin = session.with_remaining(session.snapshot().remaining_s)
    twin.step()
    session.step()
    assert ends(twin.result()).items() <= ends(session.result()).items()


def test_other_remaining_work() -> None:
    """One job runs and one waits; both are believed to be shorter than they are."""
    session = Session(Trace.of([0, 1], [100, 100], [1, 1]), Cluster.parse("1x1"), FIFO())
    session.step(40.0)
    believed = session.with_remaining([10.0, 20.0])
    believed.step()
    assert list(believed.result().end_s) == [50, 70]
    session.step()
    assert list(session.result().end_s) == [100, 200], "the session itself is left as it is"
    with pytest.raises(ConfigError, match="0 numbers that are not negative"):
        Session(Trace.of([0, 1], [100, 100], [1, 1]), Cluster.parse("1x1"), FIFO()).with_remaining([1.0])


def test_copies_go_their_own_way() -> None:
    trace, cluster = draw_trace(6), CLUSTERS[0]
    session = Session(trace, cluster, Themis())
    session.step(2_000.0)
    other = session.copy()
    other.reconfigure(FIFO())
    other.step()
    session.step()
    same(session.result(), simulate(trace, cluster, Themis()))
    assert not np.array_equal(other.result().end_s, session.result().end_s)


def test_what_a_session_refuses() -> None:
    trace, cluster = Trace.of([10, 20], [100, 100], [1, 1]), Cluster.parse("1x4")
    session = Session(trace, cluster, FIFO())
    session.step(50.0)
    with pytest.raises(ConfigError, match="clock only goes forward"):
        session.step(40.0)
    with pytest.raises(ConfigError, match="clock only goes forward"):
        session.step(float("nan"))
    with pytest.raises(ConfigError, match="go backwards"):
        session.submit(Trace.of([49], [1], [1], job_id=["x"]))
    with pytest.raises(ConfigError, match="are there already, such as job-0"):
        session.submit(Trace.of([60], [1], [1]))
    with pytest.raises(ConfigError, match="larger than the cluster"):
        session.submit(Trace.of([60], [1], [5], job_id=["x"]))
    with pytest.raises(ConfigError, match="another cluster"):
        Session(trace.between(50, 60), Cluster.parse("2x4"), FIFO(), snapshot=session.snapshot())
    session.step()
    assert list(session.result().end_s) == [110, 120]
    reference = Session(trace, Cluster.parse("2x4"), LucidLucid(profiler_nodes=1))
    with pytest.raises(ConfigError, match="cannot be resumed"):
        reference.snapshot()


def test_a_session_may_begin_without_jobs() -> None:
    session = Session(Trace.of([], [], []), Cluster.parse("1x1"), Tiresias(round_s=0.0))
    session.submit(Trace.of([1_000_000.5], [10], [1]))
    session.step()
    assert list(session.result().end_s) == [1_000_010.5]


@pytest.mark.parametrize("name", ["fifo", "tiresias", "lucid"])
def test_a_trace_piece_by_piece(name: str) -> None:
    trace, cluster, scheduler = of(name, 0, 12)
    pieces = [trace.between(start, start + 800) for start in np.arange(0.0, 6_400.0, 800.0)]
    results = list(stream([*pieces, trace.take(np.empty(0, np.int64))], cluster, scheduler))
    assert ends(*results) == ends(simulate(trace, cluster, scheduler))
    assert sum(len(result.trace) for result in results) == len(trace)
    assert list(stream([], cluster, scheduler)) == []
