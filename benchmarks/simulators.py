"""How good the simulators are, table by table, against the paper's regression: `python -m benchmarks.simulators [FOLDER]`.

FOLDER may hold further `train_*.csv` and `serve_silicon_*.csv`: they are judged, never fitted to. `--json` prints figures of whole
sources left out, one at a time; `--write` puts them into docs/results/simulators.md; `--check` ends with 1 where a source is worse than
on record (benchmarks/simulators_record.json) by more than a point; `--accept` puts the figures on record.

Nothing is hidden: every table of the ground truth that gives complete layouts is there, good or bad.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from autoscout.common.stats import folds, grouped, kendall, mape
from autoscout.core.config import Config
from autoscout.core.task import Objective, Task
from autoscout.learning.regression import least_squares
from autoscout.simulators.training.calibrate import calibrate, fit_constants
from autoscout.simulators.training.calibration import features, training_calibration
from autoscout.simulators.training.memory import MemoryConstants, spare_room, step_memory
from autoscout.simulators.training.model import TrainingModel
from autoscout.simulators.training.step import step_time
from autoscout.simulators.training.tables import TrainingTable
from autoscout_lab.boosting import BoostedTrees, TreeOptions
from benchmarks._left_out import layouts_of, memory_scores, serving_scores, to_json, training_scores
from benchmarks._simulator_tables import (
    GROUND_TRUTH,
    TABLES,
    amp_tables,
    further_tables,
    layout_tables,
    longseq_table,
    training_tables,
)
from benchmarks._sources_gate import accept, recorded, worse
from benchmarks._sources_page import write
from benchmarks.calibrate_shipped import PLANS

Vector = NDArray[np.float64]


def _spearman(one: Vector, other: Vector) -> float:
    """Rank correlation; 0 where one side does not vary."""
    return float(spearmanr(one, other).statistic) if np.ptp(one) > 0 and np.ptp(other) > 0 else 0.0


def _regret(predicted: Vector, measured: Vector, top: int = 1) -> float:
    """How much worse (share) the best of the predicted `top` is than the best there is; lower values are better."""
    chosen = np.argsort(predicted, kind="stable")[:top]
    return float(measured[chosen].min() / measured.min() - 1.0)


@dataclass(frozen=True)
class Line:
    """One predictor on one table."""

    table: str
    predictor: str
    predicted: Vector
    measured: Vector
    groups: Sequence[object]
    least: int = 4
    layouts: Sequence[object] | None = None  # rows of a group that say the same are one choice, measured several times

    def text(self) -> str:
        good = np.isfinite(self.predicted) & np.isfinite(self.measured)
        inside = [rows[good[rows]] for rows in grouped(self.groups)]
        choices = [self._choices(rows) for rows in inside if len(rows) >= self.least]
        ranks = "no workload has enough layouts to rank"
        scores = [
            (_spearman(guess, real), kendall(guess, real), _regret(guess, real), _regret(guess, real, 3))
            for guess, real in choices
            if len(guess) > 1
        ]
        if scores:
            mean = np.mean(scores, axis=0)
            ranks = (
                f"Spearman {mean[0]:5.2f}  Kendall {mean[1]:5.2f}  regret {mean[2]:6.1%}  top-3 {mean[3]:6.1%}  ({len(scores)} workloads)"
            )
        if not good.any():
            return f"{self.table:22s} {self.predictor:46s} cannot be fitted: no workload has four layouts"
        error = mape(self.predicted[good], self.measured[good])
        return f"{self.table:22s} {self.predictor:46s} {good.sum():5d} rows  MAPE {error:6.1%}  {ranks}"

    def _choices(self, rows: NDArray[np.intp]) -> tuple[Vector, Vector]:
        """Predicted and measured by layout: the mean over releases that measured the same one."""
        if self.layouts is None:
            return self.predicted[rows], self.measured[rows]
        same = [rows[places] for places in grouped([self.layouts[row] for row in rows])]
        return np.array([self.predicted[one].mean() for one in same]), np.array([self.measured[one].mean() for one in same])


def main(folder: Path = GROUND_TRUTH) -> None:
    if not GROUND_TRUTH.is_dir():
        print(f"needs the ground-truth tables in {GROUND_TRUTH.name}/ beside the repository")
        return
    tables = training_tables()
    print("# Training, absolute and ranking")
    for table in tables.values():
        for line in lines_of(table, tables):
            print(line.text())
    for table in (*amp_tables(), longseq_table(), *further_tables(folder).values()):
        for line in lines_of(table, tables):
            print(line.text())
    print("\n# Training layouts with failures: time, and out-of-memory prediction")
    oom(layout_tables(TABLES), tables)
    from benchmarks.serving import main as serving  # it borrows Line from here

    print()
    serving(folder)
    print("\n# Speed, one core, CPU seconds")
    speed()


def lines_of(table: TrainingTable, tables: dict[str, TrainingTable]) -> list[Line]:
    layouts = layouts_of(table)

    def line(predictor: str, predicted: Vector) -> Line:
        return Line(table.name, predictor, predicted, table.step_s, table.groups, layouts=layouts)

    found = [line("paper: linear regression, leave one out", paper_regression(table))]
    single = fit_constants([tables["vtrain"]], PLANS["megatron-deepspeed"][1])
    if table.name not in ("train_vtrain_a100_1node",):
        found.append(line("ours: constants from single-node vTrain only", _time(table, single)))
        others = [other for other in tables.values() if other.name != table.name]
        found.append(line("ours: this source left out, all others pooled", _time(table, fit_constants(others, PLANS["default"][1]))))
    if table.name == "nemo_longseq":
        found.append(line("ours: shipped megatron-core, not fitted to it", _time(table, training_calibration("megatron-core").constants)))
    stack = next((plan for plan in PLANS.values() if _stem(plan[0][0]) in table.name and len(plan[0]) < 3), None)
    if stack is not None:
        fitted = calibrate([table], stack[1], name="here", made_from="this table")
        found.append(line("ours: grouped cross-validation", fitted.predicted_s[0]))
        if fitted.calibration.shapes.points:
            found.append(line("ours without measured layer shapes, grouped CV", fitted.formula_s[0]))
        if table.name == "train_vtrain_a100_1node":
            found.append(line("ours + learned residual, grouped CV", with_residual(table, stack[1])))
            found.append(line("boosted trees alone, grouped CV", boosted(table)))
    return found


def _stem(source: str) -> str:
    return {"vtrain": "vtrain", "bridge": "megatron_bridge", "llm-foundry": "llmfoundry"}.get(source, source)


def _time(table: TrainingTable, constants: object) -> Vector:
    return np.broadcast_to(step_time(table.job, constants).total_s, table.step_s.shape)  # type: ignore[arg-type]


def paper_regression(table: TrainingTable) -> Vector:
    """Per workload, raw knobs, leave one out: appendix B of the paper; workloads with fewer than 4 layouts are left out."""
    lay = table.job.layout
    inputs = np.stack([lay.micro_batch, lay.tp, lay.pp, lay.dp], axis=1)
    out = np.full(len(table.step_s), np.nan)
    for rows in grouped(table.groups):
        rows = rows[np.isfinite(table.step_s[rows])]
        if len(rows) < 4:
            continue
        for row in rows:
            others = rows[rows != row]
            out[row] = least_squares(inputs[others], table.step_s[others])(inputs[[row]])[0]
    return out


def residual_features(table: TrainingTable) -> Vector:
    lay = table.job.layout
    columns = [
        np.log2(part) for part in (lay.tp, lay.pp, lay.dp, lay.micro_batch, table.job.micro_batches, table.job.layers, table.job.hidden)
    ]
    return np.stack([np.broadcast_to(part, table.step_s.shape) for part in (*columns, *features(table.job).values())], axis=1)


def with_residual(table: TrainingTable, names: Sequence[str]) -> Vector:
    """Constants and correction both fitted without the held-out workloads."""
    inputs, out = residual_features(table), np.zeros(len(table.step_s))
    fitted = calibrate([table], names, name="here", made_from="this table")
    plain = fitted.predicted_s[0]
    for mask in folds(table.groups, 5):
        trees = BoostedTrees(TreeOptions(rounds=200)).fit(inputs[~mask], np.log(table.step_s[~mask] / plain[~mask]))
        out[mask] = plain[mask] * np.exp(trees.predict(inputs[mask]))
    return out


def boosted(table: TrainingTable) -> Vector:
    inputs, out = residual_features(table), np.zeros(len(table.step_s))
    inputs = np.column_stack([inputs, np.log2(table.job.global_batch)])
    for mask in folds(table.groups, 5):
        trees = BoostedTrees(TreeOptions(rounds=300)).fit(inputs[~mask], np.log(table.step_s[~mask]))
        out[mask] = np.exp(trees.predict(inputs[mask]))
    return out


def oom(tables: dict[str, TrainingTable], others: dict[str, TrainingTable]) -> None:
    if not tables:
        print("the layout tables are not there")
        return
    calibration = training_calibration("default")
    for table in tables.values():
        ran = np.isfinite(table.step_s)
        one = ["all"] * len(ran)
        print(Line(table.name, "paper: linear regression, leave one out", paper_regression(table), table.step_s, one).text())
        print(Line(table.name, "ours: shipped default, not fitted to it", _time(table, calibration.constants), table.step_s, one).text())
    memory(tables | {table.name: table for table in amp_tables()}, calibration.memory)
    titan = others["torchtitan"]
    given = np.isfinite(titan.peak_bytes)
    need = np.broadcast_to(step_memory(titan.job, calibration.memory).total_bytes, given.shape)
    print(f"torchtitan             peak memory: MAPE {mape(need[given], titan.peak_bytes[given]):.1%} on {given.sum()} rows")


def memory(tables: dict[str, TrainingTable], constants: MemoryConstants) -> None:
    """False answers at the shipped margin, and at one that the other tables alone would have set."""
    rooms = {
        name: np.broadcast_to(spare_room(step_memory(table.job, constants), table.job.memory_bytes, constants), table.step_s.shape)
        for name, table in tables.items()
    }
    ran = {name: np.isfinite(table.step_s) for name, table in tables.items()}

    def rates(name: str, margin: float) -> str:
        failed, good = rooms[name][~ran[name]], rooms[name][ran[name]]
        false_fits, false_not = np.mean(failed >= margin), np.mean(good < margin)
        return f"false 'fits' {false_fits:.1%} of {len(failed)}, false 'does not fit' {false_not:.1%} of {len(good)}"

    for name in tables:
        print(f"{name:22s} memory: {rates(name, constants.margin)}")
        others = [rooms[other][~ran[other]] for other in tables if other != name and (~ran[other]).sum() >= 20]
        if others:
            # 96 of 100 that failed there: less than 5 % false, with the last of them left some air
            margin = float(np.mean([np.quantile(room, 0.96) for room in others]))
            print(f"{name:22s} memory: margin {margin:.2f} set without it: {rates(name, margin)}")


def speed() -> None:
    task = Task(
        system="megatron",
        objective=Objective(metric="step_s"),
        workload={"model": "llama-3.1-8b", "sequence": 8192, "global_batch": 128},
        hardware={"gpus": "64xH100"},
    )
    configs = [
        Config(tp=tp, pp=pp, dp=64 // (tp * pp), mbs=mbs, sp=True, ar=ar, ddp_bucket=bucket)
        for tp in (1, 2, 4, 8)
        for pp in (1, 2, 4)
        for mbs in (1, 2, 4, 8)
        for ar in (True, False)
        for bucket in range(1, 65)
    ]
    model = TrainingModel()
    model.predict(configs[:2], task)

    def rate(work: Callable[[], int]) -> float:
        begun = time.process_time()
        count = 0
        while time.process_time() - begun < 1.0:
            count += work()
        return count / (time.process_time() - begun)

    together = rate(lambda: len(model.predict(configs, task).value))
    alone = rate(lambda: sum(len(model.predict([config], task).value) for config in configs[:200]))
    print(f"training model: {together:,.0f} predictions/s vectorised ({len(configs)} at a time), {alone:,.0f}/s one by one")


def left_out() -> dict[str, Any]:
    """Whole sources left out, for both simulators."""
    return {
        "training": to_json(training_scores()),
        "serving": to_json(serving_scores()),
        "memory": {"sources": memory_scores()},
    }


if __name__ == "__main__":
    if asked := {"--json", "--write", "--check", "--accept"} & set(sys.argv):
        figures = left_out()
        if "--write" in asked:
            write(figures)
        if "--accept" in asked:
            accept(figures)
        if "--json" in asked:
            print(json.dumps(figures))
        if "--check" in asked:
            lines = worse(recorded(), figures)
            print("\n".join(lines) or "no source is worse than on record")
            sys.exit(bool(lines))
    else:
        main(*map(Path, sys.argv[1:2]))
