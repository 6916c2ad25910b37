"""Our serving model beside aiconfigurator on the same measured rows: `python -m benchmarks.serving_side_by_side [SYSTEM ...]`.

Needs `pip install 'autoscout[aiconfigurator]'`. Ours is fitted without the row's family of models; aiconfigurator runs as shipped, with the
engine version that it carries (not the one that was measured). Systems default to h100_sxm and h200_sxm.
"""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

import numpy as np

from autoscout.simulators.aiconfigurator import _estimator, _version
from autoscout.simulators.serving.calibration import models_left_out
from benchmarks._simulator_tables import families, serving_sample
from benchmarks.simulators import Line


def main(systems: list[str]) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    table = serving_sample()
    ours = models_left_out(table, families(table)).tpot_s
    theirs = np.full(len(table.rows), np.nan)
    for number, row in enumerate(table.rows):
        if row["system"] in systems:
            theirs[number] = _predict(row)
    both = np.isfinite(theirs) & np.isfinite(ours)
    moe = table.job.experts > 0
    asked = sum(row["system"] in systems for row in table.rows)
    print(f"{asked} rows on {', '.join(systems)}; aiconfigurator answers {int(np.isfinite(theirs).sum())}")
    for name, rows in (("dense", both & ~moe), ("MoE", both & moe)):
        if not rows.any():
            continue
        groups = [group for group, use in zip(table.groups, rows, strict=True) if use]
        for least in (3, 2):
            for word, predicted in (("ours, family left out", ours), ("aiconfigurator as shipped", theirs)):
                title = f"{word}, from {least} layouts"
                print(Line(f"silicon, {name}", title, predicted[rows], table.tpot_s[rows], groups, least).text())


def _predict(row: dict[str, Any]) -> float:
    experts = {"moe_tp_size": int(row["moe_tp_size"] or 1), "moe_ep_size": int(row["moe_ep_size"] or 1)} if row["moe_quant_mode"] else {}
    try:
        result = _estimator()(
            row["model_path"],
            row["system"],
            backend_name=row["backend"],
            backend_version=_version(row["system"], row["backend"]),
            isl=int(row["isl"]),
            osl=int(row["osl"]),
            batch_size=int(row["batch_size"]),
            tp_size=int(row["tp_size"]),
            pp_size=int(row["pp_size"] or 1),
            attention_dp_size=max(1, int(row["attention_dp_size"] or 1)),
            gemm_quant_mode=row["gemm_quant_mode"] or None,
            **experts,
        )
    except Exception:  # its kinds of refusal are many
        return float("nan")
    return float(result.tpot) / 1e3


if __name__ == "__main__":
    main(sys.argv[1:] or ["h100_sxm", "h200_sxm"])
