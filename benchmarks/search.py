"""Races searchers on recorded tables as listed spaces: `python -m benchmarks.search [--seeds 20] [--budget 100] [--json] [--write]`.

Tables are those of `benchmarks/tables` and, where it lies next to the repository, of `../shared/tables`. Measured are the area under
regret, the evaluations to 5 % of the optimum and the CPU time of a proposal. `--source LABEL=FOLDER` runs `hybrid` of another source tree
as well (the `src` folder of another commit) under the same rules, and compares it with this one run by run:

    git archive 27935e8 src | tar -x -C /tmp/before
    python -m benchmarks.search --source before=/tmp/before/src --write

Runs are kept in a file (`--runs`), so that a race that was interrupted can be resumed. Whoever tunes a constant of a searcher uses seeds
from 1000 (`--first-seed`) and leaves those below for the report.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "benchmarks" / "tables", ROOT.parent / "shared" / "tables")
PAGE = ROOT / "docs" / "results" / "search.md"
HERE = "hybrid"
"""Label of this tree's `hybrid`, which other sources are compared with."""

Run = dict[str, Any]
Runs = dict[tuple[str, str, int], Run]
"""Label, table and seed -> what came out."""


def main() -> None:
    """Run what is missing, print the figures, and write the page where that is asked for."""
    asked = _arguments()
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    fewer = seeds[: asked.other_seeds]
    sources = [(label, Path(folder)) for label, _, folder in (text.partition("=") for text in asked.source)]
    for folder in FOLDERS:
        if not folder.is_dir():
            print(f"skipped: there are no tables in {folder.name} of {folder.parent.name}", file=sys.stderr)
    entries = [({"label": HERE, "searcher": HERE}, ROOT / "src", seeds)]
    entries += [({"label": f"{HERE} ({label})", "searcher": HERE}, folder, seeds) for label, folder in sources]
    others = [name for name in asked.searchers.split(",") if name and name != HERE]
    entries += [({"label": name, "searcher": name}, ROOT / "src", fewer) for name in others]
    with tempfile.TemporaryDirectory() as temporary:
        kept = Path(asked.runs) if asked.runs else Path(temporary) / "runs.jsonl"
        jobs = [(entry, folder, seed) for seed in seeds for entry, folder, wanted in entries if seed in wanted]
        runs = _race(jobs, asked, kept)
    found = summary(runs, [f"{HERE} ({label})" for label, _ in sources])
    text = as_text(found)
    print(text)
    if asked.write:
        PAGE.write_text(as_page(found, text, asked), encoding="utf-8")
    if asked.json:
        print(json.dumps(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--other-seeds", type=int, default=5, help="seeds of the searchers other than hybrid")
    parser.add_argument("--budget", type=int, default=100, help="evaluations of a run")
    parser.add_argument("--searchers", default="random,coordinate,evolution,cherrypick", help="besides hybrid")
    parser.add_argument("--source", action="append", default=[], metavar="LABEL=FOLDER", help="source tree to compare with")
    parser.add_argument("--only", default="", help="comma-separated names of tables")
    parser.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--runs", default="", help="file that keeps the runs")
    parser.add_argument("--note", default="", help="a sentence for the page")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--write", action="store_true", help="write docs/results/search.md")
    return parser.parse_args()


def _race(jobs: Sequence[tuple[Mapping[str, Any], Path, int]], asked: argparse.Namespace, kept: Path) -> Runs:
    """All runs, those of the file and new ones, which are added to it."""
    runs = {(run["label"], run["table"], run["seed"]): run for run in _read(kept) if run["budget"] == asked.budget}
    kept.parent.mkdir(parents=True, exist_ok=True)
    only = [name for name in asked.only.split(",") if name]
    with ThreadPoolExecutor(asked.jobs) as pool, kept.open("a", encoding="utf-8") as file:
        started = []
        for entry, folder, seed in jobs:
            known = [table for label, table, other in runs if (label, other) == (entry["label"], seed)]
            job = {"folders": [str(path) for path in FOLDERS], "only": only, "without": known, "entries": [entry], "seeds": [seed]}
            started.append(pool.submit(lambda job, folder: list(_program(job, folder)), {**job, "budget": asked.budget}, folder))
        for finished in started:
            for run in finished.result():
                file.write(json.dumps(run) + "\n")
                runs[run["label"], run["table"], run["seed"]] = run
            file.flush()
    wanted = {(entry["label"], seed) for entry, _, seed in jobs}
    return {key: run for key, run in runs.items() if (key[0], key[2]) in wanted and (not only or key[1] in only)}


def _read(kept: Path) -> list[Run]:
    return [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()] if kept.is_file() else []


def _program(job: Mapping[str, Any], folder: Path) -> Iterator[Run]:
    """The runs of one job, by a source tree in a process of its own."""
    settings = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    program = [sys.executable, str(Path(__file__).with_name("_search_run.py"))]
    done = subprocess.run(program, input=json.dumps(job), env=settings, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        yield {**json.loads(line), "budget": job["budget"]}


def summary(runs: Runs, sources: Sequence[str]) -> dict[str, Any]:
    """Figures of every label over all tables, and how those of other sources differ from this tree's, run by run."""
    labels = list(dict.fromkeys(label for label, _, _ in runs))
    overall = {label: _figures([run for key, run in runs.items() if key[0] == label]) for label in labels}
    tables = sorted({table for _, table, _ in runs})
    by_table = {
        table: {label: _figures(some) for label in labels if (some := [run for key, run in runs.items() if key[:2] == (label, table)])}
        for table in tables
    }
    return {"overall": overall, "compared": {label: compared(runs, label) for label in sources}, "by_table": by_table}


def _figures(runs: Sequence[Run]) -> dict[str, float]:
    """Means over seeds, then over tables; of evaluations the geometric mean over tables."""
    lots = [[run for run in runs if run["table"] == table] for table in sorted({run["table"] for run in runs})]
    areas = [[run["area"] for run in lot] for lot in lots]
    counts = [[run["evaluations"] for run in lot] for lot in lots]
    means = np.array([np.mean(lot) for lot in areas])
    logs = np.log([np.mean(lot) for lot in counts])
    evaluations = math.exp(float(logs.mean()))
    return {
        "area": float(means.mean()),
        "area_error": _seeds_error(areas),
        "evaluations": evaluations,
        "evaluations_error": evaluations * _seeds_error([[count / float(np.mean(lot)) for count in lot] for lot in counts]),
        "reached": float(np.mean([np.mean([run["reached"] for run in lot]) for lot in lots])),
        "failures": float(np.mean([run["failures"] for run in runs])),
        "ms": float(np.median([run["ms"] for run in runs])),
        "seeds": len({run["seed"] for run in runs}),
        "tables": len(lots),
    }


def _seeds_error(lots: Sequence[Sequence[float]]) -> float:
    """Standard error over seeds of the mean over tables."""
    return math.sqrt(sum(float(np.var(lot, ddof=1)) / len(lot) for lot in lots if len(lot) > 1)) / len(lots)


def compared(runs: Runs, label: str) -> dict[str, float | None]:
    """This tree less another, over the runs that both made.

    `area` and the logarithm of `evaluations`, each with the standard error over seeds (these tables) and over tables (any tables).
    """
    pairs = [(runs[HERE, table, seed], run) for (other, table, seed), run in runs.items() if other == label and (HERE, table, seed) in runs]
    found: dict[str, float | None] = {"runs": len(pairs)}
    for name in ("area", "evaluations"):
        gaps: dict[str, list[float]] = {}
        for mine, other in pairs:
            gap = math.log(mine[name] / other[name]) if name == "evaluations" else mine[name] - other[name]
            gaps.setdefault(mine["table"], []).append(gap)
        means = [float(np.mean(lot)) for lot in gaps.values()]
        found[name] = float(np.mean(means)) if means else None
        found[f"{name}_error_seeds"] = _seeds_error(list(gaps.values())) if means else None
        found[f"{name}_error_tables"] = float(np.std(means, ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else None
    return found


def as_text(found: Mapping[str, Any]) -> str:
    """Tables in Markdown."""
    lines = ["| searcher | area under regret | evaluations to 5 % | within 5 % | failures per run | ms per proposal | seeds x tables |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for label, row in sorted(found["overall"].items(), key=lambda item: item[1]["area"]):
        lines.append(
            f"| {label} | {row['area']:.4f} ± {row['area_error']:.4f} | {row['evaluations']:.1f} ± {row['evaluations_error']:.1f} "
            f"| {row['reached']:.0%} | {row['failures']:.1f} | {row['ms']:.1f} | {row['seeds']} x {row['tables']} |"
        )
    for label, row in found["compared"].items():
        lines += ["", f"`{HERE}` less `{label}`, {row['runs']} runs of each with the same table and seed:", ""]
        lines += ["| figure | difference | standard error over seeds | over tables |", "|---|---|---|---|"]
        for name, title in (("area", "area under regret"), ("evaluations", "logarithm of evaluations to 5 %")):
            figures = [row[key] for key in (name, f"{name}_error_seeds", f"{name}_error_tables")]
            lines.append(f"| {title} | {' | '.join('unknown' if figure is None else f'{figure:.4f}' for figure in figures)} |")
    labels = [label for label in found["overall"] if label.startswith(HERE)]
    lines += ["", f"| table | {' | '.join(f'{label}: area, to 5 %' for label in labels)} |", f"|---|{'---|' * len(labels)}"]
    for table, rows in found["by_table"].items():
        cells = [f"{rows[label]['area']:.3f}, {rows[label]['evaluations']:.1f}" if label in rows else "" for label in labels]
        lines.append(f"| {table} | {' | '.join(cells)} |")
    return "\n".join(lines)


def as_page(found: Mapping[str, Any], text: str, asked: argparse.Namespace) -> str:
    """`docs/results/search.md`."""
    words = list(zip(["", *sys.argv[1:]], sys.argv[1:], strict=False))  # each with the one before; folders of this machine are not shown
    silent = ("--runs", "--note")
    kept = [(before, word) for before, word in words if before not in silent and word not in (*silent, "--json")]
    shown = [word.partition("=")[0] + "=FOLDER" if before == "--source" else word for before, word in kept]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    ).stdout.strip()
    seeds = f"{asked.first_seed} to {asked.first_seed + asked.seeds - 1}"
    return f"""# Searchers on recorded tables

Written by `python -m benchmarks.search {" ".join(shown)}`; do not edit.

| | |
|---|---|
| commit | {commit or "unknown"} |
| date | {datetime.now(UTC):%Y-%m-%d} |
| machine | {machine()} |
| seeds | {seeds} for `hybrid`; the first {min(asked.other_seeds, asked.seeds)} of them for the others |
| budget | {asked.budget} evaluations of a run |
| tables | {len(found["by_table"])}, each [the list of its rows](../lab/benchmark.md#the-rules-of-a-replay) |

Area: mean regret over the run, 0 at the optimum of the table and 1 at the median of the rows that worked. Evaluations to 5 %: until the
best is within 5 % of the optimum; a run that never gets there counts twice the budget; mean over seeds, geometric mean over tables. Errors
are standard errors over seeds. No searcher got the predictions of a simulator. {asked.note}

{text}
"""


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
