"""Output that nobody reads, cannot be written or cannot be spelt; signals at moments when nothing is under way."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from _cli_program import PROGRAM, campaign


def shell(here: Path, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `autoscout` is our program."""
    start = f'autoscout() {{ {sys.executable} -m autoscout "$@"; }}\n'
    return subprocess.run(["bash", "-c", start + line], cwd=here, capture_output=True, text=True, env={**os.environ, **variables})


def test_a_reader_that_leaves_does_not_end_the_study(tmp_path: Path) -> None:
    path = campaign(tmp_path)
    done = shell(tmp_path, f"autoscout tune {path} 2>&1 | head -n 1 >/dev/null; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "autoscout_results" / "numbers" / "trials.jsonl").read_text().count("\n") == 6 + 3 + 3 * 3
    for verb in ("report autoscout_results/numbers", "report autoscout_results/numbers --json", "doctor", f"space show {path}"):
        done = shell(tmp_path, f"autoscout {verb} | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stderr) == (0, ""), verb


def test_a_study_on_a_terminal(tmp_path: Path) -> None:
    ours, its = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    command = [sys.executable, "-m", "autoscout", "tune", campaign(tmp_path), "--budget", "1m"]
    program = subprocess.Popen(command, cwd=tmp_path, stdin=its, stdout=its, stderr=its, env=env)
    os.close(its)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody is there any more
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert program.wait() == 0, shown.decode(errors="replace")[-2000:]
    assert b"trials" in shown
    assert b"report.html" in shown


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    for verb in ("doctor", "doctor --json"):
        done = shell(tmp_path, f"autoscout {verb} >/dev/full")
        assert done.returncode == 2
        assert done.stderr.startswith("autoscout: output: No space left")
        assert "Traceback" not in done.stderr


def test_letters_that_the_terminal_lacks_are_spelt_out(tmp_path: Path) -> None:
    done = shell(tmp_path, f"autoscout tune {campaign(tmp_path)} -e größe", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "gr\\xf6\\xdfe/report.html" in done.stdout
    assert (tmp_path / "autoscout_results" / "größe" / "report.html").exists()


@pytest.mark.parametrize("module", ["autoscout.cli.main", "autoscout.cli.render", "autoscout.study.campaign"])
def test_ctrl_c_while_packages_load_leaves_no_traceback(module: str) -> None:
    code = """
import sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[3]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from autoscout.cli import program
program()
"""
    done = subprocess.run([sys.executable, "-c", code, "render", "command", module], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (130, "")


STUBBORN = """\
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.kill(int(open(sys.argv[0] + ".pid").read()), getattr(signal, open(sys.argv[0] + ".signal").read()))
time.sleep(600)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("verb", ["tune", "profile"])
def test_signals_end_trials_at_once_with_130(tmp_path: Path, verb: str, name: str) -> None:
    path = campaign(tmp_path, script=STUBBORN)
    (tmp_path / "program.py.signal").write_text(name)
    with subprocess.Popen(
        [sys.executable, "-c", "import os; open('program.py.pid', 'w').write(str(os.getpid()))\n" + PROGRAM[2], verb, str(path)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            _, said = program.communicate(timeout=60)
        finally:
            program.kill()  # a program that heeds no signal must not hang the suite
    assert program.returncode == 130, said
    assert "Traceback" not in said


def test_nohup_is_respected(tmp_path: Path) -> None:
    path = campaign(tmp_path, script="import os, signal, sys; os.kill(int(open(sys.argv[0] + '.pid').read()), 1); print('score 1')")
    code = "import os; open('program.py.pid', 'w').write(str(os.getpid()))\n" + PROGRAM[2]
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited by the program, as `nohup` does it
    try:
        done = subprocess.run([sys.executable, "-c", code, "tune", str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    finally:
        signal.signal(signal.SIGHUP, previous)
    assert done.returncode == 0, done.stderr
