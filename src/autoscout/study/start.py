"""What a study starts from: past studies, or simulators. Decided once, when it begins, and kept in its record."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import TypeAdapter, ValidationError

from autoscout.common.text import plural
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError, ConfigError, Fault, StoreError
from autoscout.core.history import MIN_SIMILARITY, Past, past_of, recall
from autoscout.core.log import logger
from autoscout.core.protocols import Searcher, Simulator, Store, StudyRecord
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Trial
from autoscout.space import Space
from autoscout.space.interchange.optuna import is_optuna, read_optuna
from autoscout.study.folder import Folder
from autoscout.study.learned import learned
from autoscout.study.profiling import PROFILED
from autoscout.study.setup import Setup
from autoscout.study.stores import open_store, stores_at

AUTO, NONE = "auto", "none"
PRIOR, ADAPTIVE = "prior", "adaptive"
PAST, INFORMED_BY, LEARNED, PROFILED_COUNT = "past", "informed_by", "simulators_learned", "profiled"
"""Entries of a study's record; `past` is also the option by which a searcher takes past studies."""
STUDIES = 3  # past studies to learn from, at most
DRAWN = 16  # configurations predicted besides the default, which alone may be said not to run

log = logger(__name__)


@dataclass(frozen=True, kw_only=True)
class StartingPoint:
    """What a study knows before it measures anything.

    Attributes:
        past: Similar past studies.
        simulator: Name of the simulator in use, or of several with commas between them; empty for none.
        use: How it is used: `prior` (the searcher is told predictions), `adaptive` (it answers until it proves wrong), or empty.
        automatic: Whether the simulator was found for the study rather than named by the campaign.
        learned: What the simulators learn from before the study.
        profiled: Configurations that are measured before the search for them to learn from.
    """

    past: tuple[Past, ...] = ()
    simulator: str = ""
    use: str = ""
    automatic: bool = False
    learned: tuple[Trial, ...] = ()
    profiled: int = 0

    @classmethod
    def decide(cls, setup: Setup, folder: Folder | None = None) -> Self:
        """As the record of the study says, or found now for one that is new. Writes nothing.

        Raises:
            ConfigError, StoreError: what the campaign names as `learn_from` is not there or cannot be read; a simulator is to be the prior
                of a searcher that takes none.
        """
        search = setup.campaign.search
        named, use = _named(setup)
        remembers = search.warm_start and PAST not in search.options and use != PRIOR
        similar: tuple[Past, ...] = ()
        with suppress(StoreError), closing(open_store(place_of(setup, folder), create=False)) as store:  # there may be none yet
            record = _record(store, setup.name)
            if record is not None:
                return cls.from_record(setup, record) if remembers else cls.from_record(setup, record)._without_past()
            if remembers:
                similar = recall(store, setup.task, STUDIES, exclude=(setup.name,), least=MIN_SIMILARITY, fidelity=setup.fidelity)
        past = _chosen((*similar, *_from_other_stores(setup))) if remembers else ()
        if setup.campaign.simulate.entries or setup.campaign.simulate.simulator != AUTO:
            return cls(past=past, simulator=named, use=use, learned=learned(setup), profiled=_profiled(setup))
        if past or PAST in search.options or not setup.searcher.takes_predictions:
            return cls(past=past)
        simulator = find_simulator(setup.space, setup.task)
        return cls(simulator=simulator, use=PRIOR if simulator else "", automatic=bool(simulator))

    @classmethod
    def recorded(cls, setup: Setup, folder: Folder | None = None) -> Self:
        """As the record of the study says; nothing is looked for where there is no record."""
        with suppress(StoreError), closing(open_store(place_of(setup, folder), create=False)) as store:
            record = _record(store, setup.name)
            if record is not None:
                return cls.from_record(setup, record)
        return cls()

    @classmethod
    def from_record(cls, setup: Setup, record: StudyRecord) -> Self:
        """As a study's record says."""
        past: tuple[Past, ...] = ()
        try:
            past = TypeAdapter(tuple[Past, ...]).validate_python(record.spec.get(PAST) or ())
        except (ValidationError, ConfigError):
            log.warning("what the study %s learnt from cannot be read; it resumes without", record.name)
        if setup.campaign.simulate.entries or setup.campaign.simulate.simulator != AUTO:
            named, use = _named(setup)
            count = record.spec.get(PROFILED_COUNT)
            rows, profiled = _kept_trials(record), count if isinstance(count, int) else 0
            return cls(past=past, simulator=named, use=use, learned=rows, profiled=profiled)
        entry = record.spec.get(INFORMED_BY)
        name = entry if isinstance(entry, str) and setup.searcher.takes_predictions else ""
        return cls(past=past, simulator=name, use=PRIOR if name else "", automatic=bool(name))

    def to_record(self) -> dict[str, Any]:
        """The entries for the record of the study."""
        past = {PAST: [study.to_json() for study in self.past]} if self.past else {}
        lessons = {LEARNED: [trial.to_json() for trial in self.learned]} if self.learned else {}
        profiled = {PROFILED_COUNT: self.profiled} if self.profiled else {}
        return {**past, **({INFORMED_BY: self.simulator} if self.automatic else {}), **lessons, **profiled}

    def options(self, searcher: type[Searcher]) -> dict[str, Any]:
        """The option `past` for a searcher that takes it."""
        return {PAST: [study.to_json() for study in self.past]} if self.past and searcher.learns_from_past else {}

    def winners(self, setup: Setup) -> tuple[Config, ...]:
        """For searchers that take no past themselves: the best configuration of each study, as near as the space allows."""
        if setup.searcher.learns_from_past:
            return ()
        best = [study.best.config for study in self.past if study.best is not None]
        configs = (config for config in best if config.keys() & setup.space.knobs.keys())
        return tuple(dict.fromkeys(setup.space.project(config, setup.given) for config in configs))

    def names(self, setup: Setup) -> list[str]:
        """The simulators in use."""
        return [self.simulator] if self.automatic else [entry.name for entry in setup.campaign.simulate.entries]

    def describe(self) -> dict[str, str]:
        """Sentences for people, each with the flag that does without it."""
        sources = {f"Warm start from {'; '.join(map(str, self.past))}": "--no-warm-start"} if self.past else {}
        if self.automatic:
            sources[f"Using the `{self.simulator}` simulator as a prior"] = "--simulator none"
        if self.learned:
            sources[f"The simulators {self.simulator} learn from {plural(len(self.learned), 'earlier trial')}"] = "simulate.learn_from: []"
        if self.profiled:
            sources[f"Measuring {plural(self.profiled, 'configuration')} first, for {self.simulator} to learn from"] = "simulate.profile: 0"
        return sources

    def _without_past(self) -> Self:
        return replace(self, past=())


