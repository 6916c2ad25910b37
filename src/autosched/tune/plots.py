"""Charts of a comparison: load and settings over time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from autosched.sim.plot import page
from autosched.sim.result import Result
from autosched.tune.case import Case
from autosched.tune.loop import ModeRun
from autoscout.common.draw import Line, chart

POINTS = 400  # moments of a line
DAY_S = 86_400.0


def wanted(result: Result, at_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """GPUs wanted by all jobs that are in the system at each moment."""
    submit, gpus = result.trace.submit_s, result.trace.gpus
    end = np.where(result.ended, result.end_s, np.inf)
    came, departures = np.argsort(submit, kind="stable"), np.argsort(end, kind="stable")
    total_in = np.concatenate([[0.0], np.cumsum(gpus[came])])
    total_out = np.concatenate([[0.0], np.cumsum(gpus[departures])])
    inside: NDArray[np.float64] = (
        total_in[np.searchsorted(submit[came], at_s, side="right")] - total_out[np.searchsorted(end[departures], at_s, side="right")]
    )
    return inside


def settings_over_time(case: Case, run: ModeRun) -> dict[str, Line]:
    """The place of every setting that changed among its allowed values, 0 to 1; absent ones have none."""
    knobs = case.space.knobs
    moments, configs = [case.from_s], [run.start]
    for decision in run.decisions:
        if decision.changed:
            moments += [decision.at_s, decision.at_s]
            configs += [decision.before, decision.after]
    moments.append(case.to_s)
    configs.append(configs[-1])
    days = (np.asarray(moments) - case.from_s) / DAY_S
    lines = {}
    for name, knob in knobs.items():
        indices = [knob.position(config[name]) if name in config else None for config in configs]
        if len(set(indices)) > 1:
            lines[name] = days, np.asarray([np.nan if index is None else index / max(1, len(knob.values) - 1) for index in indices])
    return lines


def comparison_page(case: Case, runs: Mapping[str, ModeRun]) -> str:
    """Load under every mode, and what each did to the settings."""
    at_s = np.linspace(case.from_s, case.to_s, POINTS)
    days = (at_s - case.from_s) / DAY_S
    loads: dict[str, Line] = {name: (days, wanted(run.result, at_s) / case.cluster.gpus) for name, run in runs.items()}
    charts = [chart("GPUs wanted, in times those there are", loads, "days")]
    for name, run in runs.items():
        lines = settings_over_time(case, run)
        if lines:
            charts.append(chart(f"settings under {name}: place among the allowed values", lines, "days"))
    gains = {
        name: (
            np.asarray([(each.at_s - case.from_s) / DAY_S for each in run.decisions if np.isfinite(each.realised)]),
            np.asarray([each.realised for each in run.decisions if np.isfinite(each.realised)]),
        )
        for name, run in runs.items()
    }
    gains = {name: line for name, line in gains.items() if len(line[0]) > 1}
    if gains:
        charts.append(chart("realised gain of each change, times", gains, "days"))
    return page(charts, "Settings of a scheduler over time")
