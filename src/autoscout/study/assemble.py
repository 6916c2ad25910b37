"""From a campaign to a result: finds the plug-ins by name, puts the study together, runs it, writes what was found."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.common.suggest import suggestion
from autoscout.core import plugins
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault, SpaceError, StoreError
from autoscout.core.history import Past, trials_of
from autoscout.core.protocols import Backend, Evaluator, Executor, Hinting, Searcher, Simulator, Store, StudyRecord
from autoscout.core.task import Budget, Task
from autoscout.core.trial import Trial
from autoscout.core.worker import worker_identity
from autoscout.report.curves import busy_s
from autoscout.space import Space
from autoscout.study import simulator_choice as foresight
from autoscout.study import warm_start as recollection
from autoscout.study.budget import Stop, over
from autoscout.study.campaign import Campaign
from autoscout.study.dispatch import Observer, Pace, slot
from autoscout.study.final import Finals, plan
from autoscout.study.folder import Folder
from autoscout.study.plugin_options import build_options
from autoscout.study.study import Study

DEFAULT_TRIALS = 24  # when a campaign sets no bound at all
DIRTY_SHARE = 1 / 40  # of the time budget: what a disturbed launch may have cost and still be taken again


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A campaign with everything looked up and checked; nothing has been started or written."""

    campaign: Campaign
    backend: Backend
    task: Task
    space: Space
    given: Config  # pinned knobs
    baseline: Config  # the engine's default with the pinned knobs
    first: tuple[Config, ...]
    name: str
    informant: str = ""  # the simulator that was found for the study where the campaign names none, see `inform`

    @property
    def finals(self) -> Finals:
        return Finals(finalists=self.campaign.finals.finalists, rounds=self.campaign.finals.rounds)

    @property
    def simulates(self) -> str:
        """How the study uses a simulator: `prior`, `adaptive`, or not at all (empty)."""
        block, search = self.campaign.simulate, self.campaign.search.searcher
        if not self.simulator:
            return ""
        able = foresight.can_be_told(search)
        if self.informant:
            return "prior" if able else ""
        if block.use == "prior" and not able:
            rule, fix = f"the searcher {search} cannot be told predictions", "Take the searcher hybrid, or use: adaptive"
            raise ConfigError(Fault(where="simulate", field="use", value=block.use, rule=rule, fix=fix))
        return block.use if block.use != "auto" else "prior" if able else "adaptive"

    @property
    def simulator(self) -> str:
        """Name of the simulator, whoever chose it; empty for none."""
        named = self.campaign.simulate.simulator
        return self.informant if named == foresight.AUTO else "" if named in (None, foresight.NONE) else str(named)

    @property
    def spec(self) -> dict[str, Any]:
        """The campaign as plain data with everything filled in, so that it means the same from any folder."""
        task, objective = self.task, self.task.objective
        goal = {"metric": objective.metric, "direction": objective.direction.value, "slo": list(map(str, objective.limits))}
        store = self.campaign.store
        resolved = {
            "workload": task.workload,
            "hardware": task.hardware,
            "goal": {name: value for name, value in goal.items() if value},
            "store": store if store is None else _place(store),
        }
        search = self.campaign.search.model_dump(mode="json", exclude_defaults=True)
        if "learn_from" in search:
            resolved["search"] = {**search, "learn_from": list(map(_place, search["learn_from"]))}
        whole = {"system": task.system, "name": self.name, **self.campaign.model_dump(mode="json", exclude_defaults=True)}
        # Through JSON, as the store keeps tasks: tuples and the like become what a file can hold.
        return {**whole, **json.loads(json.dumps({name: value for name, value in resolved.items() if value})), "name": self.name}


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a study came to."""

    setup: Setup
    folder: Folder
    trials: tuple[Trial, ...]
    stop: Stop | None  # None while it is under way

    @property
    def inside(self) -> tuple[Trial, ...]:
        """The trials that count: those that the space and the pinned knobs allow, which may have changed since."""
        return tuple(trial for trial in self.trials if not self.setup.space.check(trial.config))


def prepare(campaign: Campaign) -> Setup:
    """Look up and check everything a campaign names.

    Raises:
        ConfigError, SpaceError, PluginError: all faults of the part concerned at once.
    """
    backend = _backend(campaign)
    task = dataclasses.replace(backend.task(_task_block(campaign)), budget=_budget(campaign))
    space = _space(campaign, backend, task)
    given = pins(space, campaign.set)
    pinned = space.pin(given) if given else space
    baseline = pinned.project(space.default(), given) if given else space.default()
    first = _first(pinned, baseline, campaign.first)
    if isinstance(backend, Hinting):
        hints = (config for config in backend.hints(task) if config != baseline and not pinned.check(config))
        first = tuple(dict.fromkeys((*first, *hints)))
    name = campaign.name or f"{campaign.system}-{task.key[:8]}"
    return Setup(campaign=campaign, backend=backend, task=task, space=pinned, given=given, baseline=baseline, first=first, name=name)


def searcher(setup: Setup, past: Sequence[Past] = ()) -> Searcher:
    """The searcher a campaign asks for, fresh; told of past studies when it can make use of them."""
    search = setup.campaign.search
    kind = plugins.get("searcher", search.searcher)
    told = {**search.options, **(recollection.written(past) if recollection.learns(kind) else {})}
    options = build_options(kind, told, f"search.options ({search.searcher})")
    given: dict[str, Any] = {} if options is None else {"options": options}
    if setup.simulates == "prior":
        given["simulator"] = simulator(setup)
    made: Searcher = kind(setup.space, setup.task, search.seed, **given)
    return made


def simulator(setup: Setup) -> Simulator:
    """The simulator that a campaign asks for or that was found for it, fresh.

    Raises:
        ConfigError, PluginError: it is not there, or does not understand the task; all faults at once.
    """
    block = setup.campaign.simulate
    kind = plugins.get("simulator", setup.simulator)
    options = build_options(kind, block.options, f"simulate.options ({setup.simulator})")
    made: Simulator = kind() if options is None else kind(options)
    made.predict([setup.baseline], setup.task)
    return made


def evaluator(setup: Setup, measuring: Evaluator, trials: Sequence[Trial] = ()) -> Evaluator:
    """Who answers proposals: `measuring`, behind a simulator when the campaign asks for that.

    Args:
        setup: What is tuned.
        measuring: The evaluator that measures.
        trials: What the study has stored.
    """
    if setup.simulates != "adaptive":
        return measuring
    kind = plugins.get("evaluator", "adaptive")
    given = {"virtual": bool(setup.task.hardware.get("virtual")), **setup.campaign.simulate.adaptive}
    options = build_options(kind, given, "simulate.adaptive")
    simulated = plugins.get("evaluator", "ensemble")([simulator(setup)], setup.task)
    made: Evaluator = kind(simulated, measuring, setup.task, options, [trial for trial in trials if not setup.space.check(trial.config)])
    return made


def executor(setup: Setup, folder: Path) -> Executor:
    """The executor a campaign asks for; trial folders go below `folder`."""
    block = setup.campaign.execute
    kind = plugins.get("executor", block.executor)
    given = {"folder": str(folder), "slots": setup.campaign.search.workers or 1, **block.options}
    made: Executor = kind(options=build_options(kind, given, f"execute.options ({block.executor})"))
    return made


def profiler(setup: Setup, where: Executor) -> Evaluator:
    """The evaluator that measures on the real system."""
    kind = plugins.get("evaluator", "profiler")
    measure, wall_s = setup.campaign.measure, setup.task.budget.wall_s
    given = {
        "seed": setup.campaign.search.seed,
        "repeats": measure.repeats,
        "dirty_repeats": measure.dirty_repeats,
        "dirty_limit_s": wall_s and wall_s * DIRTY_SHARE,
        "limit_s": measure.limit or wall_s,  # or a trial that hangs would outlast any budget
    }
    options = build_options(kind, {name: value for name, value in given.items() if value is not None}, "measure")
    made: Evaluator = kind(setup.backend, where, setup.task, setup.space, options)
    return made


def remember(setup: Setup, folder: Folder) -> tuple[Past, ...]:
    """The past studies that the study of `setup` learns from: fixed when it began, or found now. Writes nothing.

    Raises:
        ConfigError, StoreError: what the campaign names as `learn_from` is not there, or cannot be read.
    """
    search = setup.campaign.search
    if not search.warm_start or recollection.KEY in search.options or setup.simulates == "prior":
        return ()  # a searcher that is told predictions starts from those
    similar: tuple[Past, ...] = ()
    with suppress(StoreError), closing(_store(setup, folder, create=False)) as store:  # there may be none yet
        known = recollection.kept(store, setup.name)
        if known is not None:
            return known
        similar = recollection.begin(store, setup.task, setup.name)
    return recollection.chosen((*similar, *recollection.elsewhere(search.learn_from, setup.task, setup.name)))


def inform(setup: Setup, folder: Folder, past: Sequence[Past]) -> Setup:
    """With the simulator that informs the study where the campaign names none: fixed when it began, or found now. Writes nothing.

    A study that learns from past ones begins from those.
    """
    if setup.campaign.simulate.simulator != foresight.AUTO:
        return setup
    with suppress(StoreError), closing(_store(setup, folder, create=False)) as store:  # there may be none yet
        record = next((record for record in store.studies() if record.name == setup.name), None)
        if record is not None:
            return dataclasses.replace(setup, informant=foresight.read(record.spec))
    search = setup.campaign.search
    if past or recollection.KEY in search.options or not foresight.can_be_told(search.searcher):
        return setup
    return dataclasses.replace(setup, informant=foresight.informant(setup.space, setup.task))


def began(setup: Setup, folder: Folder) -> tuple[Setup, tuple[Past, ...]]:
    """What a study was told when it began, as its record says: the simulator, in the setup, and past studies. Nothing is looked for."""
    with suppress(StoreError), closing(_store(setup, folder, create=False)) as store:
        past = recollection.kept(store, setup.name)
        if past is not None:
            return inform(setup, folder, past), past
    return setup, ()


def run(
    setup: Setup,
    folder: Folder,
    observer: Observer,
    stopping: Callable[[Evaluator], threading.Event],
    past: tuple[Past, ...] | None = None,
) -> Result:
    """Run or go on with the study of `setup` in `folder`.

    Args:
        setup: What to tune.
        folder: Where everything is kept; one that holds another study is refused.
        observer: Told of every trial.
        stopping: Given the evaluator, returns the event that ends the study early (a signal handler may set it).
        past: What `remember` gave, if somebody asked before.
    """
    past = remember(setup, folder) if past is None else past
    setup = setup if setup.informant else inform(setup, folder, past)
    asker = searcher(setup, past)  # before anything is written: a wrong name must leave no trace
    with closing(executor(setup, folder.path)) as place:
        measuring = profiler(setup, place)
        evaluator(setup, measuring)  # as above
        folder.join(setup.name)
        with closing(_store(setup, folder, journal=folder.journal)) as store:
            spec = {**setup.spec, **recollection.written(past), **foresight.written(setup.informant)}
            record = store.open(StudyRecord(name=setup.name, task=setup.task, space=setup.space.fingerprint(), spec=spec))
            folder.keep(setup.spec)
            answering = evaluator(setup, measuring, list(trials_of(store, setup.name)))
            study = Study(
                record=record,
                space=setup.space,
                searcher=asker,
                evaluator=answering,
                store=store,
                observer=observer,
                worker=worker_identity(),
                baseline=setup.baseline,
                given=setup.given,
                first=_opening(setup, past),
                finals=setup.finals,
                pace=Pace(workers=setup.campaign.search.workers, together=setup.campaign.search.together),
                stopping=stopping(answering),
            )
            stop = study.run()
    return Result(setup=setup, folder=folder, trials=tuple(study.trials), stop=stop)


def _opening(setup: Setup, past: Sequence[Past]) -> tuple[Config, ...]:
    """What is tried right after the baseline: known-good configurations, and past winners where the searcher takes no past itself."""
    if recollection.learns(plugins.get("searcher", setup.campaign.search.searcher)):
        return setup.first
    return tuple(dict.fromkeys((*setup.first, *recollection.winners(past, setup.space, setup.given))))


def look(setup: Setup, folder: Folder) -> Result:
    """What the store holds of a study, whether or not somebody is working on it."""
    with closing(_store(setup, folder, create=False)) as store:
        trials = tuple(trials_of(store, setup.name))
    setup = inform(setup, folder, ())
    result = Result(setup=setup, folder=folder, trials=trials, stop=None)
    inside, seen = result.inside, {slot(trial.proposal) for trial in trials}
    rounds = plan(trials, setup.task, setup.baseline, setup.finals, among=inside)
    if any(slot(proposal) not in seen for proposals in rounds for proposal in proposals):
        return result
    stop = over(setup.task.budget, inside, busy_s(inside), setup.finals, setup.campaign.search.workers or 1)
    return dataclasses.replace(result, stop=stop)


def _store(setup: Setup, folder: Folder, **how: Any) -> Store:
    made: Store = plugins.get("store", "sql")(setup.campaign.store or folder.store, **how)
    return made


def _place(written: str) -> str:
    """A store or folder as it may be written down, the same from anywhere."""
    return without_password(written) if "://" in written else str(Path(written).absolute())


def without_password(url: str) -> str:
    """A store's URL as it may be written down; the driver finds the password in PGPASSWORD or ~/.pgpass."""
    return re.sub(r"(://[^:@/?#]*):[^@/?#]*@", r"\1@", re.sub(r"([?&])password=[^&#]*&?", r"\1", url)).rstrip("?&")


