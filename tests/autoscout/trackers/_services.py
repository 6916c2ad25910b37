"""Trackers' own readers, and their servers on 127.0.0.1: what a tracker was shown is read back by whoever owns the format."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
START_S = 300.0
Row = tuple[int, str, Mapping[str, float]]
"""Number, status and metrics of a trial."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(words: list[str], health: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process group of its own, until the end of the block."""
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        until = time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(health, timeout=5).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise AssertionError((folder / "server.log").read_text()[-3000:]) from None
                time.sleep(0.2)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """A tracking server with a database and artifacts below a folder: its address."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    place = [f"--backend-store-uri=sqlite:///{folder}/mlflow.db", f"--artifacts-destination={folder}/artifacts"]
    words = [str(BIN / "mlflow"), "server", "--host=127.0.0.1", f"--port={port}", "--workers=1", *place]
    with serving(words, f"http://127.0.0.1:{port}/health", folder):
        yield f"http://127.0.0.1:{port}"


def ask(address: str, data: Any = None) -> Any:
    """A JSON answer of a REST API; with data a POST."""
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def mlflow_runs(address: str, experiment: str = "autoscout") -> list[dict[str, Any]]:
    """All runs of an experiment by the REST API, each with its parameters, metrics and tags as mappings."""
    api = f"{address}/api/2.0/mlflow"
    number = ask(f"{api}/experiments/get-by-name?experiment_name={experiment}")["experiment"]["experiment_id"]
    runs = ask(f"{api}/runs/search", {"experiment_ids": [number], "max_results": 1000}).get("runs", [])
    for run in runs:
        for part in ("params", "metrics", "tags"):
            run[part] = {one["key"]: one["value"] for one in run["data"].get(part, [])}
    return runs


def mlflow_rows(address: str, experiment: str) -> list[Row]:
    trials = [run for run in mlflow_runs(address, experiment) if "autoscout.trial" in run["tags"]]
    return [(int(run["tags"]["autoscout.trial"]), run["tags"]["status"], run["metrics"]) for run in trials]


def event_values(folder: Path) -> list[Any]:
    """All summary values in the event files of a folder, in order, by TensorBoard's loader."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    files = sorted(folder.glob("events.*"))
    return [value for file in files for event in LegacyEventFileLoader(str(file)).Load() for value in event.summary.value]


def tensorboard_rows(root: Path) -> list[Row]:
    rows = []
    for folder in (path for path in root.glob("*/*") if path.name.isdecimal()):
        values = event_values(folder)
        (text,) = [value.tensor.string_val[0].decode() for value in values if value.tag == "trial"]
        words = dict(line.removeprefix("- **").split("**: ", 1) for line in text.splitlines())
        metrics = {value.tag: value.simple_value for value in values if value.HasField("simple_value")}
        rows.append((int(folder.name), words["status"], metrics))
    return rows


def trackio_rows(project: str) -> list[Row]:
    from trackio.sqlite_storage import SQLiteStorage

    rows = []
    for record in SQLiteStorage.get_run_records(project):
        config = SQLiteStorage.get_run_config(project, run=record["name"], run_id=record["id"]) or {}
        if "autoscout_trial" in config:
            logs = SQLiteStorage.get_logs(project, run=record["name"], run_id=record["id"])
            metrics = {name: value for log in logs for name, value in log.items()}
            rows.append((int(config["autoscout_trial"]), str(config["status"]), metrics))
    return rows


def wandb_records(path: Path) -> Iterator[Any]:
    """The records in a `.wandb` file: a log in LevelDB's format of messages that wandb's own protocol declares."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, part = path.read_bytes(), 7, b""  # after its own seven bytes
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        part += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(part)
            part = b""
            yield record


def wandb_runs(folder: Path) -> dict[str, dict[str, Any]]:
    """Offline runs by their ids: configuration, summary, history, group and exit code."""
    runs: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        run = runs.setdefault(path.stem.removeprefix("run-"), {"config": {}, "summary": {}, "history": [], "group": "", "exit": None})
        for record in wandb_records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                run["group"] = record.run.run_group
                run["config"] |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "history":
                run["history"].append({".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item})
            elif kind == "summary":
                run["summary"] |= {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.summary.update}
            elif kind == "exit":
                run["exit"] = record.exit.exit_code
    return runs


def wandb_rows(folder: Path) -> list[Row]:
    rows = []
    for name, run in wandb_runs(folder).items():
        if "-" in name:
            rows.append((int(name.partition("-")[2]), str(run["summary"].get("status")), run["summary"]))
    return rows


def optuna_rows(file: Path) -> list[Row]:
    import optuna

    rows = []
    storage = optuna.storages.get_storage(f"sqlite:///{file}")
    for summary in optuna.get_all_study_summaries(storage):
        for trial in optuna.load_study(study_name=summary.study_name, storage=storage).trials:
            notes = trial.user_attrs
            metrics = {name: value for name, value in notes.items() if not name.startswith("autoscout.")}
            rows.append((notes["autoscout.trial"], notes["autoscout.status"], metrics))
    return rows
