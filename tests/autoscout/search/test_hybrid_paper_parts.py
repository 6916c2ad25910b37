"""The parts of the paper's algorithm, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.search.hybrid_paper.dense import DenseState, Move, propose
from autoscout.search.hybrid_paper.orchestrator import Arm, Pull, Quad, choose
from autoscout.search.hybrid_paper.scores import rewards
from autoscout.search.hybrid_paper.tournament import halve, legal, orderings, stage
from autoscout.space import Choice, Flag, Grid, Space

SPACE = Space(
    [
        Choice("engine", ["sync", "async"]),
        Flag("pinned", when="engine == 'async'"),
        Choice("level", [1, 2, 3]),
        Grid("queue", 1, 64, log=True, default=8, when="engine == 'async'"),
        Grid("batch", values=[1, 2, 4, 8]),
    ],
)


def test_rewards_are_normalised_ranks_and_failures_get_nothing() -> None:
    found = rewards(np.array([3.0, 1.0, np.inf, 2.0, 2.0]))
    assert found[1] == 1.0
    assert found[2] == 0.0
    assert found[1] > found[3] == found[4] > found[0] > 0.0


def test_an_ordering_respects_conditions() -> None:
    assert legal(SPACE, ["pinned", "level"]) == ("level", "engine", "pinned")
    for order in orderings(SPACE, 40, stream(0, "orderings")):
        assert sorted(order) == sorted(SPACE.sparse)
        assert order.index("engine") < order.index("pinned")


def test_orderings_are_distinct_and_past_winners_come_first() -> None:
    found = orderings(SPACE, 3, stream(0, "orderings"), [("level", "engine", "pinned")])
    assert found[0] == ("level", "engine", "pinned")
    assert len(set(found)) == 3
    assert len(orderings(SPACE, 40, stream(0, "orderings"))) == 3, "there are three legal ones"


def test_turns_zigzag_and_rounds_halve() -> None:
    """Four trees take turns forwards, two of them backwards and forwards, and then the tournament is over."""
    places = [stage(4, iteration) for iteration in range(9)]
    assert [place.place for place in places[:8] if place is not None] == [0, 1, 2, 3, 1, 0, 0, 1]
    assert [place.number for place in places[:8] if place is not None] == [0] * 4 + [1] * 4
    assert places[8] is None


def test_the_better_half_stays_and_an_odd_one_too() -> None:
    assert halve((0, 1, 2, 3), {0: 0.1, 1: 0.6, 2: 0.2, 3: 0.9}) == (1, 3)
    assert halve((0, 1, 2, 3, 4), {tree: float(tree) for tree in range(5)}) == (2, 3, 4)
    assert halve((0, 1), {}) == (0,), "ties go to the earlier tree"


def test_dense_success_continues_with_a_longer_step() -> None:
    names = ("queue", "batch")
    state = DenseState().after(Move("queue", 1, 1), True, names)
    base = SPACE.project({"engine": "async"}, Config(engine="async"))
    found = propose(SPACE, state, base, names)
    assert found is not None
    assert found[0] == Move("queue", 1, 2)
    assert found[1]["queue"] == 32


def test_dense_failure_turns_and_moves_to_the_next_knob() -> None:
    names = ("queue", "batch")
    state = DenseState().after(Move("queue", 1, 4), False, names)
    base = SPACE.project({}, Config(engine="async", batch=2))
    found = propose(SPACE, state, base, names)
    assert found is not None
    assert found[0] == Move("batch", 1, 1)
    back = propose(SPACE, DenseState(current=0, directions=state.directions, steps=state.steps), base, names)
    assert back is not None
    assert back[0] == Move("queue", -1, 1)


def test_a_masked_knob_keeps_its_state() -> None:
    names = ("queue", "batch")
    state = DenseState().after(Move("queue", -1, 2), True, names)
    found = propose(SPACE, state, SPACE.project({}, Config(engine="sync")), names)
    assert found is not None
    assert found[0].knob == "batch"
    later = state.after(found[0], False, names)
    assert later.steps["queue"] == 4
    assert later.directions["queue"] == -1


def test_the_end_of_a_range_turns_round() -> None:
    found = propose(SPACE, DenseState(current=1), SPACE.project({}, Config(engine="sync", batch=8)), ("queue", "batch"))
    assert found is not None
    assert found[1]["batch"] == 4


def test_nothing_moves_without_dense_knobs() -> None:
    space = Space([Flag("fast")])
    assert propose(space, DenseState(), space.default(), space.dense) is None


def test_difference_of_differences_by_hand() -> None:
    quad = Quad(bb=10.0, bc=8.0, cb=9.0, cc=6.0)
    assert quad.gain(Arm.SPARSE) == pytest.approx(((10 - 9) + (8 - 6)) / 20)
    assert quad.gain(Arm.DENSE) == pytest.approx(((10 - 8) + (9 - 6)) / 20)


def test_the_orchestrator_tries_both_then_follows_the_reward() -> None:
    assert choose([], 0.5, 0.9) is Arm.SPARSE
    assert choose([Pull(Arm.SPARSE, 1.0)], 0.5, 0.9) is Arm.DENSE
    pulls = [Pull(Arm.SPARSE, 0.0), Pull(Arm.DENSE, 0.4)]
    assert choose(pulls, 0.5, 0.9) is Arm.DENSE
    assert choose([*pulls, *[Pull(Arm.DENSE, 0.4)] * 20], 5.0, 1.0) is Arm.SPARSE, "without decay the rare arm comes back"
    assert choose([*pulls, *[Pull(Arm.DENSE, 0.4)] * 20], 5.0, 0.7) is Arm.DENSE, "with decay it does not"


def test_upper_confidence_bounds_by_hand() -> None:
    """Four pulls, C = 0.5 * 0.9^4: SPARSE 0.10 + C sqrt(ln 4 / 3), DENSE 0.02 + C sqrt(ln 4 / 1) = 0.32 and 0.41."""
    pulls = [Pull(Arm.SPARSE, 0.1)] * 3 + [Pull(Arm.DENSE, 0.02)]
    assert choose(pulls, 0.5, 0.9) is Arm.DENSE
    assert choose(pulls, 0.2, 0.9) is Arm.SPARSE, "0.19 and 0.18"


def test_weak_pulls_are_soon_outvoted() -> None:
    simulated = [Pull(Arm.SPARSE, 0.5, 0.25), Pull(Arm.DENSE, 0.0, 0.25)] * 2
    measured = [Pull(Arm.SPARSE, 0.0), Pull(Arm.DENSE, 0.3)]
    assert choose([*simulated, *measured], 0.0, 1.0) is Arm.DENSE
    assert choose([Pull(arm, gain) for arm, gain, _ in simulated] + measured, 0.0, 1.0) is Arm.SPARSE
