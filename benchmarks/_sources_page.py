"""The part of docs/results/simulators.md on sources that were left out, before and after; and on settings that a vendor publishes."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.published import SOURCE, Published, likely_share, published

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "simulators.md"
BEFORE = Path(__file__).with_name("simulators_before.json")
BEGIN, END = "<!-- written by python -m benchmarks.simulators --write -->", "<!-- end of what is written -->"


def write(found: dict[str, Any]) -> None:
    """Replace that part of the page."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{section(found)}{END}{tail}", encoding="utf-8")


def section(found: dict[str, Any]) -> str:
    """Both tables, and the settings."""
    before = json.loads(BEFORE.read_text(encoding="utf-8"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    lines = [
        "## Whole sources left out",
        "",
        f"`python -m benchmarks.simulators --write` at commit {commit or 'unknown'}, one core of {platform.machine()}; nothing is drawn.",
        f"Before: commit {before['commit']}. Each source is predicted with constants that have seen no row of it (training: pooled",
        "over all others; the silicon sample: families of models left out; other serving sources are never fitted to).",
        "Within: share of errors inside one and two stated spreads, which come from other sources; honest is 68 and 95 %.",
    ]
    for kind in ("training", "serving"):
        lines += ["", f"### {kind.capitalize()}", "", *_table(before[kind], found[kind])]
    lines += ["", "### Memory", "", *_memory(before["memory"], found["memory"])]
    return "\n".join([*lines, "", *_settings(published())]) + "\n"


def _memory(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    lines = [
        "One count for all software. Failures said to fit (chance of at least 50 %), and runs said not to fit. AMP's log does not say why",
        "a run failed. What Megatron-Bridge's tables do not say (recomputation, fully sharded runs) counts as not done. The margin of",
        "memory is one number; it was chosen in view of the two LLaMA tables and llm-foundry, everything else is counted.",
        "",
        "| source | failures | said to fit before | after | runs | said not to fit before | after |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, now in after["sources"].items():
        then = before["sources"][name]
        cells = [name, str(now["failures"] or ""), _share(then["false_fits"]), _share(now["false_fits"])]
        lines.append(f"| {' | '.join([*cells, str(now['runs']), _share(then['false_not']), _share(now['false_not'])])} |")
    return lines


def _table(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    lines = ["| source | rows | MAPE before | after | Spearman before | after | regret before | after | within before | after |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for name, now in after["sources"].items():
        then = before["sources"][name]
        cells = [name, str(now["rows"]), _share(then["mape"]), _share(now["mape"])]
        cells += [_number(then["spearman"]), _number(now["spearman"]), _share(then["regret"]), _share(now["regret"])]
        cells += [f"{_share(one['within_one'], 0)}, {_share(one['within_two'], 0)}" for one in (then, now)]
        lines.append(f"| {' | '.join(cells)} |")
    middles = [f"{_share(part['median_over_sources']['mape'])}" for part in (before, after)]
    regrets = [f"{_share(part['median_over_sources']['regret'])}" for part in (before, after)]
    return [*lines, f"| **median over sources** | | {' | '.join(middles)} | | | {' | '.join(regrets)} | | |"]


def _settings(found: list[Published]) -> list[str]:
    lines = [
        "## Settings that a vendor publishes as running",
        "",
        f"{likely_share(found):.0%} of {len(found)} are called likely to fit (chance of at least 50 %). Layouts of NVIDIA's performance",
        "summary of Megatron-Bridge, completed by the recipes of the same repository, which say what is computed again",
        f"([recipes]({SOURCE})).",
        "No constant was fitted to them: activations, loss and states are counted kernel by kernel.",
        "",
        "| model | GPUs | precision | tokens | layout | recipe | chance to fit |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        row = one.row
        link = f"[{row['recipe']}]({SOURCE}{row['recipe']})"
        cells = (
            row["model"],
            f"{row['n_gpus']} {row['gpu']}",
            row["precision"],
            row["seq"],
            one.layout or "data parallel",
            link,
            f"{one.chance:.0%}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _share(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f} %"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


__all__ = ["write"]
