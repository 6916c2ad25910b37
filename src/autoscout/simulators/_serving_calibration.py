"""Constants of the serving model: fitted to measured runs, judged with whole models left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from autoscout.core.errors import ConfigError, Fault
from autoscout.core.scores import mape
from autoscout.simulators._fit import fit_positive
from autoscout.simulators._serving_job import ServingConstants
from autoscout.simulators._serving_step import token_interval_s
from autoscout.simulators._serving_tables import ServingTable, serving_rows

PRIORS: dict[str, tuple[float, float, float, float]] = {
    "memory_scale": (1.0, 0.15, 0.4, 1.4),
    "cache_scale": (1.0, 0.2, 0.4, 1.4),
    "decode_scale": (0.8, 0.3, 0.15, 1.2),
    "prefill_scale": (0.9, 0.15, 0.2, 1.2),
    "attention_share": (0.5, 0.3, 0.1, 0.9),
    "latency_s": (7e-6, 0.4, 1e-6, 4e-5),
    "bus_scale": (0.6, 0.7, 0.05, 1.2),
    "prefill_bus_scale": (0.7, 0.4, 0.05, 1.2),
    "layer_s": (1.5e-5, 0.5, 1e-6, 6e-5),
    "eager_layer_s": (8e-5, 0.7, 1e-6, 5e-4),
    "vllm_s": (1.2e-3, 0.5, 1e-4, 8e-3),
    "sglang_s": (1e-3, 0.5, 1e-4, 8e-3),
    "trtllm_s": (5e-4, 0.5, 1e-5, 8e-3),
    "request_s": (1e-5, 0.7, 1e-7, 1e-4),
    "expert_scale": (0.9, 0.25, 0.2, 1.3),
    "expert_prompt_scale": (0.7, 0.4, 0.1, 1.2),
    "imbalance": (0.3, 0.6, 0.01, 1.5),
    "expert_layer_s": (4e-5, 0.6, 1e-6, 2e-4),
    "reduced_share": (0.4, 0.4, 0.1, 1.0),
}
"""What physics says of each constant before any run: where it lies, the standard deviation of its logarithm, and its bounds.

Shares of a kernel's known rate are known well, host times hardly: with few models in a table they cannot be told apart otherwise."""
START = ServingConstants(**{name: prior[0] for name, prior in PRIORS.items()})
ROWS = 10.0  # rows of one model that count in full: all of them come from few campaigns, whose settings they share
NOISE = 0.15  # log error of a run that the model explains
CAP = 0.07  # errors far above it hardly count: tables hold runs under settings that their columns do not tell


@dataclass(frozen=True, kw_only=True)
class ServingCalibration:
    """Constants and where they hold."""

    name: str
    constants: ServingConstants = field(default_factory=ServingConstants)
    spread: float = 0.3  # standard deviation of the log error of TPOT, whole models left out
    margin: float = 0.15  # by how much a predicted latency must undercut a limit to be counted as keeping it
    made_from: str = "nothing: textbook values"
    rows: int = 0
    mape: float | None = 0.0  # None where the data has only one model
    models: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


def fit_serving(table: ServingTable, chosen: NDArray[np.bool_] | None = None, start: ServingConstants = START) -> ServingConstants:
    """Fit all constants to the chosen rows' TPOT, each pulled to where it started by its prior; no model counts more than others."""
    mask = np.ones(len(table.tpot_s), dtype=bool) if chosen is None else chosen
    mask = mask & np.isfinite(table.tpot_s)
    models = [model for model, use in zip(table.models, mask, strict=True) if use]
    counts = Counter(models)
    weights = np.array([np.sqrt(min(1.0, ROWS / counts[model])) / NOISE for model in models])
    job, measured = serving_rows(table.job, mask), table.tpot_s[mask]
    names = list(PRIORS)
    begin = np.array([getattr(start, name) for name in names])
    _, width, low, high = (np.array([PRIORS[name][place] for name in names]) for place in range(4))

    def residual(values: NDArray[np.float64]) -> NDArray[np.float64]:
        constants = replace(start, **dict(zip(names, values.tolist(), strict=True)))
        errors = np.log(token_interval_s(job, constants) / measured)
        robust = np.sign(errors) * CAP * np.sqrt(np.log1p((errors / CAP) ** 2))
        return np.concatenate([weights * robust, np.log(values / begin) / width])

    values = fit_positive(residual, begin, pull=0.0, cap=1e6, low=low, high=high)
    return replace(start, **{name: float(f"{value:.4g}") for name, value in zip(names, values.tolist(), strict=True)})


