"""What squeue, sinfo and sacct say: as JSON where this Slurm has it, as text otherwise, with the same outcome."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from autosched.events import SACCT, JobEvent, events_of_sacct
from autosched.live.slurm import documents
from autosched.live.slurm.documents import Row
from autosched.live_scheduler import LiveError
from autosched.sim.cluster import Cluster, NodeGroup
from autosched.sim.snapshot import Snapshot
from autosched.traces.slurm_queue import read_queue
from autosched.traces.slurm_text import gpus_of
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.log import logger

log = logger(__name__)

QUEUE = {
    "JobArrayID": "JOBID", "UserName": "USER", "Partition": "PARTITION", "State": "STATE", "SubmitTime": "SUBMIT_TIME",
    "StartTime": "START_TIME", "TimeUsed": "TIME", "TimeLimit": "TIME_LIMIT", "tres-alloc": "AllocTRES", "NumNodes": "NODES",
    "NodeList": "NODELIST",
}  # fmt: skip
"""Fields of `squeue --Format` -> what the reader of queues calls them. `tres-alloc` is what a waiting job asks for."""
NODES = {"NodeList": "NODELIST", "Partition": "PARTITION", "StateLong": "STATE", "Gres": "GRES"}
"""Fields of `sinfo --Format` -> columns."""
STATES = ("RUNNING", "PENDING", "COMPLETING", "SUSPENDED")
"""Of jobs that hold or want nodes."""
_WIDTH = 400  # characters of a field; squeue and sinfo cut longer ones
_BETWEEN = "\x1f"  # cells of sacct: names of jobs may hold anything that can be typed
_MARKS = {"*": "NOT_RESPONDING", "%": "POWERING_DOWN", "$": "MAINT", "^": "REBOOT"}
"""What sinfo puts behind the state of a node. `~` and `#`: switched off until a job needs it, or being switched on: it can be used."""
_GONE = ("DOWN", "DRAIN", "FAIL", "MAINT", "UNK", "ERROR", "BOOT", "REBOOT", "INVAL", "FUTURE", "NO_RESP", "NOT_RESP", "POWERING_DOWN")
"""Beginnings of states in which a node takes no jobs."""
_WRONG = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""What a document of another shape than those we know leads to."""
_NO_JSON = re.compile(r"unrecognized option|JSON plugin load failure|serializer/json", re.IGNORECASE)
"""What commands of Slurm say to `--json` before 21.08, and where they were built without it."""

Ask = Callable[..., str]
Read = TypeVar("Read")


