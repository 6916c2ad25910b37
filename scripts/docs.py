"""Writes the generated reference pages: the command line, metrics, statuses, the Python API, and JSON Schemas for editors.

`python scripts/docs.py` writes them; with `--check` it only says whether they are up to date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from reference_pages import metrics_page, python_page, statuses_page

from autoscout.cli.documents import documents_schema
from autoscout.cli.main import whole_program
from autoscout.study.campaign import campaign_schema

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def command_page() -> str:
    """Every verb with its arguments and flags."""
    lines = ["# The command line", "", "Written by `scripts/docs.py` from the program itself.", ""]
    codes = "0 an answer, 2 something must be fixed (bad input, or no configuration worked), 130 interrupted"
    lines += [f"Exit codes: {codes}. A verb with others says so below.", ""]
    for path, command in verbs(whole_program(), "autoscout"):
        arguments = " ".join(f"{parameter.name}".upper() for parameter in command.params if parameter.param_type_name == "argument")
        lines += [f"## `{path} {arguments}".rstrip() + "`", "", *(command.help or "").split("\n"), ""]
        lines += ["| flag | meaning |", "|---|---|"]
        for parameter in command.params:
            if parameter.param_type_name == "option":
                names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
                lines.append(f"| {names} | {(parameter.help or '').replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def verbs(command: Any, path: str) -> list[tuple[str, Any]]:
    """All verbs below a command, with the words that call them."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return [(path, command)]
    return [found for name in inner for found in verbs(inner[name], f"{path} {name}")]


def main() -> int:
    """Write or check; 1 when a page is out of date."""
    pages = {
        "cli.md": command_page(),
        "metrics.md": metrics_page(),
        "statuses.md": statuses_page(),
        "python.md": python_page(),
        "campaign.schema.json": json.dumps(campaign_schema(), indent=2) + "\n",
        "output.schema.json": json.dumps(documents_schema(), indent=2) + "\n",
    }
    stale = [name for name, text in pages.items() if not (REFERENCE / name).exists() or (REFERENCE / name).read_text() != text]
    if "--check" in sys.argv:
        for name in stale:
            print(f"docs/reference/{name} is out of date: run python scripts/docs.py", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (REFERENCE / name).write_text(pages[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
