"""Constants of the serving model: fitted to measured runs, judged with whole models left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from autoscout.common.stats import mape, spread_of
from autoscout.core import seeds
from autoscout.core.errors import Fault
from autoscout.learning.fit import fit_positive
from autoscout.simulators._shared.calibration import check_constants, mape_of, read_calibration
from autoscout.simulators.serving.cost import step_cost
from autoscout.simulators.serving.job import KEPT_SHARE, PROMPTS_FIRST, ServingConstants, ServingJob
from autoscout.simulators.serving.loop import EngineLimits, SimulatedRequest, serve
from autoscout.simulators.serving.step import cache_tokens, token_interval_s
from autoscout.simulators.serving.tables import ServingTable, serving_rows

ROUNDS = 6
"""Requests per client: benchmark tools send a few to ten; all begin at once, and of that beginning the mean keeps a part."""

PRIORS: dict[str, tuple[float, float, float, float]] = {
    "memory_scale": (1.1, 0.08, 0.4, 1.4),
    "reduced_memory": (0.87, 0.1, 0.5, 1.0),
    "cache_scale": (1.1, 0.1, 0.4, 1.4),
    "decode_scale": (0.8, 0.3, 0.15, 1.2),
    "prefill_scale": (0.9, 0.15, 0.2, 1.2),
    "attention_share": (0.5, 0.3, 0.1, 0.9),
    "latency_s": (7e-6, 0.4, 1e-6, 4e-5),
    "bus_scale": (0.6, 0.7, 0.05, 1.2),
    "prefill_bus_scale": (0.7, 0.4, 0.05, 1.2),
    "layer_s": (2e-5, 0.5, 1e-6, 6e-5),
    "eager_layer_s": (6e-5, 0.6, 1e-6, 5e-4),
    "vllm_s": (1.2e-3, 0.5, 1e-4, 8e-3),
    "sglang_s": (1e-3, 0.5, 1e-4, 8e-3),
    "trtllm_s": (5e-4, 0.5, 1e-5, 8e-3),
    "request_s": (1e-5, 0.7, 1e-7, 1e-4),
    "expert_scale": (0.9, 0.25, 0.2, 1.3),
    "expert_prompt_scale": (0.7, 0.4, 0.1, 1.2),
    "imbalance": (0.3, 0.6, 0.01, 1.5),
    "expert_layer_s": (4e-5, 0.6, 1e-6, 2e-4),
    "reduced_share": (0.4, 0.4, 0.1, 1.0),
    "prompt_reduced_share": (0.7, 0.3, 0.1, 1.0),
}
"""Prior of each constant: (value, standard deviation of its logarithm, lower bound, upper bound).

Shares of a kernel's nominal rate are known well, host times hardly: without the priors a table of few models could not separate them."""
FIRST_PRIORS = {
    "vllm_first_s": (0.002, 0.3, 1e-3, 0.5),
    "sglang_first_s": (0.02, 0.5, 1e-3, 0.5),
    "trtllm_first_s": (0.1, 1.0, 1e-3, 0.5),
    "expert_first_s": (3e-4, 0.3, 1e-5, 5e-3),
    "sglang_expert_first_s": (3e-4, 1.0, 1e-5, 1e-2),
}
"""The same for constants that only the time to the first token shows; an idle vLLM server is known to add a few milliseconds.

SGLang's own part is drawn to a few hundredths of a second: the one source that tells it has large MoE models at low load only."""
START = ServingConstants(**{name: prior[0] for name, prior in (PRIORS | FIRST_PRIORS).items()})
MAX_REPLAYED_ROWS = 300  # rows that are replayed for those: enough for four numbers, in seconds
FULL_WEIGHT_ROWS = 10.0
"""A row of a model with n rows has the weight sqrt(min(1, FULL_WEIGHT_ROWS / n)): its rows come from few campaigns and share settings."""
SHIPPED_SPREAD_ROWS = 20  # weight of the shipped spread, in rows: with this many the table's own errors count as much
NOISE = 0.15  # log error of a run that the model explains
FIRST_CAP = 0.3  # the same for the time to the first token
INTERVAL_CAP = 0.07
"""A log error e counts as CAP * sqrt(log(1 + (e / CAP)^2)): tables hold runs under settings that their columns do not say."""


