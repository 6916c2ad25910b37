"""Puts a study together from a campaign and runs it: the only place that builds a `Study`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from autoscout.analysis.curves import busy_s
from autoscout.core import plugins
from autoscout.core.actions import invalid_trials, raised
from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError, ConfigError, Fault, PluginError, StoreError
from autoscout.core.history import trials_of
from autoscout.core.protocols import Evaluator, Executor, Observer, Searcher, Simulator, Store, StudyRecord
from autoscout.core.reference import of_search
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.core.worker import worker_identity
from autoscout.evaluate.adaptive import AdaptiveEvaluator
from autoscout.evaluate.ensemble import EnsembleEvaluator
from autoscout.evaluate.predicting import PredictingEvaluator
from autoscout.evaluate.profile import as_measured
from autoscout.evaluate.profiler import OnRepeat, Profiler, ProfilerOptions
from autoscout.learning.ensemble import Ensemble
from autoscout.study.about import ABOUT, About
from autoscout.study.budget import Stop, counted_s, ending, over
from autoscout.study.campaign import PluginEntry
from autoscout.study.dispatch import Parallelism, trial_key
from autoscout.study.final import plan
from autoscout.study.folder import Folder
from autoscout.study.likely import likely_hints
from autoscout.study.outcome import Outcome
from autoscout.study.patience import SearchPatience
from autoscout.study.plugin_options import build_options
from autoscout.study.profiling import ProfilingSearcher, profiled_configs
from autoscout.study.runs import noted_run
from autoscout.study.scalarised import ScalarisedSearcher
from autoscout.study.setup import Setup
from autoscout.study.simplify import simplify
from autoscout.study.start import ADAPTIVE, PRIOR, StartingPoint, place_of
from autoscout.study.stores import open_store
from autoscout.study.study import Study

DIRTY_SHARE = 1 / 40  # of the time budget: what a disturbed launch may have cost and still be repeated

NEVER_DIRTY = 1.0  # CPU pressure and use by others, shares, above which an exact answer counts as disturbed

Attach = Callable[[Evaluator], threading.Event]
"""Given the evaluator of a study, returns the event that ends the study early; a signal handler may set it."""


class Quiet:
    """An observer that says nothing."""

    def phase(self, name: str) -> None: ...

    def started(self, proposal: Proposal) -> None: ...

    def finished(self, trial: Trial) -> None: ...


def run(
    setup: Setup,
    folder: Folder | None = None,
    *,
    start: StartingPoint | None = None,
    observer: Observer | None = None,
    attach: Attach = lambda _: threading.Event(),
    on_repeat: OnRepeat | None = None,
) -> Outcome:
    """Run the study of `setup`, or resume it.

    Args:
        setup: What to tune.
        folder: Where everything is kept; one that holds another study is refused. None: only what the campaign's store keeps.
        start: What the study starts from, if somebody asked before.
        observer: Told of every trial.
        attach: See `Attach`.
        on_repeat: See `OnRepeat`.
    """
    start = start or StartingPoint.decide(setup, folder)
    searcher = build_searcher(setup, start)  # before anything is written: a wrong name must leave no trace
    with ExitStack() as stack:
        executor = stack.enter_context(closing(build_executor(setup, folder.path if folder else None)))
        profiler = build_profiler(setup, executor, on_repeat)
        evaluator = build_evaluator(setup, start, profiler)  # likewise
        store, record = join(setup, start, folder)
        stack.enter_context(closing(store))
        evaluator.learn([trial for trial in trials_of(store, setup.name) if not setup.space.check(trial.config)])
        study = Study(
            record=record,
            space=setup.space,
            searcher=searcher,
            evaluator=evaluator,
            store=store,
            observer=observer or Quiet(),
            worker=worker_identity(),
            default=setup.default,
            baseline=setup.baseline,
            repeat_default=bool(setup.finals.trials),
            given=setup.given,
            first=tuple(dict.fromkeys((*known_good(setup, start), *start.winners(setup)))),
            hints=setup.hints,
            hints_after=setup.hints_after,
            finals=setup.finals,
            simplify=setup.simplify,
            project=setup.space.project,
            curves=setup.backend.curves,
            long_steps=setup.backend.long_run(setup.task)[1],
            asks_early=start.use == PRIOR and bool(setup.task.hardware.get("gpus")),  # a measurement on CPUs alone would be disturbed
            complete=setup.complete,
            fresh=lambda: build_searcher(setup, start),
            parallelism=Parallelism(
                workers=setup.campaign.search.workers,
                together=setup.campaign.search.together,
                per_process=setup.campaign.measure.per_process,
            ),
            stopping=attach(evaluator),
        )
        with noted_run(store, setup.name, worker_identity()) as noted:
            stop = study.run()
            ended = study.ending(stop)
            noted.stopped(stop, ended)
        invalid = invalid_trials(store.actions(setup.name))
    machine, trials = About.from_record(record).machine, tuple(study.trials)
    return Outcome(setup=setup, start=start, folder=folder, trials=trials, stop=stop, ended=ended, invalid=invalid, machine=machine)


def join(setup: Setup, start: StartingPoint, folder: Folder | None) -> tuple[Store, StudyRecord]:
    """Open the store of a study, which is begun where there is none, and its folder; the record in force."""
    if folder:
        folder.join(setup.name)
    spec = {**setup.spec, **start.to_record(), ABOUT: About.of(setup).to_json()}
    with ExitStack() as stack:
        store = stack.enter_context(closing(open_store(place_of(setup, folder), journal=folder.journal if folder else None)))
        record = store.open(StudyRecord(name=setup.name, task=setup.task, space=setup.space.fingerprint(), spec=spec))
        if folder:
            folder.keep(setup.spec)
        stack.pop_all()  # it stays open
    return store, record


def stored_trials(setup: Setup, folder: Folder) -> list[Trial]:
    """The trials of a study that has begun; none of one that has not."""
    try:
        store = open_store(place_of(setup, folder), create=False)
    except StoreError:
        return []
    with closing(store):
        if fault := store.damage().get(setup.name):
            raise StoreError(fault)
        begun = any(record.name == setup.name for record in store.studies())
        return list(trials_of(store, setup.name)) if begun else []


def look(setup: Setup, folder: Folder) -> Outcome:
    """What the store holds of a study, whether or not somebody is working on it."""
    with closing(open_store(place_of(setup, folder), create=False)) as store:
        trials, actions = tuple(trials_of(store, setup.name)), store.actions(setup.name)
        machine = next((About.from_record(record).machine for record in store.studies() if record.name == setup.name), {})
    start = StartingPoint.recorded(setup, folder)
    invalid = invalid_trials(actions)
    outcome = Outcome(setup=setup, start=start, folder=folder, trials=trials, stop=None, invalid=invalid, machine=machine)
    inside, keys = outcome.inside, {trial_key(trial.proposal) for trial in trials}
    reference = setup.references.reference(of_search(inside))
    simplest = simplify(trials, setup.task, reference, setup.simplify, setup.space.project, among=inside)
    also = setup.references.other(reference)
    rounds = plan(trials, setup.task, reference, setup.finals, inside, simplest, fits=lambda _: False, also=also)
    if any(trial_key(proposal) not in keys for proposals in rounds for proposal in proposals):
        return outcome
    later = setup.finals.trials + setup.simplify.trials if rounds else 0
    budget, workers = raised(setup.task.budget, actions), setup.campaign.search.workers or 1
    wall_s = counted_s(busy_s(inside), inside, workers)
    stop = over(budget, inside, wall_s, later, workers)
    stop = stop or SearchPatience(setup.baseline or setup.default).over(setup.task, inside)
    tried = {trial.config for trial in inside}
    if stop is None and all(config in tried for config in setup.space.enumerate()):
        stop = Stop.EXHAUSTED
    return outcome.having(stop=stop, ended=ending(stop, budget, inside, wall_s) if stop else "")


def build_searcher(setup: Setup, start: StartingPoint) -> Searcher:
    """The searcher a campaign asks for, fresh; told what the study starts from as far as it can use it."""
    search, kind = setup.campaign.search, setup.searcher
    build: Callable[..., Searcher] = kind
    options = build_options(kind, {**search.options, **start.options(kind)}, f"search.options ({search.searcher})")
    arguments: dict[str, Any] = {} if options is None else {"options": options}

    def make(task: Task, profile: Sequence[Trial] = ()) -> Searcher:
        informed = {**arguments, "simulator": build_simulator(setup, start, profile)} if start.use == PRIOR else arguments
        return build(setup.space.starting_at(setup.baseline or setup.default), task, search.seed, **informed)

    def whole(profile: Sequence[Trial] = ()) -> Searcher:
        if setup.task.objective.several and not kind.takes_several_goals:
            return ScalarisedSearcher(lambda task: make(task, profile), setup.task, search.seed)
        return make(setup.task, profile)

    if not start.profiled:
        return whole()
    taken = (setup.default, *((setup.baseline,) if setup.baseline else ()), *setup.first)
    return ProfilingSearcher(profiled_configs(setup.space, start.profiled, search.seed, taken), whole)


def build_simulator(setup: Setup, start: StartingPoint, profile: Sequence[Trial] = ()) -> Ensemble:
    """The simulators that a study starts from as one, fresh, told what they learn from before the search.

    Args:
        setup: Of the study.
        start: Of the study.
        profile: Trials of the profiling phase.

    Raises:
        ConfigError, PluginError: one is not there, or does not understand the task; all faults at once.
    """
    entries = setup.campaign.simulate.entries or (PluginEntry(name=start.simulator),)
    members: dict[str, Simulator] = {}
    faults: list[Fault] = []
    for place, entry in enumerate(entries):
        where = f"simulate.simulators[{place}]" if setup.campaign.simulate.simulators else "simulate"
        try:
            kind = plugins.get("simulator", entry.name)
            options = build_options(kind, entry.options, f"{where}.options ({entry.name})")
            members[str(entry)] = kind() if options is None else kind(options)
            members[str(entry)].predict([setup.default], setup.task)
        except AutoScoutError as error:
            if isinstance(error, PluginError) and len(entries) == 1:
                raise
            faults += error.faults
    if faults:
        raise ConfigError(faults)
    joined = Ensemble(members, setup.campaign.simulate.weights)
    if start.learned or profile:
        joined.fit([*as_measured(start.learned), *profile], setup.task)
    return joined


def known_good(setup: Setup, start: StartingPoint) -> list[Config]:
    """What is tried before the search: all that the campaign names, and the hints that the prior of the study finds likely to run."""
    asked = [config for config in setup.first if config not in setup.hints]
    if start.use != PRIOR:
        return list(setup.first)
    return [*asked, *likely_hints(setup.hints, build_simulator(setup, start), setup.task)]


def build_evaluator(setup: Setup, start: StartingPoint, profiler: Evaluator) -> Evaluator:
    """Who answers proposals: the profiler, behind a simulator when the study starts from one that answers itself.

    What a simulator that is the prior had predicted is kept with each measurement.
    """
    if start.use == PRIOR:
        return PredictingEvaluator(profiler, lambda profile: build_simulator(setup, start, profile), setup.task)
    if start.use != ADAPTIVE:
        return profiler
    settings = {"profiler_fidelity": setup.fidelity, **setup.campaign.simulate.adaptive}
    options = build_options(AdaptiveEvaluator, settings, "simulate.adaptive")
    simulated = EnsembleEvaluator(build_simulator(setup, start), setup.task, trials=as_measured(start.learned))
    return AdaptiveEvaluator(simulated, profiler, setup.task, options)


def build_executor(setup: Setup, folder: Path | None) -> Executor:
    """The executor a campaign asks for; trial folders go below `folder`, where the executor has a place for them."""
    name, kind = setup.executor, plugins.get("executor", setup.executor)
    values = {"folder": folder and str(folder), "slots": setup.campaign.search.workers or 1}
    declared = plugins.option_names(kind)
    given = {option: value for option, value in values.items() if value is not None and option in declared}
    options = build_options(kind, {**given, **setup.campaign.execute.options}, f"execute.options ({name})")
    executor: Executor = kind() if options is None else kind(options=options)
    return executor


def build_profiler(setup: Setup, executor: Executor, on_repeat: OnRepeat | None = None) -> Evaluator:
    """The evaluator that asks the system itself.

    Raises:
        PluginError: what its launches need is not installed.
        ConfigError: what they start is not there.
    """
    setup.backend.check(setup.task)
    plugins.check_packages("backend", setup.task.system, setup.backend.packages(setup.task))
    measure, wall_s = setup.campaign.measure, setup.task.budget.wall_s
    options = ProfilerOptions(
        seed=setup.campaign.search.seed,
        repeats=measure.repeats,
        dirty_repeats=0 if setup.deterministic else measure.dirty_repeats,
        dirty_pressure=NEVER_DIRTY if setup.deterministic else ProfilerOptions.dirty_pressure,
        dirty_others=NEVER_DIRTY if setup.deterministic else ProfilerOptions.dirty_others,
        dirty_limit_s=wall_s and wall_s * DIRTY_SHARE,
        limit_s=measure.limit,
        budget_s=None if measure.limit else wall_s,  # or a trial that hangs would outlast any budget
        stop_early=measure.stop_early,
        per_process=measure.per_process,
    )
    return Profiler(setup.backend, executor, setup.task, setup.space, options, on_repeat=on_repeat)
