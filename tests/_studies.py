"""Whole studies on the virtual cluster, for tests of what a study is told before it begins."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from _toys import Watcher
from autoscout.study.assemble import Result, Setup, prepare, run
from autoscout.study.campaign import build_campaign
from autoscout.study.folder import Folder


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


def tuned(folder: Path, name: str, **more: Any) -> Result:
    return run(campaign(folder, name, **more), Folder(folder / name), Watcher(), lambda _: threading.Event())
