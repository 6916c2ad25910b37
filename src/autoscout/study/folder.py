"""The result folder: one study, everything it needs to be resumed, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.common.document import load
from autoscout.common.files import make_folders, write_file
from autoscout.core.errors import ConfigError, Fault, StoreError
from autoscout.study.campaign import to_yaml

DEFAULT = Path("autoscout_results")
STORE = "store.db"


@dataclass(frozen=True)
class Folder:
    """Where a study lives.

    campaign.yaml   what was asked, fully resolved: `autoscout resume` needs only this
    store.db        the trials, durable
    trials.jsonl    the same, one line each, to read while it runs
    trials/         a folder per launch: command, logs, outputs
    summary.csv  report.html  report.json
    traffic.json    what users ask, where the study is of that
    best/           what to run
    front/  front.json   with several goals: a folder for each point of the front
    """

    path: Path

    @property
    def campaign(self) -> Path:
        return self.path / "campaign.yaml"

    @property
    def store(self) -> Path:
        return self.path / STORE

    @property
    def journal(self) -> Path:
        return self.path / "trials.jsonl"

    @property
    def traffic(self) -> Path:
        return self.path / "traffic.json"

    @property
    def best(self) -> Path:
        return self.path / "best"

    @property
    def front(self) -> Path:
        return self.path / "front"

    def launch_files(self, name: str) -> list[Path]:
        """What a launch left in its folder below `trials/`: logs first. Nothing for a name that is no folder there."""
        home = self.path / "trials" / name
        if not name or name in (".", "..") or "/" in name or "\0" in name or not home.is_dir() or home.is_symlink():
            return []
        files = [path for path in home.iterdir() if path.is_file() and not path.is_symlink()]
        return sorted(files, key=lambda path: (path.suffix != ".log", path.stat().st_size == 0, path.name != "server.log", path.name))

    @property
    def page(self) -> Path:
        return self.path / "report.html"

    def join(self, name: str) -> None:
        """Make the folder for the study `name`, or see that it is the one that lives there.

        Raises:
            ConfigError: the folder holds a study of another name.
            StoreError: it cannot be written.
        """
        spec = self.spec() if self.campaign.exists() and self.journal.exists() else None
        if spec is not None and spec.get("name") != name:
            raise ConfigError(
                Fault(
                    where=str(self.path),
                    field="name",
                    value=repr(name),
                    rule=f"this folder holds the study {spec.get('name')!r}",
                    fix="Use another --output-dir or --experiment-name; nothing was changed",
                )
            )
        try:
            make_folders(self.path)
        except (OSError, ValueError) as error:
            rule = f"the result folder cannot be made: {getattr(error, 'strerror', None) or error}"
            raise StoreError(Fault(where=str(self.path), rule=rule, fix="Choose another --output-dir or --experiment-name")) from error

    def keep(self, spec: Mapping[str, Any]) -> None:
        """Write `campaign.yaml`; only for a study that a store has taken, or a refused call would spoil the next `resume`.

        Raises:
            StoreError: it cannot be written.
        """
        write_file(self.campaign, to_yaml(spec), private=True)  # it holds the values of variables
        self.journal.touch()  # also for stores that write none: the two files together mark a result folder

    def spec(self) -> dict[str, Any]:
        """What `campaign.yaml` holds.

        Raises:
            ConfigError: there is none, or it cannot be read.
        """
        if not (self.campaign.is_file() and self.journal.is_file()):
            rule = "not a result folder: it must hold campaign.yaml and trials.jsonl"
            raise ConfigError(Fault(where=str(self.path), rule=rule, fix="Give the folder that `autoscout tune` printed"))
        faults: list[Fault] = []
        root = load(self.campaign)
        root.entries(faults)
        if faults:
            raise ConfigError(faults)
        return dict(root.value)


def newest(root: Path) -> Folder:
    """The folder below `root` whose study was measured last.

    Raises:
        ConfigError: there is no study.
    """
    folders = [Folder(path.parent) for path in root.glob("*/trials.jsonl") if Folder(path.parent).campaign.is_file()]
    if not folders:
        raise ConfigError(Fault(where=str(root), rule="holds no study", fix="Name the result folder, or run `autoscout tune` first"))
    return max(folders, key=lambda folder: folder.journal.stat().st_mtime)
