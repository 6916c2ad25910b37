"""Hooks of mkdocs: the README is the first page, navigation follows the folders, and links to files outside docs/ become plain text.

Guides are listed under the headings of `SECTIONS`; one that is named nowhere stands under "More guides", so that no page is ever lost.
`docs/README.md`, which leads through the documentation on a forge, is the page "Documentation": the README takes the place of the index.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OVERVIEW = "documentation.md"
SECTIONS = {
    "Servers": ["vllm", "llamacpp", "llama-server", "load"],
    "Training": ["training", "megatron"],
    "Anything else": ["command", "python", "space"],
    "Where trials run": ["where-trials-run", "shared-gpus", "store"],
    "The answer": ["report", "dashboard", "trackers", "goals", "expensive", "scripts", "agents"],
    "Predicting": ["estimate"],
}
FOLDERS = {
    "Schedulers": "autosched",
    "Extending": "extending",
    "Explanation": "explanation",
    "Reference": "reference",
    "Results": "results",
    "Laboratory": "lab",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Navigation from the folders."""
    guides = {path.stem for path in (DOCS / "guides").glob("*.md")}
    sections = {title: [name for name in names if name in guides] for title, names in SECTIONS.items()}
    rest = sorted(guides - {name for names in sections.values() for name in names})
    sections |= {"More guides": rest} if rest else {}
    config["nav"] += [{"Documentation": OVERVIEW}]
    config["nav"] += [{"Guides": [{title: [f"guides/{name}.md" for name in names]} for title, names in sections.items() if names]}]
    for title, folder in FOLDERS.items():
        pages = sorted((DOCS / folder).rglob("*.md"), key=lambda path: (len(path.parts), path.stem != "README", path.stem))
        config["nav"] += [{title: [str(path.relative_to(DOCS)) for path in pages]}] if pages else []
    config["nav"] += [{"Troubleshooting": "troubleshooting.md"}, {"Design": "design.md"}, {"Vocabulary": "vocabulary.md"}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """The README as the first page, and the overview of the documentation."""
    from mkdocs.structure.files import File

    readme = LINK.sub(_inside, (ROOT / "README.md").read_text(encoding="utf-8"))
    files.append(File.generated(config, "index.md", content=readme))
    files.append(File.generated(config, OVERVIEW, content=(DOCS / "README.md").read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that leave the documentation as text: readers of the site have no such files."""
    folder = (DOCS / page.file.src_uri).parent

    def plain(found: re.Match[str]) -> str:
        _, text, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found.group(0)
        path = (folder / target.split("#")[0]).resolve()
        if path.is_dir() or not path.is_relative_to(DOCS) or path.suffix not in (".md", ".png", ".svg", ".json"):
            return text if path.is_relative_to(DOCS) else f"{text} (`{path.relative_to(ROOT)}`)"
        return found.group(0)

    return LINK.sub(plain, markdown)


def _inside(found: re.Match[str]) -> str:
    """A link of the README, as seen from docs/."""
    mark, text, target = found.groups()
    if target == "docs/README.md":
        return f"{mark}[{text}]({OVERVIEW})"
    return f"{mark}[{text}]({target.removeprefix('docs/') if target.startswith('docs/') else '../' + target})"
