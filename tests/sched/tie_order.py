"""The order among jobs that were submitted in the same second, worked out from the outcomes of several reference runs.

Lucid's simulator reads its jobs from a log that does not lie beside the traces, and sorts it by second of submission, not stably. So
which of two simultaneous jobs stands first is an input of its runs which the traces do not hold. But its outcomes tell: most pairs of
such jobs must have stood in one order (`must`), and the others decide, through the nodes they were given, what happened to later
jobs. `TieOrder` looks for an order under which nothing contradicts the outcomes. It is fitted to what it is compared with: agreement
shows that such an order exists. Only the order of simultaneous jobs can be adapted. The manners of the search were chosen by trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from autoscout.sched.cluster import Cluster
from autoscout.sched.engine import Run, simulate
from autoscout.sched.scheduler import Scheduler
from autoscout.sched.trace import Trace

Column = NDArray[np.float64]
IDLE = 5_000  # moves in a row that were tried before
SLACK_S = 120.0  # a stopped simulation is complete up to the last round before


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How to search: begin anew in another one when stuck.

    Attributes:
        seed: Of the moves that are drawn.
        plain: Moves of one job that are tried in each group before moves are drawn.
        aside: Chance to accept a move that is no better, only elsewhere.
        tries: Simulations of moves to spend.
    """

    seed: int
    plain: int
    aside: float
    tries: int


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A policy and what the reference says happened under it, in the order of the trace."""

    scheduler: Scheduler
    start_s: Column
    end_s: Column
    alike: Sequence[Column] = ()  # jobs equal in all of these start in their order; nothing: all jobs do


def must(references: Mapping[str, Reference], jobs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these simultaneous jobs must stand before which: among jobs alike to a policy, whoever starts first stood first."""
    before = np.zeros((len(jobs), len(jobs)), bool)
    for reference in references.values():
        earlier = reference.start_s[jobs, None] < reference.start_s[None, jobs]
        for column in reference.alike:
            earlier &= column[jobs, None] == column[None, jobs]
        before |= earlier
    for middle in range(len(jobs)):
        before |= before[:, middle : middle + 1] & before[middle : middle + 1]
    return before


