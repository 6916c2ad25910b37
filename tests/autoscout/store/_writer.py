"""A process that claims, "measures" and appends until it is killed, and says what was acknowledged."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

from autoscout.core.history import trials_of
from autoscout.core.worker import worker_identity
from autoscout.store.sql.store import SqlStore
from autoscout.testing.store import proposal, record, trial

LEASE_S = 3600.0  # far longer than a test: claims of the dead must not wait for it


def write(target: str, journal: Path, acknowledged: Path, total: int) -> None:
    """Go through the configurations 0 ... total - 1, three at a time, as another writer may do at the same time."""
    answers = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with SqlStore(target, journal=journal) as store:
        store.open(record())
        worker = worker_identity()
        while True:
            done = {t.config["x"] for t in trials_of(store, "study")}
            left = [x for x in range(total) if x not in done]
            if not left:
                return
            for start in range(0, len(left), 3):
                claimed = store.claim("study", [proposal(x) for x in left[start : start + 3]], worker, LEASE_S)
                batch = [trial(int(p.config["x"]), worker=worker) for p in claimed]  # type: ignore[arg-type]
                stored = store.append("study", batch)
                lines = [json.dumps({"x": t.config["x"], "number": t.number, "worker": t.worker}) + "\n" for t in stored]
                os.write(answers, "".join(lines).encode())  # one call: a kill cannot tear it


def spawn(target: str, journal: Path, acknowledged: Path, total: int) -> multiprocessing.process.BaseProcess:
    """Start a writer. By fork, so that fifty of them start within seconds."""
    process = multiprocessing.get_context("fork").Process(target=write, args=(target, journal, acknowledged, total))
    process.start()
    return process
