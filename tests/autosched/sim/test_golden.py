"""Per-job agreement with the reference simulators, and the figures published for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sched_reference import (
    PHILLY_START_S,
    TRACES,
    VENUS,
    golden,
    in_its_order,
    lucid,
    philly_window,
    venus,
    venus_cluster,
    with_profiles,
)

from autosched.sim.cluster import Cluster
from autosched.sim.engine import simulate
from autosched.sim.metrics import summary
from autosched.sim.scheduler import Scheduler
from autosched.sim.trace import Trace
from autoscout_lab.reference.__main__ import main
from autoscout_lab.reference.symbiotic import SymbioticFIFO, SymbioticSRTF, SymbioticTiresias
from autoscout_lab.reference.titan import TitanThemis

pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(not (TRACES / "golden").exists(), reason="the reference traces are not next to the repository"),
]


@pytest.fixture(scope="module")
def venus_jobs() -> Trace:
    return venus()


@pytest.fixture(scope="module")
def philly_jobs() -> Trace:
    return philly_window()


@pytest.mark.parametrize("name", VENUS)
def test_venus_job_by_job(venus_jobs: Trace, name: str) -> None:
    """All 23,859 jobs start and end as in the reference, with as many preemptions, given the recorded order of simultaneous jobs."""
    jobs = in_its_order(venus_jobs, name)
    assert len(jobs) == 23_859
    assert np.array_equal(jobs.submit_s, venus_jobs.submit_s)
    result = simulate(jobs, venus_cluster(), VENUS[name])
    start, end, preemptions = golden(f"venus_2020-09_{name}", jobs, "start_time", "end_time", "preemptions")
    assert int((result.start_s != start).sum()) == 0
    assert int((result.end_s != end).sum()) == 0
    assert int((result.preemptions != preemptions).sum()) == 0


@pytest.mark.parametrize(("name", "starts"), [("fifo", 19_354), ("sjf", 23_394), ("qssf", 22_502), ("srtf", 23_664), ("tiresias", 23_416)])
def test_venus_as_published(venus_jobs: Trace, name: str, starts: int) -> None:
    """How many starts agree with simultaneous jobs by number, as in the file."""
    result = simulate(venus_jobs, venus_cluster(), VENUS[name])
    (start,) = golden(f"venus_2020-09_{name}", venus_jobs, "start_time")
    assert int((result.start_s == start).sum()) == starts


@pytest.mark.parametrize(
    ("name", "scheduler"), [("dlas-gpu", SymbioticTiresias()), ("fjf", SymbioticFIFO()), ("shortest-gpu", SymbioticSRTF())]
)
def test_philly_job_by_job(philly_jobs: Trace, name: str, scheduler: Scheduler) -> None:
    result = simulate(philly_jobs, Cluster.parse("100x8"), scheduler)
    start, end, preemptions = golden(f"philly_0922_1006_n100g8_symbiotic_{name}", philly_jobs, "start_time", "end_time", "preemptions")
    assert len(philly_jobs) == 13_085
    assert int((result.start_s != start).sum()) == 0
    assert int((result.end_s != end).sum()) == 0
    assert int((result.preemptions != preemptions).sum()) == 0


def test_the_program_compares_job_by_job(capsys: pytest.CaptureFixture[str]) -> None:
    """Jobs by number in the file: as many starts agree as above, where the tables are read here."""
    files = {
        "--trace": TRACES / "helios_venus_2020-09.csv.gz",
        "--cluster": TRACES / "helios_venus_vc_nodes.csv",
        "--compare": TRACES / "golden" / "venus_2020-09_fifo.csv.gz",
    }
    main(["lucid-fifo", *(str(word) for pair in files.items() for word in pair)])
    assert "equal starts: 19,354 of 23,859 jobs" in capsys.readouterr().out


def test_lucid_with_its_profiler_simulated(venus_jobs: Trace) -> None:
    jobs = with_profiles(venus_jobs)
    result = simulate(jobs, venus_cluster(), lucid(jobs))
    end, profiled, finished = golden("venus_2020-09_lucid", jobs, "end_time", "profiled", "finished_in_profiler")
    assert np.array_equal(result.extra["profiled"], profiled)
    assert np.array_equal(result.extra["finished_in_profiler"], finished)
    assert (result.end_s == end).mean() >= 0.95
    assert result.jct_s.mean() == pytest.approx((end - jobs.submit_s).mean(), rel=0.001)


def test_themis_near_titan(philly_jobs: Trace) -> None:
    result = simulate(philly_jobs, Cluster.parse("100x8"), TitanThemis(round_offset_s=PHILLY_START_S))
    assert result.jct_s.mean() == pytest.approx(13_351.9, rel=0.005)
    assert np.median(result.jct_s) == pytest.approx(850, rel=0.005)
    assert result.preemptions.sum() == pytest.approx(64, abs=2)


def test_fairness_figures_of_the_references(venus_jobs: Trace, philly_jobs: Trace) -> None:
    """Of Tiresias on Venus from the ends of the golden file; the waits are simulated."""
    jobs = in_its_order(venus_jobs, "tiresias")
    simulated = simulate(jobs, venus_cluster(), VENUS["tiresias"])
    (end,) = golden("venus_2020-09_tiresias", jobs, "end_time")
    tiresias = summary(replace(simulated, end_s=end))
    assert tiresias["fair_share"] == pytest.approx(0.379, abs=5e-4)
    assert tiresias["fair_share_forgiving"] == pytest.approx(0.606, abs=5e-4)
    assert tiresias["mean_rho"] == pytest.approx(2.1, abs=0.05)
    assert tiresias["p99_rho"] == pytest.approx(22.3, abs=0.05)
    assert summary(simulated)["mean_queue_s"] == pytest.approx(2_916.0, rel=0.011)
    first_fit = summary(simulate(philly_jobs, Cluster.parse("100x8"), SymbioticFIFO()))
    assert first_fit["fair_share"] == pytest.approx(0.836, abs=5e-4)
    assert first_fit["p99_rho"] == pytest.approx(23.6, abs=0.05)
    assert first_fit["makespan_s"] == 3_239_204


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_tuning_from_the_published_thresholds(philly_jobs: Trace, seed: int) -> None:
    """Forty simulations reach within 3 % of the best mean JCT known for two queues on 70 servers."""
    from autosched.sim.simulation import Simulation
    from autoscout.api import minimize

    question = Simulation(trace=philly_jobs, cluster=Cluster.parse("70x8"), scheduler="tiresias")
    found = minimize(question, question.space(), 40, metric="mean_jct_s", seed=seed)
    assert question(question.space().default())["mean_jct_s"] > 20_000
    assert found.value is not None
    assert found.value <= 16_398 * 1.03
