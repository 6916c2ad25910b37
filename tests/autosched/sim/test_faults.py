"""The fault cases of the design: each ends in a clear error or in the right result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from autosched.arrivals.synthetic import Recipe, generate
from autosched.schedulers.fifo import FIFO
from autosched.schedulers.lucid import Lucid
from autosched.schedulers.slurm import Slurm
from autosched.schedulers.themis import Themis
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.metrics import summary
from autosched.sim.simulation import Simulation
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace
from autoscout.cli.main import app
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Infeasible

SCHEDULERS = plugins.available("scheduler")


def test_the_summary_of_no_jobs() -> None:
    assert summary(simulate(Trace.of([], [], []), Cluster.parse("4x8"), FIFO()))["jobs"] == 0


@pytest.mark.parametrize("name", SCHEDULERS)
def test_ten_thousand_jobs_in_a_minute(name: str) -> None:
    draw = np.random.default_rng(0)
    trace = Trace.of(np.sort(draw.integers(0, 60, 10_000)), draw.integers(1, 100, 10_000), draw.choice([1, 2, 4, 8], 10_000))
    result = simulate(trace, Cluster.parse("64x8"), plugins.get("scheduler", name)())
    assert result.ended.all()


def test_jobs_larger_than_the_cluster_are_refused_all_at_once() -> None:
    trace = Trace.of([0, 1, 2], [1, 1, 1], [16, 8, 64], job_id=["big", "fits", "huge"])
    with pytest.raises(ConfigError) as caught:
        simulate(trace, Cluster.parse("1x8"), FIFO())
    assert "larger than the cluster: big, huge (2 jobs in all)" in str(caught.value)
    assert "64 GPUs wanted, 8 there" in str(caught.value)


def test_too_large_for_its_own_virtual_cluster_or_type() -> None:
    cluster = Cluster.of_vcs({"a": 1, "b": 4})
    with pytest.raises(ConfigError, match="16 GPUs wanted, 8 there in a"):
        simulate(Trace.of([0, 0], [1, 1], [16, 16], vc=["a", "b"]), cluster, FIFO())
    with pytest.raises(ConfigError, match="of type A100"):
        simulate(Trace.of([0], [1], [1], kind=["A100"]), Cluster.parse("1x8@T4"), FIFO())


def test_jobs_without_a_virtual_cluster() -> None:
    with pytest.raises(ConfigError, match="virtual clusters without nodes"):
        simulate(Trace.of([0, 0], [1, 1], [1, 1], vc=["a", "z"]), Cluster.of_vcs({"a": 1, "b": 1}), FIFO())


def test_a_clock_that_goes_backwards() -> None:
    early = simulate(Trace.of([0, 5], [100, 100], [1, 1]), Cluster.parse("1x1"), FIFO(), Run(until_s=50.0))
    with pytest.raises(ConfigError, match="the clock would go backwards"):
        simulate(Trace.of([10], [5], [1], job_id=["late"]), Cluster.parse("1x1"), FIFO(), Run(snapshot=Snapshot.of(early)))


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (Tiresias, {"queues": 3}, "3 queues need 2 thresholds"),
        (Tiresias, {"queues": 3, "thresholds": (5.0, 5.0)}, "must rise"),
        (Tiresias, {"priority": "luck"}, "must be one of time, service, gittins"),
        (Themis, {"fairness": 1.0}, "at least 0 and below 1"),
        (Themis, {"lease_s": 0.0}, "above zero"),
        (Lucid, {"pack": 7}, "must be -1, 0, 1 or 2"),
        (Slurm, {"priority_max_age_s": 0.0}, "above zero"),
    ],
)
def test_settings_that_make_no_sense(kind: type, settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        kind(**settings)


def test_a_profiler_needs_nodes_to_take() -> None:
    with pytest.raises(ConfigError, match="keep at least one"):
        simulate(Trace.of([0], [10], [1]), Cluster.parse("1x8"), Lucid(profiler_nodes=1))


def test_stopped_runs_report_unfinished_jobs() -> None:
    result = simulate(Trace.of([0, 0], [10, 100], [1, 1]), Cluster.parse("1x2"), FIFO(), Run(until_s=40.0))
    assert list(result.ended) == [True, False]
    assert result.executed_s[1] == 40
    assert result.remaining_s[1] == 60
    assert summary(result)["ended"] == 1
    assert summary(result)["mean_jct_s"] == 25


THRASHING = Config(
    priority="service",
    queues=6,
    threshold=339.0,
    ratio_3=1.5,
    ratio_4=2.0,
    ratio_5=64.0,
    ratio_6=4.0,
    starvation="promote",
    promote=1.0,
    placement="relaxed",
    pack_limit=4.0,
)
"""Jobs are demoted after seconds and brought back after as many, and every time they lose more than they got done."""


def test_a_configuration_under_which_jobs_never_end_is_refused_instead_of_simulated_for_good() -> None:
    trace = generate(Recipe(profile="philly", jobs=300, days=1, seed=3))
    simulation = Simulation(trace=trace, cluster=Cluster.parse("4x8"), scheduler="tiresias")
    assert not simulation.space().check(THRASHING)
    with pytest.raises(Infeasible, match="25 of 300 jobs never end"):
        simulation(THRASHING)
    later = replace(simulation, run=Run(until_s=float(simulation.trace.submit_s[0]) + 96 * 3600.0))
    assert later(THRASHING)["ended"] == 275, "with an end there is nothing endless about it"


def test_simulate_says_that_jobs_never_end() -> None:
    wanted = [part for name, value in THRASHING.items() for part in ("--set", f"{name}={value}")]
    found = CliRunner().invoke(app, ["sched", "simulate", "--trace", "synthetic:philly:300:1:3", "--cluster", "4x8", *wanted])
    assert found.exit_code == 0, found.output
    assert "25 of 300 jobs never end" in " ".join(found.stderr.split())
