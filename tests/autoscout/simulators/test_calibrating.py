from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from autoscout.cli.calibrate import calibrate as calibrate_command
from autoscout.core.errors import ConfigError
from autoscout.core.task import Objective, Task
from autoscout.learning.fit import fit_positive
from autoscout.simulators.training.calibrate import START, calibrate, fit_constants
from autoscout.simulators.training.calibration import save_calibration, training_calibration
from autoscout.simulators.training.model import TrainingModel, TrainingOptions
from autoscout.simulators.training.step import step_time
from autoscout.simulators.training.tables import TrainingTable, read_training_table, table_of

TRUTH = replace(START, gemm_scale=0.8, layer_host_s=1.5e-3, bus_scale=0.6)
GROUND_TRUTH = Path(__file__).resolve().parents[4] / "shared" / "ground-truth"


def made_up(constants: Any = TRUTH) -> TrainingTable:
    rows = [
        {"model": name, "gpu": "A100-80", "n_gpus": 8, "seq": 1024, "gbs": 32, "mbs": mbs, "tp": tp, "pp": 1, "iter_s": 1.0}
        for name in ("gpt3-350m", "gpt3-1.3b", "gpt3-2.7b", "gpt3-6.7b")
        for tp in (1, 2, 4)
        for mbs in (1, 2, 4)
    ]
    table = table_of("made up", rows)
    return replace(table, step_s=step_time(table.job, constants).total_s)


def test_least_squares_finds_positive_values_and_keeps_what_the_data_does_not_tell() -> None:
    inputs = np.linspace(1, 5, 30)

    def residual(values: np.ndarray) -> np.ndarray:
        return np.log((values[0] * inputs + values[1]) / (2.0 * inputs + 0.5)) + 0.0 * values[2]

    found = fit_positive(residual, np.array([1.0, 1.0, 7.0]), pull=1e-4)
    assert found == pytest.approx([2.0, 0.5, 7.0], rel=1e-3)


def test_wrong_rows_hardly_move_the_fit() -> None:
    truth = np.full(40, 3.0)
    truth[:3] = 300.0
    found = fit_positive(lambda values: np.log(values[0] / truth), np.array([1.0]), pull=1e-4)
    assert found[0] == pytest.approx(3.0, rel=0.05)


def test_constants_come_back_from_a_made_up_table() -> None:
    table = made_up()
    found = fit_constants([table], ["gemm_scale", "layer_host_s", "bus_scale"])
    assert found.gemm_scale == pytest.approx(0.8, rel=0.05)
    assert found.layer_host_s == pytest.approx(1.5e-3, rel=0.1)
    assert found.bus_scale == pytest.approx(0.6, rel=0.15)


def test_the_error_is_that_of_unseen_workloads(tmp_path: Path) -> None:
    fitted = calibrate([made_up()], ["gemm_scale", "layer_host_s"], name="lab", made_from="a test")
    assert fitted.calibration.rows == 36
    assert fitted.calibration.mape < 0.1
    assert np.isfinite(fitted.predicted_s[0]).all()
    path = tmp_path / "lab.yaml"
    save_calibration(fitted.calibration, path)
    again = training_calibration(path=path)
    assert again.name == "lab"
    assert again.constants == fitted.calibration.constants
    assert again.ranges["tp"] == (0.0, 2.0)


def test_unknown_constants_are_named() -> None:
    with pytest.raises(ConfigError, match="gemm_scale"):
        fit_constants([made_up()], ["colour"])


