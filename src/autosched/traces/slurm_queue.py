"""A cluster as Slurm sees it now: `squeue` or `sacct` as a snapshot to simulate from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autosched.kernel.records import Table, Vector
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace, check_columns
from autosched.traces.columns import TextTable, to_times
from autosched.traces.slurm_text import gpus_of, seconds_of
from autoscout.core.errors import ConfigError, Fault

COMMAND = 'squeue --all --states=RUNNING,PENDING --format="%i|%u|%P|%T|%V|%S|%M|%l|%b|%D|%N"'
UNKNOWN_S = 3_600.0  # work left of a job that has no time limit, or has outlived it
_SAME = {  # columns of sacct, and what squeue calls them
    "JobID": "JOBID", "User": "USER", "Partition": "PARTITION", "State": "STATE", "Submit": "SUBMIT_TIME", "Start": "START_TIME",
    "Elapsed": "TIME", "Timelimit": "TIME_LIMIT", "NNodes": "NODES", "AllocNodes": "NODES", "NodeList": "NODELIST", "GRES": "TRES_PER_NODE",
}  # fmt: skip
_HERE = ("RUNNING", "PENDING", "R", "PD", "COMPLETING", "SUSPENDED", "REQUEUED", "CONFIGURING")
_RUNS = ("RUNNING", "R", "COMPLETING")


def read_queue(path: Path, at_s: float, *, nodes: Sequence[str] = (), partitions: bool = False) -> Snapshot:
    """The jobs that run and wait, from the text of `squeue` (see `COMMAND`) or of `sacct --parsable2`.

    What is left of each job is its time limit less the time it has run: an upper bound. `Snapshot.with_remaining` takes what a predictor
    believes instead.

    Args:
        path: The file, columns separated by `|`.
        at_s: The moment at which it was written.
        nodes: Names of the nodes in the order of the cluster (`sinfo --noheader --Node --format=%N`); without them running jobs are
            placed anew.
        partitions: Whether partitions are virtual clusters with nodes of their own.

    Raises:
        ConfigError: columns are missing, or rows make no sense: all faults at once.
    """
    table = TextTable.read(path, delimiter="|")
    table.names = [_SAME.get(name, name) for name in table.names]
    table.values = {_SAME.get(name, name): column for name, column in table.values.items()}
    table.require("JOBID", "STATE", "SUBMIT_TIME")
    texts = table.text("AllocTRES" if "AllocTRES" in table.values else "ReqTRES")
    per_node = table.text("TRES_PER_NODE")
    if texts is None and per_node is None:
        rule = "GPUs cannot be known without TRES_PER_NODE (squeue) or ReqTRES (sacct)"
        raise ConfigError(Fault(where=f"{path}:1", field="TRES_PER_NODE", rule=rule, fix=COMMAND))
    count = np.maximum(1.0, np.nan_to_num(table.numbers("NODES"), nan=1.0)) if "NODES" in table.values else np.ones(len(table))
    requests = [gpus_of(text) for text in (texts if texts is not None else per_node or ())]
    gpus = np.asarray([number for number, _ in requests]) * (count if texts is None else 1.0)
    state = [text.split(" ")[0].split("+")[0].upper() for text in table.values["STATE"]]
    job_ids = table.values["JOBID"]
    rows_here = [i for i, job in enumerate(job_ids) if state[i] in _HERE and gpus[i] > 0 and "." not in job]

    def texts_of(name: str) -> list[str]:
        column = table.text(name)
        return ["" if column is None else column[i] for i in rows_here]

    ids = np.asarray(texts_of("JOBID"), np.str_)
    submit = table.times("SUBMIT_TIME")[rows_here]
    running = np.asarray([state[i] in _RUNS for i in rows_here], bool)
    executed = np.where(running, _executed(table, at_s)[rows_here], 0.0)
    limit = seconds_of(texts_of("TIME_LIMIT"))
    remaining_s = np.where(limit > executed, limit - executed, UNKNOWN_S)
    faults = check_columns(path.name, ids, submit, executed + remaining_s, gpus[rows_here], table.lines[rows_here])
    if (submit > at_s).any():
        rule = f"{int((submit > at_s).sum())} jobs were submitted after the moment of the snapshot"
        faults.append(Fault(where=path.name, field="SUBMIT_TIME", value=f"{at_s:.15g}", rule=rule, fix="Say when the file was written"))
    if faults:
        raise ConfigError(faults)
    order = np.argsort(submit, kind="stable")
    jobs = Trace.of(
        submit,
        executed + remaining_s,
        gpus[rows_here],
        job_id=ids,
        user=texts_of("USER"),
        vc=texts_of("PARTITION") if partitions else None,
        kind=[requests[i][1] for i in rows_here],
        extra={"estimate_s": np.where(limit > 0, limit, np.inf)},
        source=path.name,
        filters=(f"runs or waits, and asks for GPUs: {len(rows_here)} of {len(table)} jobs kept",),
    )
    lists = texts_of("NODELIST")
    rows = _where([lists[i] if running[i] else "" for i in order.tolist()], jobs.gpus, {name: number for number, name in enumerate(nodes)})
    return Snapshot(at_s=at_s, jobs=jobs, remaining_s=remaining_s[order], executed_s=executed[order], running=running[order], where=rows)


def _executed(table: TextTable, at_s: float) -> Vector:
    """Seconds each has run: what the table says, else since its start."""
    if "ElapsedRaw" in table.values:
        return np.nan_to_num(table.numbers("ElapsedRaw"))
    if "TIME" in table.values:
        return np.nan_to_num(seconds_of(table.values["TIME"]))
    table.require("START_TIME")
    return np.maximum(0.0, np.nan_to_num(at_s - to_times(table.values["START_TIME"])))


def node_names(text: str) -> list[str]:
    """The names of a node list: `gpu[01-03,7],login` is gpu01, gpu02, gpu03, gpu7 and login."""
    names: list[str] = []
    for part in re.findall(r"[^,\[\]]+(?:\[[^\]]*\])?[^,\[\]]*", text):
        match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
        if not match:
            names.append(part.strip())
            continue
        for span in match[2].split(","):
            first, dash, last = span.partition("-")
            if dash and first.isdigit() and last.isdigit() and int(last) - int(first) < 100_000:
                names += [f"{match[1]}{number:0{len(first)}d}{match[3]}" for number in range(int(first), int(last) + 1)]
            else:
                names.append(f"{match[1]}{span}{match[3]}")
    return [name for name in names if name]


def _where(lists: Sequence[str], gpus: Vector, numbers: dict[str, int]) -> Table:
    """Rows of (job, node, GPUs) for jobs whose nodes are known and share their GPUs equally."""
    rows = []
    for job, text in enumerate(lists):
        names = node_names(text)
        if names and all(name in numbers for name in names) and gpus[job] % len(names) == 0:
            rows += [(job, numbers[name], gpus[job] / len(names)) for name in names]
    return np.asarray(rows, np.float64).reshape(-1, 3)
