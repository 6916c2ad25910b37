"""Tables from files.

Three formats are read:

- a folder with `manifest.json` and one `NAME.parquet` (or `NAME.csv`) per entry: one column per parameter plus `value`, empty
  where the configuration failed;
- results of Kernel Tuner and its kin in the T4 format (`*.json`, `*.json.gz`);
- `trials.jsonl` of a past study, or the result folder that holds one.

Whatever the format, the space of a table is the list of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from autoscout.common.document import load, load_json
from autoscout.core.errors import ConfigError, Fault, StoreError
from autoscout.core.journal import NAME as JOURNAL
from autoscout.core.journal import read_trials
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Status
from autoscout.study.folder import Folder
from autoscout.study.stores import open_store
from autoscout_lab.bench import columns as _columns
from autoscout_lab.bench.table import Table, task_of

MANIFEST = "manifest.json"
_T4_STATUS = {"compile": Status.INVALID, "constraints": Status.INVALID, "runtime": Status.CRASHED, "timeout": Status.TIMEOUT}
_ENDINGS = (".json", ".json.gz")
_RATES = ("flop", "throughput", "bandwidth", "/s", "per_s")
"""T4 does not say which way is better: objectives whose names hold one of these are rates, and rates are maximised."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a table comes from; small, so that it can be sent to other processes."""

    name: str
    path: str
    kind: str  # manifest, t4, trials
    tasks: str = ""  # a file that describes tasks by the names of their tables; next to what `tasks.json` in the folder says


def find_tables(target: str, only: Iterable[str] = (), tasks: str = "") -> list[Source]:
    """The tables of a folder or a file.

    Args:
        target: Where to look.
        only: Keep these names only.
        tasks: A file as `tasks.json`, for tables in a folder that has none or cannot be written; it is believed first.

    Raises:
        ConfigError: nothing is there, or a wanted name is not, or `tasks` does not describe tasks.
    """
    if tasks:
        _tasks(Path(tasks))
    sources = [replace(source, tasks=tasks) for source in _on_disk(Path(target))]
    names = list(only)
    missing = [name for name in names if name not in {source.name for source in sources}]
    if missing or not sources:
        listed = ", ".join(source.name for source in sources) or "none"
        rule = f"no such table; there are: {listed}" if missing else "no tables here"
        fix = "Give a folder with manifest.json, T4 JSON files or a trials.jsonl"
        raise ConfigError(Fault(where=target, value=", ".join(missing), rule=rule, fix=fix))
    return [source for source in sources if not names or source.name in names]


def _on_disk(path: Path) -> list[Source]:
    if path.is_dir() and (path / MANIFEST).is_file():
        return [Source(name=name, path=str(path), kind="manifest") for name in _manifest(path)]
    if path.is_dir() and (path / JOURNAL).is_file():
        return [Source(name=path.name, path=str(path / JOURNAL), kind="trials")]
    files = sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
    sources = []
    for file in files:
        if file.name.endswith(_ENDINGS):
            sources.append(Source(name=file.name.split(".")[0], path=str(file), kind="t4"))
        elif file.name.endswith(".jsonl"):
            sources.append(Source(name=file.stem, path=str(file), kind="trials"))
        elif file.is_dir() and (file / JOURNAL).is_file():
            sources.append(Source(name=file.name, path=str(file / JOURNAL), kind="trials"))
    return sources


@lru_cache(maxsize=32)
def load_table(source: Source) -> Table:
    """Read a table; the last ones stay in memory.

    Raises:
        ConfigError: the file is not what it should be, with all faults found.
    """
    path, facts = Path(source.path), _facts(source)
    if source.kind == "manifest":
        return _from_manifest(path, source.name, facts)
    return _from_t4(path, source.name, facts) if source.kind == "t4" else _from_trials(path, source.name, facts)


def _read_json(path: Path) -> Any:
    return load_json(path)


