"""`autoscout tune`: run a study, or resume it."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from autoscout.analysis.gain import MIN_PAIRS
from autoscout.cli import flags, options
from autoscout.cli._result import exit_code, publish_and_show
from autoscout.cli.options import given
from autoscout.common.text import plural
from autoscout.core.errors import EXIT_BAD_INPUT, ClusterError, Fault
from autoscout.core.log import NOTICES, logger
from autoscout.core.origin import By, Origin
from autoscout.core.trial import Fidelity, Proposal
from autoscout.report import exported
from autoscout.report.tracking import Tracking, check_trackers
from autoscout.study.assemble import build_executor, build_searcher, known_good, look, run, stored_trials
from autoscout.study.callbacks import Together
from autoscout.study.campaign import Campaign, TrafficBlock
from autoscout.study.folder import DEFAULT, Folder
from autoscout.study.interrupt import Ending
from autoscout.study.outcome import Outcome
from autoscout.study.own import FROM
from autoscout.study.setup import Setup, prepare
from autoscout.study.start import StartingPoint, place_of
from autoscout.traffic.description import Traffic

DRY_PROPOSALS = 3
notices = logger(NOTICES)
TITLES: dict[str, str] = {By.DEFAULT: "default", By.BASELINE: "baseline", By.GIVEN: "tried first"}
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def tune(
    target: flags.Target = None,
    launch: flags.Launch = None,
    baseline: flags.Baseline = None,
    model: flags.Model = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="GPUs to use.")] = None,
    workload: Annotated[list[str] | None, typer.Option("--workload", "-w", help="NAME=VALUE of the workload; may be repeated.")] = None,
    traffic: flags.Traffic = None,
    traffic_over: flags.TrafficOver = None,
    traffic_windows: flags.TrafficWindows = None,
    hardware: Annotated[list[str] | None, typer.Option("--hardware", help="NAME=VALUE of the machine; may be repeated.")] = None,
    hostfile: Annotated[Path | None, typer.Option(help="Machines to train on, one `HOST slots=N` a line, over ssh.")] = None,
    space: Annotated[Path | None, typer.Option(help="A file with a space; with `deepspeed` also its own tuning space.")] = None,
    pinned: flags.Pinned = None,
    free: flags.Free = None,
    allow_lossy: Annotated[bool, typer.Option("--allow-lossy", help="Search knobs that change the answers too, guarded.")] = False,
    metric: flags.Metric = None,
    direction: flags.Direction = None,
    slo: flags.Slo = None,
    guard: flags.Guard = None,
    ttft: Annotated[float | None, typer.Option(help="Short for --slo 'p95_ttft_ms<=MS'.")] = None,
    tpot: Annotated[float | None, typer.Option(help="Short for --slo 'p95_tpot_ms<=MS'.")] = None,
    request_latency: Annotated[float | None, typer.Option(help="Short for --slo 'p95_e2el_ms<=MS'.")] = None,
    price: Annotated[float | None, typer.Option(help="What a GPU costs in an hour, for the metric cost_per_million_tokens.")] = None,
    max_trials: Annotated[int | None, typer.Option(help="Configurations to measure, the default included.")] = None,
    budget: Annotated[str | None, typer.Option(help="Time to spend, the final included: 90s, 10m, 2h.")] = None,
    max_cost: Annotated[str | None, typer.Option(help="Sum of the trials' own time: 90s, 10m, 2h.")] = None,
    patience: Annotated[int | None, typer.Option(help="End the search after this many trials in a row that improve nothing.")] = None,
    max_failures: Annotated[int | None, typer.Option(help="Failures in a row after which to stop.")] = None,
    continue_on_error: Annotated[bool, typer.Option(help="Continue after a failed trial.")] = True,
    limit: Annotated[str | None, typer.Option(help="Wall-clock limit of one trial.")] = None,
    searcher_name: flags.Searcher = None,
    simulator: flags.Simulator = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same history: same proposals.")] = None,
    workers: Annotated[int | None, typer.Option(help="Trials at once.")] = None,
    together: Annotated[bool | None, typer.Option(help="Wait for a whole batch before asking again.")] = None,
    warm_start: Annotated[bool | None, typer.Option(help="Learn from similar past studies in the same store.")] = None,
    learn_from: flags.LearnFrom = None,
    executor: flags.Executor = None,
    executor_option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE of the executor; may be repeated.")] = None,
    finalists: Annotated[int | None, typer.Option(help="How many of the best meet the default again in the final.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How often each is measured in the final.")] = None,
    simplify: Annotated[bool | None, typer.Option(help="Before the final, measure which changes the gain does not need.")] = None,
    store: Annotated[str | None, typer.Option(help="Store: a path or a URL, such as postgresql:// for a team.")] = None,
    track: flags.Track = None,
    output_dir: Annotated[Path | None, typer.Option("--output-dir", "-o", help="Where result folders go.")] = None,
    experiment_name: Annotated[str | None, typer.Option("--experiment-name", "-e", help="Name of the study and its folder.")] = None,
    serve_cmd: Annotated[str | None, typer.Option(help="With `command`: server to start, with {knob} placeholders.")] = None,
    bench_cmd: Annotated[str | None, typer.Option(help="With `command`: load to send to that server.")] = None,
    train_cmd: Annotated[str | None, typer.Option(help="The program or training script to run, with {knob} placeholders.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run; start and write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Find a better configuration by measuring. Run it again to resume: nothing is measured twice.

    Results go to ./autoscout_results/NAME: trials.jsonl, report.html, and best/ with files that run.
    """
    commands = given(serve=serve_cmd, bench=bench_cmd, command=train_cmd)
    bounds = options.limits(slo, p95_ttft_ms=ttft, p95_tpot_ms=tpot, p95_e2el_ms=request_latency)
    blocks = given(
        **{FROM: launch},
        baseline=options.baseline(baseline),
        name=experiment_name,
        store=store,
        track=track,
        space=space and str(space),
        workload={**options.settings(workload, "--workload"), **commands, **given(model=model, free=free, allow_lossy=allow_lossy or None)},
        traffic=given(source=traffic, over=traffic_over, windows=traffic_windows),
        hardware=options.machine(hardware, hostfile, gpus=gpus, price_per_gpu_hour=price),
        set=options.assignments(pinned or (), "--set"),
        goal={**options.goals(metric or (), direction), **given(slo=bounds, guards=guard)},
        budget=given(trials=max_trials, wall=budget, cost=max_cost, patience=patience, failures=max_failures if continue_on_error else 1),
        search=given(searcher=searcher_name, seed=seed, workers=workers, together=together, warm_start=warm_start, learn_from=learn_from),
        simulate=given(simulator=simulator),
        execute=given(executor=executor, options=options.settings(executor_option, "--executor-option") or None),
        measure=given(limit=limit),
        finals=given(finalists=finalists, rounds=rounds, simplify=simplify),
    )
    campaign, is_file = options.on_hosts(options.load(target, blocks), hostfile), target is not None and options.names_a_file(target)
    begin(campaign, output_dir or DEFAULT, dry_run=dry_run, as_json=as_json, show_file=not is_file)


