"""The recipes of spaces open."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscout.space import read_space

RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*_space.yaml")), ids=lambda path: path.name)
def test_recipes_open(path: Path) -> None:
    space = read_space(path)
    assert space.check(space.default()) == []