def _manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries of a manifest, by the names of their tables."""
    entries = load_json(folder / MANIFEST)
    faults: list[Fault] = []
    for name, entry in entries.items() if isinstance(entries, dict) else [("", None)]:
        params = entry.get("params") if isinstance(entry, dict) else None
        if not isinstance(params, list) or not all(_is_param(item) for item in params):
            rule = "must map names of tables to {params: [{name, kind, values}, ...]}"
            faults.append(Fault(where=str(folder / MANIFEST), field=name, value=repr(entry), rule=rule))
    if faults:
        raise ConfigError(faults)
    return entries  # type: ignore[no-any-return]


def _is_param(item: object) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("name"), str)
        and isinstance(item.get("kind"), str)
        and isinstance(item.get("values"), list)
        and bool(item["values"])
        and all(value is None or isinstance(value, (bool, int, float, str)) for value in item["values"])
        and isinstance(item.get("when") or {}, dict)
        and all(isinstance(allowed, list) for allowed in (item.get("when") or {}).values())
    )


def _from_manifest(folder: Path, name: str, facts: dict[str, object]) -> Table:
    entry = _manifest(folder)[name]
    parquet, text = folder / f"{name}.parquet", folder / f"{name}.csv"
    file = parquet if parquet.is_file() or not text.is_file() else text
    columns = _columns.read_parquet(file) if file is parquet else _columns.read_csv(file)
    return _columns.build(name, entry, columns, str(file), workload=facts)


def _tasks(file: Path) -> Mapping[str, Mapping[str, Any]]:
    """What a file says of tasks, by the names of their tables.

    Raises:
        ConfigError: it cannot be read, or maps names to something else.
    """
    tasks = _read_json(file)
    entries = tasks if isinstance(tasks, Mapping) else {"": tasks}
    faults = [
        Fault(where=str(file), field=str(name), value=repr(entry)[:80], rule="must map names of tables to facts about each")
        for name, entry in entries.items()
        if not isinstance(entry, Mapping)
    ]
    if faults:
        raise ConfigError(faults)
    return entries


def _facts(source: Source) -> dict[str, object]:
    """What is known of the task of a table: sections are flattened into facts besides, for those are compared between tasks."""
    nearby = Path(source.path) / "tasks.json" if source.kind == "manifest" else Path(source.path).parent / "tasks.json"
    files = [*([nearby] if nearby.is_file() else []), *([Path(source.tasks)] if source.tasks else [])]
    facts: dict[str, object] = {}
    for file in files:
        for key, value in _tasks(file).get(source.name, {}).items():
            facts |= {str(inner): item for inner, item in value.items()} if isinstance(value, Mapping) else {}
            facts[key] = dict(value) if isinstance(value, Mapping) else value
    return facts


def _from_t4(path: Path, name: str, facts: dict[str, object]) -> Table:
    data = _read_json(path)
    results = data.get("results") if isinstance(data, dict) else None
    if not isinstance(results, list) or not results:
        raise ConfigError(Fault(where=str(path), rule="not T4: a non-empty list `results` is wanted", fix="Use Kernel Tuner's T4 output"))
    rows: list[Mapping[str, Any]] = []
    values: list[float | None] = []
    statuses: list[Status] = []
    strange = [number for number, result in enumerate(results) if not _is_result(result)]
    if strange:
        rule = "a result of T4 has a `configuration` of plain values, `objectives` and `measurements` with name and value"
        raise ConfigError(
            [Fault(where=str(path), field=f"results[{number}]", value=repr(results[number]), rule=rule) for number in strange]
        )
    for result in results:
        good = result.get("invalidity", "correct") == "correct" and result.get("correctness", 1)
        metric = (result.get("objectives") or ["time"])[0]
        measured = {item["name"]: item["value"] for item in result.get("measurements") or ()}
        value = measured.get(metric)
        number = (
            float(value) if good and isinstance(value, (int, float)) and -1e300 < value < 1e19 else None
        )  # 1e20 is Kernel Tuner's failure
        rows.append(result["configuration"])
        values.append(number)
        statuses.append(_T4_STATUS.get(str(result.get("invalidity", "")), Status.CRASHED))
    unit = next((str(item.get("unit", "")) for item in results[-1].get("measurements") or () if item["name"] == metric), "")
    direction = Direction.MAXIMIZE if any(part in metric.lower() for part in _RATES) else Direction.MINIMIZE
    return _columns.from_rows(name, rows, values, statuses, where=str(path), task=task_of(name, direction, facts), unit=unit)


def _is_result(result: object) -> bool:
    if not isinstance(result, dict) or not isinstance(result.get("configuration"), dict):
        return False
    plain = all(value is None or isinstance(value, (bool, int, float, str)) for value in result["configuration"].values())
    objectives, measurements = result.get("objectives") or ["time"], result.get("measurements") or []
    named = isinstance(objectives, list) and all(isinstance(name, str) for name in objectives)
    return (
        plain
        and named
        and isinstance(measurements, list)
        and all(isinstance(item, dict) and isinstance(item.get("name"), str) and "value" in item for item in measurements)
    )


def _from_trials(path: Path, name: str, facts: dict[str, object]) -> Table:
    direction, metric = "minimize", None
    campaign = path.parent / "campaign.yaml"
    if campaign.is_file():
        asked = load(campaign).value
        goal = asked.get("goal") if isinstance(asked, Mapping) else None
        if isinstance(goal, Mapping):
            direction, metric = goal.get("direction") or "minimize", str(goal["metric"]) if goal.get("metric") else None
    best: dict[str, tuple[int, Any]] = {}
    trials = read_trials(path)
    for trial in trials:  # the most trusted answer to each configuration, the first of equals
        earlier = best.get(trial.config.canonical)
        if trial.measurement.status is not Status.ABORTED and (earlier is None or trial.measurement.fidelity > earlier[0]):
            best[trial.config.canonical] = (int(trial.measurement.fidelity), trial)
    trusted = [trial for _, trial in best.values()]
    if metric is None:
        metric = next((key for trial in trusted for key in trial.measurement.metrics), "value")
    rows = [trial.config for trial in trusted]
    values = [trial.measurement.metrics.get(metric) if trial.ok else None for trial in trusted]
    statuses = [trial.measurement.status for trial in trusted]
    way = Direction.MAXIMIZE if direction == "maximize" else Direction.MINIMIZE
    task, studied = task_of(name, way, facts), _studied(path.parent)
    if studied is not None and not facts:
        task = replace(studied, objective=Objective(metric=metric, direction=way))
    return _columns.from_rows(name, rows, values, statuses, where=str(path), task=task, unit=str(metric))


def _studied(folder: Path) -> Task | None:
    """The task of the study in a result folder, as its store keeps it; None where there is no such store."""
    if not Folder(folder).store.is_file():
        return None
    with suppress(StoreError), closing(open_store(Folder(folder).store, create=False)) as store:
        records = store.studies()
        return records[0].task if len(records) == 1 else None
    return None
