"""Tracker `trackio`: a local database, a run for the study and one for each trial, together in a group."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.core.tracker import TrackedResult, TrackedStudy, TrackedTrial, Tracker
from autoscout.trackers._shared.files import write_files

KEY, NUMBER, WHOLE = "autoscout_study", "autoscout_trial", "autoscout_whole"
"""Entries of a run's configuration by which it is found again, and the metric that says that it is whole."""


@dataclass(frozen=True, kw_only=True)
class TrackioOptions:
    """Where the runs go: the database of a project in trackio's own folder (TRACKIO_DIR).

    Attributes:
        project: Name of the project.
    """

    project: str = "autoscout"


class TrackioTracker(Tracker):
    """Trackio: a run for the study and one for each trial, in its local database."""

    requires = ("trackio",)

    def __init__(self, options: TrackioOptions | None = None) -> None:
        self._project = (options or TrackioOptions()).project
        self._study: TrackedStudy | None = None

    def begin(self, study: TrackedStudy) -> str:
        self._study = study
        return f"trackio show --project {self._project}"

    def sent(self) -> Collection[int]:
        numbers = set()
        for record in self._records():
            number = record["config"].get(NUMBER)
            if number is not None and WHOLE in record["metrics"]:
                numbers.add(int(number))
        return numbers

    def add(self, trial: TrackedTrial) -> None:
        assert self._study is not None
        self._forget(trial.number)
        rows: list[tuple[dict[str, Any], int]] = []
        for step in range(max(map(len, trial.samples.values()), default=0)):
            rows.append(({f"samples/{name}": values[step] for name, values in trial.samples.items() if step < len(values)}, step))
        best = {f"best/{name}": value for name, value in trial.best.items()}
        rows.append(({**trial.metrics, **best, WHOLE: 1}, trial.number))
        config = {**trial.config, "status": trial.status.value, **trial.notes, NUMBER: trial.number}
        self._write(f"{self._study.name} {trial.name}", config, rows)

    def end(self, result: TrackedResult) -> None:
        assert self._study is not None
        self._forget(None)
        config = {**self._study.settings, **result.notes, "state": result.state.value}
        rows = [({**{f"result/{name}": value for name, value in result.metrics.items()}, WHOLE: 1}, 0)]
        self._write(self._study.name, config, rows, result.files)

    def _write(
        self, name: str, config: Mapping[str, Any], rows: Iterable[tuple[dict[str, Any], int]], files: Mapping[str, str] | None = None
    ) -> None:
        import trackio

        assert self._study is not None
        run = trackio.init(
            project=self._project,
            name=name,
            group=self._study.key,
            config={**config, KEY: self._study.key},
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        for metrics, step in rows:
            run.log(metrics, step=step)
        if files:
            with tempfile.TemporaryDirectory(prefix="autoscout-") as folder:
                write_files(Path(folder), files)
                run.log_artifact(folder, name=f"study-{self._study.key}", type="study")
        trackio.finish()

    def _records(self) -> list[dict[str, Any]]:
        """The runs of the study that there are, with their configurations and names of metrics."""
        from trackio.sqlite_storage import SQLiteStorage

        assert self._study is not None
        records = []
        for record in SQLiteStorage.get_run_records(self._project):
            which = {"run": record["name"], "run_id": record["id"]}
            config = SQLiteStorage.get_run_config(self._project, **which) or {}
            if config.get(KEY) == self._study.key:
                records.append({**which, "config": config, "metrics": SQLiteStorage.get_all_metrics_for_run(self._project, **which)})
        return records

    def _forget(self, number: int | None) -> None:
        """Remove what there is of a trial, or of the study itself: trackio adds to a run what it has already."""
        from trackio.sqlite_storage import SQLiteStorage

        for record in self._records():
            if record["config"].get(NUMBER) == number:
                SQLiteStorage.delete_run(self._project, record["run"], run_id=record["run_id"])


__all__ = ["TrackioTracker"]
