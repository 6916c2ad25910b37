"""A Megatron-LM checkout that is none: its script prints a recorded log, and may go wrong in every way."""

from __future__ import annotations

from pathlib import Path

LOGS = Path(__file__).parents[2] / "golden" / "megatron"

SCRIPT = """
import os, signal, sys, time
if os.environ.get("RANK", "0") != "0":
    sys.exit(0)
lines = open({log!r}).read().splitlines(keepends=True)
for line in lines:
    sys.stdout.write(line)
    sys.stdout.flush()
    time.sleep({pause_s})
if {ending!r} == "hang":
    time.sleep(3600)
if {ending!r} == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int({ending!r} or 0))
"""


def make_checkout(folder: Path, log: str = "trained", ending: str = "", pause_s: float = 0.0) -> Path:
    """The folder of a checkout whose training script prints one of the recorded logs, and then ends, hangs or is killed."""
    (folder / "megatron" / "core").mkdir(parents=True, exist_ok=True)
    (folder / "megatron" / "core" / "package_info.py").write_text("MAJOR = 0\nMINOR = 16\nPATCH = 1\n")
    (folder / "pretrain_gpt.py").write_text(SCRIPT.format(log=str(LOGS / f"{log}.log"), ending=ending, pause_s=pause_s))
    return folder
