"""Each rule of scripts/structure.py fires on a planted violation, and not on the ordinary way next to it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("structure", ROOT / "scripts" / "structure.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


structure = _script()


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A small tree with nothing wrong in it."""
    write(tmp_path, "src/autoscout/__init__.py")
    for package in ("search", "search/_shared", "search/grid", "study", "cli"):
        write(tmp_path, f"src/autoscout/{package}/__init__.py")
    write(tmp_path, "src/autoscout/search/_shared/history.py", "_x = 1\n")
    write(tmp_path, "src/autoscout/search/grid/searcher.py", "from autoscout.search._shared import history\n")
    write(tmp_path, "src/autoscout/search/grid/_rules.py", "from autoscout.search.grid import searcher\n")
    write(tmp_path, "src/autoscout/study/assemble.py", "from autoscout.study.study import Study\nstudy = Study()\n")
    write(tmp_path, "src/autoscout/study/study.py", 'class Study:\n    """Not a Study( call."""\n')
    write(tmp_path, "tests/search/test_grid.py", "from autoscout.search._shared.history import _x\n")
    write(tmp_path, "docs/guides/tune.md", "word " * 1200)
    write(tmp_path, "docs/vocabulary.md", "Do not write foretold.\n")
    write(tmp_path, "README.md", "We recommend, predict and amend.\n")
    return tmp_path


def write(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found(root: Path) -> dict[str, list[str]]:
    """The rules that found something, with the places."""
    told = {rule: [f"{where}:{line}" for where, line, _ in check(root)] for rule, check in structure.RULES.items()}
    return {rule: places for rule, places in told.items() if places}


def test_an_orderly_house_passes(house: Path) -> None:
    assert found(house) == {}
    assert structure.main(house) == 0


@pytest.mark.parametrize("name", ["search/_moves.py", "search/_moves/__init__.py"])
def test_a_helper_among_plugins(house: Path, name: str) -> None:
    write(house, f"src/autoscout/{name}")
    assert list(found(house)) == ["helpers among plug-ins"]
    assert structure.main(house) == 1


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("src/autoscout/cli/tune.py", "from autoscout.search.grid.searcher import _points\n"),
        ("src/autoscout/cli/tune.py", "from autoscout.search._shared import history\n"),
        ("src/autoscout/cli/tune.py", "from autoscout.search._shared.history import answers\n"),
        ("src/autoscout/cli/tune.py", "import autoscout.search.grid._rules as rules\n"),
        ("src/autoscout/cli/tune.py", "from ..search.grid import _rules\n"),
        ("src/autoscout/cli/tune.py", "from autoscout.search.grid import searcher\nsearcher._points()\n"),
        ("src/autoscout/search/random.py", "from autoscout.search.grid._rules import Rule\n"),
        ("src/autoscout/study/x.py", "def late():\n    from autoscout.search.grid import _rules\n"),
        ("tests/study/test_study.py", "from autoscout.search.grid.searcher import _points\n"),
        ("tests/test_all.py", "from autoscout.search.grid.searcher import _points\n"),
        ("benchmarks/race.py", "from autoscout.search._shared import history\n"),
    ],
)
def test_a_private_name_used_from_outside(house: Path, where: str, text: str) -> None:
    write(house, where, text)
    told = found(house)
    assert list(told) == ["private names used from outside"]
    assert {place.rpartition(":")[0] for place in told["private names used from outside"]} == {where}


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("src/autoscout/search/random.py", "from autoscout.search._shared.history import answers\n"),
        ("src/autoscout/search/random.py", "from ._shared import history\n"),
        ("src/autoscout/study/x.py", "from autoscout.study.study import _helper\n"),
        ("src/autoscout/cli/tune.py", "from numpy import _core\nfrom autoscout import __version__\nself._x = other._y\n"),
        ("tests/search/test_rules.py", "from autoscout.search.grid._rules import _Rule\n"),
    ],
)
def test_private_names_used_at_home(house: Path, where: str, text: str) -> None:
    write(house, where, text)
    assert found(house) == {}


def test_an_exempt_benchmark(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(house, "benchmarks/race.py", "from autoscout.search._shared import history\n")
    monkeypatch.setitem(structure.PRIVATE_USERS, "benchmarks/race.py", "a reason")
    assert found(house) == {}


def test_every_exemption_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    exempt = dict(structure.PRIVATE_USERS)
    monkeypatch.setattr(structure, "PRIVATE_USERS", {})
    assert {where for where, _, _ in structure.private_imports(ROOT)} == set(exempt)


def test_a_second_study(house: Path) -> None:
    write(house, "src/autoscout/api.py", "from autoscout.study import study\n\nstudy.Study(1)\n")
    assert found(house) == {"constructions of Study": ["src/autoscout/api.py:3", "src/autoscout/study/assemble.py:2"]}


def test_a_long_guide(house: Path) -> None:
    write(house, "docs/guides/tune.md", "word " * 1201)
    assert found(house) == {"long guides": ["docs/guides/tune.md:1"]}
    write(house, "docs/guides/tune.md", "word " * 1199 + "<!-- not run: needs a GPU -->")
    assert found(house) == {}, "readers do not see comments"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", "as it was Foretold"),
        ("docs/design.md", "picked by lot"),
        ("src/autoscout/cli/tune.py", "# must be mended"),
        ("src/autoscout/cli/README.md", "The study goes on with its trials"),
    ],
)
def test_an_odd_word(house: Path, name: str, text: str) -> None:
    write(house, name, f"\n{text}\n")
    assert found(house) == {"odd words": [f"{name}:2"]}


def test_counted_rules_do_not_fail_and_others_do(house: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write(house, "README.md", "foretold\n")
    monkeypatch.setattr(sys, "argv", ["structure.py"])
    monkeypatch.setattr(structure, "COUNTED", {"odd words"})
    assert structure.main(house) == 0
    assert "odd words: 1" in capsys.readouterr().out
    monkeypatch.setattr(structure, "COUNTED", set())
    assert structure.main(house) == 1
    assert "README.md:1: 'foretold': write 'predicted'" in capsys.readouterr().err


def test_every_file_with_tests_of_adapters_is_run() -> None:
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark." + "adapters" in path.read_text()]
    run = (ROOT / "scripts" / "test").read_text()
    assert marked
    assert [path for path in marked if path.relative_to(ROOT).as_posix() not in run] == []
