"""The Tab key: what each shell is told when it asks for values."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autoscout.cli.complete import rejoined
from autoscout.core import plugins

PROGRAM = Path(sys.executable).parent / "autoscout"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="the program autoscout is not installed next to this Python")


def asked(shell: str, line: str, cwd: Path) -> list[str]:
    """What a shell is told for a line that is typed up to its end; without help texts."""
    environment = {**os.environ, "_AUTOSCOUT_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        words = shlex.split(line.replace("=", " = ")) + ([""] if line.endswith((" ", "=")) else [])
        environment |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    else:
        environment |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    answer = subprocess.run([PROGRAM], env=environment, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in answer.stderr, answer.stderr
    lines = answer.stdout.splitlines()
    if shell == "zsh":
        inside = answer.stdout.partition("((")[2].rpartition("))")[0]
        return [word.partition('":')[0].strip('"') for word in inside.splitlines()]
    return [word.partition("\t")[0] for word in lines if word]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a campaign and a result folder."""
    home = tmp_path_factory.mktemp("completion")
    (home / "server.yaml").write_text(
        "system: command\n"
        "workload: {command: 'echo rate {threads} {mode}', metrics: {my_rate: {regex: 'rate ([0-9]+)'}}}\n"
        "goal: {metric: my_rate, direction: maximize}\n"
        "space: {knobs: {threads: {values: [1, 2, 4], default: 1}, mode: {values: [fast, exact], default: fast, help: how}}}\n"
    )
    result = home / "autoscout_results" / "nightly-1"
    result.mkdir(parents=True)
    (result / "campaign.yaml").write_text("system: command\n")
    (result / "trials.jsonl").touch()
    (home / "autoscout_results" / "nothing").mkdir()
    return home


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_told_values(shell: str, place: Path) -> None:
    assert asked(shell, "autoscout tune llama", place) == ["llamacpp"]
    assert asked(shell, "autoscout tune server.yaml --searcher hyb", place) == ["hybrid", "hybrid-paper"]
    assert asked(shell, "autoscout tune server.yaml --metric my", place) == ["my_rate"]
    assert asked(shell, "autoscout report autoscout_results/n", place) == ["autoscout_results/nightly-1", "autoscout_results/nothing/"]
    assert asked(shell, "autoscout tune server.yaml --set ", place) == ["threads=", "mode="]
    values = ["1", "2", "4"] if shell == "bash" else ["threads=1", "threads=2", "threads=4"]
    assert asked(shell, "autoscout tune server.yaml --set threads=", place) == values


def test_names_of_plug_ins_files_and_folders(place: Path) -> None:
    offer = asked("fish", "autoscout tune ", place)
    assert set(plugins.available("backend")) <= set(offer)
    assert "server.yaml" in offer
    assert set(asked("fish", "autoscout tune llamacpp --executor ", place)) == set(plugins.available("executor"))
    assert "auto" in asked("fish", "autoscout tune llamacpp --simulator ", place)
    assert asked("fish", "autoscout resume ", place) == ["autoscout_results/nightly-1", "autoscout_results/"]
    assert asked("fish", "autoscout tune server.yaml --direction ", place) == ["minimize", "maximize"]
    assert "p95_ttft_ms" in asked("fish", "autoscout tune llamacpp --slo p95_tt", place)
    assert asked("fish", "autoscout estimate vll", place) == ["vllm"]


def test_knobs_of_a_backend_and_one_value_at_a_time(place: Path) -> None:
    assert {"parallel=1", "parallel=8"} <= set(asked("fish", "autoscout tune llamacpp --set paral", place))
    assert {"threads=", "threads_batch="} <= set(asked("zsh", "autoscout tune llamacpp --set thr", place))
    assert asked("fish", "autoscout tune server.yaml --set mo", place) == ["mode=fast", "mode=exact"], "one knob is left"
    assert asked("fish", "autoscout space show server.yaml --set threads=1 --set mode=f", place) == ["mode=fast"]


@pytest.mark.parametrize(
    "line", ["autoscout tune nowhere.yaml --set ", "autoscout tune --set ", "autoscout report /nowhere/x", "autoscout tune x --set a=b="]
)
def test_a_line_that_makes_no_sense_is_no_error(line: str, place: Path) -> None:
    for shell in ("bash", "fish"):
        assert asked(shell, line, place) == []


def test_words_that_bash_takes_apart_are_put_together() -> None:
    assert rejoined(["autoscout", "tune", "--set", "a", "=", "1"], 5) == (["autoscout", "tune", "--set", "a=1"], 3)
    assert rejoined(["autoscout", "--set", "a", "="], 3) == (["autoscout", "--set", "a="], 2)
    assert rejoined(["autoscout", "--set", "a", "=", ""], 4) == (["autoscout", "--set", "a="], 2)
    assert rejoined(["autoscout", "--set", "a", "=", "1", "--json"], 2) == (["autoscout", "--set", "a"], 2)


def test_bash_itself_completes(place: Path) -> None:
    environment = {**os.environ, "_AUTOSCOUT_COMPLETE": "source_bash"}
    script = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, check=False).stdout
    assert "complete -o default -F" in script
    words = 'COMP_WORDS=(autoscout tune server.yaml --set threads = ""); COMP_CWORD=6'
    test = f"{script}\n{words}; _autoscout_completion {PROGRAM}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    answer = subprocess.run(["bash", "--norc", "-c", test], cwd=place, capture_output=True, text=True, check=False)
    assert answer.stdout.split() == ["1", "2", "4"], answer.stderr
