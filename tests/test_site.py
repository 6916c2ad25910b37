"""The documentation as a site: it builds without a warning, and what the troubleshooting page quotes is what the program says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed (extra `docs`)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {"index.html", "documentation.html", "guides/vllm.html", "troubleshooting.html", "reference/cli.html"} <= pages
    text = (tmp_path / "site" / "index.html").read_text()
    outside = re.findall(r'(?:src|href)="(https?://[^"]+)"[^>]*rel="(?:stylesheet|preconnect)', text) + re.findall(
        r'<script[^>]+src="(http[^"]+)', text
    )
    assert not outside, "nothing is fetched from elsewhere"


def test_drawn_pictures_are_small_and_follow_the_theme() -> None:
    drawn = re.findall(r'^    "([a-z-]+)": [a-z_]+,$', (ROOT / "scripts" / "pictures.py").read_text(), flags=re.MULTILINE)
    assert len(drawn) == 9
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "explanation").glob("*.md"))
    for name in drawn:
        text = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert len(text) < 40_000, f"{name} is large for a drawing"
        assert "prefers-color-scheme: dark" in text
        assert "<script" not in text
        assert f"](../images/{name}.svg)" in pages, f"no page shows {name}"


def test_explanations_are_short() -> None:
    pages = [*(ROOT / "docs" / "explanation").glob("*.md")]
    assert [page.name for page in pages if len(page.read_text().split()) > 1200] == []


def test_quoted_messages_are_in_the_code() -> None:
    quoted = re.findall(r"^### `([^`]+)`$", (ROOT / "docs" / "troubleshooting.md").read_text(), flags=re.MULTILINE)
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert len(quoted) > 8
    assert [message for message in quoted if message not in code] == []


def test_every_status_is_explained() -> None:
    from autoscout.core.trial import Status

    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert [status.value for status in Status if status is not Status.OK and f"`{status.value}`" not in page] == []
