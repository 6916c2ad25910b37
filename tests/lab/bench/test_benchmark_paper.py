"""`python -m benchmarks.paper`: the virtual clusters, figures by hand, and a small race that can be resumed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks import paper  # noqa: E402
from benchmarks._paper_cluster import SPACES, Answers, Truth, drawn_constants, drawn_gpus, extras, guidance, jobs  # noqa: E402
from benchmarks._paper_measured import FILE, mixed_agreement  # noqa: E402
from benchmarks._paper_serving import write_serving  # noqa: E402
from benchmarks._simulator_tables import GROUND_TRUTH  # noqa: E402

from autoscout.core.config import Config  # noqa: E402
from autoscout.core.protocols import Prediction  # noqa: E402
from autoscout.simulators.training import TrainingModel  # noqa: E402
from autoscout_lab.bench import Run  # noqa: E402


def course(losses: list[float | None], seed: int = 0, searcher: str = "hybrid") -> paper.Course:
    run = Run(searcher=searcher, table="llama-full-0", seed=seed, budget=4, losses=tuple(losses), cpu_ms=(500.0,) * len(losses))
    cost_s = [45.0 if loss is None else 90.0 + 20 * loss for loss in losses]
    ends_s = tuple(np.cumsum(np.array(cost_s) + 0.5).tolist())
    return paper.Course(run=run, optimum_s=10.0, megatron_s=30.0, ends_s=ends_s)


def test_a_course_counts_profiles_failures_and_the_searcher() -> None:
    found = paper.Course.of(course([20.0, None, 10.4]).run, {"best_s": 10.0, "megatron_s": 30.0})
    assert found.ends_s == pytest.approx((490.5, 490.5 + 45.5, 490.5 + 45.5 + 298.5))
    assert found.until(10.5) == pytest.approx((3, 834.5))
    assert found.until(10.3) == pytest.approx((8, 2 * 834.5)), "never: twice the budget, twice the time"


def test_figures_by_hand() -> None:
    row = paper.figures([course([20.0, None, 10.4]), course([None, 15.0, 12.0])])
    assert row["best_s"] == pytest.approx(11.2)
    assert row["over_megatron"] == pytest.approx((30 / 10.4 + 30 / 12) / 2)
    assert row["behind"] == pytest.approx(0.12)
    assert row["steps"] == pytest.approx((3 + 8) / 2)
    assert row["reached"] == 0.5
    assert row["failures"] == 1
    assert row["first_s"] == pytest.approx(17.5)


def test_a_rival_is_matched_run_by_run() -> None:
    mine = [course([10.0, 11.0], 0), course([20.0, 12.0], 1)]
    theirs = [course([30.0, 20.0, 11.0], 0, "udo"), course([24.0, 30.0], 1, "udo"), course([None], 2, "udo")]
    row = paper.against(mine, theirs)
    assert row["times_faster"] == pytest.approx((11 / 10 + 24 / 12) / 2)
    assert row["fewer_steps"] == pytest.approx(1 - (1 + 1) / (3 + 1)), "matched at once, where the rival took 3 steps and 1"


def test_spaces_grow_and_the_largest_is_the_papers() -> None:
    sizes = {job.title: len(list(job.declared().enumerate())) for job in jobs(0) if job.model == "llama"}
    assert sizes["llama-3dp"] < sizes["llama-5dp"] < sizes["llama-full"]
    assert 20_000 < sizes["llama-full"] < 35_000
    for job in jobs(0):
        free = {name for name, knob in job.declared().knobs.items() if len(knob.values) > 1}
        assert free <= set(SPACES[job.space])


def test_the_truth_is_not_what_searchers_are_told(tmp_path: Path) -> None:
    job = next(job for job in jobs(3) if job.title == "qwen-5dp")
    configs = [config for number, config in enumerate(job.declared().enumerate()) if number % 40 == 0]
    told, truth = TrainingModel().predict(configs, job.task), Truth(tmp_path, 3).predict(configs, job.task)
    ratios = np.log(truth.value / told.value)
    assert np.std(ratios) > 0.03, "they differ by more than a factor for all"
    assert np.abs(ratios).max() < 2
    assert np.any(told.feasible != truth.feasible)
    again = Truth(tmp_path, 3).predict(configs, job.task)
    assert again.value == pytest.approx(truth.value)
    assert drawn_constants(3) != drawn_constants(4)
    assert drawn_gpus(3) != drawn_gpus(4)


def test_what_the_shipped_model_lacks() -> None:
    plain = {"tp": 2, "dp": 1, "ep": 1, "mbs": 1, "pp": 1, "a40": 0}
    factors = [extras(Config({**plain, "tp_comm": sms})) for sms in (12, 14, 20)]
    assert factors[1] == 1.0 < factors[0] < factors[2]
    assert extras(Config({**plain, "tp_comm": 14, "ep": 4})) == pytest.approx(1.08)
    assert extras(Config({**plain, "tp_comm": 14, "a40": 4})) == pytest.approx(1.04)


def test_guidance_cuts_as_little_as_fits() -> None:
    plain = {"a100": 8, "a40": 0, "cp": 1, "ep": 1, "ar": True, "mbs": 1, "dp": 1}
    layouts = [{"tp": 1, "pp": 1}, {"tp": 4, "pp": 1, "sp": True}, {"tp": 2, "pp": 1, "sp": True}, {"tp": 1, "pp": 2}]
    configs = [Config({**plain, **layout}) for layout in layouts] + [Config({**plain, "a40": 4, "a40_share": 1.0, "tp": 1, "pp": 3})]
    step_s = np.array([np.nan, 5.0, 6.0, 4.0, 9.0])
    told = Prediction(value=step_s, spread=step_s, feasible=step_s, known=step_s)
    ways = guidance(Answers(configs=tuple(configs), step_s=step_s, told=told))
    assert ways == {0: 2, 4: 4}, "two ranks rather than four, and tensor parallelism before a pipeline"


def test_virtual_servers_differ_and_mind_the_chunks(tmp_path: Path) -> None:
    one, two = (write_serving(tmp_path / str(number), number) for number in (0, 1))
    assert one["best_s"] != two["best_s"]
    assert 0 < one["best_s"] <= one["megatron_s"]
    assert one["feasible"] <= one["configurations"] == 4 * 7 * 6 * 6
    assert write_serving(tmp_path / "0", 0) == one, "kept, not drawn again"


@pytest.mark.external
@pytest.mark.skipif(not (GROUND_TRUTH / FILE).is_file(), reason="there is no ground truth next to the repository")
def test_both_kinds_explain_a_measured_mixed_cluster_better_than_the_slow_one() -> None:
    theirs, slow, both = mixed_agreement()
    assert both.error < slow.error < theirs.error
    assert both.rank > slow.rank


def test_a_small_race_is_written_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(paper, "PAGE", tmp_path / "paper.md")
    words = ["--quick", "--budget", "2", "--jobs", "0", "--runs", str(tmp_path / "runs"), "--json", "--write"]
    monkeypatch.setattr(sys, "argv", ["paper", *words])
    paper.main()
    first = capsys.readouterr()
    found = json.loads(first.out.splitlines()[-1])
    assert found["simulated"] is True
    searchers = found["spaces"]["llama-3dp"]["searchers"]
    assert searchers.keys() == {*paper.RIVALS, paper.UNTOLD, paper.MINE}
    assert all(row["runs"] == 2 for row in searchers.values())
    page = (tmp_path / "paper.md").read_text()
    assert "Nothing on this page was measured" in page
    paper.main()
    again = capsys.readouterr()
    assert "runs; " not in again.err, "nothing is run twice"
    assert json.loads(again.out.splitlines()[-1])["spaces"] == found["spaces"]
