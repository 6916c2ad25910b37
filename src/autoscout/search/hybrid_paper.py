"""Searcher `hybrid-paper`: AutoScout's Algorithm 1, without a surrogate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.search.hybrid.dense import propose
from autoscout.search.hybrid.ledger import Answer, Ledger
from autoscout.search.hybrid.orchestrator import Arm, choose
from autoscout.search.hybrid.rounds import CELLS, Progress, Round, by_key, costs, progress, read_rounds
from autoscout.search.hybrid.sparse import Statistics, descend, rewards
from autoscout.search.hybrid.tournament import orderings, standing
from autoscout.space import Space

_NOTHING = Config()
_BY = "hybrid-paper"
_IDLE = 40
"""Rounds in a row whose four cells are all known before something unknown is drawn by chance."""
_STUCK = 8
"""Such rounds after which the arms take turns, because the bandit would pull a converged optimizer for ever."""


@dataclass(frozen=True, kw_only=True)
class HybridPaperOptions:
    """The parts of the algorithm, each of which can be switched off: the paper's ablation.

    Attributes:
        orderings: K, the orderings that enter the tournament.
        tournament: Off: one tree, in the order of the declaration.
        sparse_only: Search structures only; dense knobs stay where the default has them.
        dense_only: Search dense knobs only, in the structure of the default.
        orchestrator: Off: sparse and dense take turns instead of UCB1.
        first: Orderings to enter first: those that won on similar past tasks.
        uct: The exploration constant of the tree search.
        exploration: C0 of the orchestrator.
        decay: gamma of the orchestrator.
    """

    orderings: int = 5
    tournament: bool = True
    sparse_only: bool = False
    dense_only: bool = False
    orchestrator: bool = True
    first: tuple[tuple[str, ...], ...] = ()
    uct: float = 0.5
    exploration: float = 0.5
    decay: float = 0.98

    def __post_init__(self) -> None:
        faults = []
        if self.orderings < 1:
            faults.append(Fault(where=_BY, field="orderings", value=repr(self.orderings), rule="must be at least 1"))
        if self.sparse_only and self.dense_only:
            faults.append(Fault(where=_BY, field="dense_only", value="true", rule="sparse_only and dense_only exclude each other"))
        if not 0 < self.decay <= 1:
            faults.append(Fault(where=_BY, field="decay", value=repr(self.decay), rule="must lie in (0, 1]"))
        for name in ("uct", "exploration"):
            if getattr(self, name) < 0:
                faults.append(Fault(where=_BY, field=name, value=repr(getattr(self, name)), rule="must not be negative"))
        if faults:
            raise ConfigError(faults)


class HybridPaperSearcher:
    """Sparse MCTS under a tournament of orderings, dense coordinate search, and UCB1 between them on 2x2 grids.

    Readings where the paper is silent: the pulled arm brings a new candidate and the other keeps its last one, so that known cells cost
    nothing; the base is the incumbent; a failed cell costs twice the worst that worked; tree rewards are normalised ranks. What a
    round was is read from the origins of its trials, so telling alone rebuilds everything.
    """

    def __init__(self, space: Space, task: Task, seed: int = 0, options: HybridPaperOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or HybridPaperOptions()
        self._ledger = Ledger(task.objective)
        count = self._options.orderings if self._options.tournament else 1
        if self._options.tournament:
            self._orderings = orderings(space, count, stream(seed, _BY, "orderings"), self._options.first)
        else:
            self._orderings = (space.sparse,)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._ledger.add(trials)

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1 or not self._space.feasible(given):
            return []
        answers = [answer for answer in self._ledger.answers() if not self._space.check(answer.config)]
        taken = self._ledger.seen | {proposal.config for proposal in pending}
        rounds = read_rounds((answer.origin for answer in answers), _BY)
        waiting = read_rounds((proposal.origin for proposal in pending), _BY)
        number = max((entry.number for entry in (*rounds, *waiting)), default=0)
        found: list[Proposal] = []
        idle = 0
        while len(found) < n and idle < _IDLE:
            entry, cells = self._plan(number, [item for item in rounds if item.number < number], answers, given, stuck=idle >= _STUCK)
            fresh = [cell for cell in CELLS if cells[cell] not in taken]
            for cell in fresh:
                if len(found) < n and cells[cell] not in taken:
                    taken.add(cells[cell])
                    found.append(Proposal(config=cells[cell], origin={"by": _BY, **entry.origin(cell), "key": cells[cell].key}))
            idle = 0 if fresh else idle + 1
            rounds = [*[item for item in rounds if item.number != number], entry]
            number += 1
        if len(found) < n:
            found += self._by_chance(n - len(found), given, taken, number)
        return found

    def _plan(
        self, number: int, rounds: Sequence[Round], answers: Sequence[Answer], given: Config, stuck: bool
    ) -> tuple[Round, dict[str, Config]]:
        """Lines 10-11 and 25-26 of Algorithm 1: the pairs of structures and of dense points, and the grid they span."""
        space, options = self._space, self._options
        losses = np.array([answer.loss for answer in answers])
        reward = dict(zip((answer.key for answer in answers), rewards(losses), strict=True))
        so_far = progress(rounds, costs(answers), reward, space.dense)
        base = self._base(answers, given)
        arm = self._arm(number, so_far, stuck)
        tree = standing(len(self._orderings), so_far.sparse_pulls, so_far.scores).turn
        structure = self._structure(number, arm, tree, so_far, answers, given)
        moved = None if options.sparse_only else propose(space, so_far.dense, base, space.dense)
        beside = moved[1] if moved is not None and moved[1].extends(given) else base
        cells = {
            "bb": base,
            "bc": beside,
            "cb": space.project(base, structure),
            "cc": space.project(beside, structure),
        }
        keys = {cell: config.key for cell, config in cells.items()}
        return Round(number, arm, tree, None if beside == base or moved is None else moved[0], keys), cells

    def _base(self, answers: Sequence[Answer], given: Config) -> Config:
        """The incumbent under `given`, measured before simulated; the default before there is one."""
        worked = [answer for answer in answers if not answer.failed and answer.config.extends(given)]
        if not worked:
            return self._space.project(self._space.default(), given)
        return min(worked, key=lambda answer: (not answer.measured, answer.loss, answer.key)).config

    def _arm(self, number: int, so_far: Progress, stuck: bool) -> Arm:
        options = self._options
        if options.sparse_only or not self._space.dense:
            return Arm.SPARSE
        if options.dense_only or not self._space.sparse:
            return Arm.DENSE
        if not options.orchestrator or stuck:
            return (Arm.SPARSE, Arm.DENSE)[number % 2]
        return choose(so_far.pulls, options.exploration, options.decay)

    def _structure(self, number: int, arm: Arm, tree: int, so_far: Progress, answers: Sequence[Answer], given: Config) -> Config:
        """The sparse candidate, as a partial configuration that holds `given`."""
        if self._options.dense_only:
            pinned = self._space.structure(self._space.project(self._space.default(), given))
            return given.extend(pinned)
        last = by_key(answers).get(so_far.candidate) if so_far.candidate is not None else None
        if arm is Arm.DENSE and last is not None and last.extends(given):
            return given.extend(self._space.structure(last))
        told = Statistics([answer.config for answer in answers], rewards(np.array([answer.loss for answer in answers])))
        rng = stream(self._seed, _BY, "descent", number)
        return descend(self._space, self._orderings[tree], told, rng, given, self._options.uct)

    def _by_chance(self, n: int, given: Config, taken: set[Config], number: int) -> list[Proposal]:
        """When the trees only lead to what is known: anything unknown within what may be searched, and the end is noticed exactly."""
        if self._options.dense_only:
            given = given.extend(self._space.structure(self._space.project(self._space.default(), given)))
        rng = stream(self._seed, _BY, "chance", number)
        found: dict[Config, None] = {}
        for _ in range(20 * n):
            config = self._space.sample(rng, given)
            if config is not None and config not in taken and len(found) < n:
                found[config] = None
        if len(found) < n:
            rest = (config for config in self._space.enumerate(given) if config not in taken and config not in found)
            found.update(dict.fromkeys(islice(rest, n - len(found))))
        return [Proposal(config=config, origin={"by": _BY, "chance": True, "key": config.key}) for config in found]


__all__ = ["HybridPaperSearcher"]
