"""The page on AutoSched's own evaluation: the paper's numbers next to those of the mode `paper`, with its Figures 7, 17 and 21."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosched.arrivals.arrivals import DAY_S
from autosched.tune.causal.graph import Graph
from autosched.tune.causal.picture import svg
from autoscout.common.draw import HEIGHT, PALETTE, WIDTH, box, chart, label, picture_file
from benchmarks._autosched_page import commit, table

Record = dict[str, Any]

FIGURES = {"tiresias": "7", "themis": "17 (a)", "lucid": "21 (a)"}
"""Causal graphs in the paper."""
TABLE_5 = {
    "manhattan": (2.851, 3.082, 2.988),
    "euclidean": (2.853, 3.089, 2.978),
    "pearson": (2.996, 3.160, 3.151),
    "cosine": (3.108, 3.195, 3.155),
}
"""The paper's, by trace; hours, presumably."""
SCOPE = (
    "The grid is what a shared machine could run: Tiresias, a week of each trace, one seed. The mode `paper` on PAI, Themis, Lucid, "
    "further weeks and seeds, and the variants of Table 5 and of the search controller are not in it; `GRIDS` takes them. "
    "The changes of `paper` were not judged yet when these runs were made (realised: -)."
)
"""What the grid of today leaves out."""
TRACES = ("philly", "venus", "pai")
MODES = ("static", "fixed-history", "fixed-oracle", "selftune", "paper", "default", "future-oracle")


def page(records: Sequence[Record], sources: Sequence[str], left: int, command: str, pictures: Mapping[str, str]) -> str:
    """The results as a page.

    Args:
        records: Of all runs.
        sources: Where the traces come from.
        left: Runs of the grid that were not made.
        command: That wrote it.
        pictures: File -> what it shows.
    """
    cells = list(_cells(records))
    made = ", ".join(sorted({record["commit"] for record in records if record["commit"]}))
    lines = [
        "# AutoSched's evaluation, repeated",
        "",
        f"Written by `{command}` at commit {commit()}, Python {platform.python_version()}, one of {os.cpu_count()} cores of a shared, busy",
        f"{platform.machine()} machine; do not edit. Runs were made at {made}. Everything is simulated. Traces: {', '.join(sources)}.",
        "",
        "A cell is a week of a trace and a scheduler on nodes of 8 GPUs; their number makes the week's GPU time 1.2 times their capacity,",
        "because where nothing queues all settings are alike. The paper has 100 or 70 nodes and windows of two weeks. Its Venus",
        "of July 2020 is not published job by job, and no PAI could be had: ours are Venus of September 2020 and a synthetic PAI. `Fixed`",
        "of the paper is tuned in hindsight, as our `fixed-oracle`. A row with one seed has no spread.",
        "",
        SCOPE,
        "",
        *([f"**{left} runs of the grid are missing.**", ""] if left else []),
        "## The paper's numbers next to ours",
        "",
        *table(("what", "the paper", "here"), _headlines(records, cells)),
        "",
        "## Every cell",
        "",
        "Above 1 is better: mean time in the system of all jobs, for Themis the share of jobs near an equal-share slowdown.",
        "",
        *table(
            ("trace, week", "scheduler", "strategy", "seeds", "over the default", "over SelfTune", "mean time s", "fair share", "changes"),
            [_row(cell, mode) for cell in cells for mode in MODES if mode in cell["modes"]],
        ),
        "",
        *_trust(cells),
        *_table_5(records),
        *_controllers(records),
    ]
    for file, words in pictures.items():
        lines += ["", f"## {words}", "", f"![{words}]({file})"]
    return "\n".join(lines).rstrip() + "\n"


