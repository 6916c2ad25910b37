"""The studies in figures, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoscout.common.openmetrics import MetricFamily, metrics_text
from autoscout.core.state import State
from autoscout.web.api import entry_row
from autoscout.web.library import Library

GAUGES: tuple[tuple[str, str, Callable[[dict[str, Any]], float | None]], ...] = (
    ("running_trials", "trials under way", lambda row: float(row["running"])),
    ("budget_used_ratio", "share of the budget that is used", lambda row: row.get("used")),
    ("best", "objective of the best configuration so far", lambda row: row.get("best")),
    ("default", "objective of the default", lambda row: row.get("default")),
    ("gain_ratio", "how many times better the best is; no gain is claimed before the final", lambda row: row.get("gain", {}).get("ratio")),
    ("gain_low_ratio", "lower end of its 95 % interval", lambda row: row.get("gain", {}).get("low")),
    ("gain_high_ratio", "upper end of its 95 % interval", lambda row: row.get("gain", {}).get("high")),
)


def study_metrics(library: Library) -> str:
    """How every study stands; one that was put away is left out."""
    rows = [row for row in map(entry_row, library.entries()) if not row["archived"]]
    labels = [{"study": row["name"], "system": row["system"]} for row in rows]
    states = tuple(
        ({**label, "state": state.value}, float(row["state"] == state.value))
        for label, row in zip(labels, rows, strict=True)
        for state in State
    )
    trials = tuple((label, float(row["trials"])) for label, row in zip(labels, rows, strict=True))
    failures = tuple((label, float(row["failed"])) for label, row in zip(labels, rows, strict=True) if "failed" in row)
    families = [
        MetricFamily(name="autoscout_study_state", kind="gauge", help="1 for the state that a study is in", values=states),
        MetricFamily(name="autoscout_study_trials_total", kind="counter", help="trials measured", values=trials),
        MetricFamily(name="autoscout_study_failed_trials_total", kind="counter", help="trials that failed", values=failures),
    ]
    for name, words, figure in GAUGES:
        values = tuple(
            ({**label, "metric": row["metric"]}, float(value))
            for label, row in zip(labels, rows, strict=True)
            if (value := figure(row)) is not None
        )
        families.append(MetricFamily(name=f"autoscout_study_{name}", kind="gauge", help=words, values=values))
    return metrics_text(families)


__all__ = ["study_metrics"]
