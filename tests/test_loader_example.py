"""The data loader that README.md shows: its campaign runs from its folder, and no configuration reads other samples."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from autoscout.core.journal import read_trials
from autoscout.study.campaign import read_campaign

LOADER = Path(__file__).parent.parent / "examples" / "loader"


def test_the_campaign_runs_and_every_configuration_reads_the_same_samples(tmp_path: Path) -> None:
    home = shutil.copytree(LOADER, tmp_path / "loader")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    words = [sys.executable, "-m", "autoscout", "tune", "campaign.yaml", "--max-trials", "3", "--rounds", "0"]
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    trials = read_trials(home / "autoscout_results/loader")
    assert all(trial.ok for trial in trials)
    assert len({trial.measurement.metrics["checksum"] for trial in trials}) == 1
    assert len({trial.config for trial in trials}) == 3
    assert sorted(path.name for path in home.iterdir()) == ["autoscout_results", "campaign.yaml", "load.py"], "nothing is left behind"


def test_the_picture_of_the_readme_is_of_this_campaign() -> None:
    knobs = read_campaign(LOADER / "campaign.yaml").knob_entries()
    assert len(knobs) == 5
    assert {"packing", "rows_per_query"} <= knobs.keys()
