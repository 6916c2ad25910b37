"""Iterations of the paper's algorithm, read back from the origins of told trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.core.config import Config
from autoscout.search.hybrid_paper.dense import DenseState, Move
from autoscout.search.hybrid_paper.orchestrator import Arm, Pull, Quad
from autoscout.search.hybrid_paper.scores import Scores
from autoscout.search.hybrid_paper.tournament import halve, stage

CELLS = ("bb", "bc", "cb", "cc")
SIMULATED_WEIGHT = 0.25
"""How far a simulated iteration counts in the bandit once the real system answers."""


@dataclass(frozen=True)
class Round:
    """One iteration of Algorithm 1's main loop.

    Attributes:
        number: Counts from 0.
        arm: The optimizer that was pulled.
        tree: The ordering that proposed the structure.
        move: What the dense candidate changes; None when the arm brought no new one.
        cells: The four configurations; some may be the same.
        ordering: The knobs of the tree.
    """

    number: int
    arm: Arm
    tree: int
    move: Move | None
    cells: Mapping[str, Config]
    ordering: tuple[str, ...] = ()

    def origin(self, cell: str) -> dict[str, Any]:
        return {
            "round": self.number,
            "arm": self.arm.value,
            "tree": self.tree,
            "cell": cell,
            "move": None if self.move is None else [self.move.knob, self.move.direction, self.move.step],
            "quad": {name: config.to_json() for name, config in self.cells.items()},
            "ordering": list(self.ordering),
        }

    @classmethod
    def read(cls, origin: Mapping[str, Any]) -> Round | None:
        """The round that a trial belongs to; None for what cannot be read."""
        try:
            move = origin["move"]
            return cls(
                number=int(origin["round"]),
                arm=Arm(origin["arm"]),
                tree=int(origin["tree"]),
                move=None if move is None else Move(str(move[0]), int(move[1]), int(move[2])),
                cells={cell: Config(origin["quad"][cell]) for cell in CELLS},
                ordering=tuple(map(str, origin["ordering"])),
            )
        except (KeyError, ValueError, TypeError, IndexError):
            return None


@dataclass(frozen=True)
class Turn:
    """One iteration of the tournament.

    Attributes:
        number: Counts from 0.
        tree: The ordering that proposed.
        alive: The trees that were in the tournament then.
        config: What it proposed.
    """

    number: int
    tree: int
    alive: tuple[int, ...]
    config: Config

    def origin(self) -> dict[str, Any]:
        return {"turn": self.number, "arm": Arm.SPARSE.value, "tree": self.tree, "alive": list(self.alive), "wish": self.config.to_json()}

    @classmethod
    def read(cls, origin: Mapping[str, Any]) -> Turn | None:
        """The turn that a trial belongs to; None for what cannot be read."""
        try:
            alive = tuple(int(tree) for tree in origin["alive"])
            return cls(int(origin["turn"]), int(origin["tree"]), alive, Config(origin["wish"]))
        except (KeyError, ValueError, TypeError):
            return None


@dataclass(frozen=True)
class Course:
    """All iterations that left a trial, each once, in order.

    Where workers out of step made two of one number, the smaller by text counts, so that arrival does not matter.
    """

    turns: tuple[Turn, ...] = ()
    rounds: tuple[Round, ...] = ()

    def and_also(self, origins: Iterable[Mapping[str, Any]], by: str) -> Course:
        """With what further trials or proposals say."""
        turns = {turn.number: turn for turn in self.turns}
        rounds = {entry.number: entry for entry in self.rounds}
        for origin in origins:
            if origin.get("by") != by:
                continue
            if (entry := Round.read(origin)) is not None:
                rounds[entry.number] = min(entry, rounds.get(entry.number, entry), key=repr)
            elif (turn := Turn.read(origin)) is not None:
                turns[turn.number] = min(turn, turns.get(turn.number, turn), key=repr)
        return Course(tuple(turns[number] for number in sorted(turns)), tuple(rounds[number] for number in sorted(rounds)))

    def alive(self, trees: int, number: int, scores: Scores) -> tuple[int, ...]:
        """The trees in round `number` of the tournament: as its turns wrote down, or the better half of the round before.

        Rewards are ranks and change with every trial; what was eliminated stays so, because it was written down.
        """
        places = [stage(trees, turn.number) for turn in self.turns]
        written = {
            place.number: turn.alive  # unless it was another tournament, with more trees
            for place, turn in zip(places, self.turns, strict=True)
            if place is not None and turn.alive and max(turn.alive) < trees
        }
        trees_alive = tuple(range(trees))
        for step in range(number + 1):
            if step in written:
                trees_alive = written[step]
            elif step > 0:
                totals = dict.fromkeys(trees_alive, 0.0)
                for place, turn in zip(places, self.turns, strict=True):
                    if place is not None and place.number < step and turn.tree in totals:
                        totals[turn.tree] += scores.reward(turn.config)
                trees_alive = halve(trees_alive, totals)
        return trees_alive


@dataclass(frozen=True)
class Progress:
    """What the rounds so far taught.

    Attributes:
        pulls: Arms with their difference-of-differences rewards.
        dense: State of the coordinate search.
        structure: A configuration with the last sparse candidate that worked.
        point: One with the last dense candidate that worked.
    """

    pulls: tuple[Pull, ...]
    dense: DenseState
    structure: Config | None
    point: Config | None


def progress(rounds: Sequence[Round], scores: Scores, dense_names: Sequence[str]) -> Progress:
    """Replay the rounds with the costs that are known. A grid with open cells counts as the average gain of its arm."""
    pulls: list[Pull] = []
    earned: dict[Arm, list[float]] = {arm: [] for arm in Arm}
    state, structure, point = DenseState(), None, None
    for entry in rounds:
        cost = {cell: value for cell in CELLS if (value := scores.cost(entry.cells[cell])) is not None}
        # Cells must have been answered by the same instrument, or its bias would be the arm's credit.
        fair = len(cost) == len(CELLS) and len({scores.is_real(entry.cells[cell]) for cell in CELLS}) == 1
        past = earned[entry.arm]
        gain = Quad(**cost).gain(entry.arm) if fair else sum(past) / len(past) if past else 0.0
        if fair:
            past.append(gain)
        pulls.append(Pull(entry.arm, gain, 1.0 if not scores.switched or scores.is_real(entry.cells["bb"]) else SIMULATED_WEIGHT))
        if entry.arm is Arm.SPARSE and scores.has_worked(entry.cells["cb"]):
            structure = entry.cells["cb"]
        if entry.move is not None and scores.has_worked(entry.cells["bc"]):
            point = entry.cells["bc"]
        if entry.arm is Arm.DENSE and entry.move is not None and entry.move.knob in dense_names:
            state = state.after(entry.move, _is_better(cost), dense_names)
    return Progress(tuple(pulls), state, structure, point)


def _is_better(cost: Mapping[str, float]) -> bool:
    """Whether the dense candidate improved on the base point in either structure; one that is still open has not."""
    far = float("inf")
    return cost.get("bc", far) < cost.get("bb", far) or cost.get("cc", far) < min(cost.get("bb", far), cost.get("cb", far))
