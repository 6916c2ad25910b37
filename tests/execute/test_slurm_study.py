"""A whole study on Slurm, killed with -9 in the middle and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from autoscout.testing.slurm import SlurmCluster

pytestmark = pytest.mark.soak  # on a busy machine Slurm takes minutes to notice

CAMPAIGN = """
system: command
name: killed
workload:
  command: "echo {{threads}} >> {log}; sleep 0.{{threads}}; echo took={{threads}}"
  metrics: {{took: {{regex: 'took=([0-9]+)'}}}}
goal: {{metric: took, direction: minimize}}
space: {{knobs: {{threads: {{values: [1, 2, 3], default: 3}}}}}}
budget: {{trials: 3}}
measure: {{dirty_repeats: 0}}
finals: {{rounds: 1, finalists: 1}}
execute: {{executor: slurm, options: {{mode: allocation}}}}
"""


def trials(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in folder.rglob("trials.jsonl") for line in path.read_text().splitlines()]


def test_a_study_is_killed_and_resumed(slurm: SlurmCluster, tmp_path: Path) -> None:
    log = tmp_path / "starts"
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN.format(log=log))
    command = [sys.executable, "-m", "autoscout", "tune", "campaign.yaml", "--json"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline_s = time.monotonic() + 120
    while not trials(tmp_path) or len(log.read_text().split()) < 2:  # one is stored, the next one runs
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    stored = trials(tmp_path)
    slurm.wait_until(lambda: not slurm.jobs(), "no job is left", 60)
    resumed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    after = trials(tmp_path)
    assert after[: len(stored)] == stored, "what was measured stays"
    identities = Counter(json.dumps([one["config"], one["repeat"]], sort_keys=True) for one in after)
    assert max(identities.values()) == 1, "no trial is there twice"
    assert len(log.read_text().split()) <= len(after) + 1, "only what ran when the tuner was killed was started again"
    assert not slurm.jobs()
