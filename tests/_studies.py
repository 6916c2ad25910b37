"""Whole studies on the virtual cluster, for tests of what a study is told before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autoscout.study.assemble import run
from autoscout.study.campaign import build_campaign
from autoscout.study.folder import Folder
from autoscout.study.outcome import Outcome
from autoscout.study.setup import Setup, prepare


def campaign(folder: Path, name: str, gpus: int = 16, trials: int = 6, **more: Any) -> Setup:
    data = {
        "system": "virtual",
        "name": name,
        "hardware": {"gpus": f"{gpus}xA100-80"},
        "budget": {"trials": trials},
        "execute": {"executor": "inline"},
        "finals": {"rounds": 0},
        "store": str(folder / "all.db"),
        **more,
    }
    return prepare(build_campaign(data, where="test"))


def tuned(folder: Path, name: str, **more: Any) -> Outcome:
    return run(campaign(folder, name, **more), Folder(folder / name))
