"""How good the serving model is, whole models left out: `python -m benchmarks.serving [FOLDER]`; figures by source with `--json`.

FOLDER may hold further `serve_silicon_*.csv`: they are judged with the shipped constants, never fitted to. Beside aiconfigurator on the
same rows: `python -m benchmarks.serving_side_by_side`.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoscout.common.stats import mape, spread_of
from autoscout.simulators.serving.calibration import models_left_out, serving_calibration
from autoscout.simulators.serving.model import ServingModel
from autoscout.simulators.serving.step import running_requests, token_interval_s
from autoscout.simulators.serving.tables import ServingTable, read_serving_table
from autoscout_lab.boosting import BoostedTrees, TreeOptions
from benchmarks._experiments import experiment_metrics
from benchmarks._left_out import full_load_rows, serving_scores, to_json
from benchmarks._simulator_tables import GROUND_TRUTH, experiments, families, serving_sample
from benchmarks.simulators import Line

Vector = NDArray[np.float64]
Rows = NDArray[np.bool_]


def main(folder: Path = GROUND_TRUTH) -> None:
    if not GROUND_TRUTH.is_dir():
        print(f"needs the ground-truth tables in {GROUND_TRUTH.name}/ beside the repository")
        return
    print("# Serving: time between tokens, whole model families left out")
    silicon()
    unseen_parts(folder)
    print("\n# Serving at a request rate: inference-sim's vLLM experiments, none of them used for fitting")
    request_traces()
    print("\n# Serving at full load: TensorRT-LLM's published throughput, releases 0.6 to 1.2, not used for fitting")
    full_load()


def silicon() -> None:
    table = serving_sample()
    names = families(table)
    unseen = models_left_out(table, names, loop=True)
    moe = table.job.experts > 0
    odd = odd_rows(table)
    kinds = {"dense": ~moe, "MoE": moe}
    for kind, rows in kinds.items():
        _line(table, f"ours: {kind}, all rows", unseen.tpot_s, rows)
        _line(table, f"ours: {kind}, told settings", unseen.tpot_s, rows & ~odd)
        _line(table, f"ours: {kind}, all rows, batching loop", unseen.loop_tpot_s, rows)
        _line(table, f"ours + learned residual: {kind}, all rows", with_residual(table, names, unseen.tpot_s), rows)
    print(f"{'':22s} told settings: without {int(odd.sum())} rows faster than the GPU's peak or of one release candidate")
    for kind, rows in kinds.items():
        ratio = unseen.loop_ttft_s[rows] / table.ttft_s[rows]
        print(f"{'silicon sample':22s} time to first token, {kind}: MAPE {np.mean(np.abs(ratio - 1)):.0%}, median {_middle(ratio)}")
    coverage(np.log(unseen.tpot_s / table.tpot_s), np.log(unseen.loop_ttft_s / table.ttft_s), moe, names)
    limits(table, unseen.tpot_s, names)


def odd_rows(table: ServingTable) -> Rows:
    """Rows whose settings are not told: faster than the best kernels could compute the prompts, or of a release candidate in trouble.

    Between two requests of a client all others' prompts are computed once. No GEMM of the kernel tables passes 0.8 of the peak, so what
    takes less must have been answered from a prefix cache. The second take five times as long with two clients as with one, on two
    replicas.
    """
    job = table.job
    prompts_s = job.batch * job.input_tokens / job.output_tokens * 2.0 * job.active_params / (job.tp * job.pp) / job.gemm_flops
    weights_s = job.dense_params * job.weight_bytes / (job.tp * job.pp) / (job.memory_rate / 0.7)
    taken_s = table.tpot_s + table.ttft_s / job.output_tokens
    slow = np.array([row["backend_version"] == "1.3.0rc1" for row in table.rows])
    return np.asarray((taken_s < prompts_s / 0.8 + weights_s) | slow)


def with_residual(table: ServingTable, names: Sequence[str], plain: Vector) -> Vector:
    """A boosted correction on top, learned from the other families' left-out errors."""
    job, out = table.job, plain.copy()
    sizes = (job.batch, job.input_tokens, job.output_tokens, job.tp, job.attention_dp, job.moe_ep, job.dense_params, 1.0 + job.experts)
    inputs = np.stack([*(np.log2(part) for part in sizes), job.engine, job.weight_bytes, np.log2(job.flops)], axis=1)
    for family in sorted(set(names)):
        held = np.array([name == family for name in names])
        trees = BoostedTrees(TreeOptions(rounds=60)).fit(inputs[~held], np.clip(np.log(table.tpot_s[~held] / plain[~held]), -0.5, 0.5))
        out[held] = plain[held] * np.exp(trees.predict(inputs[held]))
    return out


def coverage(errors: Vector, first: Vector, moe: Rows, names: Sequence[str]) -> None:
    """How many left-out errors lie within one and two spreads, where the spread comes from the other families alone."""
    for word, part, rows in (("dense", errors, ~moe), ("MoE", errors, moe), ("time to first token", first, np.ones_like(moe))):
        inside = []
        for family in sorted({name for name, use in zip(names, rows, strict=True) if use}):
            held = rows & np.array([name == family for name in names])
            others = rows & ~held
            if others.any():
                inside.append(np.abs(part[held]) / spread_of(part[others]))
        all_ = np.concatenate(inside)
        print(f"{'silicon sample':22s} spread, {word}: {np.mean(all_ <= 1):.0%} within one (68), {np.mean(all_ <= 2):.0%} within two (95)")