@dataclass(frozen=True, kw_only=True)
class ServingCalibration:
    """Constants and where they hold."""

    name: str
    constants: ServingConstants = field(default_factory=ServingConstants)
    spread: float = 0.3  # standard deviation of the log error of TPOT, whole models left out: dense models
    expert_spread: float = 0.4  # the same of models with experts
    first_spread: float = 0.6  # the same of the time to the first token
    margin: float = 0.15  # by how much a predicted time between tokens must undercut a limit to be counted as keeping it
    first_margin: float = 0.5  # the same for the time to the first token
    made_from: str = "nothing: textbook values"
    rows: int = 0
    mape: float | None = 0.0  # None where the data has only one model
    models: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


def fit_serving(table: ServingTable, chosen: NDArray[np.bool_] | None = None, start: ServingConstants = START) -> ServingConstants:
    """Fit all constants to the chosen rows, each pulled to where it started by its prior; no model counts more than others.

    Constants of steps follow the time between tokens; what they leave of the time to the first token gives the others.
    """
    mask = np.ones(len(table.tpot_s), dtype=bool) if chosen is None else chosen
    rows = mask & np.isfinite(table.tpot_s)
    job, measured = serving_rows(table.job, rows), table.tpot_s[rows]

    def error(constants: ServingConstants) -> NDArray[np.float64]:
        return np.asarray(np.log(token_interval_s(job, constants) / measured))

    return _fit_first(table, mask, _fitted(error, _weights(table, rows), PRIORS, start, INTERVAL_CAP))


