"""`autoscout sched`: simulate and tune the scheduler of a GPU cluster, and work with its traces."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from autosched.cli import control as live
from autosched.cli.assess import assess
from autoscout.cli import options
from autoscout.common.text import plural
from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault
from autoscout.study.folder import DEFAULT

if TYPE_CHECKING:  # the simulator takes a second to load: verbs import it when they are called
    from autosched.sim.trace import Trace
    from autoscout.core.config import Config
    from autoscout.space import Space

TRIALS = 40  # simulations that `tune` spends without a bound

app = typer.Typer(help="Simulate and tune the scheduler of a GPU cluster.", no_args_is_help=True)
traces = typer.Typer(help="Describe, convert, generate, slice and plot traces.", no_args_is_help=True)
app.add_typer(traces, name="trace")
app.command("assess")(assess)
for _verb in (live.control, live.status, live.history, live.explain, live.propose, live.approve, live.rollback):
    app.command(_verb.__name__)(_verb)

Source = Annotated[str, typer.Option("--trace", help="A trace file, or synthetic:PROFILE[:JOBS[:DAYS[:SEED]]].")]
TracePath = Annotated[str, typer.Argument(help="A trace file, or synthetic:PROFILE[:JOBS[:DAYS[:SEED]]].")]
Scheduler = Annotated[str, typer.Option("--scheduler", help="Name of the scheduler; `autoscout sched list` shows all.")]
Nodes = Annotated[str, typer.Option("--cluster", help="NODESxGPUS such as 70x8, parts joined by +, or a node file.")]
Pinned = Annotated[list[str] | None, typer.Option("--set", help="Set a knob: KNOB=VALUE; may be repeated.")]
Form = Annotated[str, typer.Option("--format", help="Format of the file, where looking at it is not enough.")]
Begin = Annotated[str, typer.Option("--from", help="Only jobs that arrive at or after this date or second.")]
End = Annotated[str, typer.Option("--to", help="Only jobs that arrive before this date or second.")]
Status = Annotated[list[str] | None, typer.Option("--status", help="Only jobs that ended so; may be repeated.")]
DropBad = Annotated[bool, typer.Option("--drop-bad", help="Leave broken rows out instead of refusing the file.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Output = Annotated[Path, typer.Argument(help="File to write: .csv, .csv.gz or .parquet.")]


@app.command("list")
def list_schedulers(as_json: Json = False) -> None:
    """List the schedulers and their knobs."""
    from autosched.sim.cluster import Cluster

    kinds = {name: plugins.get("scheduler", name) for name in plugins.available("scheduler")}
    spaces: dict[str, Space] = {name: kind.space(Cluster.parse("16x8")) for name, kind in kinds.items()}
    if as_json:
        options.emit({name: {"summary": kind.summary, "knobs": list(spaces[name].knobs)} for name, kind in kinds.items()})
        return
    table = Table("scheduler", "what it does", "knobs")
    for name, kind in kinds.items():
        table.add_row(name, kind.summary, ", ".join(spaces[name].knobs))
    options.console.print(table)


@app.command("simulate")
def simulate_command(
    trace: Source,
    cluster: Nodes,
    scheduler: Scheduler = "tiresias",
    pinned: Pinned = None,
    form: Form = "",
    begin: Begin = "",
    end: End = "",
    status: Status = None,
    drop_bad: DropBad = False,
    output: Annotated[Path | None, typer.Option("--output", help="Write one row per job: .csv, .csv.gz or .parquet.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Write timelines and distributions as SVG.")] = None,
    detail: Annotated[str, typer.Option("--by", help="Also break the metrics down: vc or size.")] = "",
    snapshot: Annotated[
        Path | None, typer.Option("--snapshot", help="Begin with the jobs of this file: of --keep, or what squeue or sacct printed.")
    ] = None,
    seen: Annotated[str, typer.Option("--seen", help="When squeue or sacct printed the snapshot: a date or second.")] = "",
    until: Annotated[str, typer.Option("--until", help="Stop before this date or second.")] = "",
    keep: Annotated[Path | None, typer.Option("--keep", help="With --until: write the state then, for --snapshot (.npz).")] = None,
    changes: Annotated[
        Path | None, typer.Option("--changes", help="YAML list of later configurations: {at, scheduler, set}; see the guide.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a trace through a scheduler and print what came of it."""
    from autosched.sim.cluster import Cluster
    from autosched.sim.engine import Run, simulate
    from autosched.sim.export import result_columns, write_table
    from autosched.sim.metrics import by_size, by_vc, summary
    from autosched.sim.simulation import Simulation
    from autosched.sim.snapshot import Snapshot
    from autosched.sim.snapshot_file import write_snapshot
    from autosched.source import load_snapshot, load_trace, moment, read_changes

    if detail not in ("", "vc", "size"):
        raise ConfigError(Fault(where="--by", value=detail, rule="must be vc or size"))
    if keep and not until:
        raise ConfigError(Fault(where="--keep", value=str(keep), rule="goes with --until: all jobs end otherwise"))
    if plot:
        _svg(plot, "--plot")
    jobs = load_trace(trace, form=form, begin=begin, end=end, status=status or (), drop_bad=drop_bad)
    simulation = Simulation(trace=jobs, cluster=Cluster.parse(cluster), scheduler=scheduler)
    config = _config(simulation.space(), pinned)
    stop = moment(until, "--until", math.inf)
    start = load_snapshot(snapshot, moment(seen, "--seen", math.nan)) if snapshot else None
    if start is not None:
        jobs = jobs.between(start.at_s, math.inf)
    later = read_changes(changes, scheduler, simulation.cluster) if changes else ()
    circumstances = Run(log=plot is not None, until_s=stop, snapshot=start, changes=later)
    result = simulate(jobs, simulation.cluster, simulation.build(config), circumstances)
    if keep:
        write_snapshot(Snapshot.of(result), keep)
    if output:
        write_table(result_columns(result), output)
    if plot:
        from autosched.sim.plot import result_page

        plot.write_text(result_page({scheduler: result}, f"{scheduler} on {cluster}: {jobs.source}"), encoding="utf-8")
    if result.endless:
        options.errors.print(f"{result.endless}; means count them up to the last end", style="yellow", markup=False, highlight=False)
    metrics = summary(result)
    parts = by_vc(result) if detail == "vc" else by_size(result) if detail == "size" else {}
    if as_json:
        options.emit({"scheduler": scheduler, "config": config.to_json(), "metrics": metrics, **({"by": parts} if parts else {})})
        return
    if list(parts) == ["all"]:
        parts = {}  # one virtual cluster without a name is all there is
    table = Table("metric", "all", *parts)
    for name, value in metrics.items():
        table.add_row(name, _shown(value), *(_shown(part.get(name)) for part in parts.values()))
    options.console.print(table)


