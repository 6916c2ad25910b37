"""Reference pages made from the code: metrics, statuses and other fixed words, and the Python API."""

from __future__ import annotations

import enum
import inspect
import json
import re
import types
from typing import Any

import autoscout
from autosched.control.ledger import STATES
from autosched.tune.formulas import COLUMNS, COUNTS, TEXTS
from autosched.tune.formulas import STATISTICS as OF_JOBS
from autosched.tune.measures import MEASURES
from autoscout.analysis.verdict import Verdict
from autoscout.common.fields import natural_direction
from autoscout.core.origin import By, Phase
from autoscout.core.trial import Fidelity, Status
from autoscout.report.meanings import LATENCIES, MEANINGS, STATISTICS
from autoscout.study.budget import Stop

WRITTEN = "Written by `scripts/docs.py` from the code itself."
_SECTIONS = {"Args": "Arguments", "Attributes": "Attributes", "Returns": "Returns", "Raises": "Raises"}
_GROUPS = {
    "Tune": ("minimize", "maximize", "optimize", "tune", "create_study", "AskTellStudy", "load_study", "Outcome"),
    "Say what may be chosen": ("Space", "read_space", "Choice", "Grid", "Flag", "Config"),
    "Say what is wanted": ("Objective", "Goal", "Direction", "Budget", "Infeasible", "Campaign"),
    "Write a part of your own": ("Task", "Proposal", "Measurement", "Trial", "Status", "Fidelity", "Study"),
}
"""Headings of the page about the API, in the order of use."""


def metrics_page() -> str:
    """Every metric that AutoScout itself knows."""
    lines = ["# Metrics", "", WRITTEN, ""]
    lines += [
        "A metric is a number that a trial reports. Any of them may be the goal (`--metric`), a limit (`--slo 'p95_ttft_ms<=500'`) or",
        "a guard (`--guard 'p99_itl_ms<=1.2x'`). A `command` or a Python function names its own. Where the better direction follows",
        "from the name it is given below; elsewhere say `direction:` in the goal.",
        "",
    ]
    for title, group in MEANINGS.items():
        lines += [f"## {title}", "", "| metric | what it is | better |", "|---|---|---|"]
        lines += [f"| `{name}` | {words} | {_better(name)} |" for name, words in group.items()]
        lines.append("")
        if title == "Serving":
            lines += [
                "Latencies are named `STATISTIC_LATENCY`, such as `p95_ttft_ms`. Less is better.",
                "",
                "| latency | what is timed |",
                "|---|---|",
            ]
            lines += [f"| `{name}` | {words} |" for name, words in LATENCIES.items()]
            lines += ["", "| statistic | of all requests |", "|---|---|"]
            lines += [f"| `{name}` | {words} |" for name, words in STATISTICS.items()]
            lines.append("")
    return "\n".join([*lines, *_of_schedulers()]).rstrip() + "\n"


def _of_schedulers() -> list[str]:
    """Metrics of `sched assess` and `sched control`, and the language in which operators define their own."""
    lines = ["## Jobs of a simulated scheduler", "", "Goals and intermediate metrics of `sched assess` and `sched control`.", ""]
    lines += ["| metric | better |", "|---|---|"]
    lines += [f"| `{name}` | {'less' if direction == 'minimize' else 'more'} |" for name, direction in MEASURES.items()]
    lines += [
        "",
        "## Metrics of your own",
        "",
        "`--metric 'NAME=FORMULA'` of `sched assess` and `tuning: {metrics: {NAME: FORMULA}}` of `sched control` define a metric by a",
        "formula, such as `mean(wait[gpus <= 2])`: the mean wait of jobs of up to two GPUs. Less is better, unless the formula begins with",
        "`maximize`.",
        "",
        "A column has one value a job. `column[condition]` leaves some of the jobs; a statistic makes one number of a column. Columns are",
        "joined by `+ - * /`; conditions are `< <= > >= == !=` and `in [...]`, joined by `and`, `or`, `not`. Numbers, and metrics of the",
        "table above by name, are joined by `+ - * /`, too. What has no value (no such job, a division by zero) or a negative one counts",
        "as 0, because gains are ratios. Jobs that an aggregator merged count as many times as they are. A formula is read, never run.",
        "",
        "| column | what it is |",
        "|---|---|",
        *(f"| `{name}` | {words} |" for name, words in {**COLUMNS, **TEXTS}.items()),
        "",
        f"Statistics of a column: {', '.join(f'`{name}`' for name in OF_JOBS)}. Of a condition:",
        "",
        *(f"- `{name}`: {words}" for name, words in COUNTS.items()),
    ]
    return lines


def _better(metric: str) -> str:
    found = natural_direction(metric)
    return {"minimize": "less", "maximize": "more"}.get(found.value if found else "", "")


