"""What a tool is asked about, and the words of the command line that say the same."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from autoscout.core.errors import ConfigError, Fault
from autoscout.study.campaign import duration_s, to_yaml


class Subject(BaseModel):
    """What is tuned: one of `target`, `campaign` and `launch`, and what is to differ from it."""

    model_config = ConfigDict(extra="forbid")

    target: str = Field("", description="a backend (vllm, llamacpp, pytorch, ...; `doctor` lists them) or the path of a campaign file")
    campaign: dict[str, Any] | None = Field(None, description="the content of a campaign file, as in docs/reference/campaign.schema.json")
    launch: str = Field("", description="the command that starts the server or the training today, or the path of a file with it")
    model: str = Field("", description="the model to run")
    gpus: int | None = Field(None, description="GPUs to use", ge=0)
    settings: dict[str, Any] = Field({}, description="knobs with values: pinned in a study, set in a rendered or measured configuration")
    workload: dict[str, Any] = Field({}, description="fields of the workload, such as input_tokens")

    @contextmanager
    def words(self) -> Iterator[list[str]]:
        """The words of the command line; a campaign is a file as long as the block runs.

        Raises:
            ConfigError: none, or more than one, of the three is given.
        """
        sources = [name for name in ("target", "campaign", "launch") if getattr(self, name)]
        if not sources or ("campaign" in sources and len(sources) > 1):
            rule = "must hold a target, a campaign or a launch" if not sources else "a campaign stands alone: put the rest into it"
            raise ConfigError(Fault(where="subject", value=", ".join(sources), rule=rule))
        words = ["--from", self.launch] if self.launch else []
        words += ["--model", self.model] if self.model else []
        words += ["--gpus", str(self.gpus)] if self.gpus is not None else []
        words += assignments("--set", self.settings) + assignments("--workload", self.workload)
        with tempfile.TemporaryDirectory(prefix="autoscout-agent-") as folder:
            target = self.target
            if self.campaign:
                target = str(Path(folder) / "campaign.yaml")
                Path(target).write_text(to_yaml(self.campaign), encoding="utf-8")
            yield ([target] if target else []) + words


def assignments(flag: str, values: Mapping[str, Any]) -> list[str]:
    """A flag for each `NAME=VALUE`; values are written as in a campaign file."""
    words = []
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value)  # YAML reads JSON
        words += [flag, f"{name}={text}"]
    return words


def flags(**values: Any) -> list[str]:
    """`--name value` for each that is given; several times for a list, alone for True."""
    words: list[str] = []
    for name, value in values.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [word for item in value for word in (flag, str(item))]
        elif value not in (None, False, ""):
            words += [flag, str(value)]
    return words


def bounded(text: str, most_s: float, field: str) -> float:
    """Seconds of a time such as `20m`.

    Raises:
        ConfigError: it is no time, or longer than the server allows.
    """
    try:
        seconds = duration_s(text)
    except (ValueError, OverflowError) as error:
        raise ConfigError(Fault(where="arguments", field=field, value=repr(text), rule=str(error))) from None
    if seconds > most_s:
        rule = f"is longer than the {most_s:.0f} s that this server allows"
        raise ConfigError(Fault(where="arguments", field=field, value=repr(text), rule=rule, fix="Ask for less, or start it with --most"))
    return seconds
