"""The blocks of code on a page, and what is to be done with each.

The rule for authors, in short: every fenced block names its language, and it is run unless a comment right above it says otherwise.

| block | what the tests do with it |
|---|---|
| `python` | runs it; blocks of a page share their names; with `>>>` its output is compared |
| `sh`, `console` | runs it, in the folder of the page; of a `console` block the lines after `$ `. `autoscout tune` gets `--dry-run` |
| output in a `console` block | compares it with what the command prints; see below |
| `yaml`, `toml`, `json` | reads it; YAML with `system:` must be a valid campaign. One that begins `# NAME.yaml` is written to that file |
| `text` | nothing; one that shows output of a run says so: `<!-- from a real run -->` |
| `<!-- not run: REASON -->` above it | nothing; a shell command still must name flags that exist |
| `<!-- run by tests/... -->` above it | that file runs it, with what it needs; `all blocks run by`, below the title, holds for the page |

Output is all lines that a command prints, those on standard error first. Numbers and white space are not compared, and a line `...` stands
for any number of lines. A command that is not run, or to which the tests add `--dry-run`, shows no output.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHELL = ("sh", "console")
DATA = ("yaml", "toml", "json")
LANGUAGES = (*SHELL, *DATA, "python", "text")
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
_MARK = re.compile(r"<!-- (not run|run by):? (.+?) -->\n\Z")
_WHOLE = re.compile(r"\A# [^\n]+\n\n<!-- all blocks run by (.+?) -->")
_NAME = re.compile(r"# ([\w./-]+\.(?:ya?ml|json|py|toml|csv|txt))\b[^\n]*\n")


@dataclass(frozen=True)
class Step:
    """A command of a `console` block, and the lines below it."""

    command: str
    output: tuple[str, ...] = ()

    def differs(self, printed: str) -> str:
        """What the page shows and what the command printed, where they differ; empty where they agree."""
        shown = [_plain(line) for line in self.output]
        lines = [_plain(line) for line in printed.splitlines()]
        pattern = "".join("(?:.*\n)*" if line == "..." else re.escape(line) + "\n" for line in shown)
        if not shown or re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)):
            return ""
        return "\n".join(["the page shows", *self.output, f"but `{self.command}` prints", *printed.splitlines()])


def _plain(line: str) -> str:
    """A line without what changes from run to run: each number is `#`, all white space is one space."""
    return re.sub(r"\d+(?:[.,:]\d+)*", "#", " ".join(line.split()))


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes:
        page: Where it is.
        line: Of its fence, from 1.
        language: What it says it is.
        text: What it holds, without the indent of the fence.
        reason: Why it is not run; empty when it is.
        runner: The test that runs it, where that is not the one that runs all others.
        file: The name in its first line, if it is a comment with one.
    """

    page: Path
    line: int
    language: str
    text: str
    reason: str = ""
    runner: str = ""
    file: str = ""

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def left_out(self) -> bool:
        return bool(self.reason or self.runner)

    @property
    def plain(self) -> bool:
        """Whether it holds commands of ours and nothing else that a shell would have to do."""
        lines = [line.split(" #")[0] for line in self.commands.replace("\\\n", " ").splitlines()]
        bare = [re.sub(r"'[^']*'|\"[^\"]*\"", "", line) for line in lines]
        return all(line.startswith("autoscout ") for line in lines) and not any(set(line) & set("<>|;&$`*~") for line in bare)

    @property
    def commands(self) -> str:
        """What a shell is to run; of a `console` block what follows the prompts."""
        if self.language != "console":
            return self.text
        return "".join(f"{step.command}\n" for step in self.steps)

    @property
    def steps(self) -> list[Step]:
        """The commands of a `console` block, each with the output that the page shows."""
        steps: list[Step] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                steps.append(Step(line.removeprefix("$ ")))
            elif steps and not steps[-1].output and steps[-1].command.endswith("\\"):
                steps[-1] = Step(f"{steps[-1].command}\n{line}")
            elif steps:
                steps[-1] = Step(steps[-1].command, (*steps[-1].output, line))
        return steps


def pages() -> list[Path]:
    """Every page that readers see, except generated ones and results, which say themselves how they were made."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("README.md")]
    generated = "Written by `scripts/docs.py`"
    return sorted(page for page in found if "results" not in page.parts and generated not in page.read_text(encoding="utf-8"))


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    whole = _WHOLE.match(text)
    found = []
    for match in _FENCE.finditer(text):
        indent = len(match["indent"])
        inside = "".join(line[indent:] if line.strip() else line for line in match["text"].splitlines(keepends=True))
        mark = _MARK.search(text[: match.start()])
        said = {mark[1]: mark[2]} if mark else {}
        name = _NAME.match(inside)
        found.append(
            Block(
                page=page,
                line=text[: match.start()].count("\n") + 1,
                language=match["language"].strip(),
                text=inside,
                reason=said.get("not run", ""),
                runner=whole[1] if whole else said.get("run by", ""),
                file=name[1] if name else "",
            )
        )
    return found