def models_left_out(table: ServingTable, families: Sequence[str]) -> NDArray[np.float64]:
    """TPOT of every row, predicted by constants that have not seen any row of the same family of models."""
    out = np.full(len(table.tpot_s), np.nan)
    for family in sorted(set(families)):
        held = np.array([other == family for other in families])
        if held.all():
            break
        constants = fit_serving(table, ~held)
        out[held] = token_interval_s(serving_rows(table.job, held), constants)
    return out


def calibrate_serving(table: ServingTable, families: Sequence[str], *, name: str, made_from: str) -> ServingCalibration:
    """Fit, and state the error on models that were left out; with one model alone the shipped spread and margin stay."""
    unseen = models_left_out(table, families)
    good = np.isfinite(unseen) & np.isfinite(table.tpot_s)
    errors, judged, shipped = np.log(unseen[good] / table.tpot_s[good]), bool(good.any()), serving_calibration()
    return ServingCalibration(
        name=name,
        constants=fit_serving(table),
        spread=float(np.round(1.25 * np.mean(np.abs(errors)), 3))
        if judged
        else shipped.spread,  # of the bulk: hidden settings make the tails
        margin=float(np.round(np.quantile(-errors, 0.8), 2)) if judged else shipped.margin,
        made_from=made_from,
        rows=int(good.sum()) if judged else int(np.isfinite(table.tpot_s).sum()),
        mape=float(np.round(mape(unseen[good], table.tpot_s[good]), 3)) if judged else None,
        models=tuple(sorted(set(families))),
        gpus=tuple(sorted({str(row["system"]) for row in table.rows})),
    )


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
    if not path:
        return _shipped()
    try:
        data = yaml.safe_load(Path(path).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(Fault(where=str(path), rule=f"the calibration cannot be read: {error}")) from error
    if not isinstance(data, dict) or data.get("kind") != "serving":
        raise ConfigError(Fault(where=str(path), field="kind", rule="must say 'serving'", fix="Write it with autoscout calibrate"))
    return _from_json(data, str(path))


def _from_json(data: Mapping[str, Any], where: str) -> ServingCalibration:
    constants = dict(data.get("constants", {}))
    unknown = sorted(constants.keys() - set(ServingConstants.names()))
    if unknown:
        rule = f"unknown constant; there are: {', '.join(ServingConstants.names())}"
        raise ConfigError([Fault(where=where, field=f"constants.{name}", rule=rule) for name in unknown])
    return ServingCalibration(
        name=str(data.get("name", where)),
        constants=ServingConstants(**constants),
        spread=float(data.get("spread", 0.3)),
        margin=float(data.get("margin", 0.15)),
        made_from=str(data.get("made_from", "")),
        rows=int(data.get("rows", 0)),
        mape=None if data.get("mape", 0.0) is None else float(data.get("mape", 0.0)),
        models=tuple(data.get("models", ())),
        gpus=tuple(data.get("gpus", ())),
    )


@cache
def _shipped() -> ServingCalibration:
    data = yaml.safe_load(files("autoscout.simulators").joinpath("data/calibrations.yaml").read_text())
    entry = data.get("serving")
    return _from_json(entry, "data/calibrations.yaml") if entry else ServingCalibration(name="textbook", constants=START)


__all__ = [
    "ServingCalibration",
    "calibrate_serving",
    "fit_serving",
    "models_left_out",
    "save_serving",
    "serving_calibration",
    "serving_to_json",
]
