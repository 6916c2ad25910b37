"""Searcher `udo`: Monte Carlo tree search over heavy knobs, with a search over light knobs under each, as UDO (Wang et al., VLDB 2021)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autoscout.core.config import Config, Value
from autoscout.core.errors import require
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.learning.answers import Answer, AnswerSet
from autoscout.space import Space
from autoscout.space.neighbours import fresh, mutate

_NOTHING = Config()
_TRIES = 12  # walks to exhausted settings before a random configuration is taken
_CHANGES = 4  # of a light setting that is known


@dataclass(frozen=True, kw_only=True)
class UdoOptions:
    """How `udo` walks its trees.

    Attributes:
        exploration: Weight of the bonus for children that were seen rarely.
        light_steps: Light settings that are tried under one heavy setting before the next one is set up.
        delay: Heavy settings that are chosen together when several proposals are asked for; they are put in an order in which
            neighbours share most heavy knobs, so that little has to be set up anew.
        heavy: Knobs that are expensive to change; by default those that need a restart, or the sparse ones where all or none do.
    """

    exploration: float = 0.2
    light_steps: int = 3
    delay: int = 4
    heavy: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rules = {
            "exploration": (self.exploration >= 0, "must not be negative"),
            "light_steps": (self.light_steps >= 1, "must be at least 1"),
            "delay": (self.delay >= 1, "must be at least 1"),
        }
        require("udo", self, rules)


@dataclass
class _Node:
    """A partial configuration: how often it was seen, and how well it fared."""

    visits: int = 0
    total: float = 0.0
    children: dict[Value, _Node] = field(default_factory=dict)


class UdoSearcher(Searcher):
    """Two levels of UCT.

    The upper tree decides the heavy knobs in order; the reward of a heavy setting is the best that any light setting under it reached,
    and it is known only after `light_steps` of them (delayed feedback). The lower tree, one per heavy setting, decides the rest.
    Both trees are worked out from the told trials at every ask: nothing else is remembered.
    """

    def __init__(self, space: Space, task: Task, seed: int = 0, options: UdoOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or UdoOptions()
        self._trials = AnswerSet(space, task.objective)
        self._heavy = _heavy(space, self._options.heavy)
        self._light = tuple(name for name in space.knobs if name not in self._heavy)

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1 or not self._space.feasible(given):
            return []
        taken = self._trials.taken(pending)
        rewards = _rewards(self._trials.answers())
        upper = self._upper(rewards, pending)
        proposals: list[tuple[Config, str]] = []
        current = self._current(given)
        for index in range(len(pending), len(pending) + n):
            rng = stream(self._seed, "udo", self._trials.count, index)
            config, why = self._next(rng, rewards, upper, current, given, taken)
            if config is None:
                break
            taken.add(config)
            proposals.append((config, why))
            # a virtual visit without reward spreads the proposals of one batch
            _visit(upper, [config.get(name) for name in self._heavy if name in config], 0.0)
            current = None if self._options.delay > 1 else self._setting(config)
        return [
            Proposal(config=config, origin=self._origin(why, len(pending) + index))
            for index, (config, why) in enumerate(self._in_order(proposals))
        ]

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials.add(trials)

    def _origin(self, why: str, index: int) -> Origin:
        return Origin(by="udo", notes={"round": self._trials.count, "place": index, "level": why})

    def _setting(self, config: Config) -> Config:
        return config.only(self._heavy)

    def _current(self, given: Config) -> Config | None:
        """The heavy setting that is set up now, when it has not had all its light steps yet."""
        answers = self._trials.answers()
        if not answers or not self._light:
            return None
        setting = self._setting(answers[-1].config)
        streak = 0
        for answer in reversed(answers):
            if self._setting(answer.config) != setting:
                break
            streak += 1
        fits = self._space.feasible(setting.extend(given)) and all(setting.get(name, value) == value for name, value in given.items())
        return setting if streak < self._options.light_steps and fits else None

    def _upper(self, rewards: Sequence[tuple[Answer, float]], pending: Sequence[Proposal]) -> _Node:
        best: dict[Config, float] = {}
        counts: dict[Config, int] = {}
        for answer, reward in rewards:
            setting = self._setting(answer.config)
            best[setting] = max(best.get(setting, 0.0), reward)
            counts[setting] = counts.get(setting, 0) + 1
        root = _Node()
        for setting, reward in best.items():
            times = math.ceil(counts[setting] / self._options.light_steps)  # how often it was set up
            _visit(root, [setting[name] for name in self._heavy if name in setting], reward, times)
        for proposal in pending:
            _visit(root, [proposal.config[name] for name in self._heavy if name in proposal.config], 0.0)
        return root

    def _next(
        self,
        rng: np.random.Generator,
        rewards: Sequence[tuple[Answer, float]],
        upper: _Node,
        current: Config | None,
        given: Config,
        taken: set[Config],
    ) -> tuple[Config | None, str]:
        for attempt in range(_TRIES):
            keep = current if attempt == 0 else None
            setting = given.extend(keep) if keep is not None else self._walk(rng, upper, self._heavy, given)
            config = self._lower(rng, rewards, setting, taken)
            if config is not None:
                return config, "light" if keep is not None else "heavy"
            # nothing is left under this setting: a visit without reward leads the next walk elsewhere
            _visit(upper, [setting[name] for name in self._heavy if name in setting], 0.0)
        return fresh(self._space, rng, given, taken), "chance"

    def _lower(
        self, rng: np.random.Generator, rewards: Sequence[tuple[Answer, float]], setting: Config, taken: set[Config]
    ) -> Config | None:
        """A light setting under a heavy one: where the tree leads, else a small change of that, else any that is left."""
        chosen = self._setting(setting)
        root = _Node()
        for answer, reward in rewards:
            if self._setting(answer.config) == chosen:
                _visit(root, [answer.config[name] for name in self._light if name in answer.config], reward)
        leaf = self._walk(rng, root, self._light, setting)
        config: Config | None = self._space.project(leaf, leaf)  # a heavy knob under a light one is decided last
        for _ in range(_CHANGES):
            if config is None or config not in taken:
                break
            config = mutate(self._space, config, rng, setting)
        if config is not None and config not in taken and config.extends(setting):
            return config
        return fresh(self._space, rng, setting, taken)

    def _walk(self, rng: np.random.Generator, root: _Node, names: Sequence[str], given: Config) -> Config:
        """Walk from the root to a leaf: unvisited children first, else the highest upper confidence bound; below the tree at random."""
        partial, node = given, root
        for name in names:
            choices = [partial[name]] if name in partial else list(self._space.choices(name, partial))
            if not choices:
                continue
            value = choices[0] if len(choices) == 1 else self._choice(rng, node, choices)
            partial = partial.extend({name: value})
            node = node.children.get(value) or _Node()
        return partial

    def _choice(self, rng: np.random.Generator, node: _Node, choices: Sequence[Value]) -> Value:
        unseen = [value for value in choices if value not in node.children]
        # with many values seeing each once would never end: new ones are added as the node is visited more (progressive widening)
        if unseen and (len(node.children) < 2 or len(node.children) <= 1.5 * math.sqrt(node.visits)):
            return unseen[int(rng.integers(len(unseen)))]
        visited = [value for value in choices if value in node.children]
        logarithm = math.log(1 + node.visits)
        bounds = []
        for value in visited:
            child = node.children[value]
            bounds.append(child.total / child.visits + self._options.exploration * math.sqrt(logarithm / child.visits))
        return visited[int(np.argmax(bounds))]

    def _in_order(self, proposals: Sequence[tuple[Config, str]]) -> list[tuple[Config, str]]:
        """Next always the one whose heavy setting differs least from the one before."""
        rest = list(proposals)
        ordered: list[tuple[Config, str]] = rest[:1]
        del rest[:1]
        while rest:
            before = self._setting(ordered[-1][0])
            nearest = min(range(len(rest)), key=lambda index: (_changes(before, self._setting(rest[index][0])), index))
            ordered.append(rest.pop(nearest))
        return ordered


def _heavy(space: Space, named: Sequence[str]) -> tuple[str, ...]:
    heavy = set(named) or {name for name, knob in space.knobs.items() if knob.restart}
    if not heavy or len(heavy) == len(space.knobs):
        heavy = set(space.sparse) or set(space.knobs)
    return tuple(name for name in space.knobs if name in heavy)


def _rewards(answers: Sequence[Answer]) -> list[tuple[Answer, float]]:
    """1 for the best answer, 0.5 for the median of those that worked, 0 for the worst and for failures; straight lines between.

    Not ranks: the best rank under a setting rises as others are visited less, so that all settings would come to look alike.
    """
    worked = [answer.loss for answer in answers if math.isfinite(answer.loss)]
    if not worked:
        return [(answer, 0.0) for answer in answers]
    best, middle, worst = min(worked), float(np.median(worked)), max(worked)

    def reward(loss: float) -> float:
        if loss >= middle:
            return 0.5 * (worst - loss) / (worst - middle) if worst > middle and math.isfinite(loss) else 0.5 * (loss < worst)
        return 1.0 - 0.5 * (loss - best) / (middle - best)

    return [(answer, 1.0 if answer.loss == best else reward(answer.loss)) for answer in answers]


def _visit(root: _Node, path: Sequence[Value], reward: float, times: int = 1) -> None:
    node = root
    node.visits += times
    node.total += reward * times
    for value in path:
        node = node.children.setdefault(value, _Node())
        node.visits += times
        node.total += reward * times


def _changes(one: Config, other: Config) -> int:
    return sum(one.get(name) != other.get(name) for name in {*one, *other})


__all__ = ["UdoSearcher"]
