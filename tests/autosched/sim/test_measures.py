"""Metrics, exports, plots, descriptions, synthetic traces."""

from __future__ import annotations

import csv
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from autosched.arrivals.synthetic import PROFILES, Recipe, generate
from autosched.kernel.jit import COMPILED
from autosched.schedulers.fifo import FIFO
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.describe import describe
from autosched.sim.engine import Run, simulate
from autosched.sim.export import result_columns, write_table
from autosched.sim.interference import Interference
from autosched.sim.metrics import by_size, by_vc, rho, summary, waiting_s
from autosched.sim.plot import result_page, trace_page
from autosched.sim.result import Result
from autosched.sim.series import timeline
from autosched.sim.trace import Trace
from autoscout.core.errors import ConfigError


@pytest.fixture
def two() -> Result:
    """Two jobs, one GPU: the second waits 7 s."""
    return simulate(Trace.of([0, 3], [10, 5], [1, 1], vc=["", ""]), Cluster.parse("1x1"), FIFO(), Run(log=True))


def test_by_hand(two: Result) -> None:
    found = summary(two)
    assert found["mean_jct_s"] == 11
    assert found["mean_queue_s"] == 3.5
    assert found["makespan_s"] == 15
    assert found["utilisation"] == 1
    assert found["mean_slowdown"] == pytest.approx((1 + 12 / 5) / 2)
    assert found["fragmentation"] == 0
    assert list(waiting_s(two)) == [0, 7]


def test_fairness_by_hand(two: Result) -> None:
    """Job 0 shares its 10 s with a second job for 7 s: contention (3 + 7 x 2)/10; job 1 for 7 of its 12 s: (7 x 2 + 5)/12."""
    assert rho(two) == pytest.approx([10 / (10 * 1.7), 12 / (5 * 19 / 12)])
    assert summary(two)["fair_share"] == 0.5


def test_fragmentation_counts_idle_gpus_while_somebody_waits() -> None:
    result = simulate(Trace.of([0, 0], [10, 10], [3, 2]), Cluster.parse("1x4"), FIFO())
    assert summary(result)["fragmentation"] == pytest.approx(10 / (4 * 20))


def test_breakdowns() -> None:
    trace = Trace.of([0, 0, 0], [10, 20, 30], [1, 8, 8], vc=["a", "b", "b"])
    result = simulate(trace, Cluster.of_vcs({"a": 1, "b": 1}), FIFO())
    assert by_vc(result)["a"]["mean_jct_s"] == 10
    assert by_vc(result)["b"]["mean_jct_s"] == 35
    assert by_size(result)["8"]["jobs"] == 2


def test_timeline(two: Result) -> None:
    line = timeline(two, points=16)
    assert list(line["gpus_used"][[0, 5, 14]]) == [1, 1, 1]
    assert line["jobs"][5] == 2
    assert line["jobs"][12] == 1


def test_files(two: Result, tmp_path: Path) -> None:
    write_table(result_columns(two), tmp_path / "r.csv")
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [row["end_s"] for row in rows] == ["10", "15"]
    parquet = pytest.importorskip("pyarrow.parquet")
    write_table(result_columns(two), tmp_path / "r.parquet")
    assert parquet.read_table(tmp_path / "r.parquet")["end_s"].to_pylist() == [10, 15]
    with pytest.raises(ConfigError, match="must end in"):
        write_table(result_columns(two), tmp_path / "r.xls")


def test_pictures_are_well_formed(two: Result) -> None:
    for page in (result_page({"fifo <&>": two}), trace_page(two.trace)):
        root = ElementTree.fromstring(page)
        lines = root.findall(".//{http://www.w3.org/2000/svg}polyline")
        assert len(lines) >= 3
        assert "nan" not in page


def test_describe() -> None:
    found = describe(Trace.of([0, 3600], [10, 20], [1, 3], user=["a", "b"], status=["Pass", "Failed"]))
    assert found["jobs"] == 2
    assert found["users"] == 2
    assert found["virtual_clusters"] == 0
    assert found["share_failed"] == 0.5
    assert found["gpu_hours"] == pytest.approx(70 / 3600)


@pytest.mark.parametrize("name", PROFILES)
def test_synthetic_traces_have_the_published_figures(name: str) -> None:
    profile = PROFILES[name]
    trace = generate(Recipe(profile=name, jobs=50_000, days=60, seed=1))
    assert trace.duration_s.mean() == pytest.approx(profile.mean_s, rel=0.01)
    assert np.median(trace.duration_s) == pytest.approx(profile.median_s, rel=0.15)
    share = (trace.gpus == profile.sizes[0][0]).mean()
    assert share == pytest.approx(profile.sizes[0][1], abs=0.02)
    assert (trace.status.codes == 0).mean() == pytest.approx(profile.completed, abs=0.02)


def test_synthetic_arrivals_follow_the_day_and_are_repeatable() -> None:
    recipe = Recipe(profile="venus", jobs=50_000, days=28, seed=7)
    trace = generate(recipe)
    hours = np.bincount(((trace.submit_s % 86_400) // 3600).astype(int), minlength=24)
    assert hours.max() > 2 * hours.min()
    assert np.array_equal(generate(recipe).submit_s, trace.submit_s)
    assert not np.array_equal(generate(Recipe(profile="venus", jobs=50_000, days=28, seed=8)).submit_s, trace.submit_s)
    assert (np.diff(trace.submit_s) >= 0).all()


def test_synthetic_load() -> None:
    trace = generate(Recipe(profile="seren", jobs=20_000, days=10, load=0.9, cluster_gpus=256, vcs=3))
    assert trace.gpu_seconds / (256 * 10 * 86_400) == pytest.approx(0.9, rel=0.02)
    assert trace.gpus.max() <= 256
    assert set(trace.vc.texts()) == {"vc-0", "vc-1", "vc-2"}


def test_recipes_that_make_no_sense() -> None:
    with pytest.raises(ConfigError) as caught:
        Recipe(profile="nowhere", jobs=0, load=0.5)
    assert {fault.field for fault in caught.value.faults} == {"profile", "jobs", "cluster_gpus"}


def test_interference_tables() -> None:
    table = Interference.of([("a", "b", 0.9, 0.8), ("a", "a", 0.7, 0.6)])
    a, b = table.models.index("a"), table.models.index("b")
    assert table.joining[a, b] == 0.9
    assert table.hosting[b, a] == 0.8
    assert table.joining[b, a] == 0.8
    assert (table.joining[a, a], table.hosting[a, a]) == (0.7, 0.6)
    with pytest.raises(ConfigError, match="not above zero"):
        Interference.of([("a", "b", 0.0, 1.0)])


def test_plain_python_policies_run_interpreted() -> None:
    """A policy that nobody compiled runs the same loop as plain Python."""
    if not COMPILED:
        pytest.skip("nothing is compiled here")
    from dataclasses import replace

    trace = generate(Recipe(profile="philly", jobs=60, days=0.1, load=1.2, cluster_gpus=16, seed=1))

    class Plain(Tiresias):
        def plan(self, trace, cluster):  # type: ignore[no-untyped-def]
            plan = super().plan(trace, cluster)
            return replace(plan, scheduling=replace(plan.scheduling, rank=plan.scheduling.rank.py_func))

    compiled = simulate(trace, Cluster.parse("2x8"), Tiresias(thresholds=(1_000.0,)))
    plain = simulate(trace, Cluster.parse("2x8"), Plain(thresholds=(1_000.0,)))
    assert np.array_equal(compiled.end_s, plain.end_s)
