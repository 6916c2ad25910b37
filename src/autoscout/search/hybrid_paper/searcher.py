"""Searcher `hybrid-paper`: AutoScout's Algorithm 1, without a surrogate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from autoscout.core.config import Config
from autoscout.core.errors import require
from autoscout.core.history import Past
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Proposal, Status, Trial
from autoscout.learning.answers import AnswerSet
from autoscout.search.hybrid_paper.dense import Move, propose
from autoscout.search.hybrid_paper.orchestrator import Arm, choose
from autoscout.search.hybrid_paper.rounds import CELLS, Course, Progress, Round, Turn, progress
from autoscout.search.hybrid_paper.scores import Scores
from autoscout.search.hybrid_paper.tournament import orderings, stage
from autoscout.search.hybrid_paper.uct import Tree
from autoscout.space import Space

_NOTHING = Config()
_BY = "hybrid-paper"
_TRIES = 40
"""Descents in a row to known structures before a tree has nothing new."""


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
        past: Similar past studies: the orderings that won there enter after `first`, and the best configuration of each is tried
            right after the default.
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
    past: tuple[Past, ...] = ()
    uct: float = 0.5
    exploration: float = 0.5
    decay: float = 0.98

    def __post_init__(self) -> None:
        rules = {
            "orderings": (self.orderings >= 1, "must be at least 1"),
            "dense_only": (not (self.sparse_only and self.dense_only), "sparse_only and dense_only exclude each other"),
            "decay": (0 < self.decay <= 1, "must be above 0 and at most 1"),
            "uct": (self.uct >= 0, "must not be negative"),
            "exploration": (self.exploration >= 0, "must not be negative"),
        }
        require(_BY, self, rules)


class HybridPaperSearcher(Searcher):
    """Algorithm 1: a tournament of orderings, then UCB1 between sparse tree search and dense coordinate search on 2x2 grids.

    - Line 5: K orderings take turns, one evaluation each, and halve until one tree is left; nothing else happens meanwhile.
    - Lines 10-11 and 25-26: the pulled arm brings a new candidate and the other keeps its last one that worked, so that known cells cost
      nothing. The base is the incumbent.
    - Line 20: the cells of a grid that are not known. A grid that was begun is finished before the next is planned.
    - Line 23: difference of differences, from complete grids.

    Readings where the paper is silent: a failed cell costs twice the worst that worked; tree rewards are normalised ranks; an arm whose
    candidate is known already takes its next, and one that has none left gives its iteration to the other. What an iteration
    was is written into the origins of its trials, so telling alone rebuilds everything.
    """

    learns_from_past: ClassVar[bool] = True

    def __init__(self, space: Space, task: Task, seed: int = 0, options: HybridPaperOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or HybridPaperOptions()
        self._trials = AnswerSet(space, task.objective)
        winners = (*self._options.first, *(order for study in self._options.past if (order := _ordering(study))))
        entered = orderings(space, self._options.orderings, stream(seed, _BY, "orderings"), winners)
        self._trees = [Tree(space, ordering) for ordering in (entered if self._options.tournament else (space.sparse,))]
        self._course = Course()
        self._switched = False
        self._valid: dict[Config, bool] = {}
        self._last: tuple[object, Scores] | None = None

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials.add(trials)
        stored = [trial for trial in trials if trial.measurement.status is not Status.ABORTED]
        self._course = self._course.and_also((trial.proposal.origin.flat for trial in stored), _BY)
        for trial in stored:
            by = trial.proposal.origin.by
            self._switched |= trial.measurement.fidelity is Fidelity.MEASURED and by in (_BY, By.TOP)

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1 or not self._space.feasible(given):
            return []
        desk = Desk(
            self._scores(), self._trials.configs, given, self._course.and_also((item.origin.flat for item in pending), _BY), pending
        )
        base = desk.scores.incumbent(given) or self._space.project(self._space.default(), given)
        self._open(desk)
        self._finish(desk, n)
        self._play(desk, n, base)
        before = -1
        while before < len(desk.proposals) < n and (entry := self._plan(desk, base)) is not None:
            before = len(desk.proposals)
            desk.course = Course(desk.course.turns, (*desk.course.rounds, entry))
            self._finish(desk, n)
        if len(desk.proposals) < n:
            self._by_chance(desk, n)
        return desk.proposals[:n]

    def _open(self, desk: Desk) -> None:
        """Before the algorithm begins, and only with `past`: the default, and what was best on similar tasks."""
        options = self._options
        if not options.past or options.sparse_only or options.dense_only:
            return
        wishes = [study.best.config for study in options.past if study.best is not None]
        for wish in (self._space.default(), *wishes):
            desk.propose(self._space.project(wish, desk.given), {"arm": "start"})

    def _scores(self) -> Scores:
        answers = self._trials.answers()
        if self._last is None or self._last[0] is not answers or self._last[1].switched != self._is_real:
            self._last = (answers, Scores(answers, self._is_real))
        return self._last[1]

    @property
    def _is_real(self) -> bool:
        """Whether the real system answers the search: it has answered us, or there are no simulators."""
        return self._switched or all(answer.simulated is None for answer in self._trials.answers())

    def _finish(self, desk: Desk, n: int) -> None:
        """Propose the cells of begun grids that are neither known nor under way."""
        for entry in desk.course.rounds:
            for cell in CELLS:
                if len(desk.proposals) < n and not desk.is_taken(entry.cells[cell]) and self._is_allowed(entry.cells[cell], desk.given):
                    desk.propose(entry.cells[cell], entry.origin(cell))

    def _is_allowed(self, config: Config, given: Config) -> bool:
        if config not in self._valid:
            self._valid[config] = not self._space.check(config)
        return self._valid[config] and config.extends(given)

    def _play(self, desk: Desk, n: int, base: Config) -> None:
        """Line 5: the tournament. It is over when a grid was begun."""
        trees = len(self._trees)
        if trees < 2 or desk.course.rounds or self._options.dense_only:
            return
        if not desk.scores.configs:
            desk.propose(base, {"arm": "start"})
        number = desk.course.turns[-1].number + 1 if desk.course.turns else 0
        while len(desk.proposals) < n and (place := stage(trees, number)) is not None:
            alive = desk.course.alive(trees, place.number, desk.scores)
            tree = alive[min(place.place, len(alive) - 1)]
            structure = self._descend(desk, tree, base, ("turn", number))
            if structure is not None:
                turn = Turn(number, tree, alive, self._space.project(base, structure))
                desk.propose(turn.config, turn.origin())
                desk.course = Course((*desk.course.turns, turn))
            number += 1

    def _winner(self, desk: Desk) -> int:
        """The tree that won the tournament: as the first grid says, and the last halving until there is one."""
        if desk.course.rounds:
            return min(desk.course.rounds[0].tree, len(self._trees) - 1)
        halvings = (len(self._trees) - 1).bit_length()
        return desk.course.alive(len(self._trees), halvings, desk.scores)[0]

    def _plan(self, desk: Desk, base: Config) -> Round | None:
        """Lines 10-11 and 25-26: the next grid; None when neither arm has anything new."""
        number = desk.course.rounds[-1].number + 1 if desk.course.rounds else 0
        so_far = progress(desk.course.rounds, desk.scores, self._space.dense)
        tree = self._winner(desk)
        for arm in self._arms(number, so_far):
            structure, moved = self._candidates(desk, base, so_far, arm, tree, number)
            if structure is None or (arm is Arm.DENSE and moved is None):
                continue
            point = self._last_point(base, so_far) if moved is None else moved[1]
            cells = {
                "bb": base,
                "bc": point if point.extends(desk.given) else base,
                "cb": self._space.project(base, structure),
                "cc": self._space.project(point, structure),
            }
            if not all(desk.is_taken(config) for config in cells.values()):
                return Round(number, arm, tree, None if moved is None else moved[0], cells, self._trees[tree].ordering)
        return None

    def _arms(self, number: int, so_far: Progress) -> tuple[Arm, ...]:
        """The arm that is pulled, and who gets the iteration when it has nothing new."""
        options = self._options
        if options.sparse_only or not self._space.dense:
            return (Arm.SPARSE,)
        if options.dense_only or not self._space.sparse:
            return (Arm.DENSE,)
        arms = (Arm.SPARSE, Arm.DENSE)
        pulled = choose(so_far.pulls, options.exploration, options.decay) if options.orchestrator else arms[number % 2]
        return (pulled, *(arm for arm in arms if arm is not pulled))

    def _candidates(
        self, desk: Desk, base: Config, so_far: Progress, arm: Arm, tree: int, number: int
    ) -> tuple[Config | None, tuple[Move, Config] | None]:
        """The structure and the dense move of a grid: new from the arm that was pulled, and from one that never brought any."""
        space, options = self._space, self._options
        moved = None
        if not options.sparse_only and (arm is Arm.DENSE or so_far.point is None):
            moved = self._move(desk, base, so_far)
        if options.dense_only:
            return desk.given.extend(space.structure(base)), moved
        if arm is Arm.SPARSE:
            return self._descend(desk, tree, base, ("round", number)), moved
        last = so_far.structure if so_far.structure is not None and so_far.structure.extends(desk.given) else base
        return desk.given.extend(space.structure(last)), moved

    def _move(self, desk: Desk, base: Config, so_far: Progress) -> tuple[Move, Config] | None:
        """The next step of the coordinate search; known ones failed, or the base would have moved."""
        state, names = so_far.dense, self._space.dense
        for _ in range(2 * len(names) + 1):
            step = propose(self._space, state, base, names)
            if step is None or (not desk.is_taken(step[1]) and step[1].extends(desk.given)):
                return step
            state = state.after(step[0], False, names)
        return None

    def _last_point(self, base: Config, so_far: Progress) -> Config:
        """The base structure with the last dense candidate that worked."""
        if so_far.point is None or self._options.sparse_only:
            return base
        return self._space.project(so_far.point, self._space.structure(base))

    def _descend(self, desk: Desk, tree: int, base: Config, why: tuple[str, int]) -> Config | None:
        """A structure that is new with the base's dense point; None when the tree leads to known ones only."""
        branches, scores, given = self._trees[tree], desk.scores, desk.given
        rows = [row for row, config in enumerate(scores.configs) if config.extends(given)]
        count = branches.count([scores.configs[row] for row in rows], scores.rewards[rows], desk.waiting)
        rng = stream(self._seed, _BY, *why)
        for _ in range(_TRIES):
            structure = branches.descend(count, rng, given, self._options.uct)
            config = self._space.project(base, structure)
            if not desk.is_taken(config):
                return structure
            count.visit(branches.path(config))
        return None

    def _by_chance(self, desk: Desk, n: int) -> None:
        """When the arms only lead to what is known: anything unknown within what may be searched, and the end is noticed exactly."""
        space, default = self._space, self._space.default()
        given = desk.given
        if self._options.dense_only:
            given = given.extend(space.structure(space.project(default, given)))
        rest: Iterable[Config] = space.enumerate(given)
        if self._options.sparse_only:
            rest = (space.project(default, structure) for structure in self._trees[0].structures(given))
        else:
            rng = stream(self._seed, _BY, "chance", len(desk.configs), len(desk.waiting))
            for _ in range(20 * (n - len(desk.proposals))):
                config = space.sample(rng, given)
                if config is not None and len(desk.proposals) < n:
                    desk.propose(config, {"arm": "chance"})
        for config in rest:
            if len(desk.proposals) >= n:
                break
            desk.propose(config, {"arm": "chance"})


class Desk:
    """One ask: the scores so far, what is under way, and the proposals."""

    def __init__(self, scores: Scores, configs: set[Config], given: Config, course: Course, pending: Sequence[Proposal]) -> None:
        self.scores, self.configs, self.given, self.course = scores, configs, given, course
        self.waiting = {proposal.config: None for proposal in pending}
        self.proposals: list[Proposal] = []

    def is_taken(self, config: Config) -> bool:
        return config in self.configs or config in self.waiting

    def propose(self, config: Config, why: dict[str, Any]) -> None:
        if not self.is_taken(config):
            self.waiting[config] = None
            self.proposals.append(Proposal(config=config, origin=Origin(by=_BY, notes=why)))


def _ordering(study: Past) -> tuple[str, ...]:
    """The ordering that won the tournament of a past study by this searcher; empty where there was none."""
    names = study.last.get("ordering")
    return tuple(map(str, names)) if isinstance(names, list) else ()


__all__ = ["HybridPaperSearcher"]
