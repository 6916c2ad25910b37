"""`autoscout bench`: searchers against recorded measurements."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from autoscout.cli import options
from autoscout.core.errors import ConfigError, Fault
from autoscout.study.start import AUTO, NONE
from autoscout_lab.bench import Entry, Race, Run, Scores, Source, find_tables, load_table, run_race, score
from autoscout_lab.bench.page import as_page, as_text, write_png
from autoscout_lab.bench.simulated import Simulated, as_comparison, as_informants, compare, informants, informed

app = typer.Typer(help="Compare searchers on recorded measurements.", no_args_is_help=True)

Tables = Annotated[str, typer.Option("--tables", help="Folder of tables, T4 JSON or trials.jsonl.")]
Only = Annotated[str, typer.Option("--only", help="Comma-separated names of tables.")]
Tasks = Annotated[str, typer.Option("--tasks", help="File that describes model, GPUs and load of tables, as tasks.json next to them.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Runs per searcher and table.")]
First = Annotated[int, typer.Option("--first-seed", min=0, help="Seeds count from here.")]
BudgetOf = Annotated[int, typer.Option("--budget", min=1, help="Distinct evaluations of a run.")]
Workers = Annotated[str, typer.Option("--workers", help="Proposals under way at once; several as 1,4,16 to compare them.")]
Jobs = Annotated[int, typer.Option("--jobs", min=0, help="Processes; 0 for one per core.")]
Output = Annotated[Path | None, typer.Option("--output", help="Folder for runs, scores and page; a race is resumed from there.")]
Png = Annotated[bool, typer.Option("--png", help="Also curves.png (needs matplotlib).")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.command("search")
def search(
    tables: Tables,
    searchers: Annotated[str, typer.Option("--searchers", help="Comma-separated; options as NAME:OPTION=VALUE.")] = "hybrid,random",
    only: Only = "",
    tasks: Tasks = "",
    simulator: Annotated[
        str,
        typer.Option("--simulator", help="auto: informs hybrid where it understands the table; none; or a name: run with and without it."),
    ] = AUTO,
    seeds: Seeds = 20,
    first_seed: First = 0,
    budget: BudgetOf = 200,
    workers: Workers = "1",
    jobs: Jobs = 0,
    output: Output = None,
    png: Png = False,
    as_json: AsJson = False,
) -> None:
    """Race searchers on tables: evaluations to the optimum, area under regret, mean rank, failures, CPU per proposal."""
    entries = tuple(Entry.parse(text) for text in _listed(searchers))
    counts = _counts(workers)
    named = simulator not in (AUTO, NONE)
    if named and len(counts) > 1:
        raise ConfigError(Fault(where="--workers", value=repr(workers), rule="with a named --simulator, one number only"))
    race = _race(find_tables(tables, _listed(only), tasks), entries, range(first_seed, first_seed + seeds), budget, counts[0], jobs, output)
    if named:
        race = _informed(race, Simulated.parse(simulator))
    elif simulator == AUTO:
        race = replace(race, informants=informants(entries, map(load_table, race.tables)))
    runs = [run for count in counts for run in _runs(replace(race, workers=count), quiet=as_json)]
    if len(counts) > 1:
        runs = [replace(run, searcher=f"{run.searcher}, {run.workers} at once") for run in runs]
    scores = _scores(race, runs)
    compared = compare(runs, scores, race.entries, {source.name: load_table(source) for source in race.tables}) if named else []
    line = as_informants(race.informants, race.entries) if race.informants else ""
    if line and not as_json:
        typer.echo(f"{line}\n")
    _show(scores, output, png, as_json, more={"informed": dict(race.informants), **({"simulator": compared} if named else {})}, note=line)
    if named and not as_json:
        typer.echo(f"\n{as_comparison(compared)}")


@app.command("spread")
def spread(tables: Tables, only: Only = "", output: Output = None, as_json: AsJson = False) -> None:
    """Say how good and bad configurations are spread: how many rows lie near the best, how many fail, by the number of changed knobs."""
    from autoscout_lab.bench.spread import as_page as spread_page
    from autoscout_lab.bench.spread import as_text as spread_text
    from autoscout_lab.bench.spread import distribution_of_table

    sources = find_tables(tables, _listed(only))
    distributions = {source.name: distribution_of_table(load_table(source), by_searcher=source.kind == "trials") for source in sources}
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "spread.html").write_text(spread_page(distributions), encoding="utf-8")
    if as_json:
        options.emit({"tables": {name: each.to_json() if each else None for name, each in distributions.items()}})
        return
    typer.echo(spread_text(distributions))
    if output is not None:
        typer.echo(f"\nspread.html: {output}")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _counts(text: str) -> list[int]:
    """How many proposals are under way at once, one race each."""
    try:
        numbers = list(dict.fromkeys(int(part) for part in _listed(text)))
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ConfigError(Fault(where="--workers", value=repr(text), rule="must be numbers from 1", fix="Example: --workers 1,4,16"))
    return numbers


def _race(
    sources: list[Source], entries: tuple[Entry, ...], seeds: range, budget: int, workers: int, jobs: int, output: Path | None
) -> Race:
    processes = jobs or os.cpu_count() or 1
    return Race(entries=entries, tables=tuple(sources), seeds=tuple(seeds), budget=budget, workers=workers, output=output, jobs=processes)


def _informed(race: Race, simulator: Simulated) -> Race:
    """The race with the simulator's entries, on the tables that it can read."""
    silent = {source: why for source in race.tables if (why := simulator.reads(load_table(source)))}
    for source, why in silent.items():
        options.errors.print(f"{source.name} is left out: {simulator.label} cannot predict it ({why})")
    readable = tuple(source for source in race.tables if source not in silent)
    if not readable:
        fix = "Describe their model and GPUs in tasks.json next to them, or in a file for --tasks"
        raise ConfigError(Fault(where="--simulator", value=simulator.label, rule="it can predict none of these tables", fix=fix))
    return replace(race, entries=informed(race.entries, simulator), tables=readable)


def _runs(race: Race, *, quiet: bool) -> list[Run]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=options.errors, disable=quiet, transient=True) as bar:
        line = bar.add_task("runs", total=len(race.runs()))

        def progress(run: Run, done: int, total: int) -> None:
            bar.update(line, completed=done, total=total, description=f"{run.searcher} on {run.table}")

        return run_race(race, progress)


def _scores(race: Race, runs: list[Run]) -> Scores:
    return score(runs, {source.name: load_table(source) for source in race.tables})


def _show(
    scores: Scores,
    output: Path | None,
    png: bool,
    as_json: bool,
    more: Mapping[str, Any] = MappingProxyType({}),
    note: str = "",
) -> None:
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "bench.html").write_text(as_page(scores, note=note), encoding="utf-8")
        if png:
            write_png(scores, output / "curves.png")
    if as_json:
        options.emit({**scores.to_json(), **more})
        return
    typer.echo(as_text(scores))
    if output is not None:
        typer.echo(f"\nruns.jsonl and bench.html: {output}")
