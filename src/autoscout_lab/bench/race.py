"""Races: searchers × tables × seeds, on all cores, each run written to disk when it is finished so that a race can be resumed."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault, StoreError, require
from autoscout.study.plugin_options import build_options
from autoscout_lab.bench.replay import Run, replay
from autoscout_lab.bench.simulated import Simulated, read_plugin
from autoscout_lab.bench.tables import Source, load_table

RUNS = "runs.jsonl"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A searcher with options, as people write it: `hybrid`, `hybrid:start=8`, `hybrid-paper:tournament=false`."""

    label: str
    plugin: str
    options: tuple[tuple[str, Any], ...] = ()
    simulator: Simulated | None = None  # what it is told beforehand
    play: Callable[..., Run] = replay  # runs it; called as `autoscout_lab.bench.replay.replay`, and sent to other processes

    @property
    def informed(self) -> str:
        """What it is told beforehand, by name."""
        return "" if self.simulator is None else self.simulator.label

    @classmethod
    def parse(cls, text: str) -> Entry:
        """Read `NAME[:OPTION=VALUE...]`; values are read as YAML.

        Raises:
            ConfigError: it does not read so, the options do not fit, or packages are missing.
        """
        name, options = read_plugin(text, "--searchers")
        kind = plugins.get("searcher", name)
        build_options(kind, options, where=f"searcher {text}")
        return cls(label=text.strip(), plugin=name, options=tuple(options.items()))

    @property
    def takes_predictions(self) -> bool:
        """Whether the searcher can be told what a simulator predicts."""
        return bool(plugins.get("searcher", self.plugin).takes_predictions)

    def informed_by(self, name: str) -> Entry:
        """The same, told what a simulator predicts where it can be; an entry with a simulator of its own stays as it is."""
        able = name and self.simulator is None and self.play is replay and self.takes_predictions
        return replace(self, simulator=Simulated.parse(name)) if able else self

    def build(self, space: Any, task: Any, seed: int) -> Any:
        """A fresh searcher."""
        kind = plugins.get("searcher", self.plugin)
        more = {} if self.simulator is None else {"simulator": self.simulator.build()}
        return kind(space, task, seed, build_options(kind, dict(self.options), where=f"searcher {self.label}"), **more)


@dataclass(frozen=True, kw_only=True)
class Race:
    """Who runs where, how often and how far.

    Attributes:
        entries: The searchers.
        tables: Where they run.
        seeds: One run per seed; the same seeds for all.
        budget: Distinct evaluations of a run.
        workers: Proposals under way at once.
        output: Folder that keeps the runs; None keeps nothing.
        jobs: Processes, each with one thread for arithmetic, so that CPU times mean something; 0 runs in this one.
        informants: Name of a table -> the simulator that informs the searchers on it that can be told.
    """

    entries: tuple[Entry, ...]
    tables: tuple[Source, ...]
    seeds: tuple[int, ...] = tuple(range(20))
    budget: int = 200
    workers: int = 1
    output: Path | None = None
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    informants: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rules = {
            "budget": (self.budget > 0, "must be above zero"),
            "workers": (self.workers > 0, "must be above zero"),
            "jobs": (self.jobs >= 0, "must not be negative"),
            "seeds": (len(self.seeds) > 0, "at least one seed is needed"),
            "entries": (len({entry.label for entry in self.entries}) == len(self.entries) > 0, "each searcher once, and at least one"),
        }
        require("race", self, rules)

    def runs(self) -> list[tuple[Entry, Source, int]]:
        """All of them; seeds outermost, so that a race that is cut short has compared all searchers."""
        entries = {source: [entry.informed_by(self.informants.get(source.name, "")) for entry in self.entries] for source in self.tables}
        return [(entry, source, seed) for seed in self.seeds for source in self.tables for entry in entries[source]]


def run_race(race: Race, progress: Callable[[Run, int, int], None] | None = None) -> list[Run]:
    """Run what is not finished yet.

    Args:
        race: What to run.
        progress: Called in this process after each run with the run, how many are done and how many there are.

    Returns:
        All runs of the race, also those of an earlier start, in the order of `race.runs()`.
    """
    finished = {run.key: run for run in (read_runs(race.output) if race.output is not None else ())}
    runs = race.runs()
    keys = [(entry.label, source.name, seed, race.budget, race.workers, entry.informed) for entry, source, seed in runs]
    missing = [item for item, key in zip(runs, keys, strict=True) if key not in finished]
    for count, run in enumerate(_all(race, missing), start=len(runs) - len(missing) + 1):
        if race.output is not None:
            _append(race.output, run)
        finished[run.key] = run
        if progress is not None:
            progress(run, count, len(runs))
    return [finished[key] for key in keys]


def _all(race: Race, missing: Sequence[tuple[Entry, Source, int]]) -> Iterable[Run]:
    if race.jobs == 0:
        for entry, source, seed in missing:
            yield _one(entry, source, seed, race.budget, race.workers)
        return
    if not missing:
        return
    with (
        _single_threaded(),
        ProcessPoolExecutor(
            max_workers=min(race.jobs, len(missing)), mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent
        ) as pool,
    ):
        futures = [pool.submit(_one, entry, source, seed, race.budget, race.workers) for entry, source, seed in missing]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def _end_with_parent() -> None:
    """A worker whose race was killed must not continue for nobody."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _one(entry: Entry, source: Source, seed: int, budget: int, workers: int) -> Run:
    table = load_table(source)
    searcher = entry.build(table.space, table.task, seed)
    run = entry.play(table, searcher, name=entry.label, seed=seed, budget=budget, workers=workers)
    return replace(run, informed=entry.informed)


@contextmanager
def _single_threaded() -> Any:
    """Children see one thread per process: races use the cores by runs, and CPU time must not depend on their number."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _append(folder: Path, run: Run) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / RUNS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(run.to_json(), separators=(",", ":")) + "\n")
    except OSError as error:
        raise StoreError(
            Fault(where=str(folder), rule=f"a run cannot be written: {error.strerror}", fix="Check space and rights")
        ) from error


def read_runs(folder: Path) -> list[Run]:
    """The finished runs of a folder; a last line that was cut off is left out."""
    file = folder / RUNS
    if not file.is_file():
        return []
    runs = []
    *lines, rest = file.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            runs.append(Run.from_json(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(Fault(where=f"{file}:{number}", rule=f"not a run: {error}", fix="Remove the line")) from error
    if rest:  # a writer that was killed; without this the next line would be glued to it
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return runs
