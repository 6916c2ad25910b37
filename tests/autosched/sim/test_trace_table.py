from __future__ import annotations

import numpy as np
import pytest

from autosched.sim.trace import Labels, Trace, spans
from autoscout.core.errors import ConfigError


def test_sorted_by_arrival_and_stable() -> None:
    trace = Trace.of([5, 1, 5, 1], [1, 2, 3, 4], [1, 1, 1, 1], job_id=["a", "b", "c", "d"])
    assert list(trace.job_id) == ["b", "d", "a", "c"]
    assert list(trace.duration_s) == [2, 4, 1, 3]


def test_all_bad_rows_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        Trace.of([0, np.nan, 2, 3, 4, 5], [1, 1, -1, 1, -7, 1], [1, 1, 1, 0, 1, 1.5], job_id=["a", "b", "c", "d", "e", "a"])
    rules = {(fault.field, fault.rule) for fault in caught.value.faults}
    assert ("submit_s", "arrival must be a number (row 1)") in rules
    assert ("duration_s", "duration must not be negative: an end before its start (rows 2, 4)") in rules
    assert ("gpus", "a job must want GPUs (row 3)") in rules
    assert ("gpus", "jobs on more than one GPU must ask for whole GPUs (row 5)") in rules
    assert ("job_id", "a job may occur in a trace once (row 5)") in rules


def test_columns_must_be_equally_long() -> None:
    with pytest.raises(ConfigError, match="equally long"):
        Trace.of([0, 1], [1], [1, 1])


def test_filters_are_recorded() -> None:
    trace = Trace.of([0, 10, 20], [1, 1, 1], [1, 1, 1], status=["Pass", "Killed", "pass"])
    kept = trace.with_status("PASS").between(0, 15)
    assert list(kept.job_id) == ["job-0"]
    assert kept.filters == ("status in pass: 2 of 3 jobs kept", "arrival in [0, 15): 1 of 2 jobs kept")


def test_extra_columns_follow_the_rows() -> None:
    trace = Trace.of([2, 1], [1, 1], [1, 1], extra={"estimate_s": [20, 10]})
    assert list(trace.extra["estimate_s"]) == [10, 20]
    assert list(trace.with_extra(skew=[1, 2]).take(np.asarray([1])).extra["skew"]) == [2]
    with pytest.raises(ConfigError, match="must have 2 rows"):
        trace.with_extra(skew=[1])


def test_gpu_seconds() -> None:
    assert Trace.of([0, 0], [10, 20], [1, 2]).gpu_seconds == 50


def test_labels() -> None:
    labels = Labels.of(["b", "a", "b"])
    assert labels.names == ("a", "b")
    assert list(labels.codes) == [1, 0, 1]
    assert list(labels.texts()) == ["b", "a", "b"]
    assert labels.code("z") == -1


def test_spans() -> None:
    assert spans(np.asarray([9, 3, 7, 8, 12])) == "3, 7-9, 12"
