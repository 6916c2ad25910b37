"""A controller of a real Slurm as a process of its own, to be killed: `python tests/autosched/control/_slurm_loop.py CONF FOLDER`."""

from __future__ import annotations

import sys

from autosched.control.controller import Controller
from autosched.control.settings import build_settings
from autosched.live.slurm import LiveSlurm


def controller_of(conf: str, folder: str, **more: object) -> Controller:
    given = {"cluster": "scratch", "live": {"kind": "slurm", "conf": conf}, "folder": folder, "mode": "apply", "every": "30d", "watch": 0}
    settings = build_settings({**given, "look": 0.2, "period": "30d", "bounds": {"changes_per_day": 100_000}, "verify": 5, **more}, "test")
    return Controller(settings, LiveSlurm({"conf": conf, "timeout_s": 10.0, "reconfigure_s": 10.0}))


if __name__ == "__main__":
    controller_of(sys.argv[1], sys.argv[2]).run()
