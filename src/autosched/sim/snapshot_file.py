"""Snapshots as files: written whole, and checked before anything believes them."""

from __future__ import annotations

import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autosched.kernel import records
from autosched.kernel.place import CHAINED
from autosched.sim.part import Part
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Labels, Trace, check_columns
from autoscout.common.fields import refuse_if
from autoscout.common.files import write_whole
from autoscout.core.errors import ConfigError, Fault

FORMAT = "autoscout snapshot 1"
SUFFIX = ".npz"
_LABELS = ("user", "vc", "status", "name", "kind")
_COLUMNS = ("submit_s", "duration_s", "gpus")
_PART = (
    "rows", "job", "node", "cluster", "active", "where", "shares", "recent", "memory", "own", "name", "moves", "params", "options",
)  # fmt: skip
_RECORDS = {"job": records.JOB, "node": records.NODE, "cluster": records.CLUSTER, "options": records.OPTIONS}
_TABLES = {"where": 4, "moves": 2}  # columns
MOST_BYTES = 2**30
"""Of all arrays together: millions of jobs have a tenth of it."""
_BROKEN = (
    OSError, ValueError, KeyError, IndexError, TypeError, EOFError, AttributeError, RuntimeError, MemoryError, OverflowError,
    zipfile.BadZipFile, zlib.error, SyntaxError,
)  # fmt: skip
"""What reading a damaged file raises."""
_FINITE = ("status", "gpus", "remaining_s", "executed_s", "since_s", "rate", "submit_s", "work_s", "start_s", "end_s", "fewest")


