"""Warm start: which past studies a new one learns from. Decided once, when a study begins, and kept in the store with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.history import ALIKE, Past, recall
from autoscout.core.log import logger
from autoscout.core.protocols import Store
from autoscout.core.task import Task
from autoscout.space import Space
from autoscout.study.plugin_options import options_type

log = logger(__name__)

KEY = "past"
"""Where the record of a study keeps what it learns from, and the option by which a searcher takes it."""
STUDIES = 3
STORE = "store.db"


def begin(store: Store, task: Task, name: str) -> tuple[Past, ...]:
    """What the study `name` learns from: as its record says, or the most similar studies in the store when it is new."""
    known = kept(store, name)
    return recall(store, task, STUDIES, exclude=(name,), least=ALIKE) if known is None else known


def kept(store: Store, name: str) -> tuple[Past, ...] | None:
    """What the record of a study says it learns from; None when there is no such study."""
    record = next((record for record in store.studies() if record.name == name), None)
    if record is None:
        return None
    try:
        return TypeAdapter(tuple[Past, ...]).validate_python(record.spec.get(KEY) or ())
    except (ValidationError, ConfigError):
        log.warning("what the study %s learnt from cannot be read; it goes on without", name)
        return ()


def written(past: Sequence[Past]) -> dict[str, Any]:
    """The entry for the record of a study."""
    return {KEY: [study.to_json() for study in past]} if past else {}


def elsewhere(places: Iterable[str], task: Task, name: str) -> tuple[Past, ...]:
    """What studies in other places measured, whatever their similarity.

    Args:
        places: Result folders, folders of result folders, store files, or URLs of stores.
        task: What is about to be tuned.
        name: The study that asks.

    Raises:
        ConfigError: places where there is no study, all at once.
        StoreError: a store cannot be read.
    """
    found: list[Past] = []
    faults: list[Fault] = []
    for place in places:
        stores = _stores(place)
        if not stores:
            rule, fix = "there is no study", "Give a result folder, a folder of them, or a store"
            faults.append(Fault(where="search", field="learn_from", value=place, rule=rule, fix=fix))
        for target in stores:
            with closing(plugins.get("store", "sql")(target, create=False)) as store:
                found += recall(store, task, STUDIES, exclude=(name,))
    if faults:
        raise ConfigError(faults)
    return tuple(found)


def _stores(place: str) -> list[str]:
    if "://" in place:
        return [place]
    path = Path(place)
    if path.is_dir():
        here = path / STORE
        return [str(here)] if here.is_file() else sorted(map(str, path.glob(f"*/{STORE}")))
    return [place] if path.is_file() else []


def chosen(past: Iterable[Past]) -> tuple[Past, ...]:
    """The most similar ones, each study once."""
    ranked = sorted(past, key=lambda study: -study.similarity)
    return tuple(study for place, study in enumerate(ranked) if study not in ranked[:place])[:STUDIES]


def learns(kind: type) -> bool:
    """Whether a searcher takes past studies itself."""
    wanted = options_type(kind)
    return wanted is not None and any(field.name == KEY for field in dataclasses.fields(wanted))


def winners(past: Iterable[Past], space: Space, given: Config) -> tuple[Config, ...]:
    """The best configuration of each study, as near as the space allows: for searchers that take no past themselves."""
    best = [study.best.config for study in past if study.best is not None]
    return tuple(dict.fromkeys(space.project(config, given) for config in best if config.keys() & space.knobs.keys()))


def sentence(past: Sequence[Past]) -> str:
    """`warm start from 40 trials of study a (similarity 0.7)`."""
    return f"warm start from {'; '.join(map(str, past))}"
