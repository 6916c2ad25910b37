"""What is still open after some knobs are set, and whether it can be completed.

A `SolverState` is the question that a partial assignment leaves: the undecided knobs with what is left of their conditions, and
what is left of the constraints. Equal questions are one state however they were reached, every answer is kept on the state,
and a question that falls apart into independent parts is answered part by part. So look-ahead is exact, yet costs a
few dictionary look-ups once warm, and the product of the domains is never listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from numpy.typing import NDArray

from autoscout.core.config import Value
from autoscout.space.algebra import ACTIVE, INACTIVE, LOGIC, Node, Table, evaluate, predicate_of
from autoscout.space.interval import Interval, has_bounds, interval
from autoscout.space.values import Picked
from autoscout.space.vector import as_array, satisfying

QUICK_WORK = 30_000  # states worth looking into for a uniform draw: well under a second
MAX_STATES = 200_000
MAX_NODES = 1_000_000
MANY_VALUES = 100_000  # longer answers stay lazy
_PER_STATE = 16  # values tested one by one that cost about as much as one state
_LEAF = 4  # values tested one by one at the end of a bisection
_MANY = 32  # values from which on it pays to learn from an example which of them can be completed


class SolverState:
    """One open question. Made by a `Solver` only; compare by identity."""

    __slots__ = ("branch", "count", "cumulative", "feasible", "parts", "pending", "rules", "steps", "supports", "values")

    def __init__(self, pending: tuple[tuple[int, Node], ...], rules: tuple[Node, ...]) -> None:
        self.pending = dict(pending)  # undecided variable -> what is left of its condition
        self.rules = rules  # what is left of the constraints
        self.forget()

    def forget(self) -> None:
        """Drop every remembered answer."""
        self.steps: dict[tuple[int, int], SolverState | None] = {}
        self.parts: tuple[SolverState, ...] | None = None
        self.feasible: bool | None = None
        self.count: int | None = None
        self.branch: tuple[int, Sequence[int]] | None = None
        self.cumulative: tuple[list[int], list[int]] | None = None
        self.supports: dict[int, Sequence[int]] = {}
        self.values: dict[int, Sequence[Value]] = {}


def ask_in_turn(state: SolverState, answer: Callable[[SolverState], Iterator[SolverState]]) -> None:
    """Run `answer` on a state and on every state it yields, without recursion: components may have hundreds of knobs."""
    stack = [answer(state)]
    while stack:
        asked = next(stack[-1], None)
        if asked is None:
            stack.pop()
        else:
            stack.append(answer(asked))


class Solver:
    """Exact look-ahead over finite domains.

    Args:
        domains: Values of each variable.
        ascending: Whether they are numbers in ascending order.
        preferred: Position of the value to try first (the default).
    """

    def __init__(self, domains: Sequence[Sequence[Value]], ascending: Sequence[bool], preferred: Sequence[int]) -> None:
        self.domains = domains
        self.table = Table(domains)
        self._ascending = ascending
        self._preferred = preferred
        self._states: dict[object, SolverState] = {}
        self._unary: dict[Node, Sequence[int]] = {}
        self._dividing: dict[tuple[int, int], Sequence[int]] = {}
        self._everything: dict[int, tuple[Value, ...]] = {}
        self._arrays: dict[int, NDArray[Any]] = {}
        self.work = 0  # states looked into so far, for budgets
        self.effort = 0  # undecided variables over all steps taken so far: about two microseconds each
        self.patience = QUICK_WORK  # for counting before a draw

    def root(self, conditions: Mapping[int, Node], rules: Iterable[Node]) -> SolverState | None:
        """The question before anything is set; None when it contradicts itself at sight."""
        pending = dict(conditions)
        events = []
        for index, condition in conditions.items():
            if condition.constant:
                events.append((index, ACTIVE if condition.value is True else INACTIVE))
                if condition.value is not True:
                    del pending[index]
        return self._settle(pending, list(rules), events)

    def step(self, state: SolverState, index: int, position: int) -> SolverState | None:
        """The question once variable `index` takes the value at `position`, or is known to be ACTIVE but still open.

        None when that breaks something at sight.
        """
        key = (index, position)
        try:
            return state.steps[key]
        except KeyError:
            pass
        condition = state.pending.get(index)
        if condition is None:
            after = None  # inactive, or set already
        else:
            pending = dict(state.pending)
            if position == ACTIVE:
                pending[index] = self.table.true
            else:
                del pending[index]
            rules = state.rules if condition is self.table.true else (*state.rules, condition)
            after = self._settle(pending, rules, [(index, position)])
        state.steps[key] = after
        return after

    def _settle(self, pending: dict[int, Node], rules: Sequence[Node], events: list[tuple[int, int]]) -> SolverState | None:
        """Fill in the events and everything that follows from them about which knobs are active."""
        self.effort += len(pending) + 1
        fill = self.table.fill
        open_rules: Sequence[Node] = rules
        first = True
        while events or first:
            index, position = events.pop() if events else (0, None)
            bit = 1 << index if position is not None else 0
            undecided: list[Node] = []
            for rule in open_rules:
                if not rule.variables & bit and not first:
                    undecided.append(rule)
                    continue
                for part in self._split(fill(rule, index, position) if position is not None else rule):
                    if not part.constant:
                        undecided.append(part)
                    elif not part.value:
                        return None
            for other, condition in list(pending.items()):
                if condition.variables & bit and position is not None:
                    filled = fill(condition, index, position)
                    if not filled.constant or filled.value is True:
                        pending[other] = filled
                    else:
                        del pending[other]
                    if filled.constant:
                        events.append((other, ACTIVE if filled.value is True else INACTIVE))
            open_rules, first = undecided, False
        return self._intern(pending, open_rules)

    def _split(self, rule: Node) -> Iterable[Node]:
        """A conjunction taken apart, so that its parts can be answered apart."""
        if rule.op == "and":
            return rule.args if all(arg.op in LOGIC for arg in rule.args) else (rule,)
        if rule.op in ("holds", "sure") and rule.args[0].op == "and":
            return [self.table.make(rule.op, (arg,)) for arg in rule.args[0].args]
        return (rule,)

    def _intern(self, pending: dict[int, Node], rules: Iterable[Node]) -> SolverState:
        listed = tuple(sorted(set(rules), key=lambda node: node.number))
        items = tuple(sorted(pending.items(), key=lambda item: item[0]))
        key = (items, listed)
        state = self._states.get(key)
        if state is None:
            if len(self._states) > MAX_STATES or len(self.table) > MAX_NODES:
                self.forget()
            self.work += 1
            state = self._states[key] = SolverState(items, listed)
        return state

    def forget(self) -> None:
        """Give memory back; answers are found again when asked for."""
        for state in list(self._states.values()):  # another thread may be adding to it
            state.forget()
        self._states.clear()
        self._unary.clear()
        self.table.forget()

    def parts(self, state: SolverState) -> tuple[SolverState, ...]:
        """The independent questions that a state consists of, in the order of their first variable."""
        if state.parts is None:
            state.parts = self._parts(state)
        return state.parts

    def _parts(self, state: SolverState) -> tuple[SolverState, ...]:
        groups: list[int] = []
        masks = [rule.variables for rule in state.rules]
        masks += [condition.variables | 1 << index for index, condition in state.pending.items()]
        for mask in masks:
            apart = []
            for group in groups:
                if group & mask:
                    mask |= group
                else:
                    apart.append(group)
            groups = [*apart, mask]
        if len(groups) == 1:
            return (state,)
        groups.sort(key=lambda mask: mask & -mask)
        return tuple(
            self._intern(
                {index: condition for index, condition in state.pending.items() if mask >> index & 1},
                [rule for rule in state.rules if rule.variables & mask],
            )
            for mask in groups
        )

    def part_of(self, state: SolverState, index: int) -> SolverState:
        """The independent part that variable `index` belongs to."""
        for part in self.parts(state):
            if index in part.pending:
                return part
        raise KeyError(index)

    def feasible(self, state: SolverState) -> bool:
        """Whether the state can be completed."""
        if state.feasible is None:
            ask_in_turn(state, self._search)
        return bool(state.feasible)

    def _search(self, state: SolverState) -> Iterator[SolverState]:
        """Find out whether a state is feasible, asking for other states first by yielding them."""
        parts = self.parts(state)
        if len(parts) != 1 or parts[0] is not state:
            for part in parts:
                if part.feasible is None:
                    yield part
                if not part.feasible:
                    state.feasible = False
                    return
            state.feasible = True
            return
        index, allowed = self.branch(state) if state.rules else (-1, ())
        if not state.rules or len(state.pending) == 1:
            state.feasible = not state.rules or bool(allowed)
            return
        preferred = self._preferred[index]
        for position in chain((preferred,) if preferred in allowed else (), allowed):
            after = self.step(state, index, position)
            if after is not None:
                if after.feasible is None:
                    yield after
                if after.feasible:
                    state.feasible = True
                    return
        state.feasible = False

    def _can_lead(self, part: SolverState, index: int, position: int) -> bool:
        after = self.step(part, index, position)
        return after is not None and self.feasible(after)

    def is_possible(self, state: SolverState, index: int) -> bool:
        """Whether some completion of a feasible state gives `index` a value."""
        condition = state.pending.get(index)
        if condition is None or condition is self.table.true:
            return condition is not None
        return self._can_lead(self.part_of(state, index), index, ACTIVE)

    def support(self, state: SolverState, index: int) -> Sequence[int]:
        """Positions of the values of `index` with which a feasible state can be completed, ascending."""
        if index not in state.pending:
            return ()
        part = self.part_of(state, index)
        positions = part.supports.get(index)
        if positions is None:
            allowed = self.allowed(part, index)
            if len(part.pending) == 1 or (not part.rules and part.pending[index] is self.table.true):
                positions = allowed
            else:
                positions = self._supported(part, index, allowed)
            part.supports[index] = positions
        return positions

    def _supported(self, part: SolverState, index: int, allowed: Sequence[int]) -> Sequence[int]:
        if len(allowed) < _MANY:
            return tuple(position for position in allowed if self._can_lead(part, index, position))
        certain: set[int] = set()
        fruitful = 4
        for position in chain((allowed[0], allowed[-1]), allowed):
            if position in certain:
                continue
            if self._can_lead(part, index, position):
                certain.add(position)
                if fruitful:
                    before = len(certain)
                    certain |= self._like(part, index, position)
                    fruitful = 4 if len(certain) > before else fruitful - 1
        return allowed if len(certain) == len(allowed) else tuple(sorted(certain))

    def _like(self, part: SolverState, index: int, position: int) -> set[int]:
        """Positions of `index` that an example with the one at `position` shows to be completable in the same way."""
        example = self.example(part, index, position)
        table = self.table
        rules = list(part.rules)
        for other, condition in part.pending.items():
            rules.append(condition if other in example else table.make("not", (condition,)))
        fixed = [(other, example.get(other, INACTIVE)) for other in part.pending if other != index]
        alike: set[int] | None = None
        for rule in rules:
            filled = table.fill(rule, index, ACTIVE)
            for other, value in fixed:
                filled = table.fill(filled, other, value)
            if filled.constant:
                if not filled.value:
                    return set()
            else:
                satisfied = self._satisfying(filled, index)
                alike = set(satisfied) if alike is None else alike.intersection(satisfied)
        return set(range(len(self.domains[index]))) if alike is None else alike

    def example(self, state: SolverState, index: int, position: int) -> dict[int, int]:
        """One completion of a feasible state in which `index` takes the value at `position`, which must be possible."""
        positions = {index: position}
        after = self.step(state, index, position)
        waiting = [after] if after is not None else []
        while waiting:
            for part in self.parts(waiting.pop()):
                chosen, allowed = self.branch(part)
                preferred = self._preferred[chosen]
                single = len(part.pending) == 1
                for candidate in chain((preferred,) if preferred in allowed else (), allowed):
                    if single or self._can_lead(part, chosen, candidate):
                        positions[chosen] = candidate
                        following = self.step(part, chosen, candidate)
                        waiting += [following] if following is not None else []
                        break
        return positions

    def support_values(self, state: SolverState, index: int) -> Sequence[Value]:
        """The values at `support`; a tuple unless they are very many."""
        if index not in state.pending:
            return ()
        part = self.part_of(state, index)
        values = part.values.get(index)
        if values is None:
            positions = self.support(part, index)
            domain = self.domains[index]
            if len(positions) > MANY_VALUES:
                values = Picked(domain, positions)
            elif len(positions) == len(domain):
                values = self._everything.setdefault(index, tuple(domain))
            else:
                values = tuple(domain[position] for position in positions)
            part.values[index] = values
        return values

    def branch(self, part: SolverState) -> tuple[int, Sequence[int]]:
        """The variable to decide next, with the values its own rules leave: the active one with the fewest."""
        if part.branch is None:
            true = self.table.true
            narrowest: tuple[int, Sequence[int]] | None = None
            for index, condition in part.pending.items():
                if condition is true:
                    allowed = self.allowed(part, index)
                    if narrowest is None or len(allowed) < len(narrowest[1]):
                        narrowest = (index, allowed)
            assert narrowest is not None, "conditions without a circle leave at least one active variable"
            part.branch = narrowest
        return part.branch

    def allowed(self, state: SolverState, index: int) -> Sequence[int]:
        """Positions that break no rule which reads `index` alone, and divide what a product with others must come to."""
        mask = 1 << index
        positions: Sequence[int] | None = None
        for rule in state.rules:
            if rule.variables == mask:
                one = self._satisfying(rule, index)
            elif rule.variables & mask and (multiple := _divided(rule, index)):
                one = self._divisors(index, multiple)
            else:
                continue
            positions = one if positions is None else _both(positions, one)
        return range(len(self.domains[index])) if positions is None else positions

    def _divisors(self, index: int, multiple: int) -> Sequence[int]:
        divisors = self._dividing.get((index, multiple))
        if divisors is None:
            domain = self.domains[index]
            divisors = tuple(position for position, value in enumerate(domain) if value and multiple % value == 0)  # type: ignore[operator]
            self._dividing[index, multiple] = divisors
        return divisors

    def _satisfying(self, rule: Node, index: int) -> Sequence[int]:
        positions = self._unary.get(rule)
        if positions is None:
            positions = self._unary[rule] = self._tested(rule, index)
        return positions

    def _tested(self, rule: Node, index: int) -> Sequence[int]:
        domain = self.domains[index]
        if rule.total and self._ascending[index] and len(domain) > 2 * _LEAF:
            if _is_smooth(rule):
                return self._bisect(rule, index)
            if (listed := satisfying(rule, self._array(index))) is not None:
                return tuple(listed)
        predicate = predicate_of(rule, index)
        self.work += len(domain) // _PER_STATE
        return tuple(position for position, value in enumerate(domain) if predicate(value))

    def _bisect(self, rule: Node, index: int) -> Sequence[int]:
        """Positions of the ascending domain at which the rule holds; bounds decide most stretches at once."""
        domain = self.domains[index]
        stretches: list[range] = []
        waiting = [(0, len(domain))]
        while waiting:
            start, stop = waiting.pop()
            bound = _bound(rule, (domain[start], domain[stop - 1]))  # type: ignore[arg-type]
            if bound is not None and bound[1] == 0:
                continue
            if bound is not None and bound[0] == 1:
                hits: Iterable[range] = (range(start, stop),)
            elif stop - start > _LEAF:
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]
                continue
            else:
                hits = (range(at, at + 1) for at in range(start, stop) if evaluate(rule, {index: domain[at]}))
            for hit in hits:
                if stretches and stretches[-1].stop == hit.start:
                    stretches[-1] = range(stretches[-1].start, hit.stop)
                else:
                    stretches.append(hit)
        return stretches[0] if len(stretches) == 1 else tuple(chain.from_iterable(stretches))

    def _array(self, index: int) -> NDArray[Any]:
        array = self._arrays.get(index)
        if array is None:
            array = self._arrays[index] = as_array(self.domains[index])
        return array


def _both(one: Sequence[int], other: Sequence[int]) -> Sequence[int]:
    """What two ascending selections share."""
    if isinstance(one, range) and isinstance(other, range):
        return range(max(one.start, other.start), min(one.stop, other.stop))
    fewer, more = (one, other) if len(one) <= len(other) else (other, one)
    selection = more if isinstance(more, range) else set(more)
    return tuple(position for position in fewer if position in selection)


def _divided(rule: Node, index: int) -> int:
    """A whole number that variable `index` must divide if the rule (`x * y == 64`, `64 % (x * y) == 0`) is to hold; 0: none."""
    if rule.op != "eq" or not rule.args[1].constant:
        return 0
    product, number = rule.args[0], rule.args[1].value
    if product.op == "mod" and number == 0 and product.args[0].constant:
        number, product = product.args[0].value, product.args[1]
    if product.op != "mul" or not product.whole or not isinstance(number, int):
        return 0
    return number if any(arg.op == "sure variable" and arg.value == index for arg in product.args) else 0


def _is_smooth(node: Node) -> bool:
    """Whether bounds decide the node on most stretches of its variable; remainders go up and down all the time."""
    return not node.args or (node.op != "mod" and has_bounds(node.op) and all(_is_smooth(arg) for arg in node.args))


def _bound(node: Node, within: Interval) -> Interval | None:
    """Bounds of a node of one variable while that stays within an interval."""
    if node.op == "constant":
        return node.bound
    if node.op in ("variable", "sure variable"):
        return within
    bound = interval(node.op, [_bound(arg, within) for arg in node.args], all(arg.whole for arg in node.args))
    return bound if bound is not None or node.op not in LOGIC else (0, 1)