def _backend(campaign: Campaign) -> Backend:
    kind = plugins.get("backend", campaign.system)
    made: Backend = kind(space=campaign.declared_space()) if _takes_space(kind) else kind()
    return made


def _space(campaign: Campaign, backend: Backend, task: Task) -> Space:
    space = backend.space(task)
    if not isinstance(space, Space):
        raise TypeError(f"the backend {campaign.system} must declare an autoscout.space.Space, not {type(space).__name__}")
    return space.constrain(*campaign.narrowing()) if campaign.space and not _takes_space(type(backend)) else space


def _takes_space(kind: type) -> bool:
    """Whether the knobs of a backend come from outside."""
    return "space" in inspect.signature(kind).parameters


def pins(space: Space, wanted: Mapping[str, Value], where: str = "set") -> Config:
    """Pinned knobs with the names and values the space knows: `1` for a fractional knob is `1.0`, `on` for a flag is true.

    Raises:
        SpaceError: names and values that the space does not have, all at once.
    """
    found: dict[str, Value] = {}
    faults: list[Fault] = []
    for written, value in wanted.items():
        name = written if written in space.knobs else written.replace("-", "_")
        if name not in space.knobs:
            faults.append(Fault(where=where, field=written, rule="there is no such knob", fix=suggestion(name, space.knobs)))
            continue
        try:
            found[name] = value if space.knobs[name].position(value) is not None else space.knobs[name].parse(str(value))
        except SpaceError as error:
            faults += [dataclasses.replace(fault, where=where, field=name) for fault in error.faults]
    if faults:
        raise SpaceError(faults)
    return Config(found)


