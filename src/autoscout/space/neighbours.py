"""Moves through a space that several searchers make: a fresh random configuration, a small change of a given one."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from autoscout.core.config import Config, Value
from autoscout.space import Knob, Space
from autoscout.space.mask import MANY, moves

_DRAWS = 40  # before a space is taken for nearly exhausted and looked through in order


def fresh(space: Space, rng: np.random.Generator, given: Config, taken: Collection[Config]) -> Config | None:
    """A random configuration that is not taken; None when none is left."""
    for _ in range(_DRAWS):
        config = space.sample(rng, given)
        if config is None:
            return None
        if config not in taken:
            return config
    return next((config for config in space.enumerate(given) if config not in taken), None)


def spread(space: Space, rng: np.random.Generator, given: Config, first: Collection[str]) -> Config | None:
    """A random configuration in which each value of the knobs in `first` (see `gates`) is equally likely; None when there is none.

    Where every configuration is equally likely, almost all have the branch with the most knobs below it: speculative decoding with
    its ten settings would be on in all but one of a hundred, however good it is to leave it off.
    """
    for name in first:
        if name not in given and (values := space.choices(name, given)):
            given = given.extend({name: values[int(rng.integers(len(values)))]})
    return space.sample(rng, given)


def changed(space: Space, config: Config, name: str, value: Value, given: Config) -> Config | None:
    """`config` with one knob set, the others repaired where that is needed; None when `given` does not allow it."""
    around = config.only(space.ancestors(name)).extend({name: value}).extend(given)
    return space.project(config, around) if space.feasible(around) else None


def mutate(space: Space, config: Config, rng: np.random.Generator, given: Config) -> Config | None:
    """`config` with one knob moved by chance: any other category, mostly a near value of an ordered knob; None when nothing moves."""
    names = [name for name in config if name not in given]
    for index in rng.permutation(len(names)):
        name = names[int(index)]
        others = options(space, config, name, given)
        if others:
            value = pick(space.knobs[name], config[name], others, rng)
            mutant = changed(space, config, name, value, given)
            if mutant is not None and mutant != config:
                return mutant
    return None


def options(space: Space, config: Config, name: str, given: Config) -> list[Value]:
    """What one knob of a configuration could be instead; of very many ordered values some, near ones and far ones."""
    around = config.only(space.ancestors(name)).extend(given)
    current, values = config[name], space.choices(name, around)
    if space.knobs[name].ordered and len(values) > MANY:
        return moves(space.knobs[name], current, values)
    return [value for value in values if value != current or type(value) is not type(current)]


def pick(knob: Knob, current: Value, others: list[Value], rng: np.random.Generator) -> Value:
    """One of `others`; for an ordered knob near ones are likelier, half as likely with every step."""
    if not knob.ordered:
        return others[int(rng.integers(len(others)))]
    at = knob.position(current) or 0
    steps = np.array([abs((knob.position(value) or 0) - at) for value in others], dtype=np.float64)
    weights = 0.5 ** np.argsort(np.argsort(steps, kind="stable"), kind="stable") + 1e-3
    return others[int(rng.choice(len(others), p=weights / weights.sum()))]
