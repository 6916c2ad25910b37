"""Every metric that a backend reports has a meaning in words, and nothing else has one."""

from __future__ import annotations

from autosched.sim.metrics import METRICS as SCHEDULING
from autoscout.backends.command.backend import COMMON_METRICS
from autoscout.common.derived import DERIVED
from autoscout.load.plan import METRICS as SERVING
from autoscout.report.meanings import LATENCIES, MEANINGS, STATISTICS, meaning
from autoscout.training.protocol import METRICS as TRAINING
from autoscout.training.protocol import TFLOPS

GROUPS = {
    "Serving": set(SERVING),
    "Training": {*TRAINING, TFLOPS},
    "Any program": set(COMMON_METRICS),
    "Cost and energy, where they can be worked out": set(DERIVED),
    "Cluster schedulers, simulated": set(SCHEDULING),
}


def test_meanings_are_those_of_the_metrics() -> None:
    latencies = {f"{statistic}_{latency}" for statistic in STATISTICS for latency in LATENCIES}
    assert {name: set(group) for name, group in MEANINGS.items()} == {name: group - latencies for name, group in GROUPS.items()}
    assert latencies <= GROUPS["Serving"]


def test_words() -> None:
    assert [name for group in GROUPS.values() for name in group if not meaning(name)] == []
    assert meaning("p99_itl_ms") == "between two tokens of a request: 99th percentile"
    assert meaning("my_own") == ""