def place_of(setup: Setup, folder: Folder | None) -> str:
    """Where the store of a study is: as the campaign says, else in its folder, else in memory."""
    return setup.campaign.store or (str(folder.store) if folder else "memory:")


def understands(simulator: Simulator, space: Space, task: Task) -> str:
    """Why a simulator cannot predict a task; empty when it can: it reads a knob, complains of nothing and has an answer."""
    if not simulator.knobs & space.knobs.keys():
        return "it reads none of the knobs"
    rng = stream(0, "understands")
    drawn = (space.sample(rng) for _ in range(DRAWN))
    try:
        values = simulator.predict([space.default(), *(config for config in drawn if config is not None)], task).value
    except ConfigError as error:
        return "; ".join(str(fault) for fault in error.faults)
    return "" if (np.nan_to_num(values) > 0.0).any() else f"it has no answer for {task.objective.metric}"


def find_simulator(space: Space, task: Task) -> str:
    """Name of the first simulator, of those that need no trials, that understands a task; empty when there is none."""
    for name in plugins.available("simulator"):
        try:
            kind = plugins.get("simulator", name)
        except AutoScoutError:
            continue  # its packages are not installed
        if not kind.needs_no_trials or (isinstance(kind.knobs, frozenset) and not kind.knobs & space.knobs.keys()):
            continue
        if not understands(kind(), space, task):
            return name
    return ""


def _named(setup: Setup) -> tuple[str, str]:
    """The simulator that the campaign names, and how it is used; empty for none."""
    block, search = setup.campaign.simulate, setup.campaign.search.searcher
    if not block.entries:
        return "", ""
    able = setup.searcher.takes_predictions
    if block.use == PRIOR and not able:
        rule, fix = f"the searcher {search} cannot be told predictions", "Take the searcher hybrid, or use: adaptive"
        raise ConfigError(Fault(where="simulate", field="use", value=block.use, rule=rule, fix=fix))
    use = block.use if block.use != AUTO else PRIOR if able else ADAPTIVE
    if use == ADAPTIVE and setup.task.objective.several:
        rule, fix = "a simulator can answer for one goal only", "Take the searcher hybrid with use: prior, or simulator: none"
        raise ConfigError(Fault(where="simulate", field="use", value=use, rule=rule, fix=fix))
    return ", ".join(map(str, block.entries)), use


def _profiled(setup: Setup) -> int:
    """Configurations to measure before the search: as the campaign says, else some where a simulator has nothing to learn from."""
    block = setup.campaign.simulate
    learning = any(not plugins.get("simulator", entry.name).needs_no_trials for entry in block.entries)
    trials = setup.task.budget.trials
    count = (PROFILED if trials is None else min(PROFILED, trials // 4)) if learning and not block.learn_from else 0
    return count if block.profile is None else block.profile


def _kept_trials(record: StudyRecord) -> tuple[Trial, ...]:
    rows: Any = record.spec.get(LEARNED) or ()
    try:
        return tuple(Trial.from_json(each) for each in rows)
    except (KeyError, ValueError, TypeError, AttributeError):
        log.warning("what the simulators of the study %s learned from cannot be read; it resumes without", record.name)
        return ()


def _record(store: Store, name: str) -> StudyRecord | None:
    return next((record for record in store.studies() if record.name == name), None)


def _from_other_stores(setup: Setup) -> tuple[Past, ...]:
    """What studies in the places that a campaign names as `learn_from` measured, whatever their similarity."""
    past: list[Past] = []
    faults: list[Fault] = []
    for place in setup.campaign.search.learn_from:
        if is_optuna(Path(place)):
            for study in read_optuna(Path(place)):
                one = past_of(1.0, study.name, study.trials(setup.task.objective), setup.task)
                past += [one] if one is not None else []
            continue
        stores = stores_at(place)
        if not stores:
            rule, fix = "there is no study", "Give a result folder, a folder of them, or a store"
            faults.append(Fault(where="search", field="learn_from", value=place, rule=rule, fix=fix))
        for target in stores:
            with closing(open_store(target, create=False)) as store:
                past += recall(store, setup.task, STUDIES, exclude=(setup.name,), fidelity=setup.fidelity)
    if faults:
        raise ConfigError(faults)
    return tuple(past)


def _chosen(past: Iterable[Past]) -> tuple[Past, ...]:
    """The most similar ones, each study once."""
    ranked = sorted(past, key=lambda study: -study.similarity)
    return tuple(study for place, study in enumerate(ranked) if study not in ranked[:place])[:STUDIES]
