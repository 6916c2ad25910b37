"""AutoScout from Python: tune a function or a campaign without the command line."""

from __future__ import annotations

import dataclasses
import os
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.core import plugins
from autoscout.core.config import Config, Value
from autoscout.core.history import Past
from autoscout.core.protocols import StudyRecord, best
from autoscout.core.task import Budget, Direction, Limit, Objective, Task
from autoscout.core.trial import Proposal, Trial
from autoscout.core.worker import worker_identity
from autoscout.report.verdict import decide
from autoscout.space import Choice, Flag, Grid, Knob, Space
from autoscout.study import warm_start as recollection
from autoscout.study.assemble import pins, prepare, remember, run
from autoscout.study.budget import Stop
from autoscout.study.campaign import Campaign, build_campaign, read_campaign
from autoscout.study.dispatch import Pace
from autoscout.study.final import PHASE, Finals
from autoscout.study.folder import DEFAULT, Folder
from autoscout.study.plugin_options import build_options
from autoscout.study.study import Study

Function = Callable[[Config], float | Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What came of a study."""

    best: Config | None  # None when no configuration worked
    value: float | None  # the metric of `best`: its median in the final, or as it was first measured when there was none
    trials: tuple[Trial, ...]
    stop: Stop | None
    folder: Path | None = None
    learnt_from: tuple[Past, ...] = ()  # similar past studies that it started from


class Quiet:
    """An observer that says nothing."""

    def phase(self, name: str) -> None: ...

    def started(self, proposal: Proposal) -> None: ...

    def finished(self, trial: Trial) -> None: ...


def tune(campaign: str | Path | Campaign | Mapping[str, Any], output_dir: str | Path = DEFAULT) -> Found:
    """Run or resume a campaign: a backend's name, a file, or the same as plain data.

    The result folder holds the trials and can be handed to `autoscout report`, which also writes the hand-over files.
    """
    if isinstance(campaign, Mapping):
        campaign = build_campaign(campaign, where="tune()")
    elif not isinstance(campaign, Campaign):
        path = Path(campaign)
        is_file = path.suffix in (".yaml", ".yml") or path.is_file()
        campaign = read_campaign(path) if is_file else build_campaign({"system": str(campaign)}, where="tune()")
    setup = prepare(campaign)
    folder = Folder(Path(output_dir) / setup.name)
    past = remember(setup, folder)
    result = run(setup, folder, Quiet(), lambda _: threading.Event(), past)
    found = _found(result.trials, result.inside, setup.task, setup.baseline, result.stop)
    return dataclasses.replace(found, folder=folder.path, learnt_from=past)


def minimize(function: Function, space: Space | Mapping[str, Any], trials: int, **how: Any) -> Found:
    """Find the configuration for which `function` is smallest; see `optimize` for the keywords."""
    return optimize(function, space, Objective(metric=how.pop("metric", "value")), trials, **how)


def maximize(function: Function, space: Space | Mapping[str, Any], trials: int, **how: Any) -> Found:
    """Find the configuration for which `function` is largest; see `optimize` for the keywords."""
    return optimize(function, space, Objective(metric=how.pop("metric", "value"), direction=Direction.MAXIMIZE), trials, **how)


def optimize(
    function: Function,
    space: Space | Mapping[str, Any],
    objective: Objective,
    trials: int,
    *,
    limits: Sequence[str] = (),
    searcher: str | type = "hybrid",
    seed: int = 0,
    workers: int = 1,
    executor: str = "inline",
    given: Mapping[str, Value] | None = None,
    store: str | os.PathLike[str] | None = None,
    name: str = "function",
    finals: Finals = Finals(rounds=0),  # noqa: B008 - frozen
    options: Mapping[str, Any] | None = None,
    workload: Mapping[str, Any] | None = None,
    warm_start: bool = True,
) -> Found:
    """Tune a Python function.

    Args:
        function: Takes a `Config`, gives a number or a dict of metrics; raises `Infeasible` for what cannot work.
        space: A `Space`, or a mapping from knob to its values: a range, a list, or `bool`.
        objective: What to improve.
        trials: Configurations to try, the default included.
        limits: Such as `"p95_ms<=5"`, over the metrics the function returns.
        searcher: Name of the searcher plug-in, or a class of your own.
        seed: Same seed, same history: same proposals.
        workers: Calls at once.
        executor: Where they run: `inline` on threads of this process, `local` in processes of their own, `ray` on a Ray cluster; the
            function must pickle for all but the first.
        given: Pinned knobs.
        store: Path of a SQLite file or a PostgreSQL URL to keep the trials and resume from; memory when None.
        name: Of the study in that store.
        finals: Measure the best few and the default again, for functions that are noisy.
        options: Of the searcher.
        workload: Facts about this job, such as `{"rows": 4096}`; a store's studies of similar jobs are learnt from.
        warm_start: Off: do not look for any.
    """
    whole = space if isinstance(space, Space) else simple_space(space)
    pinned = pins(whole, given or {}, "given")
    space = whole.pin(pinned) if pinned else whole
    objective = dataclasses.replace(objective, limits=(*objective.limits, *map(Limit.parse, limits)))
    task = Task(system="function", objective=objective, workload=workload or {"function": name}, budget=Budget(trials=trials))
    kind: Any = plugins.get("searcher", searcher) if isinstance(searcher, str) else searcher
    build_options(kind, options or {}, f"options ({kind.__name__})")  # before a store is begun
    where: Any = plugins.get("executor", executor)
    place = where(options=build_options(where, {"slots": workers}, f"executor {executor}"))
    kept = plugins.get("store", "memory")() if store is None else plugins.get("store", "sql")(store)
    try:
        past = recollection.begin(kept, task, name) if warm_start and recollection.KEY not in (options or {}) else ()
        learnt = recollection.written(past)
        learns = recollection.learns(kind)
        chosen = build_options(kind, {**(options or {}), **(learnt if learns else {})}, f"options ({kind.__name__})")
        study = Study(
            record=kept.open(StudyRecord(name=name, task=task, space=space.fingerprint(), spec=learnt)),
            space=space,
            searcher=kind(space, task, seed, **({} if chosen is None else {"options": chosen})),
            evaluator=plugins.get("evaluator", "function")(function, place, task, space),
            store=kept,
            observer=Quiet(),
            worker=worker_identity(),
            baseline=space.project(whole.default(), pinned),
            given=pinned,
            first=() if learns else recollection.winners(past, space, pinned),
            finals=finals,
            pace=Pace(workers=workers),
        )
        stop = study.run()
    finally:
        place.close()
        kept.close()
    return dataclasses.replace(_found(tuple(study.trials), study.inside, task, study.baseline, stop), learnt_from=past)


def simple_space(knobs: Mapping[str, Any]) -> Space:
    """A space from plain Python: `{"x": range(1, 9), "mode": ["a", "b"], "fast": bool}`; knobs may be given as such too."""
    return Space([_knob(name, values) for name, values in knobs.items()])


def _knob(name: str, values: Any) -> Knob:
    if isinstance(values, Knob):
        return values
    if values is bool:
        return Flag(name)
    listed = list(values)
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in listed)
    return Grid(name, values=sorted(listed), default=listed[0]) if numeric and listed else Choice(name, listed)


def _found(trials: tuple[Trial, ...], inside: Sequence[Trial], task: Task, baseline: Config, stop: Stop | None) -> Found:
    """After a final its verdict counts, as on the command line: what merely looked best in the search may have been lucky."""
    finished = [trial for trial in inside if trial.proposal.origin.get("phase") == PHASE]
    if not finished:
        top = best(inside, task)
        answer, measured = (None, []) if top is None else (top.config, [top])
    else:
        answer = decide(task, inside, baseline).answer
        measured = [trial for trial in finished if trial.config == answer]
    values = [value for trial in measured if (value := task.objective.value(trial.measurement)) is not None]
    return Found(best=answer, value=statistics.median(values) if values else None, trials=trials, stop=stop)
