"""A study from the command line on a head that `ray start` made: killed in mid-trial, told in time, resumed on another head."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import autoscout
from autoscout.core.journal import read_trials
from autoscout.execute.ray.cluster import ANSWER_S, GONE_AFTER, LOOK_S, unreachable

pytestmark = [pytest.mark.adapters, pytest.mark.slow]

ENDS_WITHIN_S = 30.0
OF_RAY = re.compile(r"^\[\d{4}-\d\d-\d\d .*\] |ray\.(exceptions|_private)|InvalidAuthToken", re.MULTILINE)
CAMPAIGN = """
system: command
workload: {{command: "echo {{x}} >> {folder}/starts; sleep {sleep_s}; echo took={{x}}", metrics: {{took: {{regex: 'took=([0-9]+)'}}}}}}
goal: {{metric: took, direction: minimize}}
space: {{knobs: {{x: {{range: [1, 50], default: 2}}}}}}
budget: {{trials: 6}}
search: {{workers: 2, searcher: random}}
measure: {{dirty_repeats: 0}}
finals: {{rounds: 0}}
name: lost
execute: {{executor: ray, options: {{address: "{address}"}}}}
"""


def until(condition: Callable[[], object], what: str, patience_s: float = 180.0) -> None:
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.1)


@pytest.fixture
def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(Path(autoscout.__file__).resolve().parents[1]),  # also where it was given relative to this folder
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "120",
        "PYTHONFAULTHANDLER": "1",
    }


@contextlib.contextmanager
def head(folder: Path, port: int, environment: Mapping[str, str]) -> Iterator[Path]:
    """A head at a port of this machine; the folder of its session, in which all its processes are named."""
    session = Path(tempfile.mkdtemp(prefix="ray-"))  # not below the folder: a socket's path has at most 107 characters
    start = ["start", "--head", "--block", f"--port={port}", "--num-cpus=2", "--include-dashboard=false", f"--temp-dir={session}"]
    command = [sys.executable, "-m", "ray.scripts.scripts", *start, "--node-ip-address=127.0.0.1", "--disable-usage-stats"]
    with (folder / "head.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        words = "Ray runtime started"
        until(lambda: process.poll() is not None or words in (folder / "head.log").read_text(), "the head is up")
        assert process.poll() is None, (folder / "head.log").read_text()
        yield session
    finally:
        process.kill()
        process.wait()
        for pid in pids(str(session)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(session, ignore_errors=True)


def pids(text: str, program: str = "") -> list[int]:
    """Processes that name the text, and the program if one is named, on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace")
            if text in words and program in words and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_silent_head_is_given_up_in_time() -> None:
    assert GONE_AFTER * (LOOK_S + ANSWER_S) < ENDS_WITHIN_S * 2 / 3, "the report is to be written within the half minute too"


def test_a_study_whose_head_is_lost_reports_in_time_and_resumes(tmp_path: Path, environment: dict[str, str]) -> None:
    port, folder = free_port(), tmp_path / "autoscout_results" / "lost"
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN.format(address=f"127.0.0.1:{port}", folder=tmp_path, sleep_s=4))
    tune = [sys.executable, "-m", "autoscout", "tune", "campaign.yaml"]
    with head(tmp_path, port, environment) as session:
        process = subprocess.Popen(tune, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            stored, starts = folder / "trials.jsonl", tmp_path / "starts"
            until(lambda: stored.exists() and len(stored.read_text().splitlines()) > 1, "two trials are stored")
            until(lambda: len(starts.read_text().splitlines()) > len(stored.read_text().splitlines()), "a trial runs")
            (server,) = pids(str(session), "gcs_server")
            os.kill(server, signal.SIGKILL)
            killed_s = time.monotonic()
            threading.Timer(120, process.send_signal, [signal.SIGABRT]).start()  # says where it hangs
            said, complaints = process.communicate(timeout=180)
            took_s = time.monotonic() - killed_s
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 2, complaints
    assert "the head of the Ray cluster does not answer any more" in complaints
    assert not OF_RAY.search(complaints + said), complaints
    assert "autoscout resume autoscout_results/lost" in said
    assert (folder / "report.html").exists()
    before = read_trials(folder)
    assert 2 <= len(before) < 6
    print(f"ended after {took_s:.1f} s")
    (tmp_path / "head.log").unlink()
    with head(tmp_path, port, environment):
        resume = [sys.executable, "-m", "autoscout", "resume", "autoscout_results/lost", "--json"]
        ran = subprocess.run(resume, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert not OF_RAY.search(ran.stderr), ran.stderr
    json.loads(ran.stdout)
    after = read_trials(folder)
    assert after[: len(before)] == before, "nothing that was measured is lost"
    assert [trial.number for trial in after] == list(range(6))
    assert len({trial.config for trial in after}) == 6, "and nothing is measured twice"


def test_something_else_at_the_address_is_told_without_rays_own_words(tmp_path: Path, environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        (tmp_path / "campaign.yaml").write_text(CAMPAIGN.format(address=address, folder=tmp_path, sleep_s=0))
        tune = [sys.executable, "-m", "autoscout", "tune", "campaign.yaml"]
        ran = subprocess.run(tune, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 2, ran.stderr
    assert "Ray cannot be reached" in ran.stderr
    assert address in ran.stderr
    assert not OF_RAY.search(ran.stderr), ran.stderr


def test_who_may_have_to_send_a_token_is_told_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray says only that it failed to connect: to a named address it sends its token only where it is told to."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    assert "RAY_AUTH_MODE" not in str(unreachable("127.0.0.1:1", ConnectionError("refused")))
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)
    assert "set RAY_AUTH_MODE=token" in str(unreachable("127.0.0.1:1", ConnectionError("refused")))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert "RAY_AUTH_MODE" not in str(unreachable("127.0.0.1:1", ConnectionError("refused")))