def _first(space: Space, baseline: Config, wanted: Sequence[Mapping[str, Value]]) -> tuple[Config, ...]:
    """Known-good configurations; what they leave open is as in the baseline, as far as the space allows."""
    found: list[Config] = []
    faults: list[Fault] = []
    for number, values in enumerate(wanted):
        try:
            known = pins(space, values, f"first[{number}]")
            found.append(space.project({**baseline, **known}, known))
        except SpaceError as error:
            faults += error.faults
    if faults:
        raise SpaceError(faults)
    return tuple(found)


def _task_block(campaign: Campaign) -> Mapping[str, object]:
    goal = campaign.goal
    objective = {"metric": goal.metric, "direction": goal.direction, "limits": list(goal.slo)}
    blocks: dict[str, Mapping[str, object]] = {
        "workload": campaign.workload,
        "hardware": campaign.hardware,
        "objective": {name: value for name, value in objective.items() if value},
    }
    return {name: block for name, block in blocks.items() if block}


def _budget(campaign: Campaign) -> Budget:
    bounds = campaign.budget
    unbounded = bounds.trials is None and bounds.wall is None and bounds.cost is None
    trials = DEFAULT_TRIALS if unbounded else bounds.trials
    return Budget(trials=trials, wall_s=bounds.wall, cost_s=bounds.cost, failures=bounds.failures)
