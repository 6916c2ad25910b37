"""Thousands of trials and wide ranges: `python -m benchmarks.scale [--only CASE ...] [--quick] [--before SRC] [--json] [--write]`.

What AutoScout itself costs, apart from what it measures: processor time of a trial in a study that has many already, of the report of many
trials, and of a search over a range of a hundred million values; and the memory of each. Every case has a process of its own. `--before`
names the `src` folder of another checkout, whose figures go next to those of this one, taken in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autoscout import api
from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.space import Choice, Grid, Space
from autoscout.store.sql.store import SqlStore
from autoscout.study.folder import Folder

PAGE = Path(__file__).parent.parent / "docs" / "lab" / "results" / "scale.md"
SOURCE = Path(__file__).parent.parent / "src"
MORE = 20  # trials that are timed
KNOBS, VALUES = 8, 10
CASES = (
    *(f"random {count}" for count in (500, 4_000, 20_000)),
    *(f"hybrid {count}" for count in (500, 1_000, 4_000, 20_000)),
    "range random",
    "range hybrid",
    "report 1000",
    "report 10000",
    "report 100000",
)
COMPARED = ("random 500", "random 4000", "random 20000", "hybrid 500", "hybrid 1000", "report 1000")  # others may take hours elsewhere
QUICK = ("random 500", "hybrid 500", "range hybrid", "report 1000")
TOO_LONG_S = 600.0
MOMENTS_S: list[float] = []  # processor time at each call of the function


def space() -> Space:
    return Space([Grid(f"k{index}", 0, VALUES - 1) for index in range(KNOBS)])


def value(config: Config) -> float:
    """A bowl; notes when it was asked."""
    MOMENTS_S.append(time.process_time())
    return 1.0 + sum((int(place or 0) - 3) ** 2 for place in config.values())


def past(count: int) -> Iterator[Trial]:
    """Random trials, none twice."""
    rng, places = random.Random(0), range(VALUES)
    configs: set[Config] = set()
    while len(configs) < count:
        config = Config({f"k{index}": rng.choice(places) for index in range(KNOBS)})
        if config in configs or not any(config.values()):
            continue
        configs.add(config)
        origin, number = Origin(by="random", notes={"round": len(configs)}), float(len(configs))
        failed = rng.random() < 0.1
        measurement = Measurement(
            status=Status.CRASHED if failed else Status.OK,
            metrics={} if failed else {"value": value(config) * rng.uniform(0.95, 1.05)},
            cost_s=1.0,
            reason="it ended with code 1" if failed else "",
        )
        yield Trial(
            proposal=Proposal(config=config, origin=origin),
            measurement=measurement,
            started_s=number,
            finished_s=number + 1.0,
            worker="past",
        )


def fill(folder: Path, count: int, searcher: str) -> None:
    """A study with this many trials."""
    api.minimize(value, space(), trials=1, folder=folder, searcher=searcher, name="scale")
    store = SqlStore(Folder(folder).store)
    batch = []
    for trial in past(count - 1):
        batch.append(trial)
        if len(batch) == 1000:
            store.append("scale", batch)
            batch = []
    if batch:
        store.append("scale", batch)
    store.close()


def searching(searcher: str, count: int) -> dict[str, float]:
    """Processor time of a trial after this many."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "study"
        fill(folder, count, searcher)
        MOMENTS_S.clear()
        api.minimize(value, space(), trials=count + MORE, store=Folder(folder).store, searcher=searcher, name="scale")
    return {"trial_s": (MOMENTS_S[-1] - MOMENTS_S[0]) / (len(MOMENTS_S) - 1)}


def ranging(searcher: str) -> dict[str, float]:
    """A search over a range of a hundred million values."""
    wide = Space([Grid("x", 1, 10**8), Choice("mode", ["a", "b", "c"]), Grid("y", 1, 64)])
    begun_s = time.process_time()
    api.minimize(lambda config: 1 + abs(float(config["x"] or 0) - 3e7) / 1e7, wide, trials=30, searcher=searcher)
    return {"trial_s": (time.process_time() - begun_s) / 30}


