"""Jobs waiting for their share of a machine, and jobs running on it."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Protocol

from autoscout.core.errors import LaunchError
from autoscout.core.launch import Completed, Launch
from autoscout.core.log import logger
from autoscout.execute._shared.allocation import Pool, Share
from autoscout.execute._shared.call import refuse_while_reimporting

log = logger(__name__)


class Requeue(Exception):  # noqa: N818 - no error: the launch waits again
    """Raised by a run whose machine was lost: the launch is to run once more, before those that came later."""


class LaunchRun(Protocol):
    """One launch on its share of the machine."""

    def run(self) -> Completed:
        """Run to the end, on a thread of its own."""

    def stop(self) -> None:
        """Have `run` return soon with a cancelled Completed; may come before `run`, and more than once."""


class QueuedJob:
    """A launch that waits, runs or has ended."""

    def __init__(self, queue: JobQueue, launch: Launch, prepare: Callable[[Share], LaunchRun]) -> None:
        self.launch = launch
        self.overtaken = 0
        self._queue = queue
        self._prepare = prepare
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._cancelled = False
        self._run: LaunchRun | None = None
        self._completed: Completed | None = None

    def done(self) -> bool:
        return self._ended.is_set()

    def result(self, timeout_s: float | None = None) -> Completed:
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"launch {self.launch.name} has not ended within {timeout_s} s")
        assert self._completed is not None
        return self._completed

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            run = self._run
        if run is not None:
            run.stop()
        elif self._queue.forget(self):
            self.finish(Completed(returncode=None, cancelled=True))

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def work(self, share: Share) -> Completed | None:
        """Run the launch; None when it has to wait again. Else whatever goes wrong becomes a Completed: exceptions of threads are lost."""
        try:
            run = self._prepare(share)
            with self._lock:
                self._run = run
                cancelled = self._cancelled
            if cancelled:
                run.stop()
            return run.run()
        except Requeue:
            with self._lock:
                self._run = None
            return None
        except Exception as error:
            log.warning("launch %s could not be run", self.launch.name, exc_info=True)
            reason = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else traceback.format_exc()
            return Completed(returncode=None, error=reason)

    def finish(self, completed: Completed) -> None:
        """Hand the result to those who wait; the first one counts."""
        with self._lock:
            if self._completed is None:
                self._completed = completed
        self._ended.set()


class JobQueue:
    """Starts waiting jobs in the order of the pool, as it lets them. Thread-safe.

    A launch that does not fit lets others pass, but only as often as the pool says; then a machine is kept free for it, or all wait for it.
    """

    def __init__(self, pool: Pool, name: str) -> None:
        self._pool = pool
        self._name = name
        self._lock = threading.Lock()
        self._waiting: list[QueuedJob] = []
        self._running: dict[QueuedJob, threading.Thread] = {}
        self._closed = False

    def submit(self, launch: Launch, prepare: Callable[[Share], LaunchRun]) -> QueuedJob:
        """Queue a launch; `prepare` is called once its share is known."""
        refuse_while_reimporting()
        faults = self._pool.faults(launch.resources, f"launch {launch.name}".strip())
        if faults:
            raise LaunchError(faults)
        job = QueuedJob(self, launch, prepare)
        with self._lock:
            if self._closed:
                raise LaunchError(f"the {self._name} executor is closed")
            self._waiting.append(job)
            self._dispatch()
        return job

    def forget(self, job: QueuedJob) -> bool:
        """Drop a job that has not started; False when it has."""
        with self._lock:
            if job not in self._waiting:
                return False
            self._waiting.remove(job)
            self._dispatch()  # it may have been the one that all waited for
            return True

    def close(self) -> None:
        """Cancel everything and wait until it is gone; idempotent."""
        with self._lock:
            self._closed = True
            jobs = [*self._waiting, *self._running]
        for job in jobs:
            job.cancel()
        with self._lock:
            threads = list(self._running.values())
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def dispatch(self) -> None:
        """Start what fits now: after the pool has changed without a launch that ended."""
        with self._lock:
            if not self._closed:
                self._dispatch()

    def _dispatch(self) -> None:
        self._pool.let_go()
        patient = [job for job in self._waiting if job.overtaken < self._pool.overtaken]
        overdue = [job for job in self._waiting if job.overtaken >= self._pool.overtaken]
        for job in [*overdue, *self._pool.order(patient)]:
            share = self._pool.take(job.launch.resources)
            if share is None:
                if job.overtaken >= self._pool.overtaken and not self._pool.hold(job.launch.resources):
                    return
                continue
            for other in self._waiting[: self._waiting.index(job)]:
                other.overtaken += 1
            self._waiting.remove(job)
            self._begin(job, share)

    def _begin(self, job: QueuedJob, share: Share) -> None:
        # A daemon: an interpreter that ends without close() must not hang, and its supervisors notice that it is gone.
        thread = threading.Thread(target=self._run, args=(job, share), name=f"{self._name}-{job.launch.name}", daemon=True)
        self._running[job] = thread
        thread.start()

    def _run(self, job: QueuedJob, share: Share) -> None:
        completed = job.work(share)
        with self._lock:
            self._pool.give(share)
            del self._running[job]
            again = completed is None and not job.cancelled and not self._closed
            if again:
                self._waiting.insert(0, job)
            if not self._closed:
                self._dispatch()
        if not again:
            job.finish(completed or Completed(returncode=None, cancelled=True))
