"""Iterations of the paper's algorithm, read back from the origins of told trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoscout.core.config import Config
from autoscout.search.hybrid.dense import DenseState, Move
from autoscout.search.hybrid.encode import Floats
from autoscout.search.hybrid.ledger import Answer
from autoscout.search.hybrid.orchestrator import Arm, Quad

CELLS = ("bb", "bc", "cb", "cc")


@dataclass(frozen=True)
class Round:
    """One iteration.

    Attributes:
        number: Counts from 0.
        arm: The optimizer that was pulled.
        tree: The ordering that proposed the structure.
        move: What the dense candidate changes; None when there is no dense knob to move.
        keys: `Config.key` of the four cells.
    """

    number: int
    arm: Arm
    tree: int
    move: Move | None
    keys: Mapping[str, str]

    def origin(self, cell: str) -> dict[str, Any]:
        move = None if self.move is None else [self.move.knob, self.move.direction, self.move.step]
        return {"round": self.number, "arm": self.arm.value, "tree": self.tree, "cell": cell, "move": move, "quad": dict(self.keys)}

    @classmethod
    def read(cls, origin: Mapping[str, Any], by: str) -> Round | None:
        """The round that a trial belongs to; None for trials of others, and for what cannot be read."""
        if origin.get("by") != by:
            return None
        try:
            move = origin["move"]
            return cls(
                number=int(origin["round"]),
                arm=Arm(origin["arm"]),
                tree=int(origin["tree"]),
                move=None if move is None else Move(str(move[0]), int(move[1]), int(move[2])),
                keys={cell: str(origin["quad"][cell]) for cell in CELLS},
            )
        except (KeyError, ValueError, TypeError, IndexError):
            return None


def read_rounds(origins: Iterable[Mapping[str, Any]], by: str) -> list[Round]:
    """All rounds in order, each once; where workers out of step made two of one number, the smaller by text counts."""
    found: dict[int, Round] = {}
    for origin in origins:
        entry = Round.read(origin, by)
        if entry is not None and (entry.number not in found or repr(entry) < repr(found[entry.number])):
            found[entry.number] = entry
    return [found[number] for number in sorted(found)]


def costs(answers: Sequence[Answer]) -> dict[str, float]:
    """Positive costs by key: times as they are, rates inverted, ranks for what has mixed signs; a failure costs twice the worst."""
    losses = np.array([answer.loss for answer in answers])
    worked = np.isfinite(losses)
    values = losses[worked]
    positive: Floats
    if (values > 0).all():
        positive = values
    elif (values < 0).all():
        positive = -1.0 / values
    else:
        positive = 1.0 + np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)
    found = np.full(len(losses), 2.0 * float(positive.max()) if len(positive) else 1.0)
    found[worked] = positive
    return {answer.key: float(cost) for answer, cost in zip(answers, found, strict=True)}


@dataclass(frozen=True)
class Progress:
    """What the rounds so far taught.

    Attributes:
        pulls: Arms with their difference-of-differences rewards, of the complete grids.
        scores: For the tournament: by sparse pull, the tree and the reward of its structure.
        sparse_pulls: How often SPARSE was pulled.
        dense: State of the coordinate search.
        candidate: Key of a configuration with the last sparse candidate.
    """

    pulls: tuple[tuple[Arm, float], ...]
    scores: Mapping[int, tuple[int, float]]
    sparse_pulls: int
    dense: DenseState
    candidate: str | None


def progress(rounds: Sequence[Round], cost: Mapping[str, float], reward: Mapping[str, float], dense_names: Sequence[str]) -> Progress:
    """Replay the rounds over known costs; cells not known yet leave their round without credit."""
    pulls: list[tuple[Arm, float]] = []
    scores: dict[int, tuple[int, float]] = {}
    sparse_pulls, state, candidate = 0, DenseState(), None
    for entry in rounds:
        known = {cell: cost[key] for cell, key in entry.keys.items() if key in cost}
        if len(known) == len(CELLS):
            pulls.append((entry.arm, Quad(**known).gain(entry.arm)))
        if entry.arm is Arm.SPARSE:
            got = [reward[entry.keys[cell]] for cell in ("cb", "cc") if entry.keys[cell] in reward]
            if got:
                scores[sparse_pulls] = (entry.tree, max(got))
            sparse_pulls += 1
            candidate = entry.keys["cb"]
        elif entry.move is not None and entry.move.knob in dense_names and "bb" in known and ("bc" in known or "cc" in known):
            success = known.get("bc", np.inf) < known["bb"] or known.get("cc", np.inf) < min(known["bb"], known.get("cb", np.inf))
            state = state.after(entry.move, success, dense_names)
    return Progress(tuple(pulls), scores, sparse_pulls, state, candidate)


def by_key(answers: Sequence[Answer]) -> dict[str, Config]:
    """Configurations by their keys."""
    return {answer.key: answer.config for answer in answers}
