"""A study on other machines that is killed with -9 while a trial runs, and then started again: what must hold on every executor."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0  # the minute after which nothing may be left

COMMAND = "echo {{threads}} >> {log}; sleep 0.5; echo took={{threads}}"


def kill_and_resume(folder: Path, execute: dict[str, Any], nothing_left: Callable[[], bool]) -> None:
    """Run a small study in `folder`, kill it, wait until nothing is left of it, and have it continued."""
    log = folder / "starts"
    study = {
        "system": "command",
        "name": "killed",
        "workload": {"command": COMMAND.format(log=log), "metrics": {"took": {"regex": "took=([0-9]+)"}}},
        "goal": {"metric": "took", "direction": "minimize"},
        "space": {"knobs": {"threads": {"values": [1, 2], "default": 2}}},
        "budget": {"trials": 2},
        "measure": {"dirty_repeats": 0},
        "finals": {"rounds": 1, "finalists": 1, "simplify": False},
        "execute": execute,
    }
    (folder / "campaign.yaml").write_text(json.dumps(study))  # JSON is YAML
    command = [sys.executable, "-m", "autoscout", "tune", "campaign.yaml", "--json"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until(
            lambda: process.poll() is not None or (_trials(folder) and _starts(log) > len(_trials(folder))),
            "one is stored, the next one runs",
            180.0,
        )
        assert process.poll() is None, process.communicate()[1][-3000:]
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    stored = _trials(folder)
    until(lambda: not _mentioning(str(log)), "no process of a trial is left")
    until(nothing_left, "nothing is left on the cluster")
    starts = _starts(log)
    resumed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    after = _trials(folder)
    assert after[: len(stored)] == stored, "what was measured stays"
    identities = Counter(json.dumps([one["config"], one["repeat"]], sort_keys=True) for one in after)
    assert max(identities.values()) == 1, "no trial is there twice"
    assert {one["status"] for one in after} == {"ok"}
    assert _starts(log) - starts == len(after) - len(stored), "nothing was started again but what ran when the tuner was killed"
    until(nothing_left, "nothing is left after the end either")


def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.05)


def _trials(folder: Path) -> list[dict[str, Any]]:
    """What the journal holds; without a line that is just being written."""
    texts = [path.read_text().rpartition("\n")[0] for path in folder.rglob("trials.jsonl")]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def _starts(log: Path) -> int:
    return len(log.read_text().split()) if log.exists() else 0


def _mentioning(words: str) -> list[str]:
    """Processes with these words in their command line."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [line] if words in line else []
    return found
