from __future__ import annotations

import pytest

from autoscout.common.outcome import failure
from autoscout.core.launch import Completed
from autoscout.core.trial import Status


@pytest.mark.parametrize(
    ("completed", "status", "reason"),
    [
        (Completed(returncode=None, cancelled=True), Status.ABORTED, "stopped before it ended"),
        (Completed(returncode=-9, out_of_memory=True), Status.OOM_RUN, "killed for memory"),
        (Completed(returncode=None, timed_out=True, wall_s=9.0), Status.TIMEOUT, "did not end within 9 s"),
        (Completed(returncode=None, error="no such program"), Status.CRASHED, "could not be started: no such program"),
        (Completed(returncode=3, stdout="one\n", stderr="two\n\n"), Status.CRASHED, "exit code 3: two"),
        (Completed(returncode=1), Status.CRASHED, "exit code 1"),
    ],
)
def test_what_the_executor_knows(completed: Completed, status: Status, reason: str) -> None:
    found = failure(completed)
    assert found is not None
    assert (found.status, found.reason) == (status, reason)


def test_a_launch_that_ended_well_is_for_the_backend_to_read() -> None:
    assert failure(Completed(returncode=0, stdout="5")) is None
