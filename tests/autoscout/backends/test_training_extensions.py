"""What PyTorch compiles in trials: locks of killed processes are removed, those of living ones are not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from training_running import measured, run_trial

from autoscout.core.trial import Status
from autoscout.training.runner import clear_locks, extensions_folder

LIKE_PYTORCH = "import os; lock = os.open({path!r}, os.O_CREAT | os.O_EXCL)"
PYTORCH = "from torch.utils.file_baton import FileBaton; baton = FileBaton({path!r}); assert baton.try_acquire()"
COMPILES = """
import os, time
from pathlib import Path
from autoscout import training
lock = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / "cpu_adam" / "lock"
lock.parent.mkdir(parents=True, exist_ok=True)
training.stage("building")
try:
    held = os.open(lock, os.O_CREAT | os.O_EXCL)
except FileExistsError:
    while lock.exists():
        time.sleep(0.1)
else:
    if training.config().get("fault") == "dies":
        os.kill(os.getpid(), 9)
    time.sleep(training.config().get("takes_s", 0))
    os.close(held)
    lock.unlink()
for step in range(12):
    time.sleep(0.01)
    training.step(loss=5.0 / (1 + step), tokens=10)
"""
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux tells who has a file open")


@contextmanager
def holder(path: Path, code: str = LIKE_PYTORCH) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds a lock as PyTorch does while it compiles, killed in the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen([sys.executable, "-c", code.format(path=str(path)) + "; import time; time.sleep(600)"]) as process:
        try:
            deadline = time.monotonic() + 60
            while not path.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            assert path.exists()
            yield process
        finally:
            process.kill()


@needs_proc
@pytest.mark.parametrize("code", [LIKE_PYTORCH, pytest.param(PYTORCH, marks=pytest.mark.adapters)])
def test_a_lock_goes_when_its_holder_is_dead(tmp_path: Path, code: str) -> None:
    with holder(tmp_path / "cpu_adam" / "lock", code), holder(tmp_path / "living" / "lock", code):
        with holder(tmp_path / "killed" / "lock", code):
            pass
        clear_locks(tmp_path)
        assert sorted(path.parent.name for path in tmp_path.glob("*/lock")) == ["cpu_adam", "living"]
    clear_locks(tmp_path)
    assert not list(tmp_path.glob("*/lock"))


@needs_proc
@pytest.mark.slow
def test_a_trial_does_not_wait_for_a_lock_that_another_left(tmp_path: Path) -> None:
    def trial(name: str, config: dict[str, object]) -> Status:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "compiles.py").write_text(COMPILES)
        return measured(run_trial(folder, config, ranks=1, argv=[sys.executable, "{folder}/compiles.py"])).status

    assert trial("dies", {"fault": "dies"}) is not Status.OK
    left = list((tmp_path / "cache" / "torch_extensions").glob("*/cpu_adam/lock"))
    assert len(left) == 1, "killed while it compiled"
    assert trial("next", {}) is Status.OK
    assert not left[0].exists()


@pytest.mark.slow
def test_a_trial_that_ends_while_it_compiles_says_so(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "compiles.py").write_text(COMPILES)
    argv = [sys.executable, "{folder}/compiles.py"]
    found = measured(run_trial(tmp_path / "a", {"takes_s": 600}, ranks=1, argv=argv, limit_s=6.0))
    assert found.status is Status.TIMEOUT
    assert found.reason == "still building after 6 s; it said: PyTorch was compiling cpu_adam; the next trial resumes that"


@pytest.mark.slow
def test_compiling_is_no_part_of_what_a_measurement_costs(tmp_path: Path) -> None:
    """The first trial of DeepSpeed on a CPU compiles for minutes: a budget of six minutes was used up by the default alone."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "compiles.py").write_text(COMPILES)
    found = measured(run_trial(tmp_path / "a", {"takes_s": 6}, ranks=1, argv=[sys.executable, "{folder}/compiles.py"]))
    assert found.status is Status.OK
    assert found.conditions["compile_s"] > 0
    assert found.conditions["compile_s"] <= found.conditions["start_s"]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "compiles.py").write_text(COMPILES)
    assert "compile_s" not in measured(run_trial(tmp_path / "b", {}, ranks=1, argv=[sys.executable, "{folder}/compiles.py"])).conditions


def test_what_is_compiled_is_kept_for_each_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path / "cache"))
    folder = extensions_folder("/a/bin/python", os.environ)
    assert folder == extensions_folder("/a/bin/python", os.environ)
    assert folder.parent == tmp_path / "cache" / "torch_extensions"
    assert folder.name != extensions_folder("/b/bin/python", os.environ).name
    elsewhere = extensions_folder("/a/bin/python", {"TORCH_EXTENSIONS_DIR": str(tmp_path / "fast")})
    assert elsewhere == tmp_path / "fast" / folder.name, "on the disk that the user chose"