@app.command("compare")
def compare(
    trace: Source,
    cluster: Nodes,
    runs: Annotated[
        list[str],
        typer.Argument(help="Schedulers with settings, each one word: tiresias, or tiresias:threshold=3250,queues=2.", show_default=False),
    ],
    form: Form = "",
    begin: Begin = "",
    end: End = "",
    status: Status = None,
    drop_bad: DropBad = False,
    page: Annotated[Path | None, typer.Option("--page", help="Write all runs next to each other as one SVG page.")] = None,
    as_json: Json = False,
) -> None:
    """Run a trace under several schedulers or settings, and show them next to each other."""
    from autosched.sim.cluster import Cluster
    from autosched.sim.engine import Run, simulate
    from autosched.sim.metrics import summary
    from autosched.sim.simulation import Simulation
    from autosched.source import load_trace

    if page:
        _svg(page, "--page")
    jobs = load_trace(trace, form=form, begin=begin, end=end, status=status or (), drop_bad=drop_bad)
    nodes = Cluster.parse(cluster)
    names = plugins.available("scheduler")
    unknown = [text for text in runs if text.partition(":")[0] not in names]
    if unknown:
        rule = f"there is no such scheduler; there are {', '.join(names)}"
        raise ConfigError([Fault(where="RUNS", value=text, rule=rule) for text in unknown])
    results = {}
    configs = {}
    for text in dict.fromkeys(runs):
        name, _, knobs = text.partition(":")
        simulation = Simulation(trace=jobs, cluster=nodes, scheduler=name)
        configs[text] = _config(simulation.space(), [word for word in knobs.split(",") if word])
        results[text] = simulate(jobs, nodes, simulation.build(configs[text]), Run(log=page is not None))
        if results[text].endless:
            options.errors.print(f"{text}: {results[text].endless}", style="yellow", markup=False, highlight=False)
    if page:
        from autosched.sim.plot import result_page

        page.write_text(result_page(results, f"{len(results)} runs on {cluster}: {jobs.source}"), encoding="utf-8")
    metrics = {text: summary(result) for text, result in results.items()}
    if as_json:
        options.emit({text: {"config": configs[text].to_json(), "metrics": metrics[text]} for text in results})
        return
    table = Table("metric", *results)
    for name in dict.fromkeys(name for each in metrics.values() for name in each):
        table.add_row(name, *(_shown(each.get(name)) for each in metrics.values()))
    options.console.print(table)