def reporting(count: int) -> dict[str, float]:
    """The report of a study with this many trials."""
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(Path(name) / "study")
        fill(folder.path, count, "random")
        subprocess.run([sys.executable, "-m", "autoscout", "report", str(folder.path)], check=True, capture_output=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent_s = used.ru_utime + used.ru_stime
        return {
            "report_s": spent_s,
            "page_mb": folder.page.stat().st_size / 1e6,
            "json_mb": (folder.path / "report.json").stat().st_size / 1e6,
        }


def measure(case: str) -> dict[str, float]:
    """One case, in this process."""
    kind, _, rest = case.partition(" ")
    figures = {"report": lambda: reporting(int(rest)), "range": lambda: ranging(rest)}.get(kind, lambda: searching(kind, int(rest)))()
    return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, **figures}


def apart(case: str, source: Path) -> dict[str, float]:
    """One case in a process of its own, with this source; nothing where it ends badly or takes too long."""
    command = [sys.executable, "-m", "benchmarks.scale", "--case", case]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, env=environment, cwd=SOURCE.parent, capture_output=True, text=True, timeout=TOO_LONG_S, check=False)
    except subprocess.TimeoutExpired:
        return {}
    figures: dict[str, float] = json.loads(done.stdout) if done.returncode == 0 else {}
    return figures


def cell(figures: Mapping[str, float]) -> str:
    """Time and memory of one case."""
    if not figures:
        return "did not end | "
    if "report_s" in figures:
        return f"{figures['report_s']:.1f} s, page {figures['page_mb']:.1f} MB | {figures['peak_mb']:.0f} MB"
    return f"{1000 * figures['trial_s']:.1f} ms | {figures['peak_mb']:.0f} MB"


def page(result: Mapping[str, Any]) -> str:
    """The figures as a page of results."""
    both = any("before" in one for one in result["cases"].values())
    lines = [
        "# Thousands of trials and wide ranges",
        "",
        f"`{result['command']}` at commit {result['commit']}, {result['machine']}. Processor time, one thread; peak memory of the process.",
        f"Load of the machine at the start: {result['load'][0]:.1f}, at the end: {result['load'][1]:.1f}.",
        "",
        f"`random N`, `hybrid N`: a trial of a study that has N already, mean of {MORE}; {KNOBS} knobs of {VALUES} values, a tenth fails.",
        "`range`: a trial of a search of 30 with a knob `range: [1, 100000000]`.",
        "`report N`: `autoscout report` of N trials, with the start of the program.",
        "",
        "| case | before | memory before | now | memory now |" if both else "| case | now | memory |",
        "|---|---|---|---|---|" if both else "|---|---|---|",
    ]
    for name, one in result["cases"].items():
        lines.append(f"| {name} | {cell(one['before']) + ' | ' if 'before' in one else '- | - | ' if both else ''}{cell(one['now'])} |")
    return "\n".join(lines) + "\n"


def _described() -> dict[str, str]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=SOURCE.parent
    ).stdout.strip()
    return {
        "commit": commit or "unknown",
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], choices=CASES, metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="the small cases only")
    parser.add_argument("--before", type=Path, help="the src folder of another checkout, to compare with")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case)))
        return
    before = [os.getloadavg()[0]]
    cases: dict[str, dict[str, dict[str, float]]] = {}
    for case in arguments.only or (QUICK if arguments.quick else CASES):
        cases[case] = {"before": apart(case, arguments.before)} if arguments.before and case in COMPARED else {}
        cases[case]["now"] = apart(case, SOURCE)
        print(case, cases[case], file=sys.stderr)
    shown = " ".join(word for word in sys.argv[1:] if word not in (str(arguments.before),))
    result = {
        "command": f"python -m benchmarks.scale {shown}".strip(),
        **_described(),
        "load": [*before, os.getloadavg()[0]],
        "cases": cases,
    }
    if arguments.write:
        PAGE.write_text(page(result), encoding="utf-8")
    print(json.dumps(result, indent=2) if arguments.json else page(result))


if __name__ == "__main__":
    main()
