from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from autoscout.core import plugins
from autoscout.core.errors import PluginError

SIMULATOR = "from autoscout.core.protocols import Simulator\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules count as simulators in addition to AutoScout's own."""
    import autoscout.simulators

    monkeypatch.setattr(autoscout.simulators, "__path__", [*autoscout.simulators.__path__, str(tmp_path)])
    plugins._modules.cache_clear()
    yield tmp_path
    plugins._modules.cache_clear()
    for name in [name for name in sys.modules if name.startswith("autoscout.simulators.pretend")]:
        del sys.modules[name]


def test_a_file_is_a_plugin_by_its_name(folder: Path) -> None:
    (folder / "pretend_one.py").write_text(f'{SIMULATOR}__all__ = ["One"]\nclass One(Simulator):\n    """Says one."""\n')
    (folder / "_helper.py").write_text("raise AssertionError('helpers are not imported')")
    assert "pretend-one" in plugins.available("simulator")
    assert not any("helper" in name for name in plugins.available("simulator"))
    assert plugins.get("simulator", "pretend-one").__name__ == "One"
    assert plugins.health("simulator", "pretend-one").summary == "Says one."


def test_missing_packages_name_the_extra(folder: Path) -> None:
    (folder / "pretend_two.py").write_text(
        f'{SIMULATOR}__all__ = ["Two"]\nclass Two(Simulator):\n    requires = ("no_such_package_here",)\n'
    )
    with pytest.raises(PluginError, match=r"no_such_package_here.*pip install 'autoscout\[pretend-two\]'"):
        plugins.get("simulator", "pretend-two")
    assert not plugins.health("simulator", "pretend-two").usable
    assert plugins.requirements("simulator", "pretend-two") == ("no_such_package_here",)
    assert plugins.requirements("simulator", "linear") == ()


def test_an_import_error_is_translated(folder: Path) -> None:
    (folder / "pretend_three.py").write_text("import no_such_package_here\n")
    with pytest.raises(PluginError, match="could not be imported"):
        plugins.get("simulator", "pretend-three")


def test_two_classes_are_refused(folder: Path) -> None:
    (folder / "pretend_four.py").write_text('__all__ = ["A", "B"]\nclass A: ...\nclass B: ...\n')
    with pytest.raises(PluginError, match="exactly one class"):
        plugins.get("simulator", "pretend-four")


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(PluginError, match=r"unknown searcher; there are: .*random"):
        plugins.get("searcher", "rnadom")
    with pytest.raises(PluginError, match="must be one of: backend"):
        plugins.get("gadget", "x")


def test_entry_points_join_in_and_may_not_take_a_name_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pretend_five.py").write_text('__all__ = ["Five"]\nclass Five: ...\n')
    linear = "autoscout.simulators.linear:LinearRegression"
    outside = [EntryPoint("pretend-five", linear, "g"), EntryPoint("pretend-six", linear, "g"), EntryPoint("json", "json:JSONDecoder", "g")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: outside if group == "autoscout.simulators" else [])
    plugins._entry_points.cache_clear()
    try:
        assert plugins.get("simulator", "pretend-six").__name__ == "LinearRegression"
        with pytest.raises(PluginError, match=r"simulator json: must derive from autoscout\.core\.protocols\.Simulator.*JSONDecoder"):
            plugins.get("simulator", "json")
        assert not plugins.health("simulator", "json").usable
        with pytest.raises(PluginError, match="may be taken once"):
            plugins.get("simulator", "pretend-five")
    finally:
        plugins._entry_points.cache_clear()
