"""Build hook: the addresses of the project, and the README as a package index shows it, whose links must lead back to the repository.

The address of the repository stands in one place, `[tool.hatch.metadata.hooks.custom]` of pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
PLACEHOLDER = "repository.invalid"


def readme_for_index(text: str, repository: str) -> str:
    """The README with absolute links: pages of the repository, and pictures as files."""
    return LINK.sub(lambda link: f"{link[1]}[{link[2]}]({repository}/{'raw' if link[1] else 'blob'}/main/{link[3]})", text)


def addresses(repository: str) -> dict[str, str]:
    """What a package index lists as links of the project."""
    return {
        "Repository": repository,
        "Documentation": f"{repository}/blob/main/docs/README.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Security": f"{repository}/blob/main/SECURITY.md",
    }


class ProjectMetadata(MetadataHookInterface):
    """Called by hatchling for every build, editable ones too."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config["repository"]
        metadata["urls"] = addresses(repository)
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme_for_index(text, repository)}