def write_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot as one file, `.npz`.

    Raises:
        ConfigError: another kind of name.
    """
    if path.suffix != SUFFIX:
        raise ConfigError(Fault(where="snapshot", value=str(path), rule=f"the name of its file must end in {SUFFIX}"))
    jobs = snapshot.jobs
    arrays: dict[str, NDArray[Any]] = {
        "job_id": jobs.job_id,
        **{name: getattr(jobs, name) for name in _COLUMNS},
        **{f"{name}_codes": getattr(jobs, name).codes for name in _LABELS},
        **{f"extra.{name}": column for name, column in jobs.extra.items()},
        **{f"result.{name}": column for name, column in snapshot.extra.items()},
        **{name: getattr(snapshot, name) for name in ("remaining_s", "executed_s", "running", "where")},
    }
    parts = [*(snapshot.parts or {}).values(), *([] if snapshot.profiler is None else [snapshot.profiler])]
    for number, part in enumerate(parts):
        arrays |= {f"part{number}.{name}": getattr(part, name) for name in _PART}
    about = {
        "format": FORMAT,
        "at_s": snapshot.at_s,
        "origin_s": snapshot.origin_s,
        "labels": {name: getattr(jobs, name).names for name in _LABELS},
        "source": jobs.source,
        "whole": snapshot.parts is not None,
        "parts": [[part.vc, part.policy] for part in parts],
        "front": snapshot.profiler is not None,
        "lent": snapshot.lent,
    }
    with io.BytesIO() as file:
        np.savez_compressed(file, about=np.asarray(json.dumps(about)), **arrays)  # type: ignore[arg-type]
        write_whole(path, file.getvalue())


def read_snapshot(path: Path) -> Snapshot:
    """Read what `write_snapshot` wrote.

    Raises:
        ConfigError: it is no such file, or what it says cannot be: all faults at once.
    """
    try:
        refuse_if(_size_faults(path))
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: _as_records(file[name]) for name in file.files}
        about = json.loads(str(arrays.pop("about")))
        if about["format"] != FORMAT:
            raise ConfigError(Fault(where=str(path), value=str(about["format"])[:80], rule=f"must be {FORMAT}", fix="Write it anew"))
        snapshot, faults = _built(about, arrays, path)
    except ConfigError:
        raise
    except _BROKEN as error:
        rule = f"cannot be read as a snapshot: {type(error).__name__}: {str(error)[:200]}"
        fix = "Write it with `autoscout sched simulate --until T --keep FILE`"
        raise ConfigError(Fault(where=str(path), rule=rule, fix=fix)) from error
    if faults:
        raise ConfigError([replace(fault, where=f"{path}: {fault.where}") for fault in faults])
    return snapshot


def _size_faults(path: Path) -> list[Fault]:
    """Arrays that are larger than a snapshot can be, or than the file says that it holds: found before any is read."""
    faults: list[Fault] = []
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        whole = sum(member.file_size for member in members)
        if whole > MOST_BYTES:
            rule = f"a snapshot holds at most {MOST_BYTES // 2**20:,} MiB, this one {whole // 2**20:,}"
            return [Fault(where=str(path), rule=rule, fix="Write it with `autoscout sched simulate --until T --keep FILE`")]
        for member in members:
            with archive.open(member) as opened:
                version = np.lib.format.read_magic(opened)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, kind = read(opened)
            if math.prod(shape) * kind.itemsize > member.file_size:
                rule = f"{member.filename[:80]} says that it has {math.prod(shape):,} entries, and the file has fewer"
                faults.append(Fault(where=str(path), rule=rule, fix="Write it with `autoscout sched simulate --until T --keep FILE`"))
    return faults


def _as_records(array: NDArray[Any]) -> NDArray[Any]:
    """Records whose fields can be read by name in plain Python too, as they were written."""
    if not array.dtype.names:
        return array
    same = [kind for kind in _RECORDS.values() if kind.names == array.dtype.names and kind.itemsize == array.dtype.itemsize]
    return array.view(same[0] if same else np.dtype((np.record, array.dtype.descr)))


def _built(about: dict[str, Any], arrays: dict[str, NDArray[Any]], path: Path) -> tuple[Snapshot, list[Fault]]:
    labels = {name: Labels(arrays[f"{name}_codes"].astype(np.int64), tuple(about["labels"][name])) for name in _LABELS}
    columns = {name: arrays[name].astype(np.float64) for name in _COLUMNS}
    ids = arrays["job_id"].astype(np.str_)
    faults = _length_faults(ids, arrays, labels)
    if not faults:
        faults = check_columns("jobs", ids, columns["submit_s"], columns["duration_s"], columns["gpus"])
    parts = []
    for number, (vc, policy) in enumerate(about["parts"]):
        columns_of_part: dict[str, Any] = {name: arrays[f"part{number}.{name}"] for name in _PART}
        wrong = _part_faults(vc or "part", columns_of_part, len(ids), lends=about["front"] and number == len(about["parts"]) - 1)
        faults += wrong
        if not wrong:
            parts.append(Part(vc=str(vc), policy=str(policy), origin_s=float(about["origin_s"]), **columns_of_part))
    if faults:
        raise ConfigError([replace(fault, where=f"{path}: {fault.where}") for fault in faults])
    extra = {name.removeprefix("extra."): column for name, column in arrays.items() if name.startswith("extra.")}
    trace = Trace(job_id=ids, extra=extra, source=str(about["source"]), **columns, **labels)  # type: ignore[arg-type]
    profiler = parts.pop() if about["front"] else None
    return (
        Snapshot(
            at_s=float(about["at_s"]),
            origin_s=float(about["origin_s"]),
            jobs=trace,
            **{name: arrays[name] for name in ("remaining_s", "executed_s", "running", "where")},
            parts={part.vc: part for part in parts} if about["whole"] else None,
            profiler=profiler,
            lent=tuple((str(vc), int(number)) for vc, number in about["lent"]),
            extra={name.removeprefix("result."): column for name, column in arrays.items() if name.startswith("result.")},
        ),
        faults,
    )


def _length_faults(ids: NDArray[np.str_], arrays: Mapping[str, NDArray[Any]], labels: Mapping[str, Labels]) -> list[Fault]:
    faults = []
    per_job = [*_COLUMNS, "remaining_s", "executed_s", "running", *(name for name in arrays if name.startswith(("extra.", "result.")))]
    short = [name for name in per_job if arrays[name].shape != (len(ids),)]
    short += [name for name, label in labels.items() if label.codes.shape != (len(ids),)]
    if short:
        faults.append(Fault(where="jobs", field=", ".join(short[:5]), rule=f"must have {len(ids)} values, one per job"))
    for name, label in labels.items():
        if len(label.codes) and not (label.codes.min() >= 0 and label.codes.max() < len(label.names)):
            faults.append(Fault(where="jobs", field=name, rule="a code stands for no label"))
    return faults


def _part_faults(where: str, columns: Mapping[str, NDArray[Any]], jobs: int, lends: bool) -> list[Fault]:
    """Everything that cannot be in the state of a virtual cluster, one fault per rule."""
    faults: list[Fault] = []

    def rule(name: str, ok: bool | np.bool_, text: str) -> bool:
        if not ok:
            faults.append(Fault(where=where, field=name, rule=text))
        return bool(ok)

    strange = [name for name, kind in _RECORDS.items() if columns[name].dtype != kind]
    if not rule(", ".join(strange), not strange, "has other fields than this version of AutoScout writes"):
        return faults
    job, node, active, cluster = (columns[name] for name in ("job", "node", "active", "cluster"))
    lengths = {"rows": len(job), "own": len(job), "active": len(job), "cluster": 1, "options": 1, "name": len(node), "shares": len(node)}
    for name, length in lengths.items():
        rule(name, columns[name].ndim >= 1 and len(columns[name]) == length, f"must have {length} rows")
    for name, width in _TABLES.items():
        rule(name, columns[name].ndim == 2 and columns[name].shape[1] == width, f"must have {width} columns")
    rule("recent", columns["recent"].shape == (records.RECENT,), f"must have {records.RECENT} values")
    rule("shares", columns["shares"].ndim == 2, "must be a table")
    if faults:
        return faults
    for name in _FINITE:
        rule(f"job.{name}", np.isfinite(job[name]).all(), "must be numbers")
    unknown = [name for name in job.dtype.names or () if np.isnan(job[name]).any()]
    rule(", ".join(f"job.{name}" for name in unknown[:5]), not unknown, "must not be not-a-number")
    rule("rows", _is_distinct(columns["rows"], jobs), "must be numbers of jobs, each once")
    rule("job.status", np.isin(job["status"], (records.ABSENT, records.PENDING, records.RUNNING, records.ENDED)).all(), "is none")
    rule("job.gpus", (job["gpus"] > 0).all(), "must be above zero")
    rule("job.rate", (job["rate"] > 0).all(), "must be above zero")
    rule("job.remaining_s", (job["remaining_s"] >= 0).all() and (job["executed_s"] >= 0).all(), "must not be negative, nor executed_s")
    present = int(cluster["present"][0])
    if rule("cluster.present", 0 <= present <= len(job), "is more than there are jobs"):
        rule("active", _is_distinct(active[:present], len(job)), "must be numbers of jobs, each once")
    rule("cluster.arrived", 0 <= cluster["arrived"][0] <= len(job), "is more than there are jobs")
    rule("cluster", not any(np.isnan(cluster[name][0]) for name in cluster.dtype.names or ()), "must not be not-a-number")
    rule("node", all(np.isfinite(node[name]).all() for name in node.dtype.names or ()), "must be numbers")
    rule("memory, params, recent", all(not np.isnan(columns[name]).any() for name in ("memory", "params", "recent")), "must be numbers")
    if not faults:
        _allocation_faults(columns, rule, lends)
    return faults


def _is_distinct(numbers: NDArray[Any], limit: int) -> bool:
    inside = numbers.dtype.kind == "i" and bool(((numbers >= 0) & (numbers < limit)).all())
    return inside and len(np.unique(numbers)) == len(numbers)


def _allocation_faults(columns: Mapping[str, NDArray[Any]], rule: Any, lends: bool) -> None:
    job, node, held = columns["job"], columns["node"], columns["where"]
    whole = np.isfinite(held).all() and (held[:, :2] == np.floor(held[:, :2])).all()
    inside = whole and ((held[:, 0] >= 0) & (held[:, 0] < len(job)) & (held[:, 1] >= 0) & (held[:, 1] < len(node)) & (held[:, 2] > 0)).all()
    if not rule("where", inside, "must name jobs, nodes and GPUs"):
        return
    who, nodes = held[:, 0].astype(np.int64), held[:, 1].astype(np.int64)
    rule("where", (job["status"][who] == records.RUNNING).all(), "gives GPUs to jobs that do not run")
    slots = held[:, 3]
    rule("where", ((slots == CHAINED) | ((slots >= -1) & (slots < columns["shares"].shape[1]))).all(), "names GPUs that are not there")
    full = job["gpus"][who] >= 1
    used = np.bincount(nodes[full], weights=held[full, 2], minlength=len(node)) + node["shared"]
    own = slice(0, len(node) - 1 if lends else len(node))  # the last node of a profiler may not be there
    rule("node.free", np.allclose((node["free"] + used)[own], node["gpus"][own], atol=1e-6), "does not go with who holds which GPUs")
