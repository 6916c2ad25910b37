"""The project around the code: workflows, their schemas, and a release that could go out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from autoscout.web.guard import TOKEN_VARIABLE

ROOT = Path(__file__).parent.parent
SCHEMAS = {
    "vendor.github-workflows": sorted((ROOT / ".github/workflows").glob("*.yml")),
    "vendor.github-actions": [ROOT / "action.yml"],
    "vendor.compose-spec": [ROOT / "compose.yaml"],
    "vendor.dependabot": [ROOT / ".github/dependabot.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
    "vendor.readthedocs": [ROOT / ".readthedocs.yaml"],
}


def run(module: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / module
    if not program.exists():
        pytest.skip(f"{module} is not installed here")
    return subprocess.run([program, *words], capture_output=True, text=True, cwd=ROOT)


def test_workflows_have_no_known_weakness():
    done = run("zizmor", "--offline", "--no-progress", ".github")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_of_services_follow_their_published_schemas(schema):
    done = run("check-jsonschema", "--builtin-schema", schema, *SCHEMAS[schema])
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_container_file_has_no_known_weakness():
    done = run("hadolint", "Containerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_of_the_compose_file_starts_with_flags_that_exist():
    dashboard = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["dashboard"]
    shown = subprocess.run([sys.executable, "-m", "autoscout", "dashboard", "-h"], capture_output=True, text=True).stdout
    assert not [word for word in dashboard["command"] if word.startswith("--") and word not in shown]
    assert TOKEN_VARIABLE in dashboard["environment"], "an address that others can reach needs a token"


def test_the_readme_works_on_a_package_index():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from metadata import LINK, readme_for_index
    finally:
        sys.path.pop(0)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert LINK.search(text), "links on a forge are relative"
    shown = readme_for_index(text, "https://forge.example/us/it")
    assert not LINK.search(shown)
    assert "](https://forge.example/us/it/blob/main/docs/start/quickstart.md)" in shown
    assert "](https://forge.example/us/it/raw/main/docs/images/dashboard.png)" in shown


def test_the_readme_is_rendered_as_a_package_index_does():
    markdown = pytest.importorskip("readme_renderer.markdown", reason="readme-renderer is not installed here")
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from metadata import readme_for_index
    finally:
        sys.path.pop(0)
    page = markdown.render(readme_for_index((ROOT / "README.md").read_text(encoding="utf-8"), "https://forge.example/us/it"))
    assert page, "it cannot be rendered"
    places = re.findall(r'(?:href|src)="([^"]*)"', page)
    anchors = {f"#{name}" for name in re.findall(r'id="([^"]*)"', page)}
    assert len(places) > 30
    assert [place for place in places if place not in anchors and not place.startswith("https://")] == []
    assert page.count("<table>") == 2
    assert "<img" in page
    assert "&lt;!--" not in page
    assert "](" not in page, "a link was not understood"


@pytest.mark.slow
def test_a_release_builds_installs_and_runs_and_waits_for_what_is_undecided(tmp_path):
    words = [sys.executable, str(ROOT / "scripts/release_check.py")]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run([*words, "--rehearse"], capture_output=True, text=True, cwd=tmp_path, env=environment)
    if "No module named build" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip(f"RELEASE NOT TESTED: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    refused = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)
    is_undecided = "repository.invalid" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert ("set `repository` in pyproject.toml" in refused.stderr) == is_undecided
    assert refused.returncode == (2 if refused.stderr else 0), refused.stderr
