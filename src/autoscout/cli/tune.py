"""`autoscout tune`: run a study, or go on with it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from autoscout.cli import _options as options
from autoscout.cli._result import exit_code, show_result
from autoscout.core.errors import Fault
from autoscout.core.history import Past
from autoscout.core.protocols import Evaluator
from autoscout.core.trial import Proposal
from autoscout.study import simulator_choice as foresight
from autoscout.study.assemble import Result, Setup, inform, prepare, remember, run, searcher
from autoscout.study.assemble import executor as executor_of
from autoscout.study.folder import DEFAULT, Folder
from autoscout.study.publish import Findings, write_findings
from autoscout.study.warm_start import sentence

DRY_PROPOSALS = 3
ENOUGH_ROUNDS = 3  # pairs that an interval needs
CANCEL_S = 0.5  # between two calls of `cancel`
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def tune(
    target: Annotated[str, typer.Argument(help="A backend (see `autoscout doctor`) or a campaign file.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help="The model to run, in the backend's own terms.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="GPUs to use.")] = None,
    workload: Annotated[list[str] | None, typer.Option("--workload", "-w", help="NAME=VALUE of the workload; may be repeated.")] = None,
    hardware: Annotated[list[str] | None, typer.Option("--hardware", help="NAME=VALUE of the machine; may be repeated.")] = None,
    hostfile: Annotated[Path | None, typer.Option(help="Hosts to use, one `HOST slots=N` a line; gives the facts gpus, nodes.")] = None,
    space: Annotated[Path | None, typer.Option(help="A file with a space, for `command`.")] = None,
    pinned: Annotated[list[str] | None, typer.Option("--set", help="Pin a knob: KNOB=VALUE; may be repeated.")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric to improve.")] = None,
    direction: Annotated[str | None, typer.Option(help="minimize or maximize.")] = None,
    slo: Annotated[list[str] | None, typer.Option("--slo", help="Limit to keep, such as 'p95_ttft_ms<=500'; may be repeated.")] = None,
    ttft: Annotated[float | None, typer.Option(help="Short for --slo 'p95_ttft_ms<=MS'.")] = None,
    tpot: Annotated[float | None, typer.Option(help="Short for --slo 'p95_tpot_ms<=MS'.")] = None,
    request_latency: Annotated[float | None, typer.Option(help="Short for --slo 'p95_e2el_ms<=MS'.")] = None,
    max_trials: Annotated[int | None, typer.Option(help="Configurations to measure, the default included.")] = None,
    budget: Annotated[str | None, typer.Option(help="Time to spend, the final included: 90s, 10m, 2h.")] = None,
    max_cost: Annotated[str | None, typer.Option(help="Sum of the trials' own time: 90s, 10m, 2h.")] = None,
    max_failures: Annotated[int | None, typer.Option(help="Failures in a row after which to stop.")] = None,
    continue_on_error: Annotated[bool, typer.Option(help="Go on after a failed trial.")] = True,
    limit: Annotated[str | None, typer.Option(help="Wall-clock limit of one trial.")] = None,
    searcher_name: Annotated[str | None, typer.Option("--searcher", help="Who proposes (see `autoscout doctor`).")] = None,
    simulator: Annotated[str | None, typer.Option(help="Its predictions save trials: auto, none, or a name.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same history: same proposals.")] = None,
    workers: Annotated[int | None, typer.Option(help="Trials at once.")] = None,
    together: Annotated[bool | None, typer.Option(help="Wait for a whole batch before asking again.")] = None,
    warm_start: Annotated[bool | None, typer.Option(help="Learn from similar past studies in the same store.")] = None,
    learn_from: Annotated[
        list[str] | None, typer.Option(help="Folder or store of past studies to learn from too; may be repeated.")
    ] = None,
    executor: Annotated[str | None, typer.Option(help="Where trials run (see `autoscout doctor`).")] = None,
    finalists: Annotated[int | None, typer.Option(help="How many of the best meet the default again in the final.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How often each is measured in the final.")] = None,
    store: Annotated[str | None, typer.Option(help="postgresql:// URL of a store that a team shares.")] = None,
    output_dir: Annotated[Path | None, typer.Option("--output-dir", "-o", help="Where result folders go.")] = None,
    experiment_name: Annotated[str | None, typer.Option("--experiment-name", "-e", help="Name of the study and its folder.")] = None,
    serve_cmd: Annotated[str | None, typer.Option(help="With `command`: server to start, with {knob} placeholders.")] = None,
    bench_cmd: Annotated[str | None, typer.Option(help="With `command`: load to send to that server.")] = None,
    train_cmd: Annotated[str | None, typer.Option(help="With `command`: the program to run, with {knob} placeholders.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run; start and write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Find a better configuration by measuring. Run it again to go on: nothing is measured twice.

    Results go to ./autoscout_results/NAME: trials.jsonl, report.html, and best/ with files that run.
    """
    short = {"p95_ttft_ms": ttft, "p95_tpot_ms": tpot, "p95_e2el_ms": request_latency}
    limits = [*(slo or ()), *(f"{name}<={value!r}" for name, value in short.items() if value is not None)]
    commands = {"serve": serve_cmd, "bench": bench_cmd, "command": train_cmd}
    flags = options.Flags(
        model=model,
        gpus=gpus,
        workload=tuple(workload or ()),
        commands={name: value for name, value in commands.items() if value is not None},
        hardware=tuple(hardware or ()),
        hostfile=hostfile,
        space=space,
        pinned=tuple(pinned or ()),
        metric=metric,
        direction=direction,
        slo=tuple(limits),
        trials=max_trials,
        wall=budget,
        cost=max_cost,
        failures=max_failures if continue_on_error else 1,
        searcher=searcher_name,
        simulator=simulator,
        seed=seed,
        workers=workers,
        together=together,
        warm_start=warm_start,
        learn_from=tuple(learn_from or ()),
        executor=executor,
        limit=limit,
        finalists=finalists,
        rounds=rounds,
        store=store,
        name=experiment_name,
    )
    begin(target, flags, output_dir or DEFAULT, dry_run=dry_run, as_json=as_json)


