"""Searcher `bluefin`: gradient steps from one or two measured points, as SelfTune (NSDI 2023), with weighted categories as OPPerTune."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config, Value
from autoscout.core.errors import require
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Proposal, Status, Trial
from autoscout.learning.answers import AnswerSet
from autoscout.space import Space
from autoscout.space.neighbours import fresh, mutate

_NOTHING = Config()
_SKIPS = 40  # directions in a row that lead to known configurations, before a neighbour of the centre is taken
_BLOCK = 10  # directions that are worked out at once
_MEMORY = 0.99  # of RMSprop's mean square
_LEAST_WEIGHT = 1e-6  # of a category

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class BlueFinOptions:
    """How `bluefin` steps.

    Attributes:
        points: Measurements per step: 2 (both sides of the centre) or 1.
        rate: Length of a step.
        radius: How far from the centre is measured, on knobs scaled to 0..1.
        step: `rmsprop` (OPPerTune's) or `sgd` (SelfTune's).
    """

    points: int = 2
    rate: float = 0.02
    radius: float = 0.1
    step: str = "rmsprop"

    def __post_init__(self) -> None:
        rules = {
            "points": (self.points in (1, 2), "must be 1 or 2"),
            "rate": (0 < self.rate <= 1, "must be above 0 and at most 1"),
            "radius": (0 < self.radius < 0.5, "must be above 0 and below 0.5"),
            "step": (self.step in ("rmsprop", "sgd"), "must be rmsprop or sgd"),
        }
        require("bluefin", self, rules)


@dataclass
class _Pair:
    """What is known of the points of one step: where they were, and their losses by side (1, -1)."""

    centre: Vector
    chosen: list[int]
    losses: dict[int, float] = field(default_factory=dict)


_Beginning = tuple[tuple[float, ...], float]  # the first centre, and the loss that rewards are relative to
_Done = tuple[int, tuple[float, ...], tuple[int, ...]]  # number, losses by side and categories of a step


@dataclass
class _State:
    """Where the search is: the centre, the mean square of its gradients, and the weights of the categories."""

    centre: Vector
    square: Vector
    weights: list[Vector]
    steps: int = 0
    mean: float = 0.0  # of the rewards so far
    worst: float = 0.0  # reward so far


class BlueFinSearcher(Searcher):
    """Numbers follow the gradient that one or two points around a centre show; categories are drawn by exponential weights.

    The first centre is the best configuration told from elsewhere (the default, in a study), else the default. Wanted points are projected
    onto the valid configurations. A trial that was predicted instead of measured moves the centre too, but never counts as the best:
    who rejects a proposal tells what it was predicted to give.

    All state is worked out from the told trials: every proposal notes its step, its side and the centre it was measured from.
    """

    def __init__(self, space: Space, task: Task, seed: int = 0, options: BlueFinOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or BlueFinOptions()
        self._maximise = task.objective.direction is Direction.MAXIMIZE
        self._objective = task.objective
        self._told = AnswerSet(space, task.objective)
        self._own: dict[tuple[int, int], tuple[int, float, tuple[float, ...], tuple[int, ...]]] = {}
        self._directions: dict[int, Vector] = {}
        self._uniforms: dict[int, Vector] = {}
        self._replayed: tuple[_Beginning, list[_Done], _State] | None = None  # the last state, and the steps that led to it
        self._projected: dict[tuple[tuple[int, ...], tuple[int, ...], Config], Config] = {}  # near each other, most points are one config
        self._numbers = [name for name, knob in space.knobs.items() if knob.ordered and len(knob.values) > 1]
        self._categories = [name for name, knob in space.knobs.items() if not knob.ordered and len(knob.values) > 1]
        self._last = np.asarray([len(space.knobs[name].values) - 1 for name in self._numbers], np.float64)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._told.add(trials)
        for trial in trials:
            notes = trial.proposal.origin.notes
            if trial.measurement.status is Status.ABORTED or trial.proposal.origin.by != "bluefin" or "pair" not in notes:
                continue
            key = int(notes["pair"]), int(notes["side"])
            entry = (
                -int(trial.measurement.fidelity),
                self._objective.loss(trial.measurement),
                tuple(map(float, notes["centre"])),
                tuple(map(int, notes["chosen"])),
            )
            if len(entry[2]) == len(self._numbers) and len(entry[3]) == len(self._categories):
                self._own[key] = min(entry, self._own.get(key, entry))

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1 or not self._space.feasible(given):
            return []
        taken = self._told.taken(pending)
        under_way = {
            (int(proposal.origin.notes["pair"]), int(proposal.origin.notes["side"])): proposal
            for proposal in pending
            if proposal.origin.by == "bluefin" and "pair" in proposal.origin.notes
        }
        pairs = self._pairs(given)
        state = self._state(pairs, given)
        proposals: list[Proposal] = []
        for number, pair in pairs.items():  # the other side of points that are known
            for side in self._sides():
                if len(proposals) < n and side not in pair.losses and (number, side) not in under_way:
                    self._add(proposals, number, side, pair, given, taken, len(pending))
        new = max([-1, *pairs, *(pair for pair, _ in under_way)]) + 1
        drawn = self._drawn(range(new, new + _SKIPS + n), state, given) if len(proposals) < n else ()
        for number, pair, both in drawn:
            if len(proposals) >= n:
                break
            if all(config in taken for config in both) or (len(both) == 2 and both[0] == both[1]):
                continue
            for side in self._sides():
                if len(proposals) < n:
                    self._add(proposals, number, side, pair, given, taken, len(pending))
        return proposals + self._others(n - len(proposals), state, given, taken, len(pending) + len(proposals))

    def _sides(self) -> tuple[int, ...]:
        return (1, -1) if self._options.points == 2 and self._numbers else (1,)

    def _add(self, proposals: list[Proposal], number: int, side: int, pair: _Pair, given: Config, taken: set[Config], before: int) -> None:
        config = self._config(number, side, pair, given)
        if config in taken:
            return
        taken.add(config)
        notes = {
            "round": self._told.count,
            "place": before + len(proposals),
            "pair": number,
            "side": side,
            "centre": [round(float(value), 6) for value in pair.centre],
            "chosen": list(pair.chosen),
        }
        proposals.append(Proposal(config=config, origin=Origin(by="bluefin", notes=notes)))

    def _others(self, n: int, state: _State, given: Config, taken: set[Config], index: int) -> list[Proposal]:
        """Where the steps lead only to what is known: neighbours of the centre, in the end anything."""
        proposals: list[Proposal] = []
        for number in range(n):
            rng = stream(self._seed, "bluefin", "others", self._told.count, index + number)
            config = self._project(state.centre, [int(np.argmax(weight)) for weight in state.weights], given)
            for _ in range(10):
                if config not in taken:
                    break
                config = mutate(self._space, config, rng, given) or config
            if config in taken or not config.extends(given):
                any_left = fresh(self._space, rng, given, taken)
                if any_left is None:
                    break
                config = any_left
            taken.add(config)
            notes = {"round": self._told.count, "place": index + number, "how": "near"}
            proposals.append(Proposal(config=config, origin=Origin(by="bluefin", notes=notes)))
        return proposals

    def _direction(self, number: int) -> Vector:
        if number not in self._directions:
            drawn = stream(self._seed, "bluefin", "direction", number).normal(size=len(self._numbers))
            self._directions[number] = drawn / max(float(np.linalg.norm(drawn)), 1e-12)
        return self._directions[number]

    def _uniform(self, number: int) -> Vector:
        if number not in self._uniforms:
            self._uniforms[number] = stream(self._seed, "bluefin", "categories", number).random(len(self._categories))
        return self._uniforms[number]

    def _drawn(self, numbers: range, state: _State, given: Config) -> Iterator[tuple[int, _Pair, list[Config]]]:
        """New steps and their points; some at once, because near the centre most lead to what is known."""
        sums = [np.cumsum(_mixed(weight, state.steps + 1)) for weight in state.weights]
        for first in range(0, len(numbers), _BLOCK):
            block = numbers[first : first + _BLOCK]
            directions = np.asarray([self._direction(number) for number in block])
            uniforms = np.asarray([self._uniform(number) for number in block])
            drawn = [np.searchsorted(each / each[-1], uniforms[:, column], side="right").tolist() for column, each in enumerate(sums)]
            points = [self._places(state.centre + side * self._options.radius * directions) for side in self._sides()]
            for row, number in enumerate(block):
                pair = _Pair(centre=state.centre, chosen=[int(column[row]) for column in drawn])
                yield number, pair, [self._nearest(tuple(indices[row]), pair.chosen, given) for indices in points]

    def _config(self, number: int, side: int, pair: _Pair, given: Config) -> Config:
        return self._project(pair.centre + side * self._options.radius * self._direction(number), pair.chosen, given)

    def _project(self, point: Vector, chosen: Sequence[int], given: Config) -> Config:
        return self._nearest(tuple(self._places(point)), chosen, given)

    def _places(self, points: Vector) -> list[Any]:
        """The values nearest to one or more points, as places in the knobs' values."""
        indices: list[Any] = np.rint(np.clip(points, 0.0, 1.0) * self._last).astype(np.int64).tolist()
        return indices

    def _nearest(self, indices: tuple[int, ...], chosen: Sequence[int], given: Config) -> Config:
        key = indices, tuple(chosen), given
        if key not in self._projected:
            knobs = self._space.knobs
            partial_config: dict[str, Value] = {name: knobs[name].values[index] for name, index in zip(self._numbers, indices, strict=True)}
            for name, position in zip(self._categories, chosen, strict=True):
                values = knobs[name].values
                partial_config[name] = values[min(position, len(values) - 1)]
            self._projected[key] = self._space.project(partial_config, given)
        return self._projected[key]

    def _pairs(self, given: Config) -> dict[int, _Pair]:
        """Steps that were begun, in order; a side that somebody else measured counts as known."""
        pairs: dict[int, _Pair] = {}
        for (number, side), (_, loss, centre, chosen) in sorted(self._own.items()):
            pair = pairs.setdefault(number, _Pair(centre=np.asarray(centre), chosen=list(chosen)))
            pair.losses[side] = loss
        losses = {answer.config: answer.loss for answer in self._told.answers()}
        for number, pair in pairs.items():
            for side in self._sides():
                if side not in pair.losses and (config := self._config(number, side, pair, given)) in losses:
                    pair.losses[side] = losses[config]
        return pairs

    def _start(self, given: Config) -> Vector:
        others = [answer for answer in self._told.answers() if answer.origin.by != "bluefin" and math.isfinite(answer.loss)]
        best = min(others, key=lambda answer: (answer.loss, answer.age), default=None)
        config = best.config if best is not None else self._space.project(self._space.default(), given)
        indices = []
        for name in self._numbers:
            knob = self._space.knobs[name]
            position = knob.position(config[name]) if name in config else None
            indices.append((position if position is not None else knob.position(knob.default) or 0) / (len(knob.values) - 1))
        return np.asarray(indices)

    def _state(self, pairs: dict[int, _Pair], given: Config) -> _State:
        """Replay all finished steps in order, from where the last replay ended if it went the same way."""
        first = next(iter(pairs.values()), None)
        centre = first.centre.copy() if first is not None else self._start(given)
        finite = [answer.loss for answer in self._told.answers() if math.isfinite(answer.loss)]
        base = finite[0] if finite else next((loss for pair in pairs.values() for loss in pair.losses.values() if math.isfinite(loss)), 1.0)
        beginning = tuple(centre.tolist()), base
        finished = {number: pair for number, pair in pairs.items() if all(side in pair.losses for side in self._sides())}
        steps = [(number, tuple(pair.losses[side] for side in self._sides()), tuple(pair.chosen)) for number, pair in finished.items()]
        if self._replayed is not None and self._replayed[0] == beginning and self._replayed[1] == steps[: len(self._replayed[1])]:
            count, state = len(self._replayed[1]), self._replayed[2]
        else:
            sizes = [len(self._space.knobs[name].values) for name in self._categories]
            weights = [np.full(size, 1.0 / size) for size in sizes]
            count, state = 0, _State(centre=centre, square=np.zeros(len(centre)), weights=weights)
        for number, *_ in steps[count:]:
            self._step(state, number, finished[number], base)
        self._replayed = beginning, steps, state
        return state

    def _step(self, state: _State, number: int, pair: _Pair, base: float) -> None:
        rewards = {}
        for side in self._sides():
            reward = self._reward(pair.losses[side], base)
            rewards[side] = state.worst if reward is None else reward
            state.worst = min(state.worst, rewards[side]) if state.steps else rewards[side]
        size, options = len(self._numbers), self._options
        if len(rewards) == 2:
            scale = max(abs(rewards[1]), abs(rewards[-1]), 1e-12)
            slope = (rewards[1] - rewards[-1]) / (2 * scale)
        else:
            slope = rewards[1] - state.mean  # the mean of earlier rewards takes nothing from the gradient's mean, and much from its noise
        gradient = size * slope * self._direction(number) / options.radius
        if options.step == "rmsprop":
            state.square = _MEMORY * state.square + (1 - _MEMORY) * gradient**2
            gradient = gradient / (np.sqrt(state.square) + 1e-8)
        state.centre = np.clip(state.centre + options.rate * gradient, options.radius, 1 - options.radius)
        state.steps += 1
        reward = float(np.mean(list(rewards.values())))
        state.mean += (reward - state.mean) / state.steps
        for weight, position in zip(state.weights, pair.chosen, strict=True):
            _reweigh(weight, position, reward / max(1.0, abs(state.worst)), state.steps)

    def _reward(self, loss: float, base: float) -> float | None:
        """How many times better than the first answer; None for a failure."""
        if not math.isfinite(loss):
            return None
        if self._maximise:
            return -loss / max(abs(base), 1e-12)
        return base / loss if base > 0 and loss > 0 else 1.0 + (base - loss) / max(abs(base), 1e-12)


def _mixed(weight: Vector, step: int) -> Vector:
    """Chances of categories: their weights, mixed with an even share that shrinks with the steps."""
    even = min(1.0, math.sqrt(len(weight) / step))
    mixed = (1 - even) * weight + even / len(weight)
    chances: Vector = mixed / mixed.sum()
    return chances


def _reweigh(weight: Vector, position: int, reward: float, step: int) -> None:
    """Exponential weights: `weight *= exp(rate * reward / probability)`."""
    size = len(weight)
    rate = math.sqrt(math.log(size) / (size * step))
    weight[position] *= math.exp(min(50.0, rate * reward / float(_mixed(weight, step)[position])))
    weight /= weight.sum()
    np.maximum(weight, _LEAST_WEIGHT, out=weight)
    weight /= weight.sum()


__all__ = ["BlueFinSearcher"]
