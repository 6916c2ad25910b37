"""`autoscout doctor`: what works here, and what is missing."""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from autoscout import __version__
from autoscout.cli import options
from autoscout.common.gpus import read_gpus
from autoscout.common.leases import holder, lease_folder
from autoscout.core import plugins

_ENGINES = ("vllm", "sglang")
"""Backends whose engine is a program of its own."""


def doctor(as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False) -> None:
    """Say which plug-ins load and why others do not, and what this machine offers."""
    machine, gpus = _machine(), _gpus()
    states = [_state(kind, name) for kind in plugins.kinds() for name in plugins.available(kind)]
    if as_json:
        options.emit({"autoscout": __version__, "machine": machine, "gpus": gpus, "plugins": [vars(state) for state in states]})
        return
    out = options.console
    out.print(f"autoscout {__version__}", highlight=False)
    for name, value in machine.items():
        out.print(f"  {name}: {value}", highlight=False, markup=False, soft_wrap=True)
    for gpu in gpus:
        who = [f"leased by {gpu['leased_by']}"] if gpu["leased_by"] else []
        who += [f"used by pid {each['pid']} ({each['name']}, {each['memory_gb']:.3g} GB)" for each in gpu["processes"]]
        line = f"  GPU {gpu['index']}: {gpu['name']}, {gpu['free_gb']:.3g} of {gpu['total_gb']:.3g} GB free, {gpu['utilisation']:.0%} busy"
        out.print("; ".join([line, *who]), highlight=False, markup=False, soft_wrap=True)
    table = Table()
    for column in ("kind", "name", "state", "what it is, or what is missing"):
        table.add_column(column)
    for state in states:
        table.add_row(
            state.kind,
            state.name,
            "[yellow]missing[/yellow]" if not state.usable else "[yellow]no engine[/yellow]" if state.why else "ok",
            escape(state.why or state.summary),
        )
    out.print(table)


def _machine() -> dict[str, Any]:
    pressure = Path("/proc/pressure/cpu")
    disk = shutil.disk_usage(Path.cwd())
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "numba": _package("numba", "schedulers are simulated some hundred times slower: pip install 'autoscout[sched]'"),
        "pyarrow": _package("pyarrow", "no parquet files: pip install 'autoscout[sched]'"),
        "nvidia-ml-py": _package("nvidia-ml-py", "nvidia-smi is asked who uses the GPUs, more slowly: pip install 'autoscout[gpu]'"),
        **{name: _engine(name) or _absent(name) for name in _ENGINES},
        "nvidia-smi": shutil.which("nvidia-smi") or "not found",
        "cpu pressure": "readable" if pressure.exists() else "not available: contention is judged by CPU time alone",
        "disk free here": f"{disk.free / 2**30:.1f} GiB",
    }


def _gpus() -> list[dict[str, Any]]:
    """Each GPU with the processes on it and the study that leases it."""
    readings = read_gpus()
    folder = lease_folder() if readings else None
    leases = {gpu.uuid: holder(folder, gpu.uuid) if folder else None for gpu in readings}
    return [{**dataclasses.asdict(gpu), "leased_by": str(leases[gpu.uuid] or "")} for gpu in readings]


def _state(kind: str, name: str) -> plugins.Health:
    """Whether a plug-in can be used here; a backend without its engine loads, and cannot start anything on this machine."""
    state = plugins.health(kind, name)
    has_no_engine = kind == "backend" and name in _ENGINES and state.usable and not _engine(name)
    return dataclasses.replace(state, why=f"{state.summary} {_absent(name).capitalize()}") if has_no_engine else state


def _engine(name: str) -> str:
    """The version of an engine, or where its program lies; empty where it is not installed."""
    kind: Any = plugins.get("backend", name)
    return str(kind.engine.installed()) or shutil.which(name) or ""


def _absent(name: str) -> str:
    return f"not found: `autoscout tune {name}` needs it, or -w engine_command=... that starts one elsewhere"


def _package(name: str, without: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"not installed: {without}"
