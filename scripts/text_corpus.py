"""Write the texts that prompts of a load are cut from: English prose and Python code of this project, under its own licence.

    python scripts/text_corpus.py

Run it seldom: another text is another load, and measurements of before and after cannot be compared.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXTS = ROOT / "src" / "autoscout" / "load" / "texts"
PROSE = ("docs/explanation", "docs/guides", "docs/start", "docs/extending", "docs/autosched", "docs/lab")
CODE = ("core", "common", "space", "search", "study", "analysis", "load")
MOST_CHARACTERS = 400_000  # about 100,000 tokens: no measurement asks for more without repeating itself


def prose(page: str) -> Iterator[str]:
    """The paragraphs and list items of a page in Markdown, without code, tables, headings and links."""
    page = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    page = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", page)
    for paragraph in re.split(r"\n\s*\n", page):
        lines = [
            line.strip() for line in paragraph.splitlines() if line.strip() and not line.lstrip().startswith(("#", "|", ">", "!", "<"))
        ]
        text = re.sub(r"[*`]|^[-+] ", "", " ".join(lines))
        if len(text) > 80 and not text.startswith("figure"):
            yield text + "\n\n"


def pages() -> Iterator[str]:
    """Of all pages, in a fixed order."""
    for folder in PROSE:
        for path in sorted((ROOT / folder).rglob("*.md")):
            yield from prose(path.read_text(encoding="utf-8"))


def modules() -> Iterator[str]:
    """Modules that say something, in a fixed order."""
    for package in CODE:
        for path in sorted((ROOT / "src" / "autoscout" / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if len(text) > 2000:
                yield text + "\n\n"


def write(name: str, parts: Iterable[str]) -> None:
    """One text, always as the same bytes."""
    text = "".join(parts)[:MOST_CHARACTERS]
    text = text[: text.rindex("\n") + 1]
    with (TEXTS / f"{name}.txt.gz").open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode())
    print(f"{name}: {len(text):,} characters")


if __name__ == "__main__":
    TEXTS.mkdir(exist_ok=True)
    write("prose", pages())
    write("code", modules())
