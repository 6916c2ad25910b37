"""Config files of a trial: text with slots, or sections with `$knob` holes, written as JSON or YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from autoscout.backends.command.workload import CommandWorkload
from autoscout.common.templates import as_text, fill, holes, resolve
from autoscout.core.config import Value

TEXT_HOLE = re.compile(
    r"\{\{(?P<escaped>[^\W\d][\w.\-]*)\}\}|\$\$(?P<paid>[^\W\d]\w*)"
    r"|\{(?P<slot>[^\W\d][\w.\-]*)\}|\$\{(?P<braced>[^\W\d][\w.\-]*)\}|\$(?P<name>[^\W\d]\w*)"
)
"""What may be a slot in the text of a file: `{knob}`, `$knob` or `${knob}`; doubled signs keep it as it is."""


def text_names(text: str) -> set[str]:
    """Every name in a place where a slot could be; whether it is one depends on whether the name is known."""
    matches = (match["slot"] or match["braced"] or match["name"] for match in TEXT_HOLE.finditer(text))
    return {name for name in matches if name}


def mentioned(workload: CommandWorkload, vocabulary: Iterable[str]) -> set[str]:
    """All knobs and facts that some template of the workload mentions."""
    vocabulary = set(vocabulary)
    names = set(workload.run.names) | (workload.serve.names if workload.serve else set())
    for template in workload.env.values():
        names |= template.names
    for content in workload.files.values():
        names |= text_names(content) if isinstance(content, str) else {resolve(name, vocabulary) or name for name in holes(content)}
    return names & vocabulary


def write_file(name: str, content: Any, values: Mapping[str, Value], names: Iterable[str]) -> str:
    """The text of one file.

    In text, a line that mentions an inactive knob (`names`, but without a value) is left out; in sections, the entry is.
    Names nobody knows are left alone in text, since many file formats use braces and dollars themselves.
    """
    if isinstance(content, str):
        names = set(names)
        text = content[1:] if content.startswith("@@") else content  # one @ at the start would name a file to take the text from
        lines = (_line(line, values, names) for line in text.splitlines(keepends=True))
        return "".join(line for line in lines if line is not None)
    filled = fill(content, values)
    if name.endswith(".json"):
        return json.dumps(filled, indent=2) + "\n"
    return yaml.safe_dump(filled, sort_keys=False)


def _line(line: str, values: Mapping[str, Value], names: set[str]) -> str | None:
    out, at = [], 0
    for match in TEXT_HOLE.finditer(line):
        literal = match["escaped"] or match["paid"]
        name = match["slot"] or match["braced"] or match["name"]
        if (literal or name) not in names:
            continue
        if name and name not in values:
            return None
        text = as_text(values[name]) if name else match[0][1:-1] if match["escaped"] else match[0][1:]
        out += [line[at : match.start()], text]
        at = match.end()
    return "".join(out) + line[at:]
