"""`autoscout sched assess`: is it worth re-tuning the scheduler of this cluster?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from autoscout.cli import options
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault

if TYPE_CHECKING:  # which verbs that only show help do not wait for
    from autosched.tune.assess import Assessment


def assess(
    trace: Annotated[str, typer.Option("--trace", help="A trace file, or synthetic:PROFILE[:JOBS[:DAYS[:SEED]]].")],
    cluster: Annotated[str, typer.Option("--cluster", help="NODESxGPUS such as 70x8, parts joined by +, or a node file.")],
    scheduler: Annotated[str, typer.Option("--scheduler", help="Name of the scheduler; `autoscout sched list` shows all.")] = "tiresias",
    days: Annotated[
        float, typer.Option("--days", min=0.1, help="Compare on the last days of the trace; as many before are for tuning.")
    ] = 7.0,
    goal: Annotated[
        str,
        typer.Option("--goal", help="time: least time in the system; fair: most jobs treated alike; or a metric: queue_s, ..."),
    ] = "time",
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="NAME=FORMULA, such as 'small=mean(wait[gpus <= 2])': a metric of your own; may be repeated."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", help="What settings must keep: 'queue_s<=600', or 'preemptions<=1.5x' of the default; may be repeated."),
    ] = None,
    intermediate: Annotated[
        list[str] | None, typer.Option("--intermediate", help="Metric between settings and goal, for the causal model; may be repeated.")
    ] = None,
    edge: Annotated[list[str] | None, typer.Option("--edge", help="'FROM -> TO' that the causal graph must have; may be repeated.")] = None,
    no_edge: Annotated[list[str] | None, typer.Option("--no-edge", help="'FROM -> TO' that it must not have; may be repeated.")] = None,
    mode: Annotated[list[str] | None, typer.Option("--mode", help="Only these strategies; may be repeated. All when left out.")] = None,
    policies: Annotated[
        str, typer.Option("--policies", help="Other schedulers that may take over, joined by commas: the policy is chosen, too.")
    ] = "",
    slack: Annotated[
        float, typer.Option("--slack", min=1.0, help="With --policies: times worse that the worst user and the longest wait may get.")
    ] = 1.1,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same answer.")] = 0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each strategy that draws anything; hourly ones are run once.")] = 3,
    form: Annotated[str, typer.Option("--format", help="Format of the file, where looking at it is not enough.")] = "",
    begin: Annotated[str, typer.Option("--from", help="Only jobs that arrive at or after this date or second.")] = "",
    end: Annotated[str, typer.Option("--to", help="Only jobs that arrive before this date or second.")] = "",
    drop_bad: Annotated[bool, typer.Option("--drop-bad", help="Leave broken rows out instead of refusing the file.")] = False,
    output: Annotated[Path | None, typer.Option("--output", help="Folder for report.md, plots and the causal graph.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Compare tuning once, daily and hourly with leaving the settings alone, on your own trace, and say what to do.

    The cluster runs through the last days of the trace under every strategy: the published default, settings tuned once on the days
    before, re-tuned daily, every hour as AutoSched and SelfTune, and oracles that know the future. Everything is simulated.
    """
    from autosched.sim.cluster import Cluster
    from autosched.sim.policies import Policies
    from autosched.source import load_trace
    from autosched.tune.assess import assess as compare
    from autosched.tune.case import last_window
    from autosched.tune.goals import Causes
    from autosched.tune.modes import MODES

    if scheduler not in plugins.available("scheduler"):
        names = ", ".join(plugins.available("scheduler"))
        raise ConfigError(Fault(where="--scheduler", value=repr(scheduler), rule=f"must be one of {names}"))
    jobs = load_trace(trace, form=form, begin=begin, end=end, drop_bad=drop_bad)
    causes = Causes.of(intermediate or (), edge or (), no_edge or (), _named(metric or ()))
    others = [name.strip() for name in policies.split(",") if name.strip()]
    name = Policies.of_names([scheduler, *others], "--policies").name if policies else scheduler
    case = replace(last_window(jobs, Cluster.parse(cluster), name, days, goal, causes, tuple(limit or ())), slack=slack)
    causes.check(case.space.knobs)
    modes = list(dict.fromkeys(["static", *(mode or MODES)]))

    def tell(name: str) -> None:
        options.errors.print(f"running {name} ...", markup=False, highlight=False)

    def keep(found: Assessment) -> None:
        if output:  # what an interruption would else lose
            _write(found, output)

    assessment = compare(case, modes, seed, tell, seeds, keep)
    if as_json:
        options.emit(_answer(assessment, days, goal))
        return
    _show(assessment)


