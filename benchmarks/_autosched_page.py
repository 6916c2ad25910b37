"""The page of `benchmarks.autosched`: what its runs came to, and how that compares with what was asked for."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PAPER = {
    "tiresias": "1.10-1.36x JCT over SelfTune",
    "themis": "1.07-1.12x share of fair jobs over Fixed",
    "lucid": "1.15-1.17x JCT over SelfTune",
}
HOURLY = ("paper", "selftune", "future-oracle")
Row = dict[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def commit() -> str:
    """Of the working tree; empty where it is none."""
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def bars(rows: Sequence[Row]) -> list[tuple[str, str, str, bool | None]]:
    """What was asked of the default mode, what was found, in which cell, and whether it holds (None: not run). Medians over seeds."""
    ours = [row for row in rows if row["mode"] == "default"]

    def gain(row: Row, over: str) -> float:
        value: float = row[f"over_{over}"][0]
        return value

    def name(row: Row) -> str:
        return f"{row['trace']} {row['scheduler']} {row['load']:g}"

    found: list[tuple[str, str, str, bool | None]] = []

    def worst(asked: str, some: Sequence[Row], figure: Callable[[Row], float], least: float, *, most: bool = False) -> None:
        if not some:
            found.append((asked, "-", "not run", None))
        else:
            row = (max if most else min)(some, key=figure)
            value = figure(row)
            found.append((asked, f"{value:.3f}", name(row), value <= least if most else value >= least))

    for load, least in ((1.0, 1.20), (1.2, 1.60)):
        some = [row for row in ours if row["scheduler"] == "tiresias" and row["load"] == load and "over_static" in row]
        worst(f"Tiresias over the published default at load {load:g}: at least {least:.2f}", some, lambda row: gain(row, "static"), least)
    known = [row for row in ours if "over_fixed-history" in row]
    worst("over settings tuned once on history, in every cell: at least 0.98", known, lambda row: gain(row, "fixed-history"), 0.98)
    sound = {_cell(row) for row in rows if row["mode"] == "fixed-history" and row.get("over_static", [0.0])[0] >= 1.0}
    for words, some, least in (
        ("the same in the mean: at least 1.00", known, 1.0),
        ("the same in cells where those beat the published default: at least 1.00", [row for row in known if _cell(row) in sound], 1.0),
        ("the same at load 1.2, in the mean: at least 1.02", [row for row in known if row["load"] == 1.2], 1.02),
    ):
        mean = float(np.mean([gain(row, "fixed-history") for row in some])) if some else 0.0
        found.append((words, f"{mean:.3f}", f"{len(some)} cells", mean >= least) if some else (words, "-", "not run", None))
    best = [row for row in ours if "over_fixed-oracle" in row]
    worst("over the best fixed settings in hindsight: at least 0.97", best, lambda row: gain(row, "fixed-oracle"), 0.97)
    lucid = [row for row in ours if row["scheduler"] == "lucid" and "over_static" in row]
    worst("Lucid over its default: at least 1", lucid, lambda row: gain(row, "static"), 1.0)
    themis = [row for row in ours if row["scheduler"] == "themis"]
    worst("Themis, share of jobs near an equal-share slowdown: at least 0.70", themis, lambda row: float(row["fair_share"]), 0.70)
    defaults = {(row["trace"], row["scheduler"], row["load"]): row["time_s"] for row in rows if row["mode"] == "static"}
    timed = [row for row in themis if _cell(row) in defaults]
    worst("Themis, mean time over its default's: at most 1", timed, lambda row: float(row["time_s"] / defaults[_cell(row)]), 1.0, most=True)
    worst("changes a week: at most 10", ours, lambda row: float(row["changes_a_week"]), 10, most=True)
    worst("CPU seconds a day: at most 10", ours, lambda row: float(row["cpu_s_a_day"]), 10, most=True)
    return found


def _cell(row: Row) -> tuple[str, str, float]:
    return row["trace"], row["scheduler"], row["load"]


def page(report: dict[str, Any], command: str) -> str:
    """The results as a page."""
    made = ", ".join(f"{number} at {name}" for name, number in report.get("commits", {}).items())
    lines = [
        "# Re-tuning a scheduler: strategies compared",
        "",
        f"Written by `{command}` at commit {commit()}, Python {platform.python_version()}, one of {os.cpu_count()} cores of a shared",
        f"{platform.machine()} machine; do not edit. Everything is simulated. Traces: {', '.join(report['sources'])}.",
        "",
        "A cell is a week of a trace, a scheduler and a load. The cluster has nodes of 8 GPUs and is sized so that the week's GPU time is",
        "`load` times its capacity. The week before warms it up under the published default. Ratios are of the mean time in the system of",
        "all jobs; jobs that are left at the end are charged the work they still have. (Themis: of the share of jobs whose slowdown is",
        "near an equal-share schedule's.) Above 1 is better. Figures are medians over seeds, with the range. [The guide](../loop.md)"
        " describes the strategies. The paper reports: "
        + "; ".join(f"{name} {words}" for name, words in PAPER.items())
        + ". Its loads, traces and its SelfTune differ, so only the shape compares.",
        *([f"Runs are kept in a file. Their commits: {made}."] if made else []),
        "",
    ]
    if report["not_run"]:
        lines += [
            f"{report['not_run']} runs of the whole grid (five seeds, and the variants of the mode `paper`) were not made. The column",
            "`seeds` says how many runs stand behind a row. `static` is deterministic, so it has one.",
            "",
        ]
    asked = bars(report["cells"])
    if asked:
        lines += [
            "## Goals of the mode `default`",
            "",
            "The worst cell among those that were run, unless the goal is a mean.",
            "",
        ]
        lines += table(
            ("goal", "result", "cell", "holds"),
            [(words, value, where, {True: "yes", False: "**no**", None: "-"}[ok]) for words, value, where, ok in asked],
        )
        lines += ["", *_most_there_is(report["cells"])]
    lines += [*_headroom(report.get("headroom", [])), "## Every cell", ""]
    lines += _cells(report["cells"])
    lines += _trust(report["cells"])
    if report["controller"]:
        lines += _controller(report["controller"])
    for name, each in report["parts"].items():
        lines += _parts(name, each)
    return "\n".join(lines) + "\n"


def _most_there_is(rows: Sequence[Row]) -> list[str]:
    """What the best fixed settings gain over the published default of Tiresias: little more can be asked for."""
    found = [
        f"{row['trace']} {row['load']:g} {row['over_static'][0]:.3f}"
        for row in rows
        if row["mode"] == "fixed-oracle" and row["scheduler"] == "tiresias" and row["load"] >= 1.0 and "over_static" in row
    ]
    return [f"Gain of the best fixed settings in hindsight over Tiresias' published default: {', '.join(found)}.", ""] if found else []


def _headroom(rows: Sequence[Row]) -> list[str]:
    """What there is to gain, week by week."""
    if not rows:
        return []
    head = ("trace", "day", "jobs", "jobs in the week before")
    loads = sorted(name for name in rows[0] if name.startswith("load_"))
    for name in loads:
        load = name.removeprefix("load_")
        head = (*head, f"load {load}: GPUs wanted at the start / GPUs", f"load {load}: gain", "by threshold")
    body = []
    for row in rows:
        cells = [row["trace"], str(row["day"]), f"{row['jobs']:,}", f"{row['jobs_before']:,}"]
        for name in loads:
            each = row[name]
            cells += [f"{each['wanted_at_start']:.2f}", f"{each['gain']:.3f}", f"{each['threshold']:,.0f}"]
        body.append(cells)
    return [
        "## The possible gain, week by week",
        "",
        "Tiresias with the best of four thresholds of its first queue (GPU-seconds), chosen in hindsight, over its published 18,000.",
        "Days are counted from the start of the file. The load of a week says little by itself. Weeks that start with an empty queue leave",
        f"little to gain, and full clusters differ. {_most(rows, loads[-1])}",
        "",
        *table(head, body),
        "",
    ]


def _most(rows: Sequence[Row], load: str) -> str:
    """The largest gain that any week of each trace offers, in words."""
    found = []
    for trace in dict.fromkeys(row["trace"] for row in rows):
        best = max((row for row in rows if row["trace"] == trace), key=lambda row: float(row[load]["gain"]))
        found.append(f"{trace} {best[load]['gain']:.2f} (day {best['day']})")
    return f"The largest gain of a week at load {load.removeprefix('load_')}: {', '.join(found)}."


def _cells(rows: Sequence[Row]) -> list[str]:
    def ratio(row: Row, name: str) -> str:
        value = row.get(f"over_{name}")
        if value is None:
            return "-"
        return f"{value[0]:.3f}" + (f" ({value[1]:.3f}-{value[2]:.3f})" if value[1] < value[2] else "")

    head = (
        "trace",
        "scheduler",
        "load",
        "strategy",
        "seeds",
        "over default",
        "over tuned once",
        "over best fixed",
        "mean time s",
        "fair share",
    )
    return table(
        head,
        [
            (
                row["trace"],
                row["scheduler"],
                f"{row['load']:g}",
                row["mode"],
                str(row["runs"]),
                *(ratio(row, name) for name in ("static", "fixed-history", "fixed-oracle")),
                f"{row['time_s']:,.0f}",
                f"{row['fair_share']:.3f}",
            )
            for row in rows
        ],
    )


def _trust(rows: Sequence[Row]) -> list[str]:
    """Cost, and predicted next to realised gains."""
    deciding = [row for row in rows if row["decisions"] > 0]
    if not deciding:
        return []
    head = (
        "trace", "scheduler", "load", "strategy", "decisions an hour", "not searched", "CPU s each", "CPU s a day", "simulations each",
        "stopped early", "changes a week", "predicted gain", "realised gain", "changes that gained",
    )  # fmt: skip
    body = [
        (
            row["trace"],
            row["scheduler"],
            f"{row['load']:g}",
            row["mode"],
            f"{row['decisions_an_hour']:.2f}",
            f"{row['not_searched']:.0%}",
            f"{row['cpu_s_per_decision']:.2f}",
            f"{row['cpu_s_a_day']:.1f}",
            f"{row['simulations_per_decision']:.0f}",
            f"{row['stopped_share']:.1%}",
            f"{row['changes_a_week']:g}",
            *((f"{row['predicted']:.3f}", f"{row['realised']:.3f}", f"{row['gained']:.0%}") if row["known_changes"] else ("-", "-", "-")),
        )
        for row in deciding
    ]
    return [
        "",
        "## Cost, and predicted next to realised gain",
        "",
        "Gains of single changes, medians over all changes of a cell: predicted on the futures of the decision, realised on the jobs"
        " that came until the next one, compared with the settings before it. CPU of the first tuning is spread over the days."
        " Not searched: no settings could reach the gain that a change needs, because the jobs' own work is nearly all of their time.",
        "",
        *table(head, body),
    ]


def _controller(rows: Sequence[Row]) -> list[str]:
    head = ("trace", "scheduler", "load", "what", "mean time s", "fair share", "simulations", "rejected", "CPU s", "causal error")
    body = [
        (
            row["trace"],
            row["scheduler"],
            f"{row['load']:g}",
            f"{row['kind']} {row['value']}",
            f"{row['time_s']:,.0f}",
            f"{row['fair_share']:.3f}",
            f"{row['simulations']:,}",
            f"{row['rejected']:,}",
            f"{row['cpu_s']:.1f}",
            "-" if row.get("causal_error") is None else f"{row['causal_error']:.1%}",
        )
        for row in rows
    ]
    words = "The hourly mode `paper` with and without its parts, and by similarity metric; one seed."
    return ["", "## Search controller and similarity metrics", "", words, "", *table(head, body)]


def _parts(name: str, each: dict[str, Any]) -> list[str]:
    ranges = [
        (
            f"{model}, {kind}",
            *(f"{row[key]:.3f}" for key in ("at_arrival", "hourly", "open")),
            f"{row['fit_s']:.3f}",
            f"{row['ask_s']:.4f}",
        )
        for kind, models in each["ranges"].items()
        for model, row in models.items()
    ]
    arrivals = [
        (method, *(f"{row[key]:.2f}" for key in ("raw_mean", "raw_median", "smooth_mean", "smooth_median")))
        for method, row in each["arrivals"].items()
    ]
    return [
        "",
        f"## Parts on {name}",
        "",
        *table(("classifier", "at arrival", "hourly", "hourly, undecided", "fit s / 1000", "ask s / 1000"), ranges),
        "",
        *table(("arrivals", "raw mean", "raw median", "smoothed mean", "smoothed median"), arrivals),
    ]