class TieOrder:
    """The search for an order of the jobs of one virtual cluster.

    It mends the first contradiction in time, again and again: moves jobs among those submitted with them, as far as `must` allows,
    until the outcomes agree beyond that moment.

    Args:
        trace: Jobs of one virtual cluster.
        cluster: Its nodes.
        references: In the order of the trace.
        kind: Columns that tell jobs apart; exchanging two that are equal in all changes nothing.
        explain: The references that the order must explain; what `must` says of the others holds in any case.
        manner: How to search.
    """

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        references: Mapping[str, Reference],
        kind: Sequence[Column],
        explain: Sequence[str],
        manner: Manner,
    ) -> None:
        self.trace, self.cluster, self.references = trace, cluster, references
        self.explain, self.manner = explain, manner
        self.random = np.random.default_rng(manner.seed)
        self.kind = np.stack(kind, axis=1)
        cuts = np.flatnonzero(np.diff(trace.submit_s)) + 1
        self.groups = np.split(np.arange(len(trace)), cuts)
        self.of = np.repeat(np.arange(len(self.groups)), [len(group) for group in self.groups])
        self.before = {number: must(references, group) for number, group in enumerate(self.groups) if len(group) > 1}
        self.loose = [number for number, before in self.before.items() if self._is_loose(number, before)]
        self.order = np.arange(len(trace))
        for number in self.before:
            self.order[self.groups[number]] = self._drawn(number)

    def contradiction_s(self, name: str, order: NDArray[np.int64], until_s: float = np.inf) -> tuple[float, NDArray[np.int64]]:
        """The first moment, up to `until_s`, at which a policy contradicts its reference, and the jobs it does so for."""
        reference = self.references[name]
        result = simulate(self.trace.take(order), self.cluster, reference.scheduler, Run(until_s=until_s + SLACK_S))
        first, who = np.inf, np.zeros(len(order), bool)
        for ours, theirs in ((result.start_s, reference.start_s[order]), (result.end_s, reference.end_s[order])):
            mine, other = (np.where(times <= until_s, times, np.inf) for times in (ours, theirs))
            wrong = mine != other
            if wrong.any():
                first = min(first, float(np.fmin(ours, theirs)[wrong].min()))
                who |= wrong
        return first, order[who]

    def solve(self) -> bool:
        """Whether an order without contradictions was found; it is in `order`."""
        tries = self.manner.tries
        while True:
            moments = {name: self.contradiction_s(name, self.order)[0] for name in self.explain}
            name = min(moments, key=lambda each: moments[each])
            if moments[name] == np.inf:
                return True
            tries = self._mend(name, moments[name], moments, tries)
            if tries <= 0:
                return False

    def _mend(self, name: str, moment_s: float, moments: Mapping[str, float], tries: int) -> int:
        """Move jobs until the policy agrees beyond the moment and no other one contradicts earlier than before; the tries left."""
        settled = [other for other in self.explain if other != name and moments[other] > moment_s]
        near = [number for number in reversed(self.loose) if self.trace.submit_s[self.groups[number][0]] <= moment_s]
        suspects = self._suspects(name, moment_s, near)
        seen: set[bytes] = set()
        idle = 0
        plain = ((group, moved) for group in near for moved in islice(self._neighbours(group), self.manner.plain))
        while tries > 0 and idle < IDLE:
            group, moved = next(plain, None) or self._drawn_move(near, suspects)
            if moved is None or moved.tobytes() in seen:
                idle += 1
                continue
            seen.add(moved.tobytes())
            tries, idle = tries - 1, 0
            order = self.order.copy()
            order[self.groups[group]] = moved
            found_s, _ = self.contradiction_s(name, order, moment_s)
            aside = found_s == moment_s and self.random.random() < self.manner.aside
            if found_s < moment_s or (found_s == moment_s and not aside):
                continue
            if all(self.contradiction_s(other, order, moment_s)[0] > moment_s for other in settled):
                self.order = order
                if not aside:
                    return tries
                suspects = self._suspects(name, moment_s, near)
                seen.clear()
        return 0

    def _drawn_move(self, near: list[int], suspects: list[int]) -> tuple[int, NDArray[np.int64] | None]:
        group, job = self._target(near, suspects)
        return group, self._moved(group, job)

    def _neighbours(self, number: int) -> Iterator[NDArray[np.int64]]:
        """The group with one job moved, by one place first."""
        group, before = self.groups[number], self.before[number]
        now = self.order[group] - group[0]
        for distance in range(1, len(group)):
            for i in range(len(group) - distance):
                k = i + distance
                then = now.copy()
                if not before[now[i:k], now[k]].any():
                    then[i : k + 1] = np.roll(now[i : k + 1], 1)
                    yield group[0] + then
                if distance > 1 and not before[now[i], now[i + 1 : k + 1]].any():
                    then = now.copy()
                    then[i : k + 1] = np.roll(now[i : k + 1], -1)
                    yield group[0] + then

    def _suspects(self, name: str, moment_s: float, near: list[int]) -> list[int]:
        return [job for job in self.contradiction_s(name, self.order, moment_s)[1] if self.of[job] in near]

    def _target(self, near: list[int], suspects: list[int]) -> tuple[int, int | None]:
        """A group to reorder, and one of its jobs if that one should move: contradicting jobs, recent groups, any."""
        chance = self.random.random()
        if suspects and chance < 0.5:
            job = int(self.random.choice(suspects))
            return int(self.of[job]), job if chance < 0.4 else None
        if chance < 0.75:
            return near[min(len(near), int(self.random.geometric(0.3))) - 1], None
        return int(self.random.choice(near)), None

    def _moved(self, number: int, job: int | None) -> NDArray[np.int64] | None:
        """The group in another order that `must` allows: two jobs exchanged, one moved, or all drawn anew."""
        group, before = self.groups[number], self.before[number]
        now = self.order[group] - group[0]
        chance = self.random.random()
        if job is None and chance < (0.4 if len(group) < 8 else 0.05):
            return self._drawn(number)
        for _ in range(30):
            one, other = self.random.choice(len(group), 2, replace=False)
            if job is not None:
                one = int(np.flatnonzero(now == job - group[0])[0])
            i, k = min(one, other), max(one, other)
            if i == k or (self.kind[group[now[i]]] == self.kind[group[now[k]]]).all():
                continue
            forth = not before[now[i], now[i + 1 : k + 1]].any()
            back = not before[now[i:k], now[k]].any()
            then = now.copy()
            if chance < 0.75 and forth and back:
                then[i], then[k] = now[k], now[i]
            elif 0.75 <= chance < 0.88 and back:
                then[i : k + 1] = np.roll(now[i : k + 1], 1)
            elif chance >= 0.88 and forth:
                then[i : k + 1] = np.roll(now[i : k + 1], -1)
            else:
                continue
            return group[0] + then
        return None

    def _drawn(self, number: int) -> NDArray[np.int64]:
        """A random order that `must` allows."""
        before = self.before[number]
        waits, lot = before.sum(axis=0), self.random.random(len(before))
        order = []
        for _ in range(len(before)):
            free = np.flatnonzero(waits == 0)
            job = int(free[np.argmin(lot[free])])
            order.append(job)
            waits = waits - before[job]
            waits[job] = -1
        return np.asarray(self.groups[number][0] + np.asarray(order))

    def _is_loose(self, number: int, before: NDArray[np.bool_]) -> bool:
        kind = self.kind[self.groups[number]]
        return bool((~before & ~before.T & (kind[:, None] != kind[None]).any(axis=2)).any())
