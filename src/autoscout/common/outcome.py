"""What an executor knows of a launch for certain, as a measurement; the rest is for the backend that reads the output."""

from __future__ import annotations

from autoscout.core.launch import Completed
from autoscout.core.trial import Measurement, Status


def failure(completed: Completed) -> Measurement | None:
    """The measurement of a launch that was stopped or failed; None when it ended by itself with exit code 0.

    >>> failure(Completed(returncode=3, stderr="no space left on device")).reason
    'exit code 3: no space left on device'
    """
    said = [line.strip() for line in completed.log_tail.splitlines() if line.strip()]
    last = f": {said[-1][:300]}" if said else ""
    if completed.cancelled:
        return Measurement(status=Status.ABORTED, reason="stopped before it ended")
    if completed.out_of_memory:
        return Measurement(status=Status.OOM_RUN, reason="killed for memory", log_tail=completed.log_tail)
    if completed.timed_out:
        return Measurement(status=Status.TIMEOUT, reason=f"did not end within {completed.wall_s:.3g} s", log_tail=completed.log_tail)
    if completed.returncode is None:
        return Measurement(status=Status.CRASHED, reason=f"could not be started{last}", log_tail=completed.log_tail)
    if completed.returncode != 0:
        return Measurement(status=Status.CRASHED, reason=f"exit code {completed.returncode}{last}", log_tail=completed.log_tail)
    return None


__all__ = ["failure"]
