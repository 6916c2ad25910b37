"""AutoScout from Python: tune a function or a campaign without the command line."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import yaml

from autoscout.analysis.tally import Tally
from autoscout.backends.function import Function, FunctionBackend, refuse_while_loading
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault, SpaceError
from autoscout.core.protocols import Observer, Searcher
from autoscout.core.reading import only_reading
from autoscout.core.task import Direction, Limit, Objective
from autoscout.report.cell import show_in_notebooks
from autoscout.report.progress_line import ProgressLine
from autoscout.report.publish import publish
from autoscout.report.tracking import Tracking
from autoscout.space import Space, write_space
from autoscout.space.simple import simple_space
from autoscout.study.ask_tell import AskTellStudy, measured_elsewhere
from autoscout.study.assemble import look, run
from autoscout.study.callbacks import Callback, Callbacks, Together
from autoscout.study.campaign import Campaign, build_campaign, read_campaign
from autoscout.study.final import Finals
from autoscout.study.folder import DEFAULT, Folder
from autoscout.study.interrupt import ends_on_interrupt
from autoscout.study.outcome import Outcome
from autoscout.study.setup import Setup, prepare
from autoscout.study.start import StartingPoint, place_of
from autoscout.study.study import Study

show_in_notebooks(Outcome, Study)


class Options(TypedDict, total=False):
    """The keywords that `minimize` and `maximize` share with `optimize`."""

    timeout: float | None
    patience: int | None
    limits: Sequence[str]
    searcher: str | type[Searcher]
    seed: int
    workers: int
    executor: str
    given: Mapping[str, Value] | None
    baseline: Mapping[str, Value] | None
    folder: str | os.PathLike[str] | None
    store: str | os.PathLike[str] | None
    name: str
    rounds: int
    finals: Finals | None
    options: Mapping[str, Any] | None
    workload: Mapping[str, Any] | None
    warm_start: bool
    simulated: bool
    callbacks: Sequence[Callback]
    progress: bool


def tune(
    campaign: str | Path | Campaign | Mapping[str, Any],
    output_dir: str | Path = DEFAULT,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
) -> Outcome:
    """Run or resume a campaign: a backend's name, a file, or the same as plain data.

    The result folder `output_dir/NAME` then holds the trials, `report.html` and `best/`, as after `autoscout tune`.

    Args:
        campaign: What to tune.
        output_dir: Where the result folder goes.
        callbacks: As for `optimize`.
        progress: Show a line that says how far the study is.
    """
    if isinstance(campaign, Mapping):
        campaign = build_campaign(campaign, where="tune()")
    elif not isinstance(campaign, Campaign):
        path = Path(campaign)
        is_file = path.suffix in (".yaml", ".yml") or path.is_file()
        campaign = read_campaign(path) if is_file else build_campaign({"system": str(campaign)}, where="tune()")
    setup = prepare(campaign)
    return _conduct(setup, Folder(Path(output_dir) / setup.name), callbacks, progress)


def load_study(folder: str | os.PathLike[str]) -> Outcome:
    """What the study of a result folder has found so far, while it runs or after. Nothing that the folder names is imported or started."""
    home = Folder(Path(folder))
    home.spec()
    with only_reading():
        return look(prepare(read_campaign(home.campaign)), home)


def minimize(
    function: Function, space: Space | Mapping[str, Any], trials: int | None = None, *, metric: str = "value", **how: Unpack[Options]
) -> Outcome:
    """Find the configuration for which `function` is smallest; see `optimize` for the keywords."""
    return optimize(function, space, Objective(metric=metric), trials, **how)


def maximize(
    function: Function, space: Space | Mapping[str, Any], trials: int | None = None, *, metric: str = "value", **how: Unpack[Options]
) -> Outcome:
    """Find the configuration for which `function` is largest; see `optimize` for the keywords."""
    return optimize(function, space, Objective(metric=metric, direction=Direction.MAXIMIZE), trials, **how)


def optimize(
    function: Function,
    space: Space | Mapping[str, Any],
    objective: Objective,
    trials: int | None = None,
    *,
    timeout: float | None = None,
    patience: int | None = None,
    limits: Sequence[str] = (),
    searcher: str | type[Searcher] = "hybrid",
    seed: int = 0,
    workers: int = 1,
    executor: str = "inline",
    given: Mapping[str, Value] | None = None,
    baseline: Mapping[str, Value] | None = None,
    folder: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
    name: str = "function",
    rounds: int = 0,
    finals: Finals | None = None,
    options: Mapping[str, Any] | None = None,
    workload: Mapping[str, Any] | None = None,
    warm_start: bool = True,
    simulated: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
) -> Outcome:
    """Tune a Python function.

    Ctrl-C, or the stop button of a notebook, ends the study and returns what it has found so far; a second Ctrl-C raises
    `KeyboardInterrupt`. The call of `function` under way counts for nothing; on a thread it cannot be stopped and ends by itself.

    Args:
        function: Takes a `Config`, gives a number or a dict of metrics; raises `Infeasible` for what cannot work.
        space: A `Space`, or a mapping from knob to its values: a range, a list, `bool`, or `{"range": [1, 64], "log": True}`.
        objective: What to improve; with further goals (`also`) the study looks for the front, and the function returns a dict.
        trials: Configurations to try, the default included; 24 where neither `timeout` nor `patience` ends the study.
        timeout: Seconds the study may take, the final and earlier runs of the same folder included.
        patience: End the search after this many trials in a row that improve nothing.
        limits: Such as `"p95_ms<=5"`, over the metrics the function returns.
        searcher: Name of the searcher plug-in, or a class of your own.
        seed: Same seed, same history: same proposals.
        workers: Calls at once.
        executor: Where they run: `inline` on threads here, `local` in processes, `ray` on a cluster; for those two the function pickles.
        given: Pinned knobs.
        baseline: What you run today: it is measured, too. Knobs left out are as in the default.
        folder: A result folder: trials, `report.html` and `best/` are kept there, and the same call resumes. None: nothing is kept, unless
            there is a store.
        store: Path of a SQLite file or URL of a store to keep the trials in and resume from; the folder's own when None.
        name: Of the study.
        rounds: For noisy functions: measure the best few and the default again, usually 5 times, which gives the gain an interval.
            With 0 every answer counts as exact.
        finals: The same in detail, in the place of `rounds`.
        options: Of the searcher.
        workload: Facts about this job, such as `{"rows": 4096}`; a store's studies of similar jobs are learnt from.
        warm_start: Off: do not look for any.
        simulated: What the function returns is simulated, not measured; every trial and report says so.
        callbacks: Called after each trial with the outcome so far and the trial; one that returns `True` ends the study.
        progress: Show a line that says how far the study is.
    """
    refuse_while_loading("autoscout")
    setup = _setup(
        function,
        space,
        objective,
        limits=limits,
        finals=finals,
        rounds=rounds,
        simulated=simulated,
        workload=workload,
        searcher=searcher,
        name=name,
        given=given,
        baseline=baseline,
        budget={"trials": trials, "wall": timeout, "patience": patience, "failures": None},
        search={"seed": seed, "workers": workers, "options": dict(options or {}), "warm_start": warm_start},
        executor=executor,
        store=store,
    )
    return _conduct(setup, None if folder is None else Folder(Path(folder)), callbacks, progress)


def create_study(
    space: Space | Mapping[str, Any],
    trials: int | None = None,
    *,
    metric: str = "value",
    direction: Literal["minimize", "maximize"] = "minimize",
    objective: Objective | None = None,
    patience: int | None = None,
    limits: Sequence[str] = (),
    searcher: str | type[Searcher] = "hybrid",
    seed: int = 0,
    given: Mapping[str, Value] | None = None,
    baseline: Mapping[str, Value] | None = None,
    folder: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
    name: str = "study",
    rounds: int = 0,
    finals: Finals | None = None,
    options: Mapping[str, Any] | None = None,
    workload: Mapping[str, Any] | None = None,
    warm_start: bool = True,
    simulated: bool = False,
) -> AskTellStudy:
    """A study that your program drives: `ask` it for a configuration, measure that, and `tell` it the result.

    With a folder or a store, the same call resumes the study; several processes may work on it.

    Args:
        space: A `Space`, or a mapping as for `optimize`.
        trials: Configurations that `ask` gives before the final, the default included; 24 where `patience` does not end the study.
        metric: What is improved, where `tell` is given metrics by name.
        direction: Which way is better.
        objective: In the place of `metric` and `direction`: with limits, or with further goals.
        patience: End the search after this many trials in a row that improve nothing.
        limits, searcher, seed, given, baseline, folder, store, name: As for `optimize`.
        rounds, finals, options, workload, warm_start, simulated: As for `optimize`.
    """
    refuse_while_loading("autoscout")
    setup = _setup(
        measured_elsewhere,
        space,
        objective or Objective(metric=metric, direction=Direction(direction)),
        limits=limits,
        finals=finals,
        rounds=rounds,
        simulated=simulated,
        workload=workload,
        searcher=searcher,
        name=name,
        given=given,
        baseline=baseline,
        budget={"trials": trials, "patience": patience, "failures": None},
        search={"seed": seed, "options": dict(options or {}), "warm_start": warm_start},
        executor="inline",
        store=store,
    )
    return AskTellStudy(setup, None if folder is None else Folder(Path(folder)), publish)


def _with_keywords_of_optimize(*functions: Any) -> None:
    """Let `help`, notebooks and the reference show the keywords that `Options` declares for type checkers."""
    keywords = [each for each in inspect.signature(optimize).parameters.values() if each.kind is each.KEYWORD_ONLY]
    for function in functions:
        own = inspect.signature(function)
        before = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        function.__signature__ = own.replace(parameters=[*before, *keywords])


_with_keywords_of_optimize(minimize, maximize)


def _conduct(setup: Setup, folder: Folder | None, callbacks: Sequence[Callback], progress: bool) -> Outcome:
    """Run a study for a program: Ctrl-C ends it, callbacks are called, a line shows how far it is."""
    start = StartingPoint.decide(setup, folder)
    tracking = Tracking(setup.campaign.track, folder, place_of(setup, folder), setup.name)
    with tracking, ends_on_interrupt() as ending:
        empty = Outcome(setup=setup, start=start, trials=(), stop=None, folder=folder)
        observers: list[Observer] = [Callbacks(empty=empty, functions=callbacks, stop=ending.stopping.set), tracking]
        finals, workers = setup.finals, setup.campaign.search.workers or 1
        tally = Tally(
            setup.task,
            setup.default,
            workers=workers,
            final_trials=finals.trials,
            final_rounds=finals.rounds,
            baseline=setup.baseline,
        )
        line = ProgressLine(tally) if progress else None
        with closing(line) if line else nullcontext():
            observers += [line] if line else []
            outcome = run(setup, folder, start=start, observer=Together(observers), attach=ending.attach)
        return publish(outcome)


def _setup(
    function: Function,
    space: Space | Mapping[str, Any],
    objective: Objective,
    *,
    limits: Sequence[str],
    finals: Finals | None,
    rounds: int,
    simulated: bool,
    workload: Mapping[str, Any] | None,
    searcher: str | type[Searcher],
    name: str,
    given: Mapping[str, Value] | None,
    baseline: Mapping[str, Value] | None,
    budget: Mapping[str, Any],
    search: Mapping[str, Any],
    executor: str,
    store: str | os.PathLike[str] | None,
) -> Setup:
    """The campaign of a function, with everything looked up."""
    if finals is not None and rounds:
        raise ConfigError(
            Fault(where="optimize()", field="rounds", value=str(rounds), rule="stands in `finals`, too", fix="Give one of them")
        )
    keys = ("finalists", "rounds", "simplify")
    final = {"rounds": rounds} if finals is None else {name: getattr(finals, name) for name in keys}
    space = space if isinstance(space, Space) else simple_space(space)
    bounds, guards = [*map(str, objective.limits), *limits], list(map(str, objective.guards))
    goals = [goal.metric for goal in objective.goals]
    metrics = dict.fromkeys([*goals, *(Limit.parse(bound).metric for bound in bounds), *(guard.metric for guard in objective.guards)])
    one = {"metric": objective.metric, "direction": objective.direction.value}
    data = {
        "system": "function",
        "name": name,
        "workload": {
            "metrics": list(metrics),
            "facts": dict(workload or {}),
            "simulated": simulated,
            "deterministic": not final["rounds"],
        },
        "goal": {**({"metrics": list(map(str, objective.goals))} if objective.several else one), "slo": bounds, "guards": guards},
        "budget": budget,
        "space": _block(space),
        "set": dict(given or {}),
        "baseline": dict(baseline or {}),
        "search": {"searcher": searcher if isinstance(searcher, str) else searcher.__name__, **search},
        "simulate": {"simulator": "none"},
        "execute": {"executor": executor},
        "finals": final,
        "store": None if store is None else str(store),
    }
    backend = FunctionBackend(space, function)
    return prepare(build_campaign(data, where="optimize()"), backend, None if isinstance(searcher, str) else searcher)


def _block(space: Space) -> dict[str, Any] | None:
    """The space as a campaign holds it; None where a constraint is a Python function, which no file can hold."""
    try:
        block: dict[str, Any] = yaml.safe_load(write_space(space))
    except SpaceError:
        return None
    return block
