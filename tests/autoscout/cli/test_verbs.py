"""The table of verbs: what it says of them is true, and only the verb that is called is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autosched.control.ledger import Entry, Ledger
from autoscout import __version__
from autoscout.cli.main import main, whole_program
from autoscout.cli.verbs import Verb, verbs
from autoscout.core.config import Config

LOADED = """
import json, sys
from autoscout.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
watched = ("autoscout", "autosched", "autoscout_lab", "numba", "numpy", "pydantic", "yaml")
sys.stderr.write(json.dumps([name for name in sys.modules if name.split(".")[0] in watched]))
"""


def loaded(*words: str) -> set[str]:
    """The modules that a fresh program has imported once the command is done."""
    ran = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stderr))


@pytest.mark.parametrize("words", [["--version"], ["--help"]], ids=lambda words: words[0])
def test_the_program_itself_imports_no_verb(words: list[str]) -> None:
    modules = loaded(*words)
    assert {name for name in modules if "." in name and not name.startswith(("autoscout.cli", "autoscout.core"))} <= {
        "autosched.cli",
        "autosched.cli.verb",
        "autoscout_lab.verb",
    }
    assert not {verb.home.split(":")[0] for verb in verbs()} & modules


def test_one_verb_imports_no_other() -> None:
    modules = loaded("render", "--help")
    assert "autoscout.cli.render" in modules
    assert modules.isdisjoint({"autoscout.cli.estimate", "autoscout.estimate", "autosched.cli.verbs", "autoscout_lab.cli"})


def test_help_and_verbs_that_read_a_ledger_wait_for_no_simulator(tmp_path: Path) -> None:
    config = tmp_path / "control.yaml"
    config.write_text("cluster: lab\nlive: {kind: slurm}\n")
    (tmp_path / "control").mkdir()
    ledger = Ledger(tmp_path / "control" / "control.db", "lab")
    now = Config(weight=1)
    ledger.sample(1.0, {"load": 1.0, "waiting": 1, "running": 0, "settings": now.to_json()})
    ledger.add(Entry(at_s=1.0, state="proposed", kind="hourly", before=now, after=now), "proposed", "")
    ledger.close()
    path = str(config)
    for words in (["--help"], ["trace", "--help"], ["status", path], ["history", path], ["explain", path, "1"]):
        modules = loaded("sched", *words)
        assert "autosched.cli.verbs" in modules
        assert modules.isdisjoint({"numba", "autosched.sim.engine", "autosched.tune.loop"}), words


@pytest.mark.parametrize("verb", verbs(), ids=lambda verb: verb.name)
def test_the_table_says_what_the_verb_says(verb: Verb) -> None:
    command = verb.load()
    assert command.name == verb.name
    assert (command.help or "").splitlines()[0] == verb.help


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert not ended.value.code
    told = " ".join(capsys.readouterr().out.split())
    for verb in verbs():
        assert f" {verb.name} {verb.help}" in told


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code
    assert capsys.readouterr().out == f"autoscout {__version__}\n"


def test_a_misspelt_verb_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tun"])
    assert ended.value.code == 2
    assert "Did you mean 'tune'?" in capsys.readouterr().err


def test_the_whole_program_has_the_verbs_of_the_sub_programs() -> None:
    commands = whole_program().commands
    assert list(commands) == [verb.name for verb in verbs()]
    assert "simulate" in commands["sched"].commands
    assert "trace" in commands["sched"].commands
