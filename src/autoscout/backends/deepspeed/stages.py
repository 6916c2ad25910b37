"""Stages of a grid that a budget suffices for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from autoscout.core.config import Config
from autoscout.space import Space


def affordable(space: Space, stages: Sequence[Sequence[str]], trials: int | None) -> list[list[str]]:
    """The stages, as wide as the trials allow: whole, or the later ones knob by knob; none where nothing suffices.

    Args:
        space: With its pinned knobs.
        stages: Groups of knobs, the most important first.
        trials: That the search may take, the default included; None for any number, where a searcher of the whole space does better.
    """
    groups = [[name for name in group if name in space.knobs and len(space.knobs[name].values) > 1] for group in stages]
    groups = [group for group in groups if group]
    if not groups or trials is None:
        return []
    for whole in range(len(groups), -1, -1):
        plan = [*groups[:whole], *([name] for group in groups[whole:] for name in group)]
        if experiments(space, plan) <= trials:
            return plan
    return []


def experiments(space: Space, stages: Sequence[Sequence[str]]) -> int:
    """Most that are measured: every stage has the winner so far in it, which is known."""
    return 1 + sum(_combinations(space, stage) - 1 for stage in stages)


def _combinations(space: Space, names: Sequence[str]) -> int:
    """Valid combinations of some knobs; one that is inactive in them counts once."""
    rows = product(*(space.knobs[name].values for name in names))
    configs = (_config(space, dict(zip(names, values, strict=True))) for values in rows)
    return max(1, len({config for config in configs if config is not None}))


def _config(space: Space, values: dict[str, object]) -> Config | None:
    """The configuration with these values as far as they are active; None where it is not valid."""
    chosen: dict[str, object] = {}
    for name, value in values.items():
        if name in space.undecided(Config(chosen)):  # type: ignore[arg-type]
            chosen[name] = value
    return Config(chosen) if space.feasible(Config(chosen)) else None  # type: ignore[arg-type]
