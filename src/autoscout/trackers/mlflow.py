"""Tracker `mlflow`: a run for the study, and a child run for each trial."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.core.state import State
from autoscout.core.tracker import NAME_CHARS, TEXT_CHARS, TrackedResult, TrackedStudy, TrackedTrial, Tracker
from autoscout.core.trial import Status
from autoscout.trackers._shared.files import write_files

KEY, NUMBER = "autoscout.study", "autoscout.trial"
"""Tags by which runs are found again."""
MOST_METRICS, MOST_PARAMS = 800, 100
"""In one request; the server takes 1,000 of all, and of parameters and tags 100 each."""
PAGE = 1_000
_ODD = re.compile(r"[^\w. :/-]", re.ASCII)
_STATES = {State.FINISHED: "FINISHED", State.FAILED: "FAILED", State.INTERRUPTED: "KILLED", State.DEAD: "KILLED"}


@dataclass(frozen=True, kw_only=True)
class MlflowOptions:
    """Where the runs go.

    Attributes:
        uri: Address of the tracking server, or what else MLflow takes; as MLFLOW_TRACKING_URI says when empty.
        experiment: Name of the experiment, which is made where there is none.
    """

    uri: str = ""
    experiment: str = "autoscout"


class MlflowTracker(Tracker):
    """MLflow: a run for the study, a child run for each trial, report and hand-over as artifacts."""

    requires = ("mlflow",)

    def __init__(self, options: MlflowOptions | None = None) -> None:
        self._options = options or MlflowOptions()
        self._client: Any = None
        self._experiment = self._parent = ""
        self._study: TrackedStudy | None = None
        self._open: dict[int, str] = {}

    def begin(self, study: TrackedStudy) -> str:
        import mlflow

        client = mlflow.MlflowClient(tracking_uri=self._options.uri or None)
        name = self._options.experiment
        experiment = client.get_experiment_by_name(name)
        self._experiment = experiment.experiment_id if experiment else client.create_experiment(name)
        self._client, self._study = client, study
        runs = [run for run in self._runs() if NUMBER not in run.data.tags]
        if runs:
            self._parent = runs[0].info.run_id
            client.update_run(self._parent, status="RUNNING")
        else:
            tags = {KEY: study.key, "autoscout.system": study.system}
            begun_ms = _ms(study.begun_s)
            self._parent = client.create_run(self._experiment, start_time=begun_ms, tags=tags, run_name=study.name).info.run_id
        self._log(self._parent, params=_texts(study.settings, but=set(runs[0].data.params) if runs else ()))
        return f"{client.tracking_uri.rstrip('/')}/#/experiments/{self._experiment}/runs/{self._parent}"

    def sent(self) -> Collection[int]:
        numbers = set()
        for run in self._runs():
            if NUMBER in run.data.tags:
                number = int(run.data.tags[NUMBER])
                numbers |= {number} if run.info.status != "RUNNING" else set()
                self._open |= {number: run.info.run_id} if run.info.status == "RUNNING" else {}
        return numbers

    def add(self, trial: TrackedTrial) -> None:
        assert self._study is not None
        run = self._open.get(trial.number)
        if run is None:
            tags = {KEY: self._study.key, NUMBER: str(trial.number), "mlflow.parentRunId": self._parent}
            new = self._client.create_run(self._experiment, start_time=_ms(trial.begun_s), tags=tags, run_name=trial.name)
            run = self._open[trial.number] = new.info.run_id
        rows = [(name, value, trial.ended_s, 0) for name, value in trial.metrics.items()]
        rows += [
            (f"samples/{name}", value, trial.ended_s, step) for name, values in trial.samples.items() for step, value in enumerate(values)
        ]
        self._log(run, params=_texts(trial.config), metrics=rows, tags=_texts({"status": trial.status.value, **trial.notes}))
        curves = {**trial.goals, **{f"best/{name}": value for name, value in trial.best.items()}}
        self._log(self._parent, metrics=[(name, value, trial.ended_s, trial.number) for name, value in curves.items()])
        status = "FINISHED" if trial.status is Status.OK else "KILLED" if trial.status is Status.BOUNDED else "FAILED"
        self._client.set_terminated(run, status=status, end_time=_ms(trial.ended_s))

    def end(self, result: TrackedResult) -> None:
        metrics = [(f"result/{name}", value, result.ended_s, 0) for name, value in result.metrics.items()]
        self._log(self._parent, metrics=metrics, tags=_texts({"state": result.state.value, **result.notes}))
        with tempfile.TemporaryDirectory(prefix="autoscout-") as folder:
            write_files(Path(folder), result.files)
            self._client.log_artifacts(self._parent, folder)
        self._client.set_terminated(self._parent, status=_STATES.get(result.state, "FINISHED"))

    def _runs(self) -> list[Any]:
        """All runs of the study, the oldest first."""
        assert self._study is not None
        runs: list[Any] = []
        token = None
        while True:
            where = f"tags.`{KEY}` = '{self._study.key}'"
            page = self._client.search_runs(
                [self._experiment], filter_string=where, max_results=PAGE, order_by=["attributes.start_time ASC"], page_token=token
            )
            runs += page
            token = page.token
            if not token:
                return runs

    def _log(
        self,
        run: str,
        params: Mapping[str, str] | None = None,
        metrics: Iterable[tuple[str, float, float, int]] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        settings = [Param(name, text) for name, text in (params or {}).items()]
        rows = [Metric(_name(name), value, _ms(at_s), step) for name, value, at_s, step in metrics]
        words = [RunTag(name, text) for name, text in (tags or {}).items()]
        for step in range(0, max(len(settings), len(words), 1), MOST_PARAMS):  # of a trial usually one request
            now = slice(step, step + MOST_PARAMS)
            self._client.log_batch(run, metrics=rows[:MOST_METRICS] if not step else (), params=settings[now], tags=words[now])
        for step in range(MOST_METRICS, len(rows), MOST_METRICS):
            self._client.log_batch(run, metrics=rows[step : step + MOST_METRICS])


def _ms(at_s: float) -> int:
    return int(at_s * 1000)


def _name(name: str) -> str:
    return _ODD.sub("_", name)[:NAME_CHARS]


def _texts(values: Mapping[str, Any], but: Collection[str] = ()) -> dict[str, str]:
    """As MLflow keeps parameters and tags; those that a run has already cannot be changed."""
    texts = {_name(name): str(value)[:TEXT_CHARS] for name, value in values.items()}
    return {name: text for name, text in texts.items() if name not in but}


__all__ = ["MlflowTracker"]
