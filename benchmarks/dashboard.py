"""The dashboard with a huge study: how soon a browser shows its page, from a warm server.

    python -m benchmarks.dashboard [--trials N] [--repeats N] [--json] [--write]

A study with N trials of a made-up engine is written to a SQLite store. The dashboard reads it, a browser opens the page a few times, and
the browser's own clock says when it had painted something and when the last plot was there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autoscout.core.clock import RealClock
from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.protocols import StudyRecord
from autoscout.core.seeds import stream
from autoscout.core.task import Budget, Direction, Limit, Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.store.sql.store import SqlStore
from autoscout.study.about import ABOUT, About, KnobAbout
from benchmarks._browser import browser, dashboard, missing

PAGE = Path(__file__).parent.parent / "docs" / "lab" / "results" / "dashboard.md"
TRIALS, REPEATS, SEED = 100_000, 7, 0
GOAL_S = 2.0
KNOBS: dict[str, tuple[Any, ...]] = {
    "parallel": (1, 2, 4, 8, 16, 32, 64),
    "batch": tuple(2**power for power in range(5, 14)),
    "flash_attention": (False, True),
    "kv_type": ("f16", "q8", "q4"),
    "threads": tuple(range(1, 33)),
}
DEFAULT = Config(parallel=1, batch=512, flash_attention=False, kv_type="f16", threads=8)
BATCH = 2_000  # trials written at once


def study_trials(count: int, seed: int = SEED) -> list[Trial]:
    """Trials of an engine that is not there: a throughput, a latency that is limited, and failures where memory runs out."""
    rng = stream(seed, "benchmark", "dashboard")
    found = []
    for number in range(count):
        config = DEFAULT if number == 0 else Config({name: values[rng.integers(len(values))] for name, values in KNOBS.items()})
        parallel, batch, threads = (float(config[name]) for name in ("parallel", "batch", "threads"))  # type: ignore[arg-type]
        failed = parallel * batch > 200_000 and config["kv_type"] == "f16"
        rate = 40 * parallel**0.45 * (1.25 if config["flash_attention"] else 1.0) * min(1.0, threads / 16) ** 0.5 * rng.normal(1.0, 0.02)
        latency = 15 + parallel * 2.2 + batch / 90 * rng.normal(1.0, 0.05)
        answer = Measurement(
            status=Status.OOM_START if failed else Status.OK,
            metrics={} if failed else {"output_throughput": max(1.0, rate), "p95_ttft_ms": max(1.0, latency)},
            cost_s=4.0,
            reason="out of memory: the KV cache does not fit" if failed else "",
            log_tail="allocating the KV cache\nout of memory" if failed else "",
        )
        begun_s = 1_760_000_000.0 + number // 8 * 4.0
        origin = Origin(by="default" if number == 0 else "hybrid")
        proposal = Proposal(config=config, origin=origin, repeat=-number)  # a repeat of its own: few configurations, many trials
        worker = f"node{number % 8}:100:1:b:n:m"
        found.append(Trial(proposal=proposal, measurement=answer, started_s=begun_s, finished_s=begun_s + 4.0, worker=worker))
    return found


def write_study(place: Path, count: int, name: str = "large", seed: int = SEED) -> None:
    """A SQLite store with such a study."""
    objective = Objective(metric="output_throughput", direction=Direction.MAXIMIZE, limits=(Limit.parse("p95_ttft_ms<=120"),))
    knobs = tuple(KnobAbout(name=knob, values=values) for knob, values in KNOBS.items())
    about = About(default=DEFAULT.to_json(), knobs=knobs, load="made up, for the benchmark of the dashboard")
    task = Task(system="made-up", objective=objective, workload={"prompt_tokens": 512}, budget=Budget(trials=count))
    with SqlStore(place) as store:
        store.open(StudyRecord(name=name, task=task, space="benchmark", spec={ABOUT: about.to_json()}))
        trials = study_trials(count, seed)
        for start in range(0, count, BATCH):
            store.append(name, trials[start : start + BATCH])


def paint_s(page: Any, address: str) -> tuple[float, float]:
    """Seconds until the browser had painted something of a page, and until the last plot was drawn."""
    page.goto(address, wait_until="load")
    page.wait_for_selector("svg.parallel")
    return first_paint_s(page), float(page.evaluate("() => performance.now() / 1000"))


def measure(count: int, repeats: int) -> dict[str, Any]:
    """Cold and warm figures, in seconds."""
    clock = RealClock()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store.db"
        write_study(place, count)
        begun_s = clock.span_s()
        with dashboard(str(place)) as (url, library), browser() as opened:
            entry = library.entries()[0]
            view = entry.view()
            read_s = clock.span_s() - begun_s
            page = opened.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(120_000)
            address = f"{url}/studies/{entry.key}"
            cold = paint_s(page, address)
            warm = [paint_s(page, address) for _ in range(repeats)]
            listed = [paint_list(page, f"{address}/trials?sort=output_throughput&page=500") for _ in range(3)]
            weight = len(page.request.get(address).body())
    return {
        "trials": len(view.trials),
        "read_s": read_s,
        "cold_first_paint_s": cold[0],
        "first_paint_s": [first for first, _ in warm],
        "last_plot_s": [last for _, last in warm],
        "sorted_list_s": listed,
        "page_kb": weight / 1024,
    }


def paint_list(page: Any, address: str) -> float:
    """Seconds until a page of the sorted list of trials was painted."""
    page.goto(address, wait_until="load")
    return first_paint_s(page)


def first_paint_s(page: Any) -> float:
    """When the browser had painted something; on a busy machine it says so some time after the page has loaded."""
    while (found := page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime")) is None:
        page.wait_for_timeout(50)
    return float(found) / 1000


def spread(values: Sequence[float]) -> str:
    """Median with the smallest and the largest."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def text(found: dict[str, Any]) -> str:
    """The page of results."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    holds = "holds" if statistics.median(found["first_paint_s"]) < GOAL_S else "does not hold"
    rows = [
        ("reading the study and working out its result, once", f"{found['read_s']:.1f}"),
        ("first paint of the study's page, warm", spread(found["first_paint_s"])),
        ("all its plots drawn, warm", spread(found["last_plot_s"])),
        ("first paint of page 500 of the trials sorted by throughput", spread(found["sorted_list_s"])),
    ]
    lines = [
        "# The dashboard with a huge study",
        "",
        f"A study of {found['trials']:,} trials (made up, seed {SEED}) in a SQLite store, opened in Chromium. Seconds by the",
        f"browser's own clock, median (smallest to largest) of {len(found['first_paint_s'])} loads; of 3 for the list.",
        f"The goal, a first paint under {GOAL_S:g} s from a warm server, {holds}.",
        "",
        "| what | seconds |",
        "|---|---|",
        *(f"| {what} | {seconds} |" for what, seconds in rows),
        "",
        f"The page itself weighs {found['page_kb']:,.0f} KB: curves and lines are thinned on the server, tables are paged.",
        "",
        f"`python -m benchmarks.dashboard --write`, commit {commit or 'unknown'}, {machine}. Other programs used the machine meanwhile.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if reason := missing():
        raise SystemExit(f"benchmarks.dashboard: {reason}")
    found = measure(given.trials, given.repeats)
    print(text(found))
    if given.write:
        PAGE.write_text(text(found))
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