class SlurmReader:
    """Asks the commands of a Slurm.

    Args:
        ask: Runs a command.
        partitions: Only these; all when empty.
        shared: Whether partitions share their nodes; if not each is a virtual cluster.
        output: `json`, `text`, or `auto`: JSON where this version has it, and text whenever that does not work.
    """

    def __init__(self, ask: Ask, partitions: Sequence[str], shared: bool, output: str) -> None:
        self._ask, self._partitions, self._shared, self._output = ask, tuple(partitions), shared, output
        self._without: set[str] = set()  # commands that said they have no JSON: they are not asked for it again
        self._warned: set[str] = set()  # commands whose JSON did not work when they were last asked

    def nodes(self, version: tuple[int, int]) -> tuple[list[str], Cluster]:
        """Nodes that take jobs, with their GPUs, and their names in the order of the cluster."""
        rows = self._rows("sinfo", version, lambda: documents.node_rows(self._ask("sinfo", "--json")), self._nodes_as_text)
        nodes: dict[str, tuple[str, int, str]] = {}
        for row in sorted(self._chosen(rows), key=lambda row: _natural(row["NODELIST"])):
            gpus, kind = gpus_of(re.sub(r"\(.*?\)", "", row["GRES"]))
            if gpus > 0 and row["NODELIST"] not in nodes and not any(word.startswith(_GONE) for word in row["STATE"].split()):
                nodes[row["NODELIST"]] = ("" if self._shared else row["PARTITION"], int(gpus), kind)
        if not nodes:
            raise LiveError(Fault(where="sinfo", rule="no node with GPUs is up"))
        groups: list[NodeGroup] = []
        for vc, gpus, kind in nodes.values():
            last = groups[-1] if groups else None
            if last and (last.vc, last.gpus, last.kind) == (vc, gpus, kind):
                groups[-1] = NodeGroup(nodes=last.nodes + 1, gpus=gpus, vc=vc, kind=kind)
            else:
                groups.append(NodeGroup(nodes=1, gpus=gpus, vc=vc, kind=kind))
        return list(nodes), Cluster(groups=tuple(groups))

    def queue(self, version: tuple[int, int], nodes: Sequence[str], now_s: Callable[[], float]) -> Snapshot:
        """The jobs that run and wait."""
        rows = self._rows(
            "squeue",
            version,
            lambda: documents.queue_rows(self._ask("squeue", "--json"), math.floor(now_s())),
            self._queue_as_text,
        )
        queue = sorted((row for row in self._chosen(rows) if row["STATE"] in STATES), key=lambda row: _natural(row["JOBID"]))
        at_s = math.floor(now_s()) + 1.0  # squeue counts whole seconds
        columns = list(queue[0]) if queue else list(QUEUE.values())
        return _from_table(columns, queue, lambda path: read_queue(path, at_s, nodes=nodes, partitions=not self._shared))

    def accounting(self, version: tuple[int, int], since_s: float, *, long: bool) -> list[JobEvent]:
        """What accounting says happened since a moment. A `long` past is read as text, which is ten times smaller."""
        start = datetime.fromtimestamp(since_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        command = ["sacct", "--allusers", "--allocations", "--duplicates", f"--starttime={start}", *self._filter()]
        format_ = ("--parsable2", f"--delimiter={_BETWEEN}", f"--format={','.join(SACCT)}")

        def as_text() -> list[Row]:
            return [dict(zip(SACCT, row, strict=True)) for row in _rows_of(self._ask(*command, *format_), len(SACCT))][1:]

        def as_json() -> list[Row]:
            return documents.accounting_rows(self._ask(*command, "--json"))

        rows = as_text() if long and self._output != "json" else self._rows("sacct", version, as_json, as_text)
        return _from_table(SACCT, rows, events_of_sacct)

    def _rows(self, name: str, version: tuple[int, int], as_json: Callable[[], list[Row]], as_text: Callable[[], list[Row]]) -> list[Row]:
        able = version >= documents.FIRST_VERSION and name not in self._without
        if self._output == "text" or (self._output == "auto" and not able):
            return as_text()
        try:
            rows = as_json()
        except (LiveError, *_WRONG) as error:
            if self._output == "json":
                raise error if isinstance(error, LiveError) else _not_understood(name, error) from error
            rows = as_text()  # raises where the command fails whatever it should print
            unknown = isinstance(error, LiveError) and _has_no_json(error)
            if unknown:
                self._without.add(name)
            if name not in self._warned:
                self._warned.add(name)
                log.warning("%s --json %s, text is read instead: %s", name, "is not known here" if unknown else "did not work", error)
            return rows
        self._warned.discard(name)
        return rows

    def _filter(self) -> list[str]:
        return [f"--partition={','.join(self._partitions)}"] if self._partitions else []

    def _chosen(self, rows: Sequence[Row]) -> list[Row]:
        """Those in the partitions that are looked at; a waiting job may name several."""
        names = set(self._partitions)
        return [row for row in rows if not names or names & set(row["PARTITION"].split(","))]

    def _nodes_as_text(self) -> list[Row]:
        rows = _cut(self._ask("sinfo", "--noheader", "--Node", _format(NODES), *self._filter()), NODES.values())
        for row in rows:
            state = row["STATE"].upper()
            marks = [word for mark, word in _MARKS.items() if state.endswith(mark)]
            row["STATE"] = " ".join((state.rstrip("*~#!%$@^-+"), *marks))
            row["PARTITION"] = row["PARTITION"].rstrip("*")
        return rows

    def _queue_as_text(self) -> list[Row]:
        states = f"--states={','.join(STATES)}"
        return _cut(self._ask("squeue", "--noheader", "--all", "--array", states, _format(QUEUE), *self._filter()), QUEUE.values())


def _has_no_json(error: LiveError) -> bool:
    """Whether a command says that it has no JSON, or none in this build; one that is busy or cut off says something else."""
    return any(_NO_JSON.search(fault.value or "") for fault in error.faults)


def _not_understood(name: str, error: BaseException) -> LiveError:
    rule = f"prints another document than is known here: {type(error).__name__}: {error}"
    return LiveError(Fault(where=f"{name} --json", rule=rule, fix="output: text reads its text instead"))


def _format(fields: Mapping[str, str]) -> str:
    return f"--Format={','.join(f'{name}:{_WIDTH}' for name in fields)}"


def _cut(text: str, columns: Iterable[str]) -> list[Row]:
    """Lines of cells of equal width."""
    names = list(columns)
    cells = ([line[number * _WIDTH : (number + 1) * _WIDTH].strip() for number in range(len(names))] for line in text.splitlines())
    return [dict(zip(names, row, strict=True)) for row in cells if row[0]]


def _rows_of(text: str, width: int) -> Iterator[list[str]]:
    """Rows of cells. The name of a job may hold the end of a line; what still has too many cells is left out."""
    row = ""
    for line in text.split("\n"):
        row = f"{row} {line}" if row else line
        cells = row.split(_BETWEEN)
        if len(cells) == width:
            yield cells
        row = row if len(cells) < width else ""


def _natural(name: str) -> list[tuple[int, int, str]]:
    """n2 before n10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]


def _from_table(columns: Sequence[str], rows: Sequence[Row], read: Callable[[Path], Read]) -> Read:
    """What a reader of files makes of some rows; what people have typed cannot break its cells."""
    clean = str.maketrans({"|": "/", '"': "'", "\n": " ", "\r": " "})
    lines = ["|".join(columns), *("|".join(row[name].translate(clean) for name in columns) for row in rows)]
    with tempfile.TemporaryDirectory(prefix="autoscout-") as folder:
        path = Path(folder) / "table"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
        try:
            return read(path)
        except ConfigError as error:
            raise LiveError(error.faults) from error