def begin(campaign: Campaign, output_dir: Path, *, dry_run: bool = False, as_json: bool = False, show_file: bool = False) -> None:
    """Put the study together, and run it or show what would run.

    Args:
        campaign: The study.
        output_dir: Its result folder goes below this one.
        dry_run: Only show.
        as_json: One JSON object instead of text for people.
        show_file: Show the campaign as a file, for one that came from flags.
    """
    setup = prepare(kept_traffic(campaign, output_dir))
    folder = Folder(output_dir / setup.name)
    if dry_run:
        build_executor(setup, folder.path).close()  # its name and options are looked at too
        check_trackers(campaign.track, folder)
        show_dry_run(setup, folder, as_json=as_json)
    else:
        start(setup, folder, as_json=as_json, show_file=show_file)


def kept_traffic(campaign: Campaign, output_dir: Path) -> Campaign:
    """The campaign with the traffic that its study began with, where there is one: a live source says something else every time."""
    path = Folder(output_dir / campaign.name).traffic if campaign.name else None
    if campaign.traffic is None or path is None or not path.exists():
        return campaign
    notices.warning("the study has its traffic already: %s; another --experiment-name begins with what users ask now", path)
    return campaign.model_copy(update={"traffic": campaign.traffic.model_copy(update={"source": str(path), "over": None, "windows": 0})})


