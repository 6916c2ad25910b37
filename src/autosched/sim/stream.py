"""Stream: a trace that never is in memory as a whole, simulated piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autosched.sim.cluster import Cluster
from autosched.sim.result import Result
from autosched.sim.scheduler import Scheduler
from autosched.sim.session import Session
from autosched.sim.trace import Trace


def stream(pieces: Iterable[Trace], cluster: Cluster, scheduler: Scheduler) -> Iterator[Result]:
    """What happened to the jobs that ended, piece by piece; memory holds one piece and the jobs that have not ended.

    The results together are those of one run over all pieces. Counters are of the whole run so far.

    Args:
        pieces: Parts of a trace in order of time: none begins before the last arrival of the one before.
        cluster: The nodes.
        scheduler: Who decides.
    """
    session: Session | None = None
    for piece in pieces:
        if not len(piece):
            continue
        if session is None:
            session = Session(piece, cluster, scheduler)
            continue
        session.step(float(piece.submit_s[0]))
        yield session.forget()
        session.submit(piece)
    if session is not None:
        session.step()
        yield session.forget()
