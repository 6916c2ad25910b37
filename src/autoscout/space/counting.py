"""How many completions a state has, and drawing one of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from autoscout.space.solver import QUICK_WORK, Solver, SolverState, ask_in_turn

PROBES = 400
FEWEST_PROBES = 20  # an estimate from fewer says little
QUICK_EFFORT = 300_000  # of the solver for a first count, and for an estimate: a second or two


@dataclass(frozen=True)
class Count:
    """A number of configurations, and whether it is exact or an estimate."""

    value: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.value:,}" if self.exact else f"about {Decimal(self.value):.2g}"


class OutOfWork(Exception):  # noqa: N818 - a signal between two functions of this module, never seen outside
    """Counting would cost more than it may."""


def count(solver: Solver, state: SolverState, work: int, effort: float = math.inf) -> int:
    """The exact number of completions.

    Raises:
        OutOfWork: more than `work` states would have to be looked into, or that would take more than `effort`.
    """
    return _count(solver, state, solver.work + work, solver.effort + effort)


def _count(solver: Solver, state: SolverState, limit: int, effort: float = math.inf) -> int:
    if state.count is None:
        ask_in_turn(state, lambda asked: _counting(solver, asked, limit, effort))
    return state.count or 0


def _counting(solver: Solver, state: SolverState, limit: int, effort: float) -> Iterator[SolverState]:
    """Count a state, asking for the counts of other states first by yielding them."""
    parts = solver.parts(state)
    if len(parts) != 1 or parts[0] is not state:
        total = 1
        for part in parts:
            if part.count is None:
                yield part
            total *= part.count or 0
            if not total:
                break
        state.count = total
        return
    if solver.work > limit:
        raise OutOfWork
    index, allowed = solver.branch(state)
    if len(state.pending) == 1:
        state.count = len(allowed)
        return
    total = 0
    for number, position in enumerate(allowed):
        if number % 64 == 63:  # values that lead to known states cost something too
            solver.work += 1
            if solver.work > limit:
                raise OutOfWork
        after = solver.step(state, index, position)
        if solver.effort > effort:
            raise OutOfWork
        if after is not None:
            if after.count is None:
                yield after
            total += after.count or 0
    state.count = total


def estimate(solver: Solver, state: SolverState, rng: np.random.Generator, probes: int = PROBES) -> int:
    """An unbiased estimate: the mean, over random descents, of the product of the branchings on the way (Knuth 1975).

    Descents look ahead, so that none ends in a dead end. Where that takes too long they do not, and a dead end counts as zero.
    """
    if not solver.feasible(state):
        return 0
    logs: list[float] = []
    for deep in (True, False):
        limit = solver.effort + QUICK_EFFORT
        while len(logs) < probes:
            log = _probe(solver, state, rng, deep, limit if deep or len(logs) >= FEWEST_PROBES else math.inf)
            if log is None:
                break
            logs.append(log)
        if len(logs) >= min(probes, FEWEST_PROBES) and max(logs) > -math.inf:
            break
        logs = []
    if not logs:
        return 1  # it can be completed, and no descent found how
    top = max(logs)
    mean = sum(math.exp(log - top) for log in logs) / len(logs)
    return round(Decimal(top).exp() * Decimal(mean))


def _probe(solver: Solver, state: SolverState, rng: np.random.Generator, deep: bool, limit: float) -> float | None:
    """The logarithm of one descent's product, -inf for a dead end; None when the solver's effort has passed `limit`."""
    total = 0.0
    waiting = [state]
    while waiting:
        for part in solver.parts(waiting.pop()):
            if solver.effort > limit:
                return None
            index, allowed = solver.branch(part)
            support = solver.support(part, index) if deep else [at for at in allowed if solver.step(part, index, at) is not None]
            if not support:
                return -math.inf
            total += math.log(len(support))
            after = solver.step(part, index, support[int(rng.integers(len(support)))])
            assert after is not None, "a supported value can be set"
            waiting.append(after)
    return total


def draw(solver: Solver, state: SolverState, rng: np.random.Generator, positions: dict[int, int]) -> None:
    """Positions for all open variables of a feasible state, put into `positions`.

    Uniform over the completions of every part that can be counted quickly; in other parts uniform over the values that
    can still be completed, variable by variable.
    """
    waiting = [state]
    while waiting:
        for part in solver.parts(waiting.pop()):
            index, position = _draw_one(solver, part, rng)
            positions[index] = position
            if len(part.pending) == 1:
                continue
            after = solver.step(part, index, position)
            assert after is not None, "a supported value can be set"
            waiting.append(after)


def _draw_one(solver: Solver, part: SolverState, rng: np.random.Generator) -> tuple[int, int]:
    index, allowed = solver.branch(part)
    if len(part.pending) == 1:
        return index, allowed[int(rng.integers(len(allowed)))]
    if part.cumulative is None:
        part.cumulative = _cumulative(solver, part)
    positions, sums = part.cumulative
    return index, positions[bisect_right(sums, _below(rng, sums[-1]))]


def _cumulative(solver: Solver, part: SolverState) -> tuple[list[int], list[int]]:
    """The values of the branching variable with the running sum of their completions (of one each when too many)."""
    index, allowed = solver.branch(part)
    try:
        count(solver, part, solver.patience)
    except OutOfWork:
        solver.patience = max(QUICK_WORK // 100, solver.patience // 2)  # the parts below are likely to be as large
        positions = list(solver.support(part, index))
        return positions, list(range(1, len(positions) + 1))
    positions, sums, total = [], [], 0
    for position in allowed:
        after = solver.step(part, index, position)
        number = _count(solver, after, solver.work + solver.patience) if after is not None else 0
        if number:
            total += number
            positions.append(position)
            sums.append(total)
    return positions, sums


def _below(rng: np.random.Generator, bound: int) -> int:
    """A uniform whole number in [0, bound), however large."""
    if bound < 2**62:
        return int(rng.integers(bound))
    bits = bound.bit_length()
    while True:
        number = int.from_bytes(rng.bytes((bits + 7) // 8), "big") >> (-bits % 8)
        if number < bound:
            return number


def walk(solver: Solver, states: list[SolverState], order: Sequence[tuple[int, int]]) -> Iterator[dict[int, int]]:
    """All completions of independent feasible states, the first variable of `order` changing slowest.

    Args:
        solver: Whose states these are.
        states: One per component; changed while walking.
        order: (component, variable) in the order of the walk.

    Yields:
        Positions by variable; the same dict each time.
    """
    positions: dict[int, int] = {}
    trail: list[tuple[int, int, SolverState, Iterator[int]]] = []  # component, variable, state before it, its values to come
    place = 0
    while True:
        while place < len(order):
            component, index = order[place]
            before = states[component]
            if index in before.pending:
                trail.append((place, index, before, iter(solver.support(before, index))))
                break
            place += 1
        else:
            yield positions
        while trail:
            place, index, before, values = trail[-1]
            position = next(values, None)
            states[order[place][0]] = before
            if position is not None:
                after = solver.step(before, index, position)
                assert after is not None, "a supported value can be set"
                states[order[place][0]] = after
                positions[index] = position
                place += 1
                break
            trail.pop()
            positions.pop(index, None)
        else:
            return
