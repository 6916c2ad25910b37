"""Factors of measured layer shapes: learned where rows agree, silent everywhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from _jobs import PLAIN, job

from autoscout.core.errors import ConfigError
from autoscout.simulators.training.calibration import TrainingCalibration, save_calibration, training_calibration
from autoscout.simulators.training.job import ParallelLayout
from autoscout.simulators.training.shapes import FORMULA_ROWS, LayerShapes, learn_shapes
from autoscout.simulators.training.step import step_time


def sweep() -> ParallelLayout:
    """Twelve rows: two tensor-parallel degrees, each with six pipelines and replicas."""
    return ParallelLayout(tp=np.repeat([1.0, 2.0], 6), pp=np.tile([1.0, 2.0, 4.0], 4), dp=np.tile([1.0, 1.0, 1.0, 2.0, 2.0, 2.0], 2))


def test_a_slow_shape_is_found_whatever_the_depth_and_the_pipeline() -> None:
    asked = job(sweep())
    truth = step_time(asked, PLAIN, np.where(asked.layout.tp == 2.0, 1.3, 1.0)).total_s
    shapes = learn_shapes([(asked, truth)], PLAIN)
    factor = shapes.factor(asked)
    assert factor is not None
    assert factor[:6] == pytest.approx(1.0, abs=1e-3)
    assert np.log(factor[6:]) == pytest.approx(np.log(1.3) * 6 / (6 + FORMULA_ROWS), rel=1e-3)
    deeper = shapes.factor(job(ParallelLayout(tp=2.0), layers=40.0))
    assert float(np.ravel(deeper)[0]) == pytest.approx(factor[6])


def test_nothing_is_said_about_shapes_that_were_not_measured() -> None:
    asked = job(sweep())
    shapes = learn_shapes([(asked, step_time(asked, PLAIN, 1.4).total_s)], PLAIN)
    for other in (
        job(ParallelLayout(tp=4.0)),
        job(hidden=2048.0, ffn=8192.0, attention_params=4.0 * 2048**2),
        job(ParallelLayout(micro_batch=2.0)),
    ):
        assert float(np.ravel(shapes.factor(other))[0]) == pytest.approx(1.0, abs=1e-2)


def test_too_few_rows_teach_nothing() -> None:
    asked = job(ParallelLayout(pp=np.array([1.0, 2.0, 4.0])))
    assert learn_shapes([(asked, step_time(asked, PLAIN, 1.4).total_s)], PLAIN).points == ()
    assert LayerShapes().factor(asked) is None


def test_a_calibration_keeps_its_shapes(tmp_path: Path) -> None:
    asked = job(sweep())
    shapes = learn_shapes([(asked, step_time(asked, PLAIN, 1.4).total_s)], PLAIN)
    save_calibration(TrainingCalibration(name="mine", constants=PLAIN, shapes=shapes), tmp_path / "mine.yaml")
    loaded = training_calibration(path=tmp_path / "mine.yaml").shapes
    assert loaded.factor(asked) == pytest.approx(shapes.factor(asked), rel=1e-3)
    (tmp_path / "bad.yaml").write_text("kind: training\nshapes: [[1.0, 2.0]]\n")
    with pytest.raises(ConfigError, match="shapes"):
        training_calibration(path=tmp_path / "bad.yaml")