def _fit_first(table: ServingTable, mask: NDArray[np.bool_], start: ServingConstants) -> ServingConstants:
    rows = np.flatnonzero(mask & np.isfinite(table.ttft_s))
    rows = rows[:: max(1, -(-len(rows) // MAX_REPLAYED_ROWS))]
    if not len(rows):
        return start
    job, measured = serving_rows(table.job, rows), table.ttft_s[rows]
    nothing = replace(start, **dict.fromkeys(FIRST_PRIORS, 0.0))
    steps_s = replay(job, nothing).first_token_s
    good = np.isfinite(steps_s)
    job, rows = serving_rows(job, good), rows[good]
    steps_s, measured = steps_s[good], measured[good]

    def error(constants: ServingConstants) -> NDArray[np.float64]:
        return np.asarray(np.log((steps_s + step_cost(job, constants).first_s) / measured))

    return _fitted(error, _weights(table, rows), FIRST_PRIORS, start, FIRST_CAP)


def _weights(table: ServingTable, rows: NDArray[Any]) -> NDArray[np.float64]:
    models = np.array(table.models)[rows].tolist()
    counts = Counter(models)
    return np.array([np.sqrt(min(1.0, FULL_WEIGHT_ROWS / counts[model])) / NOISE for model in models])


def _fitted(
    error: Callable[[ServingConstants], NDArray[np.float64]],
    weights: NDArray[np.float64],
    priors: Mapping[str, tuple[float, float, float, float]],
    start: ServingConstants,
    cap: float,
) -> ServingConstants:
    """The constants named in `priors` that make the capped log errors small, beginning at `start`."""
    names = list(priors)
    begin = np.array([getattr(start, name) for name in names])
    _, width, low, high = (np.array([priors[name][index] for name in names]) for index in range(4))
    begin = np.clip(begin, low, high)

    def residual(values: NDArray[np.float64]) -> NDArray[np.float64]:
        errors = error(replace(start, **dict(zip(names, values.tolist(), strict=True))))
        robust = np.sign(errors) * cap * np.sqrt(np.log1p((errors / cap) ** 2))
        return np.concatenate([weights * robust, np.log(values / begin) / width])

    values = fit_positive(residual, begin, pull=0.0, cap=1e6, low=low, high=high)
    return replace(start, **{name: float(f"{value:.4g}") for name, value in zip(names, values.tolist(), strict=True)})


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Predictions of every row by constants that have not seen any row of the same family of models; nan = all rows are one family."""

    tpot_s: NDArray[np.float64]  # closed form, which the constants are fitted to
    loop_tpot_s: NDArray[np.float64]
    loop_ttft_s: NDArray[np.float64]


def models_left_out(table: ServingTable, families: Sequence[str], *, loop: bool = False, start: ServingConstants = START) -> LeftOut:
    """Predict each family of models with what the others teach; `loop` replays the rows too, which takes seconds."""
    tpot_s, loop_tpot_s, loop_ttft_s = (np.full(len(table.tpot_s), np.nan) for _ in range(3))
    for family in sorted(set(families)):
        held = np.array([other == family for other in families])
        if held.all():
            break
        constants, job = fit_serving(table, ~held, start), serving_rows(table.job, held)
        tpot_s[held] = token_interval_s(job, constants)
        if loop:
            replayed = replay(job, constants)
            loop_tpot_s[held], loop_ttft_s[held] = replayed.interval_s, replayed.first_token_s
    return LeftOut(tpot_s=tpot_s, loop_tpot_s=loop_tpot_s, loop_ttft_s=loop_ttft_s)


def calibrate_serving(
    table: ServingTable, families: Sequence[str], *, name: str, made_from: str, start: ServingConstants | None = None
) -> ServingCalibration:
    """Fit, beginning at the shipped constants or at `start`, and state the error on models that were left out.

    With one model alone the shipped spreads and margins stay.
    """
    begin = start or serving_calibration().constants
    unseen = models_left_out(table, families, loop=True, start=begin)
    good = np.isfinite(unseen.tpot_s) & np.isfinite(table.tpot_s)
    shipped = ServingCalibration(name=name) if start else serving_calibration()
    calibration = replace(
        shipped,
        name=name,
        constants=fit_serving(table, start=begin),
        made_from=made_from,
        rows=int(np.isfinite(table.tpot_s).sum()),
        mape=None,
        models=tuple(sorted(set(families))),
        gpus=tuple(sorted({str(row["system"]) for row in table.rows})),
    )
    if not good.any():
        return calibration
    errors, experts = np.log(unseen.tpot_s[good] / table.tpot_s[good]), table.job.experts[good] > 0
    first = np.log(unseen.loop_ttft_s / table.ttft_s)
    first = first[np.isfinite(first)]
    kinds: dict[str, Any] = {}
    for word, part in (("spread", errors[~experts]), ("expert_spread", errors[experts]), ("first_spread", first)):
        if len(part):
            kinds[word] = _shrunk(part, getattr(calibration, word), 0.0 if start else SHIPPED_SPREAD_ROWS)
    for word, part in (("margin", errors), ("first_margin", first)):
        if start or len(part) >= SHIPPED_SPREAD_ROWS:
            kinds[word] = _margin(part)
    error = float(np.round(mape(unseen.tpot_s[good], table.tpot_s[good]), 3))
    return replace(calibration, rows=int(good.sum()), mape=error, **kinds)


def _shrunk(errors: NDArray[np.float64], before: float, weight: float) -> float:
    """The spread of errors, drawn to the one from before as if that came from `weight` rows."""
    count = len(errors)
    return float(np.round(np.sqrt((count * spread_of(errors) ** 2 + weight * before**2) / (count + weight)), 3))


def _margin(errors: NDArray[np.float64]) -> float:
    """What four of five predictions need: the measured time is above the predicted one by no more."""
    return float(np.round(np.exp(max(0.0, float(np.quantile(-errors, 0.8)))) - 1.0, 2))


def serving_to_json(calibration: ServingCalibration) -> dict[str, Any]:
    """Plain data for a file."""
    data = asdict(calibration)
    data["constants"] = {name: float(f"{value:.4g}") for name, value in data["constants"].items()}
    return {"kind": "serving", **data, "models": list(calibration.models), "gpus": list(calibration.gpus)}


def save_serving(calibration: ServingCalibration, path: str | Path) -> None:
    """Write a calibration that `serving_calibration(path)` reads."""
    Path(path).write_text(yaml.safe_dump(serving_to_json(calibration), sort_keys=False, width=140))


def serving_calibration(path: str | Path | None = None) -> ServingCalibration:
    """The calibration in the file at `path`, else the shipped one."""
    return _from_json(read_calibration(path, "serving"), str(path)) if path else _shipped()


def _from_json(data: Mapping[str, Any], where: str) -> ServingCalibration:
    lists = [name for name in ("models", "gpus") if not isinstance(data.get(name) or (), (list, tuple))]
    faults = [Fault(where=where, field=name, value=repr(data[name]), rule="must be a list") for name in lists]
    numbers = ("spread", "expert_spread", "first_spread", "margin", "first_margin")
    check_constants(data, {"constants": ServingConstants.names()}, where, numbers, faults)
    return ServingCalibration(
        name=str(data.get("name", where)),
        constants=ServingConstants(**data.get("constants", {})),
        **{name: float(data[name]) for name in numbers if data.get(name) is not None},
        made_from=str(data.get("made_from", "")),
        rows=int(data.get("rows") or 0),
        mape=mape_of(data),
        models=tuple(map(str, data.get("models") or ())),
        gpus=tuple(map(str, data.get("gpus") or ())),
    )


@cache
def _shipped() -> ServingCalibration:
    data = yaml.safe_load(files("autoscout.simulators.serving").joinpath("calibrations.yaml").read_text())
    return _from_json(data, "calibrations.yaml")


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """Means over the requests of each row, in seconds."""

    first_token_s: NDArray[np.float64]
    interval_s: NDArray[np.float64]


def replay(job: ServingJob, constants: ServingConstants) -> Replayed:
    """What clients in a closed loop would see of each row: `batch` clients per replica, the engine's usual limits."""
    rows = [_row(ServingJob(**values), constants) for values in _rows(job)]
    return Replayed(first_token_s=np.array([one[0] for one in rows]), interval_s=np.array([one[1] for one in rows]))


def _rows(job: ServingJob) -> list[dict[str, float]]:
    columns = {item.name: np.asarray(getattr(job, item.name), dtype=float).tolist() for item in fields(ServingJob)}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _row(job: ServingJob, constants: ServingConstants) -> tuple[float, float]:
    clients = max(1, round(job.batch))
    capacity = float(cache_tokens(job))
    if capacity < job.input_tokens + job.output_tokens:  # the run exists: its weights or cache must be smaller than we think
        capacity = math.inf
    engine = int(job.engine)
    limits = EngineLimits(max_requests=clients, cache_tokens=capacity, kept_share=KEPT_SHARE[engine], mixed=not PROMPTS_FIRST[engine])
    draw = seeds.stream(0, "replay")
    lengths = draw.uniform(1.0 - job.length_spread, 1.0 + job.length_spread, size=(max(8, ROUNDS * clients), 2))
    inputs, outputs = (
        np.maximum(1, lengths[:, 0] * job.input_tokens).astype(int),
        np.maximum(2, lengths[:, 1] * job.output_tokens).astype(int),
    )
    requests = [
        SimulatedRequest(input_tokens=one, output_tokens=other) for one, other in zip(inputs.tolist(), outputs.tolist(), strict=True)
    ]
    served = serve(requests, step_cost(job, constants), limits, clients)
    return float(np.nanmean(served.first_token_s)), float(np.nanmean(served.interval_s))


__all__ = [
    "LeftOut",
    "ServingCalibration",
    "calibrate_serving",
    "fit_serving",
    "models_left_out",
    "replay",
    "save_serving",
    "serving_calibration",
    "serving_to_json",
]
