"""Readers of the scheduler house: snapshots, the ledger of a controller, its settings, its tokens."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

CONTROL_FILE = """cluster: lab
live: {kind: replay, trace: 'synthetic:venus:60:2:1', cluster: 4x8, scheduler: slurm, speed: 1000}
mode: propose
every: 1h
bounds: {most_change: 3}
service: {address: '127.0.0.1:0', per_second: 5}
"""
TOKENS = "# who may call\nann operator operator-token-0123456789\nbob reader reader-token-0123456789\n"
SAMPLE = json.dumps({"load": 0.5, "waiting": 3, "running": 2, "settings": {"weight": 5, "small": False}, "simulated": True})


def read_control_file(path: Path) -> None:
    from autosched.control.settings import read_settings

    read_settings(path)


def read_tokens(path: Path) -> None:
    from autosched.service.access import Tokens

    path.chmod(0o600)
    Tokens.read(path).caller("operator-token-0123456789")


def read_snapshot_file(path: Path) -> None:
    from autosched.sim.snapshot_file import read_snapshot

    read_snapshot(path)


def read_sample(path: Path) -> None:
    """The input is what a sample of the ledger holds."""
    _with_cell(path, "UPDATE autoscout_cluster_samples SET data = ? WHERE at_s = 2")


def read_decision(path: Path) -> None:
    """The input is what a decision of the ledger holds."""
    _with_cell(path, "UPDATE autoscout_decisions SET data = ? WHERE id = 1")


def _with_cell(path: Path, statement: str) -> None:
    from autosched.control.overview import overview

    place = path.parent / "ledger.db"
    place.write_bytes(_ledger())
    for more in ("-wal", "-shm"):
        (path.parent / f"ledger.db{more}").unlink(missing_ok=True)
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute(statement, (path.read_bytes().decode("utf-8", "replace"),))
    json.dumps(overview(place, "lab").to_json(), allow_nan=False)


@cache
def _ledger() -> bytes:
    from autosched.control.ledger import Entry, Ledger
    from autoscout.core.config import Config

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "ledger.db")
        ledger = Ledger(place, "lab")
        for at_s in range(4):
            ledger.sample(float(at_s), json.loads(SAMPLE))
        ledger.add(Entry(at_s=1.0, state="kept", kind="hourly", before=Config(weight=1), after=Config(weight=5)), "kept", "words")
        ledger.close()
        with closing(sqlite3.connect(place)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode = DELETE")
        return place.read_bytes()


def decisions() -> list[bytes]:
    """A decision as the ledger holds it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "ledger.db")
        place.write_bytes(_ledger())
        with closing(sqlite3.connect(place)) as connection:
            return [row[0].encode() for row in connection.execute("SELECT data FROM autoscout_decisions")]


@cache
def snapshots() -> list[bytes]:
    """A snapshot of a small simulation."""
    from autosched.arrivals.synthetic import Recipe, generate
    from autosched.schedulers.fifo import FIFO
    from autosched.sim.cluster import Cluster
    from autosched.sim.session import Session
    from autosched.sim.snapshot_file import write_snapshot

    with tempfile.TemporaryDirectory() as folder:
        trace = generate(Recipe(profile="venus", jobs=30, days=2.0, seed=1))
        session = Session(trace, Cluster.parse("4x8"), FIFO())
        session.step(float(trace.submit_s[0]) + 40_000.0)
        write_snapshot(session.snapshot(), Path(folder, "s.npz"))
        return [Path(folder, "s.npz").read_bytes()]


CONTROL = (
    ("control-file", "yaml", lambda: [CONTROL_FILE.encode()], read_control_file, ".yaml", 20),
    ("tokens", " ", lambda: [TOKENS.encode()], read_tokens, ".txt", 20),
    ("snapshot", "bytes", snapshots, read_snapshot_file, ".npz", 10),
    ("ledger-sample", "json", lambda: [SAMPLE.encode()], read_sample, ".json", 5),
    ("ledger-decision", "json", decisions, read_decision, ".json", 5),
)
"""Name, form, good inputs, reader, suffix and share of each."""

__all__ = ["CONTROL"]
