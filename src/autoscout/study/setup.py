"""A campaign resolved: plug-ins found by name, task and space declared, everything checked, nothing started or written."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.common.derived import price_faults
from autoscout.common.fields import refuse_if
from autoscout.common.text import suggestion
from autoscout.core import plugins
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault, SpaceError
from autoscout.core.protocols import Asked, Backend, Searcher
from autoscout.core.reference import References
from autoscout.core.task import Budget, Task
from autoscout.core.trial import Fidelity, Measurement
from autoscout.space import Space
from autoscout.study.asked import with_traffic
from autoscout.study.campaign import Campaign
from autoscout.study.final import Finals
from autoscout.study.own import Own, own_knobs, read_own
from autoscout.study.simplify import Simplify
from autoscout.study.stores import written_place

DEFAULT_TRIALS = 24  # when a campaign sets no bound at all
DEFAULT_PATIENCE = 16  # likewise, trials in a row that improve nothing: two thirds of those
DEFAULT_FINALISTS = 2
DEFAULT_ROUNDS = 5  # of the final, where answers are noisy
FRONT_FINALISTS = 5  # with several goals: points of the front that are measured again
SCREENED = 40  # trials of simplifying, no more than the search may have: enough to tell a change of 5 % from none at 4 % noise
FRONT_ROUNDS = 3  # and how often: the noise is pooled over all of them, so that few rounds give an interval


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A campaign with everything looked up and checked; nothing has been started or written."""

    campaign: Campaign
    backend: Backend
    searcher: type[Searcher]  # the class; its options are built when the study is assembled
    task: Task
    space: Space
    given: Config  # pinned knobs
    default: Config  # the engine's default with the pinned knobs
    baseline: Config | None  # what the user runs today; None where nobody says, or where it is the default
    first: tuple[Config, ...]  # known-good configurations, tried right after those two
    hints: tuple[Config, ...]  # those of them that the backend names, for a simulator to weigh
    left_out: tuple[str, ...]  # of the user's launch: what means nothing here, one sentence each
    name: str

    @property
    def finals(self) -> Finals:
        """What the final measures; none where every answer is exact, unless the campaign asks for one."""
        block, several = self.campaign.finals, self.task.objective.several
        usual = 0 if self.deterministic else FRONT_ROUNDS if several else DEFAULT_ROUNDS
        finalists = block.finalists if block.finalists is not None else FRONT_FINALISTS if several else DEFAULT_FINALISTS
        return Finals(
            finalists=finalists,
            rounds=usual if block.rounds is None else block.rounds,
            simplify=block.simplify and not several,
            references=1 + (self.baseline is not None),
        )

    @property
    def simplify(self) -> Simplify:
        """What may be measured to find the winner's changes that the gain does not need; nothing without a final that was not exact."""
        block, finals = self.campaign.finals, self.finals
        if finals.simplify and finals.trials:
            return Simplify(trials=max(finals.trials, min(SCREENED, self.task.budget.trials or SCREENED)))
        if finals.simplify and block.rounds is None and self.deterministic:
            return Simplify(trials=DEFAULT_ROUNDS * (finals.finalists + 1), exact=True)
        return Simplify()

    @property
    def deterministic(self) -> bool:
        """Whether the backend gives the same answer to the same configuration every time."""
        return self.backend.deterministic(self.task)

    @property
    def fidelity(self) -> Fidelity:
        """What the backend's own answers are: measured, or simulated."""
        return self.backend.fidelity(self.task)

    @property
    def executor(self) -> str:
        """Name of the executor: the campaign's, or else the one the backend prefers."""
        return self.campaign.execute.executor or self.backend.executor

    def hints_after(self, default: Measurement) -> tuple[Config, ...]:
        """Configurations to try next in view of the default's measurement, as far as the pinned knobs allow them."""
        hints = dict.fromkeys(self.backend.hints_after(default, self.task))
        return tuple(config for config in hints if config not in (self.default, self.baseline) and not self.space.check(config))

    def complete(self, values: Mapping[str, Value]) -> Config:
        """A configuration with these knobs; what they leave open is as in the default, as far as the space allows.

        Raises:
            SpaceError: the space does not have these knobs or values, or not together with the pinned ones.
        """
        return _completed(self.space, self.default, values, "asked for")

    @property
    def references(self) -> References:
        """What takes part in every final."""
        return References(self.default, self.baseline)

    @property
    def spec(self) -> dict[str, Any]:
        """The campaign as plain data with everything filled in, so that it means the same from any folder."""
        task, objective, store = self.task, self.task.objective, self.campaign.store
        one = {"metric": objective.metric, "direction": objective.direction.value}
        goal: dict[str, Any] = {
            **({"metrics": list(map(str, objective.goals))} if objective.several else one),
            "slo": list(map(str, objective.limits)),
            "guards": list(map(str, objective.guards)),
        }
        resolved = {
            "workload": task.workload,
            "hardware": task.hardware,
            "goal": {name: value for name, value in goal.items() if value},
            "store": store if store is None else written_place(store),
        }
        search = self.campaign.search.model_dump(mode="json", exclude_defaults=True)
        if "learn_from" in search:
            resolved["search"] = {**search, "learn_from": list(map(written_place, search["learn_from"]))}
        simulate = self.campaign.simulate.model_dump(mode="json", exclude_defaults=True)
        if "learn_from" in simulate:
            resolved["simulate"] = {**simulate, "learn_from": list(map(written_place, simulate["learn_from"]))}
        whole = {"system": task.system, "name": self.name, **self.campaign.model_dump(mode="json", exclude_defaults=True)}
        # Through JSON, as the store keeps tasks: tuples and the like become what a file can hold.
        return {**whole, **json.loads(json.dumps({name: value for name, value in resolved.items() if value})), "name": self.name}


