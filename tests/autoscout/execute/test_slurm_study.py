"""A whole study on Slurm, killed with -9 in the middle and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from _killed_study import kill_and_resume
from _slurm import SlurmCluster


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["allocation", pytest.param("job", marks=pytest.mark.soak)])
def test_a_study_on_slurm_is_killed_and_resumed(slurm: SlurmCluster, tmp_path: Path, mode: str) -> None:
    kill_and_resume(tmp_path, {"executor": "slurm", "options": {"mode": mode}}, lambda: not slurm.jobs())
