"""The gate of the simulators: what it lets through, and what the sources that are there say today."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscout.simulators.serving.calibration import serving_calibration
from autoscout.simulators.training.calibrate import BOUNDS, evidence, is_alone
from autoscout.simulators.training.calibration import save_calibration, training_calibration
from autoscout.simulators.training.tables import table_of

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks import _left_out
from benchmarks._simulator_tables import GROUND_TRUTH
from benchmarks._sources_gate import recorded, worse
from benchmarks.published import likely_share, published

STACKS = ("megatron-deepspeed", "megatron-core", "fsdp", "default")


def figures(**changes: Any) -> dict[str, Any]:
    return {"training": {"sources": {"here": {"mape": 0.10, "regret": 0.02, **changes}, "there": {"mape": 0.2, "regret": None}}}}


@pytest.mark.parametrize("changes", [{}, {"mape": 0.109}, {"mape": 0.01}, {"regret": 0.0}])
def test_a_point_is_let_through(changes: dict[str, float]) -> None:
    assert worse(figures(), figures(**changes)) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"mape": 0.111}, "training, here: error 11.1 %, on record 10.0 %"),
        ({"regret": 0.04}, "training, here: regret 4.0 %, on record 2.0 %"),
        ({"mape": None}, "training, here: error none, on record 10.0 %"),
    ],
)
def test_more_than_a_point_is_named(changes: dict[str, Any], line: str) -> None:
    assert worse(figures(), figures(**changes)) == [line]


def test_a_source_that_is_gone_is_named() -> None:
    assert worse(figures(), {"training": {"sources": {"here": {"mape": 0.1, "regret": 0.02}}}}) == ["training, there: no longer judged"]


def test_published_settings_still_fit() -> None:
    """Settings that NVIDIA publishes as running, which the project carries: 31 of 34 were called likely when this was written."""
    assert likely_share(published()) >= 0.9


@pytest.mark.parametrize("stack", STACKS)
def test_each_constant_names_the_sources_that_fitted_it(stack: str) -> None:
    calibration = training_calibration(stack)
    assert calibration.evidence
    for name, shares in calibration.evidence.items():
        assert name in BOUNDS
        assert sum(shares.values()) == pytest.approx(1.0, abs=0.1), name


def test_what_one_source_says_of_sglang_stays_near_what_is_known() -> None:
    """A quarter of a second, fitted to large MoE models only, was more than twice too long for every dense one."""
    assert serving_calibration().constants.sglang_first_s < 0.05


def test_what_one_table_says_is_marked() -> None:
    base = {"model": "llama-2-7b", "gpu": "A100-80", "n_gpus": 8, "seq": 4096, "gbs": 64, "step_s": 8.0}
    plain = table_of("plain", [{**base, "tp": tp, "dp": 8 // tp} for tp in (1, 2, 4)])
    narrow = table_of("narrow", [{**base, "gpu": "H100", "precision": "fp8", "tp": tp, "dp": 8 // tp} for tp in (1, 2, 4)])
    said = evidence([plain, narrow], training_calibration("default").constants, ["gemm_scale", "reduced_share"])
    assert not is_alone(said["gemm_scale"])
    assert is_alone(said["reduced_share"])
    assert set(said["reduced_share"]) == {"narrow"}


def test_evidence_is_kept_in_a_file(tmp_path: Path) -> None:
    calibration = training_calibration("fsdp")
    save_calibration(calibration, tmp_path / "here.yaml")
    again = training_calibration(path=tmp_path / "here.yaml")
    assert {name: set(shares) for name, shares in again.evidence.items()} == {
        name: set(part) for name, part in calibration.evidence.items()
    }
    assert yaml.safe_load((tmp_path / "here.yaml").read_text())["evidence"]


@pytest.mark.external
@pytest.mark.skipif(not GROUND_TRUTH.is_dir(), reason="needs the ground-truth tables beside the repository")
def test_memory_is_no_worse_than_on_record() -> None:
    assert worse({"memory": recorded()["memory"]}, {"memory": {"sources": _left_out.memory_scores()}}) == []


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.skipif(not GROUND_TRUTH.is_dir(), reason="needs the ground-truth tables beside the repository")
def test_no_source_left_out_is_worse_than_on_record() -> None:
    """As `python -m benchmarks.simulators --check` does."""
    found = {"training": _left_out.to_json(_left_out.training_scores()), "serving": _left_out.to_json(_left_out.serving_scores())}
    assert worse({kind: recorded()[kind] for kind in found}, found) == []