def test_a_broken_file_names_its_faults(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("kind: training\nconstants: {colour: 1}\nmemory: {smell: 2}\n")
    with pytest.raises(ConfigError) as caught:
        training_calibration(path=path)
    assert len(caught.value.faults) == 2
    path.write_text("kind: serving\n")
    with pytest.raises(ConfigError, match="training"):
        training_calibration(path=path)


def test_tables_convert_every_kind_of_measurement() -> None:
    base = {"model": "llama-3.1-8b", "gpu": "H100", "n_gpus": "8", "seq": "8192", "gbs": "128", "mbs": "1"}
    rows = [{**base, "iter_ms": "2000"}, {**base, "iter_s": "2"}, {**base, "tokens_s_gpu": str(128 * 8192 / 2 / 8)}]
    table = table_of("kinds", rows)
    assert table.step_s == pytest.approx([2.0, 2.0, 2.0])
    assert table.groups[0] == table.groups[1]


def test_rows_that_cannot_be_read_are_counted() -> None:
    base = {"model": "llama-3.1-8b", "gpu": "H100", "n_gpus": "8", "seq": "8192", "gbs": "128", "mbs": "1", "iter_s": "2"}
    table = table_of("some", [base, {**base, "gpu": "abacus"}, {**base, "iter_s": ""}])
    assert (len(table.rows), len(table.left_out)) == (1, 2)
    assert "abacus" in table.left_out[0]
    with pytest.raises(ConfigError, match="no row"):
        table_of("none", [{**base, "model": "nope"}])


GOOD = "llama-3.1-8b,H100,8,8192,128,1,2,"
HEADER = "model,gpu,n_gpus,seq,gbs,mbs,tp,iter_s"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"{HEADER}\n{GOOD}2\n{GOOD}-1\n{GOOD}nan\n".encode(), r"runs.csv:3: iter_s: must be a positive number.*\n.*runs.csv:4"),
        (
            f"{HEADER}\n{GOOD}2\nllama-3.1-8b,H100,8,8192,128,1,16,2\n".encode(),
            r"runs.csv:3: tp x pp x cp x dp: more ranks than the 8 GPUs",
        ),
        (f"{HEADER}\n{GOOD}2,5\n{GOOD[:-1]}\n".encode(), r"runs.csv:2: the header has 8 columns \(found 9 cells\)"),
        (b"\x00\x01\x02,1\n", "zero bytes"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"", "must name every column once"),
    ],
    ids=("times", "layout", "ragged", "binary", "bytes", "empty"),
)
def test_tables_that_cannot_be_are_refused_with_the_row(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        read_training_table(path)


def test_every_row_that_is_left_out_is_named_and_nothing_is_written_that_is_no_number(tmp_path: Path) -> None:
    rows = [
        f"{name},H100,8,8192,{batch},1,{tp},{2 + batch / 64}"
        for name in ("llama-3.1-8b", "qwen3-8b")
        for batch in (64, 128)
        for tp in (1, 2)
    ]
    (tmp_path / "runs.csv").write_text("\n".join([HEADER, *rows, "llama-9-8b,H100,8,8192,128,1,2,2", "llama-3.1-8b,H100,8,8192,128,1,2,"]))
    app = typer.Typer()
    app.command()(calibrate_command)
    found = CliRunner().invoke(app, [str(tmp_path / "runs.csv"), "--out", str(tmp_path / "lab.yaml"), "--constant", "gemm_scale"])
    assert found.exit_code == 0, found.output
    assert "2 rows were left out" in found.output
    assert "runs.csv:10:" in found.output
    assert "runs.csv:11: no time is given" in found.output
    assert "nan" not in (tmp_path / "lab.yaml").read_text().lower()


@pytest.mark.external
@pytest.mark.skipif(not GROUND_TRUTH.is_dir(), reason="the ground-truth tables are not there")
def test_shipped_constants_hold_on_the_single_node_table() -> None:
    given = {"ar": 0, "attention": "torch", "norm_fused": 1, "gradient_bytes": 2.0, "zero": 0, "vocab": 50257, "vocab_multiple": 1}
    table = read_training_table(GROUND_TRUTH / "train_vtrain_a100_1node.csv", columns=given)
    shipped = training_calibration("megatron-deepspeed")
    formula = step_time(table.job, shipped.constants).total_s
    measured_shapes = step_time(table.job, shipped.constants, shipped.shapes.factor(table.job)).total_s
    assert np.mean(np.abs(formula / table.step_s - 1.0)) < 0.08
    assert np.mean(np.abs(measured_shapes / table.step_s - 1.0)) < 0.03


def test_the_command_writes_a_file_that_the_model_loads(tmp_path: Path) -> None:
    truth = made_up()
    names = ("model", "gpu", "n_gpus", "seq", "gbs", "mbs", "tp", "pp")
    lines = [",".join((*names, "iter_s"))]
    lines += [",".join([*(str(row[name]) for name in names), str(time)]) for row, time in zip(truth.rows, truth.step_s, strict=True)]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    app = typer.Typer()
    app.command()(calibrate_command)
    out = tmp_path / "cal.yaml"
    args = [str(tmp_path / "mine.csv"), "--out", str(out), "--name", "lab", "--constant", "gemm_scale", "--constant", "layer_host_s"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    assert "36 rows" in result.output
    assert training_calibration(path=out).made_from == "mine.csv (36 rows)"
    task = Task(
        system="x",
        objective=Objective(metric="step_s"),
        workload={"model": "gpt3-1.3b", "seq": 1024, "gbs": 32},
        hardware={"gpus": "8xA100-80"},
    )
    assert TrainingModel(TrainingOptions(calibration=str(out))).calibration(task).name == "lab"
    missing = CliRunner().invoke(app, [str(tmp_path / "nope.csv")])
    assert isinstance(missing.exception, ConfigError)