def prepare(campaign: Campaign, backend: Backend | None = None, searcher: type[Searcher] | None = None, own: Own | None = None) -> Setup:
    """Look up and check everything a campaign names.

    Args:
        campaign: The study.
        backend: Used instead of the plug-in that the campaign names (a Python function that is at hand).
        searcher: Likewise.
        own: What the user runs today, where it was read already.

    Raises:
        ConfigError, SpaceError, PluginError: all faults of the part concerned at once.
    """
    backend = backend or _backend(campaign)
    own = own or read_own(campaign, backend)
    own = own._replace(campaign=with_traffic(own.campaign, backend))
    campaign = own.campaign
    task = dataclasses.replace(backend.task(campaign.description), budget=_budget(campaign))
    refuse_if([*price_faults(task), *_sharing_faults(campaign, backend)])
    backend, added = _widened(campaign, backend, task)
    fixed = {**backend.pinned(task), **campaign.set}
    space = _space(campaign, backend, task, fixed, added)
    pinned_config = pins(space, fixed)
    pinned = space.pin(pinned_config) if pinned_config else space
    default = pinned.project(space.default(), pinned_config) if pinned_config else space.default()
    own = own.settled(pinned, default)
    campaign = own.campaign if searcher else _preferred(own.campaign, backend, task, pinned)
    searcher = searcher or plugins.get("searcher", campaign.search.searcher)
    if _is_unbounded(campaign) and not searcher.ends_by_itself:
        task = dataclasses.replace(task, budget=dataclasses.replace(task.budget, patience=DEFAULT_PATIENCE))
    plugins.check_base("searcher", searcher, "searcher")
    baseline = _completed(pinned, default, own_knobs(campaign), "baseline")
    asked = _first(pinned, default, campaign.first)
    hints = tuple(config for config in backend.hints(task) if config not in (default, baseline, *asked) and not pinned.check(config))
    first = tuple(dict.fromkeys((*asked, *hints)))
    return Setup(
        campaign=campaign,
        backend=backend,
        searcher=searcher,
        task=task,
        space=pinned,
        given=pinned_config,
        default=default,
        baseline=None if baseline == default else baseline,
        first=first,
        hints=hints,
        left_out=own.left_out,
        name=campaign.name or f"{campaign.system}-{task.key[:8]}",
    )


def prepare_one(campaign: Campaign) -> tuple[Setup, Config]:
    """Likewise, for a look at one configuration: the launch of `from`, or else the default, with the pinned knobs laid over it."""
    if campaign.launch is None:
        setup = prepare(campaign.model_copy(update={"baseline": {}}))
    else:
        backend = _backend(campaign)
        own = read_own(campaign, backend, pins_go_over=True)
        setup = prepare(own.campaign, backend, own=own)
    return setup, setup.baseline or setup.default


def _backend(campaign: Campaign) -> Backend:
    kind: Any = plugins.get("backend", campaign.system)
    arguments = {"space": campaign.declared_space()} if kind.takes_space else {}
    backend: Backend = kind(**arguments)
    return backend


