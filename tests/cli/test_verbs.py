"""The table of verbs: what it says of them is true, and only the verb that is called is loaded."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from autoscout import __version__
from autoscout.cli.main import main, whole_program
from autoscout.cli.verbs import VERBS, Verb

LOADED = """
import json, sys
from autoscout.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
sys.stderr.write(json.dumps([name for name in sys.modules if name.split(".")[0] in ("autoscout", "numpy", "pydantic", "yaml")]))
"""


def loaded(*words: str) -> set[str]:
    """The modules that a fresh program has imported once the command is done."""
    ran = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stderr))


@pytest.mark.parametrize("words", [["--version"], ["--help"]], ids=lambda words: words[0])
def test_the_program_itself_imports_no_verb(words: list[str]) -> None:
    modules = loaded(*words)
    assert {name.split(".")[0] for name in modules} == {"autoscout"}
    assert {name.split(".")[1] for name in modules if "." in name} <= {"cli", "core"}
    assert not {f"autoscout.cli.{verb.home.split(':')[0]}" for verb in VERBS} & modules


def test_one_verb_imports_no_other() -> None:
    modules = loaded("render", "--help")
    assert "autoscout.cli.render" in modules
    assert {name.split(".")[1] for name in modules if "." in name}.isdisjoint({"bench", "sched", "estimate"})
    assert "autoscout.cli.sched" not in modules


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_the_table_says_what_the_verb_says(verb: Verb) -> None:
    command = verb.load()
    assert command.name == verb.name
    assert (command.help or "").splitlines()[0] == verb.help


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert not ended.value.code
    told = capsys.readouterr().out
    for verb in VERBS:
        assert re.search(rf"\b{verb.name} +{re.escape(verb.help)}", told)


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
    assert list(commands) == [verb.name for verb in VERBS]
    assert "simulate" in commands["sched"].commands
    assert "trace" in commands["sched"].commands
