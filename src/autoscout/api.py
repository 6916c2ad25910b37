"""AutoScout from Python: tune a function or a campaign without the command line."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from autoscout.backends.function import Function, FunctionBackend, refuse_while_loading
from autoscout.common.fields import shown
from autoscout.core.config import Value
from autoscout.core.errors import Fault, SpaceError
from autoscout.core.protocols import Searcher
from autoscout.core.task import Direction, Limit, Objective
from autoscout.report.cell import show_in_notebooks
from autoscout.report.publish import publish
from autoscout.space import Choice, Flag, Grid, Knob, Space
from autoscout.space.yaml import write_space
from autoscout.study.assemble import look, run
from autoscout.study.campaign import Campaign, build_campaign, read_campaign
from autoscout.study.final import Finals
from autoscout.study.folder import DEFAULT, Folder
from autoscout.study.outcome import Outcome
from autoscout.study.setup import prepare
from autoscout.study.study import Study

show_in_notebooks(Outcome, Study)


def tune(campaign: str | Path | Campaign | Mapping[str, Any], output_dir: str | Path = DEFAULT) -> Outcome:
    """Run or resume a campaign: a backend's name, a file, or the same as plain data.

    The result folder `output_dir/NAME` then holds the trials, `report.html` and `best/`, as after `autoscout tune`.
    """
    if isinstance(campaign, Mapping):
        campaign = build_campaign(campaign, where="tune()")
    elif not isinstance(campaign, Campaign):
        path = Path(campaign)
        is_file = path.suffix in (".yaml", ".yml") or path.is_file()
        campaign = read_campaign(path) if is_file else build_campaign({"system": str(campaign)}, where="tune()")
    setup = prepare(campaign)
    return publish(run(setup, Folder(Path(output_dir) / setup.name)))


def load_study(folder: str | os.PathLike[str]) -> Outcome:
    """What the study of a result folder has found so far, while it runs or after."""
    home = Folder(Path(folder))
    home.spec()
    return look(prepare(read_campaign(home.campaign)), home)


def minimize(function: Function, space: Space | Mapping[str, Any], trials: int, **how: Any) -> Outcome:
    """Find the configuration for which `function` is smallest; see `optimize` for the keywords."""
    return optimize(function, space, Objective(metric=how.pop("metric", "value")), trials, **how)


def maximize(function: Function, space: Space | Mapping[str, Any], trials: int, **how: Any) -> Outcome:
    """Find the configuration for which `function` is largest; see `optimize` for the keywords."""
    return optimize(function, space, Objective(metric=how.pop("metric", "value"), direction=Direction.MAXIMIZE), trials, **how)


def optimize(
    function: Function,
    space: Space | Mapping[str, Any],
    objective: Objective,
    trials: int,
    *,
    limits: Sequence[str] = (),
    searcher: str | type[Searcher] = "hybrid",
    seed: int = 0,
    workers: int = 1,
    executor: str = "inline",
    given: Mapping[str, Value] | None = None,
    folder: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
    name: str = "function",
    finals: Finals = Finals(rounds=0),  # noqa: B008 - frozen
    options: Mapping[str, Any] | None = None,
    workload: Mapping[str, Any] | None = None,
    warm_start: bool = True,
    simulated: bool = False,
) -> Outcome:
    """Tune a Python function.

    Args:
        function: Takes a `Config`, gives a number or a dict of metrics; raises `Infeasible` for what cannot work.
        space: A `Space`, or a mapping from knob to its values: a range, a list, or `bool`.
        objective: What to improve; with further goals (`also`) the study looks for the front, and the function returns a dict.
        trials: Configurations to try, the default included.
        limits: Such as `"p95_ms<=5"`, over the metrics the function returns.
        searcher: Name of the searcher plug-in, or a class of your own.
        seed: Same seed, same history: same proposals.
        workers: Calls at once.
        executor: Where they run: `inline` on threads of this process, `local` in processes of their own, `ray` on a Ray cluster; the
            function must pickle for all but the first.
        given: Pinned knobs.
        folder: A result folder: trials, `report.html` and `best/` are kept there, and the same call resumes. None: nothing is kept, unless
            there is a store.
        store: Path of a SQLite file or URL of a store to keep the trials in and resume from; the folder's own when None.
        name: Of the study.
        finals: Measure the best few and the default again, for functions that are noisy. Without rounds every answer counts as exact.
        options: Of the searcher.
        workload: Facts about this job, such as `{"rows": 4096}`; a store's studies of similar jobs are learnt from.
        warm_start: Off: do not look for any.
        simulated: What the function returns is simulated, not measured; every trial and report says so.
    """
    refuse_while_loading("autoscout")
    space = space if isinstance(space, Space) else simple_space(space)
    backend = FunctionBackend(space, function)
    limits, guards = [*map(str, objective.limits), *limits], list(map(str, objective.guards))
    goals = [goal.metric for goal in objective.goals]
    metrics = dict.fromkeys([*goals, *(Limit.parse(limit).metric for limit in limits), *(x.metric for x in objective.guards)])
    one = {"metric": objective.metric, "direction": objective.direction.value}
    goal = {"metrics": list(map(str, objective.goals))} if objective.several else one
    data = {
        "system": "function",
        "name": name,
        "workload": {
            "metrics": list(metrics),
            "facts": dict(workload or {}),
            "simulated": simulated,
            "deterministic": not finals.rounds,
        },
        "goal": {**goal, "slo": limits, "guards": guards},
        "budget": {"trials": trials, "failures": None},
        "space": _block(space),
        "set": dict(given or {}),
        "search": {
            "searcher": searcher if isinstance(searcher, str) else searcher.__name__,
            "seed": seed,
            "workers": workers,
            "options": dict(options or {}),
            "warm_start": warm_start,
        },
        "simulate": {"simulator": "none"},
        "execute": {"executor": executor},
        "finals": dataclasses.asdict(finals),
        "store": None if store is None else str(store),
    }
    setup = prepare(build_campaign(data, where="optimize()"), backend, None if isinstance(searcher, str) else searcher)
    return publish(run(setup, None if folder is None else Folder(Path(folder))))


def simple_space(knobs: Mapping[str, Any]) -> Space:
    """A space from plain Python: `{"x": range(1, 9), "mode": ["a", "b"], "fast": bool}`; knobs may be given as such too.

    Raises:
        SpaceError: what a knob may hold is no list of values.
    """
    wrong = {name: values for name, values in knobs.items() if values is not bool and not isinstance(values, Knob) and not _lists(values)}
    if wrong:
        rule, fix = "lists what the knob may hold", "Give a list, a range, or `bool`"
        raise SpaceError([Fault(where="space", field=name, value=shown(values), rule=rule, fix=fix) for name, values in wrong.items()])
    return Space([_knob(name, values) for name, values in knobs.items()])


def _lists(values: object) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping))


def _knob(name: str, values: Any) -> Knob:
    if isinstance(values, Knob):
        return values
    if values is bool:
        return Flag(name)
    if isinstance(values, range) and len(values) > 1:  # which may be too long to be listed
        return Grid(name, min(values[0], values[-1]), max(values[0], values[-1]), step=abs(values.step), default=values[0])
    listed = values.tolist() if hasattr(values, "tolist") else list(values)  # of an array: numbers that JSON knows
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in listed)
    return Grid(name, values=sorted(listed), default=listed[0]) if numeric and listed else Choice(name, listed)


def _block(space: Space) -> dict[str, Any] | None:
    """The space as a campaign holds it; None where a constraint is a Python function, which no file can hold."""
    try:
        block: dict[str, Any] = yaml.safe_load(write_space(space))
    except SpaceError:
        return None
    return block