def _sharing_faults(campaign: Campaign, backend: Backend) -> list[Fault]:
    """Trials that are to share a process, of a backend that starts one for each."""
    count = campaign.measure.per_process
    if count == 1 or backend.shares_process:
        return []
    rule = f"{campaign.system} starts a process for every trial"
    return [Fault(where="measure", field="per_process", value=str(count), rule=rule, fix="Leave it out")]


def _preferred(campaign: Campaign, backend: Backend, task: Task, space: Space) -> Campaign:
    """The campaign with the backend's own way to search, where it has one and the campaign names no searcher."""
    if "searcher" in campaign.search.model_fields_set or campaign.search.options:
        return campaign
    preferred = backend.search(task, space)
    if preferred is None:
        return campaign
    search = campaign.search.model_copy(update={"searcher": preferred[0], "options": dict(preferred[1])})
    return campaign.model_copy(update={"search": search})


def _widened(campaign: Campaign, backend: Backend, task: Task) -> tuple[Backend, tuple[str, ...]]:
    """The backend with all knobs and values that the campaign names, and the knobs that it has by their entries in the space alone."""
    if backend.takes_space:  # whose knobs somebody has written down
        return backend, ()
    entries = campaign.knob_entries()
    usual: Any = backend.space(task)
    try:
        wider = backend.widened(task, Asked(knobs=entries, pinned=campaign.set, baseline=own_knobs(campaign), first=campaign.first))
    except ConfigError as error:
        raise ConfigError(campaign.placed(error.faults)) from error
    return wider, tuple(name for name in entries if name not in usual.knobs)


def _space(campaign: Campaign, backend: Backend, task: Task, fixed: Mapping[str, Value], added: Collection[str]) -> Space:
    space = backend.space(task)
    if not isinstance(space, Space):
        raise TypeError(f"the backend {campaign.system} must declare an autoscout.space.Space, not {type(space).__name__}")
    entries = {} if backend.takes_space else campaign.knob_entries()
    named = [{name.replace("-", "_"): value for name, value in values.items()} for values in (fixed, own_knobs(campaign), *campaign.first)]
    if resting := [name for name in backend.resting(task) if name not in entries and not any(name in values for values in named)]:
        space = space.rest(resting)
    if backend.takes_space:  # whose values somebody has written down
        return space
    space = space.reaching(*named)
    if not campaign.space:
        return space
    return space.constrain(*campaign.narrowing(space, backend.knob_keys, added))


def pins(space: Space, values: Mapping[str, Value], where: str = "set") -> Config:
    """Pinned knobs with the names and values the space knows: `1` for a fractional knob is `1.0`, `on` for a flag is true.

    Raises:
        SpaceError: names and values that the space does not have, all at once.
    """
    pinned: dict[str, Value] = {}
    faults: list[Fault] = []
    for written, value in values.items():
        name = written if written in space.knobs else written.replace("-", "_")
        if name not in space.knobs:
            faults.append(Fault(where=where, field=written, rule="there is no such knob", fix=suggestion(name, space.knobs)))
            continue
        try:
            pinned[name] = value if space.knobs[name].position(value) is not None else space.knobs[name].parse(str(value))
        except SpaceError as error:
            faults += [dataclasses.replace(fault, where=where, field=name) for fault in error.faults]
    if faults:
        raise SpaceError(faults)
    return Config(pinned)


def _first(space: Space, default: Config, settings: Sequence[Mapping[str, Value]]) -> tuple[Config, ...]:
    """Known-good configurations."""
    configs: list[Config] = []
    faults: list[Fault] = []
    for number, values in enumerate(settings):
        try:
            configs.append(_completed(space, default, values, f"first[{number}]"))
        except SpaceError as error:
            faults += error.faults
    if faults:
        raise SpaceError(faults)
    return tuple(configs)


def _completed(space: Space, default: Config, values: Mapping[str, Value], where: str) -> Config:
    """A configuration with these knobs; what they leave open is as in the default, as far as the space allows."""
    pinned = pins(space, values, where)
    return space.project({**default, **pinned}, pinned)


def _is_unbounded(campaign: Campaign) -> bool:
    bounds = campaign.budget
    return all(bound is None for bound in (bounds.trials, bounds.wall, bounds.cost, bounds.patience))


def _budget(campaign: Campaign) -> Budget:
    bounds = campaign.budget
    trials = DEFAULT_TRIALS if _is_unbounded(campaign) else bounds.trials
    return Budget(trials=trials, wall_s=bounds.wall, cost_s=bounds.cost, failures=bounds.failures, patience=bounds.patience)