def _answer(assessment: Assessment, days: float, goal: str) -> dict[str, object]:
    """As one JSON object."""
    case = assessment.case
    return {
        "scheduler": case.scheduler,
        "gpus": case.cluster.gpus,
        "days": days,
        "goal": goal,
        "recommendation": assessment.recommendation(),
        "settings": assessment.settings().to_json(),
        "load": assessment.load,
        "jobs_at_start": assessment.queue[0],
        "wanted_at_start": assessment.queue[1],
        "strategies": assessment.rows(),
        "whom": [asdict(each) | {"gain": each.gain} for each in assessment.whom],
    }


def _show(assessment: Assessment) -> None:
    """For people."""
    options.console.print(assessment.situation(), markup=False, highlight=False)
    table = Table("strategy", "gain (seeds)", "time in system s", "fair share", "changes", "CPU s")
    for name, run in assessment.runs.items():
        metrics = run.metrics
        cells = [assessment.shown(name), f"{metrics['time_s']:,.0f}", f"{metrics['fair_share']:.3f}", str(run.changes)]
        table.add_row(name, *cells, f"{run.cpu_s:.1f}")
    options.console.print(table)
    options.console.print(assessment.recommendation(), markup=False, highlight=False)
    options.console.print(f"Settings:\n  {assessment.options()}", markup=False, highlight=False, soft_wrap=True)


def _named(texts: Sequence[str]) -> dict[str, str]:
    """Formulas by name.

    Raises:
        ConfigError: some have no name, or one that is there twice.
    """
    pairs = [text.partition("=") for text in texts]
    names = [name.strip() for name, _, _ in pairs]
    faults = [
        Fault(where="--metric", value=repr(text[:80]), rule=rule, fix="Example: --metric 'small=mean(wait[gpus <= 2])'")
        for number, (text, (_, sign, _)) in enumerate(zip(texts, pairs, strict=True))
        for rule in [*(["must read NAME=FORMULA"] if not sign else []), *(["is named twice"] if names[number] in names[:number] else [])]
    ]
    if faults:
        raise ConfigError(faults)
    return {name: formula.strip() for name, (_, _, formula) in zip(names, pairs, strict=True)}


def _write(assessment: Assessment, output: Path) -> None:
    from autosched.tune import who
    from autosched.tune.causal.picture import dot, svg
    from autosched.tune.plots import comparison_page

    more = _fragment(assessment.settings()) if assessment.case.scheduler == "slurm" else []
    output.mkdir(parents=True, exist_ok=True)
    (output / "report.md").write_text(assessment.told(more), encoding="utf-8")
    (output / "over_time.svg").write_text(comparison_page(assessment.case, assessment.runs), encoding="utf-8")
    if shares := assessment.whom:
        title = f"What changes for whom under {assessment.recommended} (simulated)"
        (output / "whom.svg").write_text(who.picture(shares, title), encoding="utf-8")
    for run in assessment.runs.values():
        if run.model is not None:
            (output / "causes.svg").write_text(svg(run.model.graph), encoding="utf-8")
            (output / "causes.dot").write_text(dot(run.model.graph), encoding="utf-8")


def _fragment(settings: Config) -> list[str]:
    """The settings for people who run Slurm."""
    from autosched.live.slurm.conf import fragment
    from autosched.live.slurm.knobs import FROZEN

    text, left_out = fragment(settings)
    lines = ["In `slurm.conf`; options of `SchedulerParameters` go next to those that are there:", "", "```ini", text, "```"]
    names = ", ".join(f"`{name}`" for name in left_out)
    lines += ["", f"Of the simulation only, with no such value in `slurm.conf`: {names}."] if left_out else []
    reasons = (f"- `{name}`: {reason}" for name, reason in FROZEN.items() if name not in settings)
    return [*lines, "", "A live Slurm's controller leaves these to you:", "", *reasons]
