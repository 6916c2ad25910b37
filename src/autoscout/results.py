"""The result folder: one study, everything it needs to go on, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autoscout.core.errors import ConfigError, Fault, StoreError

DEFAULT = Path("autoscout_results")


@dataclass(frozen=True)
class Folder:
    """Where a study lives.

    campaign.yaml   what was asked, fully resolved: `autoscout resume` needs only this
    store.db        the trials, durable
    trials.jsonl    the same, one line each, to read while it runs
    trials/         a folder per launch: command, logs, outputs
    summary.csv  report.html  report.json
    best/           what to run
    """

    path: Path

    @property
    def campaign(self) -> Path:
        return self.path / "campaign.yaml"

    @property
    def store(self) -> Path:
        return self.path / "store.db"

    @property
    def journal(self) -> Path:
        return self.path / "trials.jsonl"

    @property
    def best(self) -> Path:
        return self.path / "best"

    @property
    def page(self) -> Path:
        return self.path / "report.html"

    def begin(self, spec: Mapping[str, Any]) -> None:
        """Make the folder, or join the study that lives there.

        Raises:
            ConfigError: the folder holds a study of another name.
            StoreError: it cannot be written.
        """
        known = self.spec() if self.campaign.exists() and self.journal.exists() else None
        if known is not None and known.get("name") != spec.get("name"):
            raise ConfigError(
                Fault(
                    where=str(self.path),
                    field="name",
                    value=repr(spec.get("name")),
                    rule=f"this folder holds the study {known.get('name')!r}",
                    fix="Use another --output-dir or --experiment-name; nothing was changed",
                )
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            fresh = self.campaign.with_suffix(".new")
            fresh.write_text(yaml.safe_dump(dict(spec), sort_keys=False))
            fresh.replace(self.campaign)
        except OSError as error:
            rule = f"the result folder cannot be written: {error.strerror or error}"
            raise StoreError(Fault(where=str(self.path), rule=rule, fix="Free space or choose another --output-dir")) from error

    def spec(self) -> dict[str, Any]:
        """What `campaign.yaml` holds.

        Raises:
            ConfigError: there is none, or it cannot be read.
        """
        if not (self.campaign.is_file() and self.journal.is_file()):
            rule = "not a result folder: it must hold campaign.yaml and trials.jsonl"
            raise ConfigError(Fault(where=str(self.path), rule=rule, fix="Give the folder that `autoscout tune` printed"))
        try:
            data = yaml.safe_load(self.campaign.read_text())
        except OSError as error:
            raise ConfigError(
                Fault(where=str(self.campaign), rule=f"cannot be read: {error.strerror}", fix="Check its permissions")
            ) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(Fault(where=str(self.campaign), rule=f"cannot be read as YAML: {error}", fix="Restore the file")) from error
        if not isinstance(data, dict):
            raise ConfigError(
                Fault(where=str(self.campaign), rule="must hold a mapping", value=type(data).__name__, fix="Restore the file")
            )
        return data
