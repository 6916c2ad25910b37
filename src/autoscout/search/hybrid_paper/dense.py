"""Coordinate search over the dense knobs (paper section 3.2): one knob at a time, with direction and momentum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscout.core.config import Config, Value
from autoscout.space import Space

MAX_STEP = 16


@dataclass(frozen=True)
class Move:
    """A step of one knob.

    Attributes:
        knob: Which.
        direction: 1 up, -1 down.
        step: How many allowed values far.
    """

    knob: str
    direction: int
    step: int


@dataclass(frozen=True)
class DenseState:
    """State of the search. All knobs keep their state; one that a structure disables is passed over, never forgotten.

    Attributes:
        current: Index of the knob being moved.
        directions: 1 or -1 by knob; 1 when missing.
        steps: Length of the next step by knob; 1 when missing.
    """

    current: int = 0
    directions: Mapping[str, int] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)

    def after(self, move: Move, success: bool, names: Sequence[str]) -> DenseState:
        """After a success, the same direction with a longer step; after a failure, the other direction later, and the next knob now."""
        index = names.index(move.knob)
        if success:
            steps = {**self.steps, move.knob: min(MAX_STEP, 2 * move.step)}
            return replace(self, current=index, directions={**self.directions, move.knob: move.direction}, steps=steps)
        return DenseState(
            current=(index + 1) % len(names),
            directions={**self.directions, move.knob: -move.direction},
            steps={**self.steps, move.knob: 1},
        )


def propose(space: Space, state: DenseState, base: Config, names: Sequence[str]) -> tuple[Move, Config] | None:
    """The next candidate from `base`: the current knob moved along its direction among the values its structure allows.

    A knob that is masked or has one value left is passed over; at the end of its range it turns round. None when nothing moves.
    """
    structure = space.structure(base)
    allowed = space.mask(structure)
    for offset in range(len(names)):
        name = names[(state.current + offset) % len(names)]
        values = allowed.get(name, ())
        if name not in base or len(values) < 2:
            continue
        for sign in (1, -1):
            direction = sign * state.directions.get(name, 1)
            step = state.steps.get(name, 1) if sign == 1 else 1
            wish = _moved(values, base[name], direction * step)
            if wish is None:
                continue
            candidate = space.project(base, structure.extend({name: wish}))
            if candidate != base:
                return Move(name, direction, step), candidate
    return None


def _moved(values: Sequence[Value], value: Value, by: int) -> Value | None:
    """The allowed value `by` places further, at most the last; None at the end."""
    at = next((index for index, other in enumerate(values) if other == value and type(other) is type(value)), None)
    if at is None:
        return values[0]
    place = min(len(values) - 1, max(0, at + by))
    return None if place == at else values[place]
