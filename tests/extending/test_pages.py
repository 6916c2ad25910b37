"""What holds for all pages of docs/extending."""

from __future__ import annotations

import re

import pytest
from _package import files, page

from autoscout.core import plugins


@pytest.mark.parametrize("kind", plugins.kinds())
def test_every_kind_has_a_short_page_with_a_whole_package(kind: str) -> None:
    text = page(kind).read_text()
    assert len(re.sub(r"<!--.*?-->", "", text).split()) <= 1000
    assert f'[project.entry-points."{plugins.kinds()[kind]}"]' in files(page(kind))["pyproject.toml"]
    assert any(name.startswith("test_") for name in files(page(kind)))
    assert f"]({kind}.md)" in page("README").read_text()