@app.command("tune")
def tune(
    trace: Source,
    cluster: Nodes,
    scheduler: Scheduler = "tiresias",
    trials: Annotated[
        int | None, typer.Option("--trials", "--max-trials", min=1, help="Simulations that the search spends; 40 without a bound.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Time to spend: 90s, 10m, 2h.")] = None,
    metric: Annotated[str, typer.Option("--metric", help="Metric to improve, as `simulate` names it.")] = "mean_jct_s",
    slo: Annotated[list[str] | None, typer.Option("--slo", help="Limit to keep, such as 'p99_queue_s<=3600'; may be repeated.")] = None,
    searcher: Annotated[str | None, typer.Option("--searcher", help="Who proposes configurations.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Same seed, same proposals.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Simulations at once.")] = None,
    executor: Annotated[
        str | None, typer.Option("--executor", help="Where they run: inline on threads (default), local in processes, ray on a cluster.")
    ] = None,
    executor_option: Annotated[
        list[str] | None, typer.Option("--executor-option", help="NAME=VALUE of the executor, such as address=auto; may be repeated.")
    ] = None,
    pinned: Pinned = None,
    form: Form = "",
    begin: Begin = "",
    end: End = "",
    status: Status = None,
    drop_bad: DropBad = False,
    store: Annotated[str | None, typer.Option(help="Store: a path or a URL, such as postgresql:// for a team.")] = None,
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", help="Where result folders go.")] = DEFAULT,
    experiment_name: Annotated[str | None, typer.Option("--experiment-name", "-e", help="Name of the study and its folder.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run; start and write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Look for better settings of a scheduler by simulating a trace under many. Run it again to resume.

    The same as `autoscout tune` on a campaign with `system: sched`; results go to ./autoscout_results/NAME.
    """
    from autoscout.cli.tune import begin as begin_study

    arguments = options.given
    jobs = {"trace": trace, "scheduler": scheduler, "format": form, "from": begin, "to": end, "status": status, "drop_bad": drop_bad}
    flags = arguments(
        name=experiment_name,
        store=store,
        workload={name: value for name, value in jobs.items() if value},
        hardware={"cluster": cluster},
        set=options.assignments(pinned or (), "--set"),
        goal=arguments(metric=metric, slo=slo),
        budget=arguments(trials=trials if trials or budget else TRIALS, wall=budget),
        search=arguments(searcher=searcher, seed=seed, workers=workers),
        execute=arguments(executor=executor, options=options.settings(executor_option, "--executor-option") or None),
    )
    begin_study(options.load("sched", flags), output_dir, dry_run=dry_run, as_json=as_json, show_file=True)


@traces.command("describe")
def describe_command(path: TracePath, form: Form = "", drop_bad: DropBad = False, as_json: Json = False) -> None:
    """Say what a trace is like."""
    from autosched.sim.describe import describe
    from autosched.source import load_trace

    facts = describe(load_trace(path, form=form, drop_bad=drop_bad))
    if as_json:
        options.emit(facts)
        return
    table = Table("what", "value")
    for name, value in facts.items():
        table.add_row(name, value if isinstance(value, str) else _shown(value))
    options.console.print(table)


@traces.command("convert")
def convert(path: TracePath, output: Output, form: Form = "", status: Status = None, drop_bad: DropBad = False) -> None:
    """Write a trace of any known format as a plain one."""
    from autosched.source import load_trace

    _save(load_trace(path, form=form, status=status or (), drop_bad=drop_bad), output)


@traces.command("slice")
def slice_command(path: TracePath, output: Output, begin: Begin = "", end: End = "", form: Form = "", drop_bad: DropBad = False) -> None:
    """Write the part of a trace that arrives between two moments."""
    from autosched.source import load_trace

    _save(load_trace(path, form=form, begin=begin, end=end, drop_bad=drop_bad), output)


@traces.command("generate")
def generate_command(
    output: Output,
    profile: Annotated[str, typer.Option("--profile", help="philly, venus, earth, saturn, pai, seren or kalos.")] = "philly",
    jobs: Annotated[int, typer.Option("--jobs", help="How many jobs.")] = 10_000,
    days: Annotated[float, typer.Option("--days", help="Over how many days they arrive.")] = 14.0,
    load: Annotated[float, typer.Option("--load", help="Mean demand over the capacity of --cluster; 0: as published.")] = 0.0,
    cluster: Annotated[str, typer.Option("--cluster", help="For --load, such as 70x8.")] = "",
    vcs: Annotated[int, typer.Option("--vcs", help="Virtual clusters.")] = 0,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same trace.")] = 0,
) -> None:
    """Write a synthetic trace calibrated to a real cluster."""
    from autosched.arrivals.synthetic import Recipe, generate
    from autosched.sim.cluster import Cluster

    gpus = Cluster.parse(cluster).gpus if cluster else 0
    _save(generate(Recipe(profile=profile, jobs=jobs, days=days, load=load, cluster_gpus=gpus, vcs=vcs, seed=seed)), output)


@traces.command("plot")
def plot_command(
    path: TracePath, output: Annotated[Path, typer.Argument(help="SVG file to write.")], form: Form = "", drop_bad: DropBad = False
) -> None:
    """Draw arrivals, durations and sizes."""
    from autosched.sim.plot import trace_page
    from autosched.source import load_trace

    _svg(output, "OUTPUT")
    output.write_text(trace_page(load_trace(path, form=form, drop_bad=drop_bad)), encoding="utf-8")


def _config(space: Space, pinned: list[str] | None) -> Config:
    """The default configuration with some knobs set; conditions on them follow."""
    from autosched.sim.settings import configured

    pairs = [tuple(part.strip() for part in text.partition("=")) for text in pinned or ()]
    rule = f"must read KNOB=VALUE with one of {', '.join(space.knobs)}"
    faults = [Fault(where="--set", value=f"{name}{equals}{value}", rule=rule) for name, equals, value in pairs if not equals]
    values = {name: value for name, equals, value in pairs if equals}
    return configured(space, values, "--set", faults)


def _svg(path: Path, flag: str) -> None:
    """Refuse another kind of picture before anything runs."""
    if path.suffix != ".svg":
        raise ConfigError(Fault(where=flag, value=str(path), rule="pictures are SVG: the name must end in .svg"))


def _save(trace: Trace, output: Path) -> None:
    from autosched.sim.export import trace_columns, write_table

    write_table(trace_columns(trace), output)
    options.console.print(f"{plural(len(trace), 'job')} written to {output}", highlight=False)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.3f}"
