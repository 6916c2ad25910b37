"""The guide and the recipes do what they say."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from autoscout.space import read_space

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "space.md"


def test_the_python_of_the_guide_runs() -> None:
    found = doctest.testfile(str(GUIDE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 10
    assert found.failed == 0


def test_the_yaml_of_the_guide_is_a_space() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        assert read_space(block).count().exact


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*_space.yaml")), ids=lambda path: path.name)
def test_recipes_open(path: Path) -> None:
    space = read_space(path)
    assert space.check(space.default()) == []
