"""kill -9 at random moments: every finished trial is there, none twice, and the study goes on to its end."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from _cli_program import PROGRAM, campaign

SCRIPT = """\
import sys, time
time.sleep(0.05)
print("score", int(sys.argv[1]) * int(sys.argv[2]) + 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.soak)])
def test_kill_9_at_random_moments_with_two_workers(tmp_path: Path, kills: int) -> None:
    space = {"knobs": {"x": {"range": [0, 199], "default": 9}, "y": {"range": [1, 50], "default": 9}}}
    path = campaign(tmp_path, script=SCRIPT, space=space, budget={"trials": 5000}, finals={"finalists": 2, "rounds": 4})
    journal = tmp_path / "autoscout_results" / "numbers" / "trials.jsonl"
    command = [*PROGRAM, "tune", str(path), "--workers", "2"]
    chance = random.Random(5)
    known: dict[int, str] = {}
    for _ in range(kills):
        _kill(command, tmp_path, chance)
        stored = _stored(journal)
        shown = {int(number) for number in re.findall(r"#(\d+) ok", (tmp_path / "said").read_text(errors="replace"))}
        assert shown <= stored.keys(), "a trial that was shown as finished is not stored"
        assert all(stored[number] == line for number, line in known.items()), "a stored trial changed or vanished"
        known = stored
    assert len(known) > kills / 2, "too little happened between the kills"
    trials = len(known) + 5
    done = subprocess.run([*command, "--max-trials", str(trials), "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    stored = _stored(journal)
    assert all(stored[number] == line for number, line in known.items())
    lines = [json.loads(line) for line in stored.values()]
    identities = [(json.dumps(line["config"], sort_keys=True), line["fidelity"], line["repeat"]) for line in lines]
    assert len(set(identities)) == len(identities), "a configuration was measured twice"
    assert sorted(stored) == list(range(len(stored)))
    assert sum(line["repeat"] == 0 for line in lines) == trials, "the default measured again does not count"
    rounds = Counter(line["origin"]["round"] for line in lines if line["origin"].get("phase") == "final")
    assert len(rounds) == 4, "no round of the final is missing or twice"
    assert len(set(rounds.values())) == 1
    assert rounds.most_common()[0][1] >= 3
    assert {line["repeat"] for line in lines if line["repeat"] < 0} == {-101, -102, -103}
    assert {line["status"] for line in lines} == {"ok"}
    assert told["verdict"] == "gain"


def _kill(command: list[str], folder: Path, chance: random.Random) -> None:
    """Start the study and kill it: mostly while it measures, now and then while it starts."""
    with (folder / "said").open("wb") as said, subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=said) as program:
        wait_for = chance.choice([0, 0, 1, 2, 3])
        deadline = time.monotonic() + 60
        while program.poll() is None and _finished(folder / "said") < wait_for and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.25))
        program.send_signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL, "it ended by itself"


def _finished(said: Path) -> int:
    return len(re.findall(rb"#\d+ ok", said.read_bytes())) if said.exists() else 0


def _stored(journal: Path) -> dict[int, str]:
    """Trials by number; a torn last line is one that was never acknowledged."""
    if not journal.exists():
        return {}
    found: dict[int, str] = {}
    for line in journal.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            number = json.loads(line)["number"]
            assert number not in found, "a trial stands twice in the journal"
            found[number] = line
    return found
