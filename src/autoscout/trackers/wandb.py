"""Tracker `wandb`: Weights & Biases, a run for the study and one for each trial, together in a group."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.core.state import State
from autoscout.core.tracker import TrackedResult, TrackedStudy, TrackedTrial, Tracker
from autoscout.core.trial import Status
from autoscout.trackers._shared.files import write_files

WHOLE = "autoscout.whole"
"""Name of a file in the folder of an offline run that is written when the run is whole."""
LIMIT_S = 20


@dataclass(frozen=True, kw_only=True)
class WandbOptions:
    """Where the runs go.

    Attributes:
        folder: The result folder; given by the study. Runs in the mode offline are kept there, in `wandb`.
        project: Name of the project.
        entity: User or team; the account's own when empty.
        mode: online, or offline; as WANDB_MODE says when empty.
    """

    folder: str = ""
    project: str = "autoscout"
    entity: str = ""
    mode: str = ""


class WandbTracker(Tracker):
    """Weights & Biases: a run for the study, one for each trial, and the files as an artifact."""

    requires = ("wandb",)

    def __init__(self, options: WandbOptions | None = None) -> None:
        self._options = options or WandbOptions()
        self._mode = self._options.mode or os.environ.get("WANDB_MODE", "online")
        self._folder = Path(self._options.folder or ".")
        self._study: TrackedStudy | None = None
        self._run: Any = None

    def begin(self, study: TrackedStudy) -> str:
        os.environ.setdefault("WANDB_INIT_TIMEOUT", str(LIMIT_S))
        self._study = study
        self._run = self._init(study.key, study.name, "study", study.settings)
        if self._mode == "offline":
            return f"wandb sync {self._folder / 'wandb'}/offline-run-*"
        return str(self._run.url)

    def sent(self) -> Collection[int]:
        assert self._study is not None
        prefix = f"{self._study.key}-"
        if self._mode == "offline":
            files = self._folder.glob(f"wandb/offline-run-*/run-{prefix}*.wandb")  # names of folders may have one more number
            ids = [path.stem.removeprefix("run-") for path in files if path.with_name(WHOLE).exists()]
        else:
            import wandb

            project = f"{self._run.entity}/{self._run.project}"
            runs = wandb.Api(timeout=LIMIT_S).runs(project, filters={"group": self._study.key})
            ids = [run.id for run in runs if run.id.startswith(prefix) and run.state != "running"]
        return {int(name.removeprefix(prefix)) for name in ids}

    def add(self, trial: TrackedTrial) -> None:
        assert self._study is not None
        run = self._init(f"{self._study.key}-{trial.number}", trial.name, "trial", trial.config)
        for step in range(max(map(len, trial.samples.values()), default=0)):
            run.log({f"samples/{name}": values[step] for name, values in trial.samples.items() if step < len(values)}, step=step)
        run.summary.update({**trial.metrics, "status": trial.status.value, **trial.notes})
        folder = Path(run.dir).parent
        run.finish(exit_code=0 if trial.status in (Status.OK, Status.BOUNDED) else 1)
        if self._mode == "offline":
            (folder / WHOLE).touch()
        curves = {**trial.goals, **{f"best/{name}": value for name, value in trial.best.items()}}
        self._run.log({**curves, f"trials/{trial.status.value}": 1}, step=trial.number)

    def end(self, result: TrackedResult) -> None:
        import wandb

        self._run.summary.update({**{f"result/{name}": value for name, value in result.metrics.items()}, **result.notes})
        self._run.summary.update({"state": result.state.value})
        with tempfile.TemporaryDirectory(prefix="autoscout-") as folder:
            write_files(Path(folder), result.files)
            artifact = wandb.Artifact(f"study-{self._run.id}", "study")
            artifact.add_dir(folder)
            self._run.log_artifact(artifact)
            self._run.finish(exit_code=1 if result.state is State.FAILED else 0)
        self._run = None

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None

    def _init(self, key: str, name: str, kind: str, config: Mapping[str, Any]) -> Any:
        import wandb

        assert self._study is not None
        settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_stats=True,
            x_save_requirements=False,
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        return wandb.init(
            project=self._options.project,
            entity=self._options.entity or None,
            id=key,
            name=name,
            group=self._study.key,
            job_type=kind,
            config=dict(config),
            dir=str(self._folder),
            mode=self._mode,
            resume="allow",
            reinit="create_new",
            settings=settings,
        )


__all__ = ["WandbTracker"]
