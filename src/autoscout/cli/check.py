"""`autoscout check`: a change against what is there, in pairs of measurements, with an exit code."""

from __future__ import annotations

import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from autoscout.analysis.labels import namer
from autoscout.cli import complete, flags, options
from autoscout.cli.tune import interruptible
from autoscout.common import document
from autoscout.common.files import let_others_enter
from autoscout.core.config import Config
from autoscout.core.errors import EXIT_INTERRUPTED, ConfigError, Fault
from autoscout.study.assemble import build_executor, build_profiler
from autoscout.study.campaign import Campaign
from autoscout.study.own import FROM, knobs_in
from autoscout.study.pairs import PairVerdict, Side, judge, measure_in_turn, summary
from autoscout.study.setup import Setup, prepare_one

EXIT_WORSE = 1


def check(
    target: Annotated[
        str | None, typer.Argument(autocompletion=complete.targets, help="A backend or a campaign file; with --from it may be left out.")
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            help="What to compare with: KNOB=VALUE,..., a campaign file (another version, say), or a JSON document with a `config` or an"
            " `answer`. Left out: the default."
        ),
    ] = "",
    launch: flags.Launch = None,
    pinned: Annotated[
        list[str] | None,
        typer.Option("--set", autocompletion=complete.settings, help="KNOB=VALUE of what is checked; the others are at their defaults."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", autocompletion=complete.models, help="The model to run.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="GPUs to use.")] = None,
    workload: Annotated[list[str] | None, typer.Option("--workload", "-w", help="NAME=VALUE of the workload.")] = None,
    slo: flags.Slo = None,
    limit: Annotated[str | None, typer.Option(help="Wall-clock limit of one measurement.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured; an interval needs three.")] = 5,
    tolerance: Annotated[float, typer.Option(min=0, max=90, help="Per cent by which it may be worse and still counts as good.")] = 2.0,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 unless it is shown to be as good.")] = False,
    summary_file: Annotated[Path | None, typer.Option("--summary", help="Append the result to this Markdown file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Measure a configuration or version in turn with another, and say with an interval whether it is as good. Exit code 1: worse."""
    given = options.given
    blocks = {
        **given(**{FROM: launch}),
        "workload": {**options.settings(workload, "--workload"), **given(model=model)},
        "hardware": given(gpus=gpus),
        "goal": given(slo=slo),
        "measure": given(limit=limit),
    }
    checked, config = prepare_one(options.load(target, {**blocks, "set": options.assignments(pinned or (), "--set")}))
    other, other_config = _against(against, lambda settings: options.load(target, {**blocks, "set": settings}))
    if other.task.objective.metric != checked.task.objective.metric:
        rule = f"has another goal ({other.task.objective.metric}) than what is checked ({checked.task.objective.metric})"
        raise ConfigError(Fault(where="--against", value=against, rule=rule))
    names = (_name(checked, config), Path(against).name if Path(against).is_file() else _name(other, other_config))
    with ExitStack() as stack, interruptible() as attach:
        one, stopping = _side(stack, attach, checked, config)
        second, _ = _side(stack, attach, other, other_config)
        measured = measure_in_turn(one, second, rounds, stopping.is_set)
    result = judge(checked.task.objective, measured, tolerance / 100)
    text = summary(result, *names)
    if summary_file is not None:
        with summary_file.open("a", encoding="utf-8") as file:
            file.write(text)
    if as_json:
        configs = {"checked_config": config.to_json(), "against_config": other_config.to_json()}
        options.emit({**result.to_json(), **configs})
    else:
        options.console.print(text, markup=False, highlight=False, soft_wrap=True)
    if stopping.is_set():
        raise typer.Exit(EXIT_INTERRUPTED)
    if not any(each.ok for each in measured.against):
        reason = measured.against[0].reason if measured.against else "nothing was measured"
        raise ConfigError(Fault(where="--against", value=against or "default", rule=f"does not work: {reason}"))
    if result.verdict.is_bad or (strict and result.verdict is PairVerdict.UNDECIDED):
        raise typer.Exit(EXIT_WORSE)


def _name(setup: Setup, config: Config) -> str:
    return namer(setup.default, setup.space.knobs.values())(config)


def _side(stack: ExitStack, attach: Any, setup: Setup, config: Config) -> tuple[Side, threading.Event]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autoscout-check-")))
    let_others_enter(folder)
    executor = build_executor(setup, folder)
    stack.callback(executor.close)
    evaluator = build_profiler(setup, executor)
    return Side(config=config, evaluator=evaluator), attach(evaluator)


def _against(text: str, load: Any) -> tuple[Setup, Config]:
    """What is compared with.

    Raises:
        ConfigError: the file holds neither a campaign nor a configuration.
    """
    if not text:
        return prepare_one(load({}))
    if (knobs := knobs_in(text)) is not None:
        return prepare_one(load(knobs))
    path = Path(text)
    if not path.is_file():
        rule = "is neither KNOB=VALUE nor a file"
        raise ConfigError(Fault(where="--against", value=text, rule=rule, fix="Example: --against parallel=4, or --against main.json"))
    content = document.load(path).value
    if isinstance(content, dict) and "system" in content:
        campaign: Campaign = options.load(text)
        return prepare_one(campaign)
    settings = content.get("config") or content.get("answer") if isinstance(content, dict) else None
    if not isinstance(settings, dict):
        rule = "holds no campaign (`system`), configuration (`config`) or answer (`answer`)"
        raise ConfigError(Fault(where=text, rule=rule, fix="`autoscout render ... --json` and report.json of a study hold one"))
    return prepare_one(load(settings))