def begin(target: str, flags: options.Flags, output_dir: Path, *, dry_run: bool, as_json: bool) -> None:
    """Put the study together, and run it or show what would run."""
    setup = prepare(options.load(target, flags))
    folder = Folder(output_dir / setup.name)
    if dry_run:
        executor_of(setup, folder.path).close()  # its name and options are looked at too
        show_dry_run(setup, folder, as_json=as_json)
    else:
        start(setup, folder, as_json=as_json, from_flags=not options.names_a_file(target))


def start(setup: Setup, folder: Folder, *, as_json: bool, from_flags: bool = False) -> None:
    """Run a study and tell what came of it; ends the program with the study's exit code."""
    past = remember(setup, folder)
    setup = inform(setup, folder, past)
    if not as_json:
        introduce(setup, folder, from_flags=from_flags, past=past)
    with interruptible() as stopping:  # the report included: an impatient third Ctrl-C must not cost it
        with watch(setup) as progress:
            result = run(setup, folder, progress, stopping, past)
        findings = write_findings(result)
        show_result(result, findings, as_json=as_json)
    if findings.summary.answer is None and result.inside:
        fix = f"Logs are in {folder.path / 'trials'}. When mended, try `autoscout profile`, and begin afresh with another --experiment-name"
        fault = Fault(where=str(folder.path), rule=f"no configuration worked: {_why(result, findings)}", fix=fix)
        options.errors.print(f"autoscout: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(exit_code(result, findings))


def _why(result: Result, findings: Findings) -> str:
    """Why there is no answer, with the failure that tells most: the default's, or else the newest."""
    failed = [trial for trial in result.inside if trial.measurement.status.failed]
    if not failed:
        return findings.summary.reason
    default = result.setup.baseline
    shown = max(failed, key=lambda trial: (trial.config == default, trial.number))
    title = "the default" if shown.config == default else f"trial #{shown.number}"
    return f"{findings.summary.reason}; {title} ended {shown.measurement.status.value}: {shown.measurement.reason or 'no reason given'}"


def introduce(setup: Setup, folder: Folder, *, from_flags: bool, past: Sequence[Past] = ()) -> None:
    """Say what will be tuned, how large the choice is, and how to keep it as a file."""
    count = setup.space.count()
    objective = setup.task.objective
    size = f"{count.value:,}" if count.exact else f"about {count.value:,.0f}"
    options.errors.print(
        f"{setup.task.system}: {objective.direction.value} {objective.metric} over {len(setup.space.knobs)} knobs, "
        f"{size} valid configurations; searcher {setup.campaign.search.searcher}; results in {folder.path}",
        style="bold",
        markup=False,
        highlight=False,
    )
    begins = not folder.journal.exists()  # one that goes on does as it began
    told = [(sentence(past), "--no-warm-start")] if past else []
    if setup.informant and setup.simulates == "prior":  # one that was named is known, and may not be there
        told.append((foresight.sentence(setup.informant), "--simulator none"))
    for known, flag in told:
        options.errors.print(known + f"; {flag} begins without" * begins, markup=False, highlight=False, soft_wrap=True)
    if 0 < setup.finals.rounds < ENOUGH_ROUNDS:
        options.errors.print(f"{setup.finals.rounds} rounds cannot show a gain beyond noise: it takes {ENOUGH_ROUNDS}.", style="yellow")
    if from_flags:
        options.errors.print("The same as a file, for `autoscout tune FILE`:", style="dim")
        options.errors.print(setup.campaign.to_yaml().rstrip(), style="dim", markup=False, highlight=False)


def show_dry_run(setup: Setup, folder: Folder, *, as_json: bool) -> None:
    """The launches of the default and of the first proposals; nothing is started or written."""
    opening = [Proposal(config=setup.baseline, origin={"by": "default"})]
    past = remember(setup, folder)
    setup = inform(setup, folder, past)
    proposals = [*opening, *searcher(setup, past).ask(DRY_PROPOSALS, setup.given, opening)]
    launches = [(proposal, setup.backend.render(proposal.config, setup.task, setup.campaign.search.seed)) for proposal in proposals]
    if as_json:
        shown = [{"config": p.config.to_json(), "argv": list(x.argv), "env": dict(x.env), "files": sorted(x.files)} for p, x in launches]
        options.emit({"campaign": setup.spec, "folder": str(folder.path), "launches": shown})
        return
    introduce(setup, folder, from_flags=True, past=past)
    for proposal, launch in launches:
        options.console.print(f"\n# {proposal.config}", markup=False, highlight=False, soft_wrap=True)
        options.console.print(options.shell_line(launch), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def watch(setup: Setup) -> Iterator[Any]:
    """The progress display for a study."""
    from autoscout.report.progress import Progress

    workers = setup.campaign.search.workers or 1
    knobs = setup.space.knobs.values()
    with Progress(
        setup.task, setup.baseline, console=options.errors, workers=workers, final_trials=setup.finals.trials, knobs=knobs
    ) as shown:
        yield shown


@contextmanager
def interruptible() -> Iterator[Any]:
    """Ctrl-C once: finish the trials under way; twice, SIGTERM or a lost terminal: stop them. What was measured is stored either way."""
    stopping, left = threading.Event(), threading.Event()
    evaluators: list[Evaluator] = []
    helpers: list[threading.Thread] = []  # for what a handler must not do itself: it may have interrupted code that holds locks

    def attach(evaluator: Evaluator) -> threading.Event:
        evaluators.append(evaluator)
        return stopping

    def tell() -> None:
        options.errors.print("Finishing the trials under way; Ctrl-C again stops them. Everything measured is kept.", style="yellow")

    def cancel() -> None:
        while not left.is_set():  # more than once: a trial may have been about to start
            for evaluator in evaluators:
                evaluator.cancel()
            left.wait(CANCEL_S)

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        gently = number == signal.SIGINT and not stopping.is_set()
        stopping.set()
        helpers.append(threading.Thread(target=tell if gently else cancel, daemon=True))
        helpers[-1].start()

    numbers = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # `nohup` means it
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield attach
    finally:
        left.set()
        for number, old in before.items():
            signal.signal(number, old)
        for helper in helpers:
            helper.join()