def statuses_page() -> str:
    """Fixed words of trials, studies and controllers, with their meanings."""
    failures = {True: "yes", False: "no"}
    lines = ["# Statuses and other fixed words", "", WRITTEN, "", "## Status of a trial", ""]
    lines += ["What to do about each: [troubleshooting](../troubleshooting.md#statuses-of-a-trial).", ""]
    lines += ["| status | meaning | a failure |", "|---|---|---|"]
    lines += [f"| `{status.value}` | {status.meaning} | {failures[status.failed]} |" for status in Status]
    lines += ["", "## Fidelity of a number", "", "| fidelity | meaning |", "|---|---|"]
    lines += [f"| `{fidelity.label}` | {fidelity.meaning} |" for fidelity in reversed(Fidelity)]
    lines += ["", "## Verdict of a study", "", "How it is reached: [the report](../guides/report.md#what-the-verdict-means).", ""]
    lines += ["| verdict | when |", "|---|---|"]
    lines += [f"| `{verdict.value}` | {verdict.meaning} |" for verdict in Verdict]
    lines += ["", "## Why a study ended", "", *(f"- {stop.value}" for stop in Stop)]
    lines += ["", "## Phase of a trial, and who proposed it", ""]
    lines += ["Phases: " + ", ".join(f"`{phase.value}`" for phase in Phase) + "."]
    lines += ["Proposers besides searchers, which sign with their own names: " + ", ".join(f"`{by.value}`" for by in By) + "."]
    lines += ["", "## State of a controller's decision", "", "| state | meaning |", "|---|---|"]
    lines += [f"| `{state}` | {words} |" for state, words in STATES.items()]
    return "\n".join(lines) + "\n"


def python_page() -> str:
    """Everything that `import autoscout` offers, from signatures and docstrings."""
    lines = [
        "# The Python API",
        "",
        WRITTEN,
        "",
        "Everything below is imported from `autoscout`. [The guide](../guides/python.md) shows it in use;",
    ]
    lines += ["parts are described on [the pages about extending](../extending/README.md). Other modules may change between versions.", ""]
    for title, names in _GROUPS.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += [f"### `{name}`", "", *_described(name, getattr(autoscout, name)), ""]
    return "\n".join(lines).rstrip() + "\n"


def _described(name: str, thing: Any) -> list[str]:
    if name == "Campaign":
        return ["A campaign file, read and checked; its fields are those of [campaign files](campaign.md)."]
    if isinstance(thing, type) and issubclass(thing, enum.Enum):
        return [*_prose(thing), "", *(f"- `{name}.{member.name}`" for member in thing)]
    lines = [*_signature(name, thing), "", *_prose(thing)]
    return [*lines, *_members(thing)] if isinstance(thing, type) and not issubclass(thing, Exception) else lines


def _signature(name: str, thing: Any) -> list[str]:
    try:
        found = inspect.signature(thing)
    except ValueError:
        return []
    words: list[str] = []
    for each in found.parameters.values():
        words += ["*"] if each.kind is each.KEYWORD_ONLY and not any(word.startswith("*") for word in words) else []
        words.append(_parameter(each))
    whole = f"{name}({', '.join(words)})"
    if len(whole) > 100:
        whole = f"{name}(\n" + "".join(f"    {word},\n" for word in words) + ")"
    returned = found.return_annotation
    arrow = f" -> {returned}" if isinstance(returned, str) and not isinstance(thing, type) else ""
    return ["```python", whole + arrow, "```"]


def _parameter(each: inspect.Parameter) -> str:
    star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    if each.default is each.empty:
        return star + each.name
    # A default that is an object prints as its address or as a long text: its field says what it is.
    plain = isinstance(each.default, str | int | float | bool | tuple | type(None) | enum.Enum)
    return f"{each.name}={_shown(each.default) if plain else '...'}"


def _shown(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return json.dumps(value) if isinstance(value, str) else repr(value)  # quoted as the formatter does it


def _members(kind: type) -> list[str]:
    """Public methods and properties that have a docstring, in order."""
    rows = []
    for name, member in vars(kind).items():
        inner = getattr(member, "func", member)  # of a cached property
        inner = inner.fget if isinstance(inner, property) else inner.__func__ if isinstance(inner, classmethod | staticmethod) else inner
        first = (inspect.getdoc(inner) or "").split("\n\n")[0].replace("\n", " ") if isinstance(inner, types.FunctionType) else ""
        if not name.startswith("_") and first:
            called = (
                "" if isinstance(member, property) or (inner is not member and not isinstance(member, classmethod | staticmethod)) else "()"
            )
            rows.append(f"| `{name}{called}` | {first.replace('|', chr(92) + '|')} |")
    return ["", "| member | |", "|---|---|", *rows] if rows else []


def _prose(thing: Any) -> list[str]:
    """A docstring as Markdown: sections as lists, examples as code."""
    lines: list[str] = []
    inside = ""
    text = inspect.getdoc(thing) or ""
    if text.startswith(f"{getattr(thing, '__name__', '')}("):
        return []  # made by `dataclass` where there is none
    code = False
    for line in text.splitlines():
        heading = re.fullmatch(r"(Args|Attributes|Returns|Raises):", line)
        if code and not line.strip():
            lines.append("```")
            code = False
        if heading:
            inside = heading[1]
            lines += [f"**{_SECTIONS[inside]}**", ""]
        elif inside and (found := re.match(r"    ([\w, `]+): (.*)", line)):
            lines.append(f"- {', '.join(f'`{name}`' for name in found[1].split(', '))}: {found[2]}")
        elif inside and line.startswith("    "):
            lines.append(f"  {line.strip()}" if lines[-1].startswith(("-", "  ")) else line.strip())
        else:
            inside = inside if not line.strip() else ""
            if line.startswith(">>>") and not code:
                lines.append("```python")
                code = True
            lines.append(line)
    return [*lines, "```"] if code else lines
