"""What the model promises of a run on the small real Slurm, from what accounting knew of another one; and how both compare."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autosched.schedulers.slurm import Slurm
from autosched.sim.cluster import Cluster
from autosched.sim.engine import simulate
from autosched.sim.trace import Trace
from autosched.traces.slurm_text import gpus_of, seconds_of
from autoscout.common.stats import student_quantile
from benchmarks._slurm_runs import GPUS, HIGH, LOW, NODES, PARTITIONS

CALC_PERIOD_S = 60.0  # PriorityCalcPeriod of these clusters, the shortest that there is
TURNOVER_S = 1.0
"""Between the end of a job and the next start on its GPUs: what slurmctld and slurmd took in the runs that the model was fitted on."""
DRAWS = 12  # of the fractions of seconds that accounting does not count
COVERAGE = 0.95


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A workload under the settings around a knob, and with the knob moved; seconds are mean times in the system."""

    knob: str
    shape: str
    seed: int
    base_s: float
    changed_s: float
    base_promised_s: float
    changed_promised_s: float

    @property
    def real(self) -> float:
        """Logarithm of the gain that was measured."""
        return math.log(self.base_s / self.changed_s)

    @property
    def promised(self) -> float:
        """Logarithm of the gain that the model promised."""
        return math.log(self.base_promised_s / self.changed_promised_s)


def _moment(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def jobs_of(run: dict[str, Any]) -> tuple[Trace, float]:
    """The jobs of a run as a trace, and their mean time in the system; a requeued job counts from its first arrival to its last end."""
    rows: dict[int, dict[str, Any]] = {}
    for line in run["sacct"]:
        number, _, user, qos, partition, state, submit, begin, end, limit, tres, _ = line.split("|")
        row = rows.setdefault(int(number), {"submit_s": _moment(submit)})
        row["submit_s"] = min(row["submit_s"], _moment(submit))
        if state == "COMPLETED":
            row |= {"user": user, "qos": qos, "partition": partition, "begin_s": _moment(begin), "end_s": _moment(end)}
            row |= {"limit_s": float(seconds_of([limit])[0]), "gpus": gpus_of(tres)[0]}
    jobs = [rows[number] for number in sorted(rows) if "end_s" in rows[number]]
    if len(jobs) != run["jobs"]:
        raise ValueError(f"{run['jobs']} jobs were submitted, accounting knows the end of {len(jobs)}")
    column = {name: np.asarray([row[name] for row in jobs]) for name in ("submit_s", "begin_s", "end_s", "limit_s", "gpus")}
    extra = {
        "estimate_s": column["limit_s"],
        "qos": np.asarray([{"low": float(LOW), "high": float(HIGH)}[row["qos"]] for row in jobs]),
        "partition_priority": np.asarray([dict(zip(PARTITIONS, (float(LOW), float(HIGH)), strict=True))[row["partition"]] for row in jobs]),
    }
    duration_s = np.maximum(column["end_s"] - column["begin_s"], 0.0) + TURNOVER_S
    users = [row["user"] for row in jobs]
    trace = Trace.of(column["submit_s"], duration_s, column["gpus"], user=users, extra=extra, source="sacct")
    return trace, float((column["end_s"] - column["submit_s"]).mean())


def promise(run: dict[str, Any], settings: dict[str, Any]) -> float:
    """Mean time in the system of the jobs of a run under some settings, simulated."""
    trace, _ = jobs_of(run)
    chance = np.random.default_rng(0)
    scheduler = Slurm(
        **settings, bf_conservative=True, priority_calc_period_s=CALC_PERIOD_S, began_s=run["controller_began_s"]
    )  # fmt: skip
    means = []
    for _ in range(DRAWS):
        submit_s = np.sort(trace.submit_s + chance.uniform(0, 1, len(trace)))
        duration_s = np.maximum(1.0, trace.duration_s + chance.uniform(-0.5, 0.5, len(trace)))
        result = simulate(replace(trace, submit_s=submit_s, duration_s=duration_s), Cluster.parse(f"{NODES}x{GPUS}"), scheduler)
        means.append(float((result.end_s - submit_s).mean()) - TURNOVER_S)
    return float(np.mean(means))


def pairs_of(runs: Sequence[dict[str, Any]], part: str) -> list[Pair]:
    """All pairs of a part of which both runs are there."""
    table: dict[tuple[str, str, int], dict[bool, dict[str, Any]]] = {}
    for run in runs:
        if run["part"] == part:
            table.setdefault((run["knob"], run["shape"], run["seed"]), {})[run["changed"]] = run
    pairs = []
    for (knob, shape, seed), both in sorted(table.items()):
        if len(both) == 2:
            base, changed = both[False], both[True]
            seconds = {"base_s": jobs_of(base)[1], "changed_s": jobs_of(changed)[1]}
            promised = {"base_promised_s": promise(base, base["settings"]), "changed_promised_s": promise(base, changed["settings"])}
            pairs.append(Pair(knob=knob, shape=shape, seed=seed, **seconds, **promised))
    return pairs


def mean_interval(logs: Sequence[float]) -> tuple[float, float, float]:
    """The mean gain of logarithms, and where it lies with 95 % (Student's t)."""
    mean = float(np.mean(logs))
    if len(logs) < 2:
        return math.exp(mean), 0.0, math.inf
    reach = student_quantile(0.5 + COVERAGE / 2, len(logs) - 1) * float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - reach), math.exp(mean + reach)
