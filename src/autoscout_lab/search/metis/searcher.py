"""Searcher `metis`: enumerates three-dimensional parallel plans, ranks them by a cost model, measures the best of them.

A planner after the published method of Metis (Um et al., ATC 2024), not its code: plans are enumerated under the constraints, those that
do not fit into memory are pruned, the rest is ordered by estimated time. Everything that is not part of a plan stays at the engine's
default. On several kinds of GPU a plan also says how many of each are used and in which order; work is balanced by the kinds' speed.
What differs: Metis profiles layers on every kind of GPU, here times follow from nominal rates; its device groups may have any sizes, here
all stages and replicas have the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault, require
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.learning.answers import AnswerSet
from autoscout.space import Space
from autoscout.space.neighbours import fresh
from autoscout_lab.search.metis.cost import ALIASES, MetisPlan, Model, find_parts

_NOTHING = Config()
ORDER = "stages_inner"
"""The knob that puts the stages of a replica next to each other."""


@dataclass(frozen=True, kw_only=True)
class MetisOptions:
    """What `metis` enumerates.

    Attributes:
        tp, pp, dp, mbs: The knobs that set these parts of a plan, where their names are not the usual ones.
        headroom: Plans whose estimated memory is above this many times a GPU's are tried last.
        plans: Most plans that are enumerated.
    """

    tp: str = ""
    pp: str = ""
    dp: str = ""
    mbs: str = ""
    headroom: float = 1.0
    plans: int = 20_000

    def __post_init__(self) -> None:
        rules = {"headroom": (self.headroom > 0, "must be above zero"), "plans": (self.plans >= 1, "must be at least 1")}
        require("metis", self, rules)


class MetisSearcher(Searcher):
    """Plans by estimated cost, other knobs at default.

    A plan that ran out of memory prunes those that the model thinks need more. When all plans are measured, nothing is left. In a space
    without any knob of a plan it has nothing to reason about, and proposes by chance.
    """

    def __init__(self, space: Space, task: Task, seed: int = 0, options: MetisOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or MetisOptions()
        self._trials = AnswerSet(space, task.objective)
        self._parts = {**find_parts(space.knobs), **{part: name for part in ALIASES if (name := getattr(self._options, part))}}
        unknown = [name for name in self._parts.values() if name not in space.knobs]
        if unknown:
            raise ConfigError([Fault(where="metis", value=name, rule="no such knob") for name in unknown])
        self._model = Model.of({**space.facts, **task.facts}, task.workload, {**task.workload, **task.hardware})
        kinds = self._model.cluster.knobs if self._model.cluster else ()
        self._counts = [kind if kind in space.knobs else "" for kind in kinds]
        self._shares = [f"{kind}_share" if f"{kind}_share" in space.knobs else "" for kind in kinds]
        self._speeds = dict(zip(self._shares, self._model.cluster.speeds if self._model.cluster else (), strict=True))
        self._ranked: dict[Config, list[tuple[float, float, Config]]] = {}

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1 or not self._space.feasible(given):
            return []
        taken = self._trials.taken(pending)
        proposals: list[Proposal] = []
        if not self._parts:
            for index in range(len(pending), len(pending) + n):
                rng = stream(self._seed, "metis", self._trials.count, index)
                config = fresh(self._space, rng, given, taken)
                if config is None:
                    break
                taken.add(config)
                proposals.append(Proposal(config=config, origin=Origin(by="metis", notes={"round": self._trials.count, "place": index})))
            return proposals
        for estimate_s, memory_gb, config in islice(self._open(given, taken), n):
            notes: dict[str, float] = {"round": self._trials.count, "place": len(pending) + len(proposals)}
            notes |= {"estimate_s": round(estimate_s, 6), "memory_gb": round(memory_gb, 3)}
            proposals.append(Proposal(config=config, origin=Origin(by="metis", notes=notes)))
        return proposals

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials.add(trials)

    def _open(self, given: Config, taken: set[Config]) -> Iterator[tuple[float, float, Config]]:
        """Plans that may be proposed: those that should fit by cost, then the others by memory."""
        plans = self._plans(given)
        needs = {config: memory_gb for _, memory_gb, config in plans}
        failed = [needs[answer.config] for answer in self._trials.answers() if math.isinf(answer.loss) and answer.config in needs]
        limit = min([self._options.headroom * self._model.memory_gb, *(0.999 * need for need in failed)])
        free = [plan for plan in plans if plan[2] not in taken]
        yield from (plan for plan in free if plan[1] <= limit)
        yield from sorted((plan for plan in free if plan[1] > limit), key=lambda plan: plan[1])

    def _plans(self, given: Config) -> list[tuple[float, float, Config]]:
        """All plans under `given`: estimated seconds, memory, and the configuration."""
        if given not in self._ranked:
            rows = {}
            order = [ORDER] if ORDER in self._space.knobs else []
            names = [name for name in (*self._counts, *self._parts.values(), *order, *self._shares) if name]
            for plan in islice(self._enumerated(given, names), self._options.plans):
                config = self._space.project(self._space.default(), plan)
                sized = self._sized(config)
                rows[config] = (sized.step_s(self._model), sized.memory_gb(self._model), config)
            self._ranked[given] = sorted(rows.values(), key=lambda plan: (plan[0], plan[2].key))
        return self._ranked[given]

    def _enumerated(self, partial: Config, names: Sequence[str]) -> Iterator[Config]:
        if not names:
            yield partial
            return
        choices = () if names[0] in partial else self._space.choices(names[0], partial)
        if names[0] in self._speeds and choices:
            speed = self._speeds[names[0]]
            choices = (min(choices, key=lambda value: abs(float(value or 0) - speed)),)
        for value in choices:
            yield from self._enumerated(partial.extend({names[0]: value}), names[1:])
        if not choices:
            yield from self._enumerated(partial, names[1:])

    def _sized(self, config: Config) -> MetisPlan:
        """The plan of a configuration; a degree that no knob sets follows from the number of GPUs."""
        numbers = {}
        for part, name in self._parts.items():
            value = config.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                numbers[part] = float(value)
        if "dp" not in numbers and self._model.gpus:
            numbers["dp"] = max(1.0, self._model.gpus / (numbers.get("tp", 1.0) * numbers.get("pp", 1.0)))
        counts = tuple(
            float(config.get(knob, kind.gpus) or 0) for knob, kind in zip(self._counts, self._model.kinds, strict=bool(self._counts))
        )
        shares = tuple(float(config.get(knob, 1.0) or 1.0) for knob in self._shares)
        return MetisPlan(**numbers, counts=counts, shares=shares, stages_inner=bool(config.get(ORDER)))


__all__ = ["MetisSearcher"]
