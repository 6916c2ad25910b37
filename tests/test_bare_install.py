"""Only the core installed, in an environment of its own: imports are quick, and what is missing is named."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
IMPORT = """
import subprocess, sys, time
def once():
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import autoscout"], check=True)
    with_it = time.perf_counter() - begin
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return with_it - (time.perf_counter() - begin)
print(min(once() for _ in range(5)))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]  # a pip of its own would take seconds to install
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-compile", "--disable-pip-version-check", str(ROOT)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"BARE INSTALL NOT TESTED: pip could not install the core here: {done.stderr[-300:]}")
    return folder / "bin"


def run(bare: Path, *arguments: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([bare / arguments[0], *arguments[1:]], cwd=where, capture_output=True, text=True)


@pytest.mark.slow
def test_the_core_alone_imports_quickly_and_tunes_a_program(bare: Path, tmp_path: Path) -> None:
    took_s = float(run(bare, "python", "-c", IMPORT, where=tmp_path).stdout)
    assert took_s < 0.3, f"import autoscout took {took_s:.3f} s beyond starting Python, at best of five"
    states = json.loads(run(bare, "autoscout", "doctor", "--json", where=tmp_path).stdout)["plugins"]
    assert {state["name"] for state in states if state["kind"] == "backend" and state["usable"]} >= {"command"}
    named = {(state["kind"], state["name"]) for state in states}
    assert {("searcher", name) for name in ("ax", "cherrypick", "metis", "openbox", "optuna-gp", "optuna-tpe", "smac", "udo")} <= named
    assert {("simulator", "boosted"), ("simulator", "residual"), ("backend", "sched"), ("scheduler", "tiresias")} <= named
    refused = run(bare, "autoscout", "tune", "llamacpp", where=tmp_path)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "pip install 'autoscout[llamacpp]'" in refused.stderr
    (tmp_path / "c.yaml").write_text(
        "system: command\nname: t\nworkload: {command: 'echo score {x}', metrics: {score: {regex: 'score ([0-9]+)'}}}\n"
        "goal: {metric: score, direction: minimize}\nspace: {knobs: {x: {range: [1, 3], default: 3}}}\nfinals: {rounds: 3, finalists: 1}\n"
    )
    tuned = run(bare, "autoscout", "tune", "c.yaml", "--json", where=tmp_path)
    assert tuned.returncode == 0, tuned.stderr
    assert json.loads(tuned.stdout)["answer"] == {"x": 1}
