"""Results and traces as files: CSV always, parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np

from autosched.sim.result import Result
from autosched.sim.trace import Trace
from autoscout.core.errors import ConfigError, Fault, PluginError


def result_columns(result: Result) -> dict[str, Any]:
    """One row per job."""
    trace = result.trace
    return {
        "job_id": trace.job_id,
        "user": trace.user.texts(),
        "vc": trace.vc.texts(),
        "gpus": trace.gpus,
        "submit_s": trace.submit_s,
        "duration_s": trace.duration_s,
        "start_s": result.start_s,
        "end_s": result.end_s,
        "executed_s": result.executed_s,
        "preemptions": result.preemptions,
        "nodes": result.nodes,
        **result.extra,
    }


def trace_columns(trace: Trace) -> dict[str, Any]:
    """The columns of a plain trace file, which the format `plain` reads back."""
    return {
        "job_id": trace.job_id,
        "user": trace.user.texts(),
        "vc": trace.vc.texts(),
        "submit_time": trace.submit_s,
        "duration": trace.duration_s,
        "gpus": trace.gpus,
        "status": trace.status.texts(),
        "name": trace.name.texts(),
        "kind": trace.kind.texts(),
        **trace.extra,
    }


def write_table(columns: dict[str, Any], path: Path) -> None:
    """Write columns as `.csv`, `.csv.gz` or `.parquet`, by the name of the file.

    Raises:
        ConfigError: another kind of name.
        PluginError: parquet without pyarrow.
    """
    if path.suffix == ".parquet":
        _parquet(columns, path)
    elif path.name.endswith((".csv", ".csv.gz")):
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(_texts(np.asarray(column)) for column in columns.values()), strict=True))
        data = text.getvalue().encode()
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    else:
        raise ConfigError(Fault(where="output", value=str(path), rule="must end in .csv, .csv.gz or .parquet"))


def _texts(column: np.ndarray[Any, Any]) -> list[Any]:
    if column.dtype.kind != "f":
        return list(column.tolist())
    return ["" if value != value else int(value) if value == int(value) else value for value in column.tolist()]


def _parquet(columns: dict[str, Any], path: Path) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise PluginError(Fault(where=str(path), rule="parquet needs pyarrow", fix="pip install 'autoscout[sched]', or write .csv"))
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({name: np.asarray(column) for name, column in columns.items()}), path)
