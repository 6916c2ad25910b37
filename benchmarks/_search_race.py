"""Runs searchers, of this or any other state of the repository, on families of tables; every run is kept as soon as it is finished."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault
from autoscout_lab.bench.simulated import read_plugin
from benchmarks._search_families import Family

ROOT = Path(__file__).parents[1]
ADAPTERS = ROOT / ".venv-adapters" / "bin" / "python"
"""Where the packages of other tuners are installed (`make test` makes it)."""
AUTO = "auto"
"""Simulator of a contestant: whichever understands the table; it does not run where none does."""

Run = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A searcher with options, of some state of the repository.

    Attributes:
        label: For people.
        searcher: Name of the plug-in.
        options: Its options.
        state: A commit, or a folder that holds another copy of the repository; empty for the working tree.
        simulator: What it is told beforehand: a name, `auto`, or nothing.
        off: How wrong that is made besides: the standard deviation of an error of each prediction, as a share of it.
    """

    label: str
    searcher: str
    options: tuple[tuple[str, Any], ...] = ()
    state: str = ""
    simulator: str = ""
    off: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Contestant:
        """Read `SEARCHER[:OPTION=VALUE...][+SIMULATOR[~ERROR]][@COMMIT or FOLDER]`: `hybrid@main`, `hybrid:start=8`, `hybrid+auto~0.4`.

        Raises:
            ConfigError: it does not read so, or there is no such commit.
        """
        rest, _, state = text.strip().partition("@")
        rest, _, simulator = rest.partition("+")
        simulator, _, off = simulator.partition("~")
        name, options = read_plugin(rest, "searcher")
        if state and not Path(state, "src").is_dir():
            state = _git("rev-parse", "--verify", "--short", f"{state}^{{commit}}").strip()
            if not state:
                raise ConfigError(Fault(where="searcher", value=text, rule="git knows no such commit", fix="git log --oneline"))
        elif not state and name not in plugins.available("searcher"):
            raise ConfigError(Fault(where="searcher", value=name, rule=f"unknown; there are: {', '.join(plugins.available('searcher'))}"))
        try:
            error = float(off or 0.0)
        except ValueError:
            raise ConfigError(
                Fault(where="searcher", value=off, rule="an error after ~ is a number", fix="Example: hybrid+auto~0.4")
            ) from None
        return cls(label=text.strip(), searcher=name, options=tuple(options.items()), state=state, simulator=simulator, off=error)

    def code(self, source: Path) -> str:
        """Names the code that decides its runs, so that a changed searcher is run again; searchers that wrap other packages have none."""
        if not (source / "autoscout" / "search" / self.searcher.replace("-", "_")).is_dir():
            return ""
        parts = ["search", "learning", "space", *(["simulators"] if self.simulator else [])]
        files = [file for part in parts for file in sorted((source / "autoscout" / part).rglob("*")) if file.suffix in (".py", ".yaml")]
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]

    @property
    def python(self) -> str:
        """The interpreter that has the packages it needs."""
        own = () if self.state else plugins.requirements("searcher", self.searcher)
        return sys.executable if all(importlib.util.find_spec(name) for name in own) else str(ADAPTERS)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout


def source_of(contestant: Contestant, folder: Path) -> Path:
    """The `src` folder of its state of the repository, unpacked into `folder` unless it is there."""
    if not contestant.state:
        return ROOT / "src"
    place = Path(contestant.state)
    if (place / "src").is_dir():
        return place / "src"
    place = folder / contestant.state
    if not (place / "src").is_dir():
        packed = subprocess.run(["git", "archive", contestant.state, "src"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(place, filter="data")
    return place / "src"


def race(
    contestants: Sequence[Contestant],
    families: Iterable[Family],
    seeds: Sequence[int],
    folder: Path,
    processes: int = 1,
    resume: bool = True,
) -> list[Run]:
    """All runs: those that `folder` has of this code, and new ones, which are added to it unless it is not to resume."""
    families = list(families)
    sources = {one.label: source_of(one, folder / "sources") for one in contestants}
    codes = {one.label: one.code(sources[one.label]) for one in contestants}
    runs = {_key(run): run for run in _read(folder / "runs.jsonl") if codes.get(run["label"]) == run["code"]}
    race_runs: list[Run] = []
    writing = threading.Lock()
    folder.mkdir(parents=True, exist_ok=True)

    def one_seed(seed: int) -> None:
        tables = [table for family in families for table in family.tables(folder / "tables", seed)]
        for one in contestants:
            missing = [table for table in tables if (one.label, table["family"], table["name"], seed) not in runs]
            if not resume:
                continue
            entry = {"label": one.label, "searcher": one.searcher, "options": dict(one.options), "simulator": one.simulator, "off": one.off}
            job = {"tables": missing, "entries": [entry], "seed": seed}
            for run in _program(job, one.python, sources[one.label]) if missing else ():
                run["code"] = codes[one.label]
                with writing, (folder / "runs.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(run) + "\n")
                    runs[_key(run)] = run
        with writing:
            names = {(table["family"], table["name"]) for table in tables}
            race_runs.extend(run for key, run in runs.items() if key[0] in codes and key[1:3] in names and key[3] == seed)
            print(f"seed {seed}: {'done' if resume else 'read'}", file=sys.stderr)

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(one_seed, seeds))
    return [run for run in race_runs if not run.get("skipped")]


def _key(run: Run) -> tuple[str, str, str, int]:
    return run["label"], run["family"], run["table"], run["seed"]


def _read(file: Path) -> list[Run]:
    """The runs of a file; a last line that was cut off is left out."""
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.is_file() else []
    return [json.loads(line) for line in lines]


def _program(job: dict[str, Any], python: str, source: Path) -> Iterator[Run]:
    """The runs of one job, by a source tree in a process of its own with one thread."""
    settings = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    program = [python, "-W", "ignore", str(Path(__file__).with_name("_search_run.py"))]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=settings) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process was started without its pipes")
        process.stdin.write(json.dumps(job))
        process.stdin.close()
        for line in process.stdout:
            if line.startswith("{"):  # other tuners print too
                yield json.loads(line)
    if process.returncode:
        raise RuntimeError(f"{job['entries'][0]['label']} ended with {process.returncode} on seed {job['seed']}")
