"""Races searchers on families of tables and writes one page: `python -m benchmarks.search [--seeds 20] [--runs FOLDER] [--write]`.

`benchmarks/_search_families.py` says which tables there are. All searchers run on the same tables with the same seeds, those that take
minutes for a run on the first `--slow-seeds` of them. Searchers that wrap other tuners run in `.venv-adapters`, which `make test` makes;
tables that others recorded are looked for in `../shared/tables`, or where `AUTOSCOUT_SHARED_TABLES` says.

Whoever changes a searcher compares it with `python -m benchmarks.search_compare`, on the families for choosing and with seeds from 1000.
This page reports seeds from 0. Runs are kept in `--runs` as they are finished, so a race can be interrupted and resumed.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks._search_families import BUDGET, CHOOSING, FAMILIES, FINAL, SHARED, chosen
from benchmarks._search_figures import ERRORS, by_family, difference, figures, overall
from benchmarks._search_race import Contestant, Run, race

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "search.md"
MINE = "hybrid"
FAST = ("cherrypick", "udo", "evolution", "random", "optuna-tpe")
SLOW = ("optuna-gp", "smac", "ax")
INFORMED = ("hybrid+auto", "hybrid+auto~0.4", "hybrid+auto~0.8")
"""With the simulator that understands a table, as it is and with predictions that are 40 and 80 % off besides."""

Lots = Mapping[str, Mapping[str, Sequence[Run]]]
"""Family -> label -> runs."""


def main() -> None:
    """Run what is missing, print the figures, and write the page where that is asked for."""
    asked = _arguments()
    if not SHARED.is_dir():
        print("skipped: the tables that others recorded are not here", file=sys.stderr)
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    names = [name for name in asked.searchers.split(",") if name]
    fast, slow = ([Contestant.parse(name) for name in names if (name in SLOW) == is_slow] for is_slow in (False, True))
    families = chosen(asked.part, asked.families)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(asked.runs) if asked.runs else Path(temporary)
        runs = race(fast, families, seeds, folder, asked.jobs, resume=not asked.stop)
        runs += race(slow, families, seeds[: asked.slow_seeds], folder, asked.jobs, resume=not asked.stop) if slow else []
    lots = by_family(runs)
    text = as_text(lots)
    print(text)
    if asked.write:
        PAGE.write_text(as_page(text, asked) + compared(), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--slow-seeds", type=int, default=2, help=f"seeds of {', '.join(SLOW)}")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--searchers", default=",".join((MINE, *INFORMED, *FAST, *SLOW)), help="comma-separated")
    parser.add_argument("--part", choices=(CHOOSING, FINAL, "all"), default="all")
    parser.add_argument("--families", default="", help="comma-separated names, instead of --part")
    parser.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--runs", default="", help="folder that keeps tables and runs")
    parser.add_argument("--stop", action="store_true", help="run nothing more: report what --runs has")
    parser.add_argument("--note", default="", help="a sentence for the page")
    parser.add_argument("--write", action="store_true", help="write docs/results/search.md")
    return parser.parse_args()


def as_text(lots: Lots) -> str:
    """Tables in Markdown: all searchers over the families of each part, then family by family, then with a simulator."""
    parts = {part: {family.name: lots[family.name] for family in FAMILIES if family.part == part and family.name in lots} for part in PARTS}
    blocks = [block for part, some in parts.items() if some for block in (f"## {PARTS[part]}", _field(some), _families(some))]
    informed = _informed(lots)
    told = ["## Told what a simulator predicts", informed] if informed else []
    bars = _bars(parts[FINAL], lots) if MINE in {label for lot in parts[FINAL].values() for label in lot} else ""
    return "\n\n".join([*(["## What was asked for", bars] if bars else []), *blocks, *told])


PARTS = {FINAL: "Families that were kept aside", CHOOSING: "Families on which choices were made"}


MOST_AREA, MOST_EVALUATIONS = 0.8, 0.6
"""Bars: times the area and the evaluations of the best peer."""
MOST_TOLD = {"layouts": 0.25, "servers": 0.5}
"""Bars: times the evaluations without a simulator."""
MOST_MISLED = 1.1
"""The same with a simulator that is wrong."""


def _bars(final: Lots, lots: Lots) -> str:
    """What was asked of `hybrid` in advance, what it reaches, and whether that holds; peers on the families and runs that both made."""
    rows = []
    for place, name, most in ((0, "area", MOST_AREA), (1, "evaluations to 5 %", MOST_EVALUATIONS)):
        ratios = {label: ratio for label in (*FAST, *SLOW) if (ratio := _times(final, label, place))}
        if ratios:
            worst = max(ratios, key=ratios.__getitem__)
            rows.append((f"{name}, times the best peer's, all families", f"{ratios[worst]:.2f} (`{worst}`)", most, ratios[worst]))
    for name, lot in lots.items():
        gap = difference(lot.get(MINE, ()), lot.get("random", ()))
        if name.startswith("small") and gap.seeds > 1:
            beyond = gap.area / max(gap.area_error, 1e-12)
            rows.append((f"{name}: area less that of `random`, in errors", f"{gap.area:+.3f} ± {gap.area_error:.3f}", ERRORS, beyond))
    for label in INFORMED:
        for name, lot in lots.items():
            if lot.get(label) and lot.get(MINE):
                ratio = figures(lot[label]).evaluations / figures(_shared(lot[MINE], lot[label])).evaluations
                most = MOST_TOLD.get(name, 1.0) if label == INFORMED[0] else MOST_MISLED
                rows.append((f"{name}, `{label}`: evaluations, times those without", f"{ratio:.2f}", most, ratio))
    lines = [
        f"| {what} | {value} | at most {most:g} | {'holds' if found <= most else '**does not hold**'} |"
        for what, value, most, found in rows
    ]
    return "\n".join(["| | | asked for | |", "|---|---|---|---|", *lines])


def _times(lots: Lots, label: str, place: int) -> float:
    """Figure `place` of `overall` of `hybrid`, times that of another in the same runs; 0 where the other did not run all families."""
    if not lots or not all(label in lot and MINE in lot for lot in lots.values()):
        return 0.0
    mine = overall({name: _shared(lot[MINE], lot[label]) for name, lot in lots.items()})
    return mine[place] / overall({name: _shared(lot[label], lot[MINE]) for name, lot in lots.items()})[place]


def _field(lots: Lots) -> str:
    """All searchers over some families, the best first; each next to `hybrid` on the runs that both made."""
    labels = [label for label in dict.fromkeys(label for lot in lots.values() for label in lot) if label not in INFORMED]
    lines = [f"| searcher | area | evaluations to 5 % | area, times `{MINE}`'s | evaluations, times `{MINE}`'s | failures | ms | seeds |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    rows = []
    for label in labels:
        mine = {name: lot[label] for name, lot in lots.items() if label in lot}
        area, evaluations = overall(mine)
        other = {name: _shared(lots[name][MINE], runs) for name, runs in mine.items() if MINE in lots[name]}
        ratio = ""
        if other and label != MINE:
            same_area, same_evaluations = overall(other)
            ratio = f"{area / same_area:.2f} | {evaluations / same_evaluations:.2f}"
        every = [run for runs in mine.values() for run in runs]
        total = figures(every)
        tail = f"{ratio or ' | '} | {total.failures:.1f} | {total.ms:.1f} | {total.seeds}"
        rows.append((area, f"| `{label}` | {area:.4f} | {evaluations:.1f} | {tail} |"))
    return "\n".join([*lines, *(row for _, row in sorted(rows))])


def _shared(mine: Sequence[Run], other: Sequence[Run]) -> list[Run]:
    """The runs of the first on tables and seeds of the second."""
    keys = {(run["table"], run["seed"]) for run in other}
    return [run for run in mine if (run["table"], run["seed"]) in keys]


def _families(lots: Lots) -> str:
    """Area of `hybrid` by family, and by how much it is smaller than each other's, in the same runs."""
    others = [name for name in (*FAST, *SLOW) if any(name in lot for lot in lots.values())]
    about = {family.name: family.about for family in FAMILIES}
    lines = [f"| family | | `{MINE}` | {' | '.join(f'less `{name}`' for name in others)} |", f"|---|---|---|{'---|' * len(others)}"]
    for name, lot in lots.items():
        if MINE not in lot:
            continue
        cells = []
        for other in others:
            gap = difference(lot[MINE], lot.get(other, ()))
            strong = "**" if gap.seeds > 1 and gap.verdict != "level" else ""
            cells.append(f"{strong}{gap.area:+.3f} ± {gap.area_error:.3f}{strong}" if gap.seeds else "")
        mine = figures(lot[MINE])
        lines.append(f"| {name} | {about[name]} | {mine.area:.4f} ± {mine.area_error:.4f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _informed(lots: Lots) -> str:
    """Evaluations to 5 % with and without a simulator, on the runs that both made."""
    lines = ["| family | without | " + " | ".join(f"`{label}`" for label in INFORMED) + " |", f"|---|---|{'---|' * len(INFORMED)}"]
    for name, lot in lots.items():
        if MINE not in lot or INFORMED[0] not in lot:
            continue
        plain = figures(_shared(lot[MINE], lot[INFORMED[0]]))
        cells = []
        for label in INFORMED:
            told = figures(lot[label]) if label in lot else None
            ratio = told.evaluations / figures(_shared(lot[MINE], lot[label])).evaluations if told else 0.0
            cells.append(f"{told.evaluations:.1f} ± {told.evaluations_error:.1f} ({ratio:.2f} times)" if told else "")
        lines.append(f"| {name} | {plain.evaluations:.1f} ± {plain.evaluations_error:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def as_page(text: str, asked: argparse.Namespace) -> str:
    """`docs/results/search.md`."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    ).stdout.strip()
    slow = f"; {', '.join(SLOW)}: the first {asked.slow_seeds}" if asked.slow_seeds else ""
    return f"""# Searchers compared

Written by `python -m benchmarks.search --part {asked.part} --seeds {asked.seeds} --slow-seeds {asked.slow_seeds} --write`; do not edit.

| | |
|---|---|
| commit | {commit or "unknown"} |
| date | {datetime.now(UTC):%Y-%m-%d} |
| machine | {machine()} |
| seeds | {asked.first_seed} to {asked.first_seed + asked.seeds - 1}{slow} |
| budget | {BUDGET} evaluations of a run; of a space with fewer than {BUDGET * 5 // 3} configurations 60 % of them |

Each table is [the list of its rows](../lab/benchmark.md#the-rules-of-a-replay). Drawn families have a new table for every seed; drawn
clusters, layouts and servers are **simulated**. Area: mean regret over a run, 0 at the optimum of the table and 1 at the median of the rows
that worked. Evaluations to 5 %: until the best is within 5 % of the optimum; a run that never gets there counts twice the budget; geometric
mean over runs. Every family counts once. A difference is taken run by run, with its standard error over seeds; it is bold beyond two of
them, and negative where `{MINE}` is better. A time per proposal was measured on a busy machine. {asked.note}

{text}
"""


def compared() -> str:
    """The sections of the page that tables of `benchmarks.search_compare` fill: a later race does not repeat those comparisons."""
    sections = PAGE.read_text(encoding="utf-8").split("\n## ") if PAGE.is_file() else []
    return "".join(f"\n## {section.rstrip()}\n" for section in sections[1:] if section.startswith("The change"))


def machine() -> str:
    """The processor, and how many cores there are."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
    except OSError:
        name = platform.processor()
    return f"{name or platform.machine()}, {os.cpu_count()} cores, one thread per run"


if __name__ == "__main__":
    main()