def limits(table: ServingTable, predicted: Vector, names: Sequence[str]) -> None:
    """The most tokens per GPU under a limit of the time between tokens: how often the choice breaks it when measured."""
    job = table.job
    rate = job.batch / job.tp
    questions = defaultdict(list)
    for number, row in enumerate(table.rows):
        questions[tuple(row[key] for key in ("model_path", "system", "backend", "isl", "osl", "precision"))].append(number)
    for word in ("no margin", "calibrated margin"):
        broken, lost, unanswered = [], [], 0
        for rows in (np.array(found) for found in questions.values() if len(found) >= 3):
            others = np.array([name != names[rows[0]] for name in names])
            errors = np.log(predicted[others] / table.tpot_s[others])
            margin = max(0.0, float(np.exp(np.quantile(-errors, 0.8)) - 1.0)) if word != "no margin" else 0.0
            for limit_s in (0.01, 0.02, 0.03, 0.05):
                kept = rows[predicted[rows] * (1.0 + margin) <= limit_s]
                real = rows[table.tpot_s[rows] <= limit_s]
                if not len(kept):
                    unanswered += bool(len(real))
                    continue
                choice = kept[np.argmax(rate[kept] / predicted[kept])]
                broken.append(table.tpot_s[choice] > limit_s)
                if not broken[-1]:
                    best = np.max(rate[real] / table.tpot_s[real])
                    lost.append(best / (rate[choice] / table.tpot_s[choice]) - 1.0)
        print(
            f"{'silicon sample':22s} TPOT limits of 10 to 50 ms, {word}: {len(broken)} choices, {np.mean(broken):.0%} break the limit; "
            f"the others are {np.mean(lost):.0%} (median {np.median(lost):.0%}) from the best; {unanswered} times nothing was offered"
        )


def unseen_parts(folder: Path) -> None:
    """Further parts of the silicon sample that somebody has added, with the shipped constants."""
    for path in sorted(folder.glob("serve_silicon_*.csv")):
        if path.stem == "serve_silicon_a":
            continue
        table = read_serving_table(path)
        predicted = token_interval_s(table.job, serving_calibration().constants)
        for name, rows in (("dense", table.job.experts == 0), ("MoE", table.job.experts > 0)):
            _line(table, f"ours, shipped constants: {name}", predicted, rows, path.stem)


def request_traces() -> None:
    """Our loop beside the recorded simulators; they were given the real lengths, we the nominal ones."""
    simulator = ServingModel()
    for metric, ours in (
        ("e2e_mean", "mean_e2e_ms"),
        ("ttft_mean", "mean_ttft_ms"),
        ("itl_mean", "mean_tpot_ms"),
        ("e2e_p99", "p99_e2e_ms"),
    ):
        errors: dict[str, dict[tuple[str, ...], float]] = {}
        for row in experiments():
            if row["metric"] != metric:
                continue
            key = (row["experiment"], row["workload"], row["load_stage"])
            actual = float(row["actual_ms"])
            errors.setdefault(row["simulator"], {})[key] = abs(float(row["predicted_ms"]) / actual - 1.0)
            if key not in errors.setdefault("ours", {}):
                errors["ours"][key] = abs(experiment_metrics(simulator, row)[ours] / actual - 1.0)
        print(f"{metric:10s} mean/median error: {', '.join(sorted(_error(name, found) for name, found in errors.items()))}")
        same = [
            f"{name} {np.mean([found[key] for key in found]):.0%}, ours {np.mean([errors['ours'][key] for key in found]):.0%}"
            for name, found in errors.items()
            if name != "ours"
        ]
        others = [float(np.mean(list(found.values()))) for name, found in errors.items() if name != "ours"]
        print(f"{'':10s} middle of the others {np.median(others):.0%}; on the same experiments: {'; '.join(sorted(same))}")


def _error(name: str, found: dict[tuple[str, ...], float]) -> str:
    return f"{name} {np.mean(list(found.values())):.0%}/{np.median(list(found.values())):.0%} ({len(found)})"


def full_load() -> None:
    """Output tokens per second with as many requests as the cache holds."""
    job, actual, gpus = full_load_rows()
    # at full load all of the prompts' time is felt, whoever waits for it
    constants = replace(serving_calibration().constants, together=0.0, lockstep=0.0)
    predicted = running_requests(job) * job.attention_dp / token_interval_s(job, constants)
    print(f"{len(actual)} rows: MAPE {mape(predicted, actual):.0%}, median {_middle(predicted / actual)}")
    for name in sorted(set(gpus)):
        rows = np.array([one == name for one in gpus])
        error = mape(predicted[rows], actual[rows])
        print(f"  {name:20s} {rows.sum():5d} rows: MAPE {error:.0%}, median {_middle(predicted[rows] / actual[rows])}")


def _line(table: ServingTable, name: str, predicted: Vector, rows: Rows, title: str = "silicon sample") -> None:
    groups = [group for group, use in zip(table.groups, rows, strict=True) if use]
    print(Line(title, name, predicted[rows], table.tpot_s[rows], groups, 3).text())


def _middle(ratio: Vector) -> str:
    return f"{np.median(np.abs(ratio - 1.0)):.0%} ({'+' if np.median(ratio) >= 1 else ''}{np.median(ratio) - 1.0:.0%})"


if __name__ == "__main__":
    if "--json" in sys.argv:
        print(json.dumps(to_json(serving_scores())))
    else:
        main(*map(Path, sys.argv[1:2]))