def start(setup: Setup, folder: Folder, *, as_json: bool, show_file: bool = False) -> None:
    """Run a study and tell what came of it; ends the program with the study's exit code."""
    check_trackers(setup.campaign.track, folder)
    starting_point = StartingPoint.decide(setup, folder)
    if not as_json:
        introduce(setup, folder, starting_point, show_file=show_file)
    if (asked := setup.task.workload.get("traffic")) and not folder.traffic.exists():
        folder.path.mkdir(parents=True, exist_ok=True)
        Traffic.from_json(asked).write(folder.traffic)
    end: ClusterError | None = None
    tracking = Tracking(setup.campaign.track, folder, place_of(setup, folder), setup.name)
    with tracking, interruptible() as attach:  # the report included: an impatient third Ctrl-C must not cost it
        with watch(setup) as progress:
            observer = Together([progress, tracking])
            try:
                outcome = run(setup, folder, start=starting_point, observer=observer, attach=attach, on_repeat=progress.repeated)
            except ClusterError as lost:
                outcome, end = look(setup, folder), lost
        written = publish_and_show(outcome, as_json=as_json)
    if end is not None:  # what was measured is safe and shown
        raise end
    if outcome.summary.answer is None and outcome.inside:
        fix = f"Logs are in {folder.path / 'trials'}. When fixed, try `autoscout profile`, and start afresh with another --experiment-name"
        fault = Fault(where=str(folder.path), rule=f"no configuration worked: {_why(outcome)}", fix=fix)
        options.errors.print(f"autoscout: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(exit_code(outcome) if written else EXIT_BAD_INPUT)


def _why(outcome: Outcome) -> str:
    """Why there is no answer, with the failure that tells most: the default's, or else the newest."""
    reason = outcome.summary.reason
    failed = [trial for trial in outcome.inside if trial.measurement.status.failed]
    if not failed:
        return reason
    default = outcome.setup.default
    failure = max(failed, key=lambda trial: (trial.config == default, trial.number))
    title = "the default" if failure.config == default else f"trial #{failure.number}"
    return f"{reason}; {title} ended {failure.measurement.status.value}: {failure.measurement.reason or 'no reason given'}"


def introduce(setup: Setup, folder: Folder, starting_point: StartingPoint, *, show_file: bool) -> None:
    """Say what will be tuned, how large the choice is, what is known already, and how to keep it as a file."""
    count = setup.space.count()
    objective = setup.task.objective
    open_knobs = sum(len(knob.values) > 1 for knob in setup.space.knobs.values())
    size = f"{count.value:,}" if count.exact else f"about {count.value:,.0f}"
    goals = " and ".join(f"{goal.direction.value} {goal.metric}" for goal in objective.goals)
    simulated = ", simulated" if setup.fidelity is not Fidelity.MEASURED else ""
    options.errors.print(
        f"{setup.task.system}: {goals}{simulated}, over {plural(open_knobs, 'knob')}, "
        f"{size} valid configuration{'s' * (size != '1')}; searcher {setup.campaign.search.searcher}; results in {folder.path}",
        style="bold",
        markup=False,
        highlight=False,
    )
    new = not folder.campaign.exists()  # a study that is resumed keeps what it started from
    options.tell_left_out(setup.left_out)
    for sentence, flag in starting_point.describe().items():
        options.errors.print(sentence + f" (disable with {flag})" * new + ".", markup=False, highlight=False, soft_wrap=True)
    if 0 < setup.finals.rounds < MIN_PAIRS:
        rounds = plural(setup.finals.rounds, "round")
        options.errors.print(f"{rounds} cannot show a gain beyond noise: it takes {MIN_PAIRS}.", style="yellow", highlight=False)
    if show_file:
        options.errors.print("The same as a file, for `autoscout tune FILE`:", style="dim")
        options.errors.print(
            shown_campaign(setup.campaign, folder).shown().rstrip(), style="dim", markup=False, highlight=False, soft_wrap=True
        )


def shown_campaign(campaign: Campaign, folder: Folder) -> Campaign:
    """The campaign as people write it: with a traffic by the file that the study keeps it in."""
    if campaign.workload.get("workload") != "traffic":
        return campaign
    workload = {name: value for name, value in campaign.workload.items() if name not in ("workload", "traffic")}
    return campaign.model_copy(update={"workload": workload, "traffic": TrafficBlock(source=str(folder.traffic))})


def show_dry_run(setup: Setup, folder: Folder, *, as_json: bool) -> None:
    """The launches of the default, of what is tried first, and of the first proposals; nothing is started or written.

    Of a study that has begun, those that come next.
    """
    done = stored_trials(setup, folder)
    opening = [Proposal(config=setup.default, origin=Origin(by=By.DEFAULT))]
    if setup.baseline is not None:
        opening.append(Proposal(config=setup.baseline, origin=Origin(by=By.BASELINE)))
    starting_point = StartingPoint.decide(setup, folder)
    opening += [Proposal(config=config, origin=Origin(by=By.GIVEN)) for config in known_good(setup, starting_point)]
    measured = {trial.config for trial in done}
    opening = [proposal for proposal in opening if proposal.config not in measured]
    more = max(1, DRY_PROPOSALS + 1 - len(opening))
    searcher = build_searcher(setup, starting_point)
    searcher.tell(done)
    proposals = [*opening, *searcher.ask(more, setup.given, opening)]
    seed = setup.campaign.search.seed
    launches = [(proposal, setup.backend.render(proposal.config, setup.task, seed)) for proposal in proposals]
    if as_json:
        rows = [
            {
                "by": proposal.origin.by,
                "config": proposal.config.to_json(),
                **options.shown_start(setup.backend, proposal.config, setup.task),
                "argv": list(launch.argv),
                "env": dict(launch.env),
                "files": sorted(launch.files),
            }
            for proposal, shown in launches
            for launch in (exported.without_values(shown, setup.task),)
        ]
        options.emit({"campaign": setup.spec, "folder": str(folder.path), "stored": len(done), "launches": rows})
        return
    introduce(setup, folder, starting_point, show_file=True)
    if done:
        options.errors.print(f"{plural(len(done), 'trial')} stored; next would be:", markup=False, highlight=False)
    for proposal, launch in launches:
        start = options.shown_start(setup.backend, proposal.config, setup.task).get("serve")
        title = TITLES.get(proposal.origin.by, f"proposed by {proposal.origin.by}")
        options.console.print(f"\n# {title}: {proposal.config}", markup=False, highlight=False, soft_wrap=True)
        line = shlex.join(start) if start else exported.shown_line(launch, setup.task)
        options.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def watch(setup: Setup) -> Iterator[Any]:
    """The progress display for a study."""
    from autoscout.report.progress import ProgressDisplay

    workers = setup.campaign.search.workers or 1
    with ProgressDisplay(
        setup.task,
        setup.default,
        baseline=setup.baseline,
        console=options.errors,
        workers=workers,
        final_trials=setup.finals.trials,
        final_rounds=setup.finals.rounds,
        knobs=setup.space.knobs.values(),
    ) as progress:
        yield progress


@contextmanager
def interruptible() -> Iterator[Any]:
    """Ctrl-C once: finish the trials under way; twice, SIGTERM or a lost terminal: stop them. What was measured is stored either way."""
    ending = Ending()

    def tell() -> None:
        options.errors.print("Finishing the trials under way; Ctrl-C again stops them. Everything measured is kept.", style="yellow")

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        gently = number == signal.SIGINT and not ending.stopping.is_set()
        ending.stop(tell if gently else None, cancel=not gently)

    numbers = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # `nohup` means it
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield ending.attach
    finally:
        ending.close()
        for number, old in before.items():
            signal.signal(number, old)
