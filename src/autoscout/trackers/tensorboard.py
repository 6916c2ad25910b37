"""Tracker `tensorboard`: event files with a folder per trial, and its table of hyperparameters."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.core.tracker import TEXT_CHARS, TrackedResult, TrackedStudy, TrackedTrial, Tracker
from autoscout.core.trial import Status
from autoscout.trackers._shared.files import write_files

PART = ".part"
"""Ends the name of a trial's folder while it is written."""


@dataclass(frozen=True, kw_only=True)
class TensorboardOptions:
    """Where the event files go.

    Attributes:
        folder: The result folder; given by the study.
        logdir: Their folder; `tensorboard` in the result folder when empty.
    """

    folder: str = ""
    logdir: str = ""


class TensorboardTracker(Tracker):
    """TensorBoard: event files with scalars, texts and hyperparameters, a folder per trial."""

    requires = ("tensorboard",)

    def __init__(self, options: TensorboardOptions | None = None) -> None:
        options = options or TensorboardOptions()
        self._root = Path(options.logdir) if options.logdir else Path(options.folder) / "tensorboard"
        self._study: TrackedStudy | None = None
        self._home = Path()

    def begin(self, study: TrackedStudy) -> str:
        self._home = self._root / f"{study.name.replace(os.sep, '_')}-{study.key}"
        self._home.mkdir(parents=True, exist_ok=True)
        for part in self._home.glob(f"*{PART}"):
            shutil.rmtree(part)
        self._study = study
        if not (self._home / "study").exists():
            with _Folder(self._home / "study", at_s=study.begun_s) as events:
                events.add(_experiment(study))
                events.text("settings", json.dumps(dict(study.settings), indent=2, ensure_ascii=False))
        return f"tensorboard --logdir {self._root}"

    def sent(self) -> Collection[int]:
        return {int(path.name) for path in self._home.iterdir() if path.name.isdecimal()}

    def add(self, trial: TrackedTrial) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        with _Folder(self._home / str(trial.number), at_s=trial.ended_s) as events:
            events.add(hparams_pb(dict(trial.config), trial_id=trial.name, start_time_secs=trial.begun_s))
            for name, value in trial.metrics.items():
                events.scalar(name, value, trial.number)
            for name, value in trial.best.items():
                events.scalar(f"best/{name}", value, trial.number)
            for name, values in trial.samples.items():
                for step, value in enumerate(values):
                    events.scalar(f"samples/{name}", value, step)
            words = {"status": trial.status.value, **trial.notes}
            events.text("trial", "\n".join(f"- **{name}**: {value}" for name, value in words.items()))
            events.add(_ending(trial))

    def end(self, result: TrackedResult) -> None:
        home = self._home / "result"
        shutil.rmtree(home, ignore_errors=True)
        with _Folder(home, at_s=result.ended_s) as events:
            for name, value in result.metrics.items():
                events.scalar(f"result/{name}", value, 0)
            words = {"state": result.state.value, **result.notes}
            events.text("result", "\n".join(f"- **{name}**: {value}" for name, value in words.items()))
        files = self._home / "files"
        shutil.rmtree(files, ignore_errors=True)
        write_files(files, result.files)


class _Folder:
    """A folder with one event file; it gets its name when the file is whole."""

    def __init__(self, path: Path, at_s: float) -> None:
        self._path, self._part, self._at_s = path, path.with_name(path.name + PART), at_s

    def __enter__(self) -> _Folder:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer: Any = EventFileWriter(str(self._part))
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()
        if error[0] is None:
            self._part.replace(self._path)
        else:
            shutil.rmtree(self._part)

    def add(self, summary: Any, step: int = 0) -> None:
        """Write a summary as it is."""
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=self._at_s, step=step, summary=summary))

    def scalar(self, name: str, value: float, step: int) -> None:
        """Write a number."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        self.add(Summary(value=[Summary.Value(tag=name, simple_value=value)]), step)

    def text(self, name: str, text: str) -> None:
        """Write a text, which is shown as Markdown."""
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype=DT_STRING, string_val=[text[: 10 * TEXT_CHARS].encode()])
        self.add(Summary(value=[Summary.Value(tag=name, metadata=metadata, tensor=tensor)]))


def _experiment(study: TrackedStudy) -> Any:
    """What the table of hyperparameters shows: a column per knob and per goal."""
    from tensorboard.plugins.hparams.summary_v2 import Discrete, HParam, Metric, hparams_config_pb

    knobs = [HParam(name, _domain(knob.values, Discrete)) for name, knob in study.knobs.items()]
    return hparams_config_pb(knobs, [Metric(goal.metric) for goal in study.goals], time_created_secs=study.begun_s)


def _domain(values: Collection[Any], discrete: Any) -> Any:
    """The values of a knob, where they are of one type, which its table wants."""
    return discrete(values) if values and len({type(value) for value in values}) == 1 else None


def _ending(trial: TrackedTrial) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2
    from tensorboard.plugins.hparams.api_pb2 import Status as Ending

    status = Ending.Value("STATUS_SUCCESS" if trial.status in (Status.OK, Status.BOUNDED) else "STATUS_FAILURE")
    info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=trial.ended_s)
    content = plugin_data_pb2.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, session_end_info=info).SerializeToString()
    kind = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content))
    return Summary(value=[Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=kind, tensor=metadata.NULL_TENSOR)])


__all__ = ["TensorboardTracker"]