def _cells(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Runs by place and scheduler, those of each mode together."""
    plain = [record for record in records if not record["variant"]]
    for place in dict.fromkeys((record["scheduler"], record["trace"], record["week"]) for record in plain):
        mine = [record for record in plain if (record["scheduler"], record["trace"], record["week"]) == place]
        modes = {mode: [record for record in mine if record["mode"] == mode] for mode in MODES}
        yield {
            "scheduler": place[0], "trace": place[1], "week": place[2],
            "modes": {mode: runs for mode, runs in modes.items() if runs},
        }  # fmt: skip


def _ratios(cell: dict[str, Any], mode: str, over: str) -> list[float]:
    """How many times better each run of a mode was than another one's median."""
    metric = "fair_share" if cell["scheduler"] == "themis" else "time_s"
    base = cell["modes"].get(over)
    if not base or mode not in cell["modes"]:
        return []
    one = float(np.median([record[metric] for record in base]))
    values = [float(record[metric]) for record in cell["modes"][mode]]
    return [value / one if metric == "fair_share" else one / value for value in values]


def _shown(values: Sequence[float], places: int = 3) -> str:
    if not values:
        return "-"
    middle = f"{float(np.median(values)):.{places}f}"
    return middle if min(values) == max(values) else f"{middle} ({min(values):.{places}f}-{max(values):.{places}f})"


def _name(cell: Mapping[str, Any]) -> str:
    return f"{cell['trace']}, {cell['week'] + 1}"


def _row(cell: dict[str, Any], mode: str) -> tuple[str, ...]:
    runs = cell["modes"][mode]
    return (
        _name(cell),
        cell["scheduler"],
        mode,
        str(len(runs)),
        _shown(_ratios(cell, mode, "static")),
        _shown(_ratios(cell, mode, "selftune")),
        f"{np.median([run['time_s'] for run in runs]):,.0f}",
        f"{np.median([run['fair_share'] for run in runs]):.3f}",
        f"{np.median([run['changes'] for run in runs]):g}",
    )


def _headlines(records: Sequence[Record], cells: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Each headline of the paper with what our runs say of it; only those that any run speaks of."""

    def over(scheduler: str, base: str) -> str:
        found = {_name(cell): _ratios(cell, "paper", base) for cell in cells if cell["scheduler"] == scheduler}
        return "; ".join(f"{name}: {_shown(values, 2)}" for name, values in found.items() if values)

    paper = [record for record in records if record["mode"] == "paper" and not record["variant"]]
    errors = [record["causal_error"] for record in paper if record.get("causal_error") is not None]
    searched = [(record["cpu_s"] - record["start_cpu_s"]) / max(1, record["decisions"] - record["not_searched"]) for record in paper]
    rows = [
        ("Tiresias over SelfTune, mean time (Figure 9)", "1.10 to 1.36 times", over("tiresias", "selftune")),
        ("Lucid over SelfTune, mean time (Figure 18)", "1.15 to 1.17 times", over("lucid", "selftune")),
        ("Themis over the best fixed settings, share of fair jobs (Figure 13)", "1.07 to 1.12 times", over("themis", "fixed-oracle")),
        ("error of the causal model (Table 4)", "11.2 to 15.2 %", f"{min(errors):.1%} to {max(errors):.1%}" if errors else ""),
        ("a decision that searches", "30 to 100 s", f"{min(searched):.2f} to {max(searched):.2f} CPU s" if searched else ""),
    ]
    return [(what, theirs, ours) for what, theirs, ours in rows if ours]


def _trust(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Predicted next to realised gains."""
    body = []
    for cell in cells:
        for mode in MODES:
            runs = cell["modes"].get(mode, [])
            both = [
                (one, other)
                for run in runs
                for one, other in zip(run["predicted"], run["realised"], strict=True)
                if one is not None and other is not None
            ]
            decisions = sum(run["decisions"] for run in runs)
            if not decisions:
                continue
            hopes = [one for run in runs for one in run["predicted"] if one is not None]
            gains = [f"{float(np.median(hopes)):.3f}" if hopes else "-", "-", "-"]
            if both:
                realised = [other for _, other in both]
                gains[1:] = [f"{float(np.median(realised)):.3f}", f"{np.mean([value > 1 for value in realised]):.0%}"]
            simulations = sum(run["simulations"] for run in runs) / decisions
            idle = sum(run["not_searched"] for run in runs) / decisions
            cpu_s = np.median([run["cpu_s"] for run in runs])
            body.append(
                (
                    _name(cell),
                    cell["scheduler"],
                    mode,
                    f"{decisions / len(runs):,.0f}",
                    f"{idle:.0%}",
                    f"{simulations:.1f}",
                    f"{cpu_s:.0f}",
                    *gains,
                )
            )
    head = (
        "trace, week",
        "scheduler",
        "strategy",
        "decisions",
        "not searched",
        "simulations each",
        "CPU s a week",
        "predicted",
        "realised",
        "gained",
    )
    words = "Gains of single changes, medians: predicted on the futures of the decision, realised on the jobs that came after."
    return ["## Cost, and predicted next to realised gain", "", words, "", *table(head, body)] if body else []


def _table_5(records: Sequence[Record]) -> list[str]:
    """Similarity metrics of the generator: mean times, and how they stand to the paper's Manhattan distance."""
    runs = {(record["trace"], record["variant"].partition(":")[2]): record for record in records if record["variant"].startswith("metric:")}
    relative = {
        (record["trace"], "relative"): record
        for record in records
        if (record["mode"], record["scheduler"], record["variant"], record["week"]) == ("paper", "tiresias", "", 0)
    }
    traces = [trace for trace in TRACES if (trace, "manhattan") in runs]
    if not traces:
        return []
    body = []
    for metric in ("manhattan", "euclidean", "pearson", "cosine", "relative"):
        cells = [metric]
        for trace in traces:
            place, run = TRACES.index(trace), {**runs, **relative}.get((trace, metric))
            theirs = f"{TABLE_5[metric][place] / TABLE_5['manhattan'][place]:.3f}" if metric in TABLE_5 else "-"
            ours = "-" if run is None else f"{run['time_s']:,.0f} s, {run['time_s'] / runs[trace, 'manhattan']['time_s']:.3f}"
            cells += [theirs, ours]
        body.append(tuple(cells))
    head = ("similarity", *(text for trace in traces for text in (f"{trace}: the paper", f"{trace}: here")))
    words = "Mean time with Tiresias, in times of that with the Manhattan distance; one seed. `relative` is the mode `paper` itself."
    return ["", "## Similarity metrics (Table 5)", "", words, "", *table(head, body)]


def _controllers(records: Sequence[Record]) -> list[str]:
    runs = [record for record in records if record["variant"].startswith("controller:")]
    if not runs:
        return []
    whole = [
        record for record in records if not record["variant"] and record["mode"] == "paper" and any(_same(record, other) for other in runs)
    ]
    body = [
        (
            run["trace"],
            run["scheduler"],
            run["variant"].partition(":")[2] or "both",
            f"{run['time_s']:,.0f}",
            f"{run['fair_share']:.3f}",
            f"{run['simulations']:,}",
            f"{run['rejected']:,}",
            f"{run['cpu_s']:.0f}",
        )
        for run in (*whole, *runs)
    ]
    head = ("trace", "scheduler", "parts", "mean time s", "fair share", "simulations", "rejected", "CPU s")
    return ["", "## Causal model and aggregation (Figures 10 to 12, 14 to 16, 19, 20)", "", *table(head, body)]


def _same(one: Record, other: Record) -> bool:
    return all(one[name] == other[name] for name in ("trace", "scheduler", "load", "week", "seed"))


def draw(records: Sequence[Record], folder: Path) -> dict[str, str]:
    """Write the pictures that the runs have data for; file -> what it shows."""
    shown: dict[str, str] = {}
    runs = {
        scheduler: next((each for each in records if each["scheduler"] == scheduler and each.get("graph") and not each["variant"]), None)
        for scheduler in FIGURES
    }
    for scheduler, run in runs.items():
        if run is None:
            continue
        words = f"Causal graph of {scheduler.capitalize()}, as Figure {FIGURES[scheduler]}: {run['trace']}, simulated"
        _write(folder / f"causes-{scheduler}.svg", svg(graph_of(run["graph"]), words), shown, words)
        if scheduler == "themis":
            words = f"Lease and job load of Themis, as Figure 17 (b): {run['trace']}, simulated"
            _write(folder / "lease-themis.svg", lease_picture(run, words), shown, words)
        else:
            words = f"Changes of each setting of {scheduler.capitalize()} in the week, as Figure 21 (b): {run['trace']}, simulated"
            _write(folder / f"updates-{scheduler}.svg", updates_picture(run, words), shown, words)
    return shown


def _write(path: Path, text: str, shown: dict[str, str], words: str) -> None:
    path.write_text(text, encoding="utf-8")
    shown[path.name] = words


def graph_of(data: Mapping[str, Any]) -> Graph:
    """A graph as a record holds it."""
    edges = {(str(one), str(other)): float(share) for one, other, share in data["edges"]}
    return Graph(
        knobs=tuple(data["knobs"]), metrics=tuple(data["metrics"]), objective=data["objective"], edges=edges, method=data["method"]
    )


def lease_picture(run: Record, title: str) -> str:
    """The lease, and the GPUs that a job in the system wants on average, hour by hour; each over its largest value."""
    course = run["course"]
    days = (np.asarray([row[0] for row in course]) - course[0][0]) / DAY_S
    lease = np.asarray([float(row[3].get("lease_s") or np.nan) for row in course])
    load = np.asarray([row[1] * run["gpus"] / max(1, row[2]) for row in course])
    lines = {
        f"lease, over {np.nanmax(lease):,.0f} s": (days, lease / np.nanmax(lease)),
        f"GPUs wanted a job, over {load.max():.2f}": (days, load / max(float(load.max()), 1e-9)),
    }
    return picture_file(chart("", lines, "days"), width=WIDTH, height=HEIGHT, title=title)


def updates_picture(run: Record, title: str) -> str:
    """How often each setting was changed."""
    counts = sorted(run["updates"].items(), key=lambda item: -item[1])
    most, row = max((count for _, count in counts), default=1), 22
    parts = []
    for number, (name, count) in enumerate(counts):
        y = 12 + row * number
        parts += [label(name, 140, y + 13, font_size=12, text_anchor="end"), box(150, y + 2, 480 * count / most, row - 6, fill=PALETTE[0])]
        parts.append(label(count, 156 + 480 * count / most, y + 13, font_size=12))
    return picture_file(*parts, width=WIDTH, height=24 + row * max(1, len(counts)), title=title)
