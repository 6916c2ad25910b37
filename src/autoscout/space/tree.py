"""The dependency tree that conditions span: order, ancestors, cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoscout.core.errors import Fault, SpaceError


def order(names: Sequence[str], parents: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The names with every parent before its children, otherwise as declared.

    Raises:
        SpaceError: conditions go round in a circle; the fault names it.
    """
    ordered: list[str] = []
    done: set[str] = set()
    for name in names:
        _visit(name, parents, done, ordered)
    return tuple(ordered)


def _visit(start: str, parents: Mapping[str, Sequence[str]], done: set[str], ordered: list[str]) -> None:
    path: list[str] = []
    stack: list[tuple[str, bool]] = [(start, False)]
    while stack:
        name, leaving = stack.pop()
        if leaving:
            path.pop()
            done.add(name)
            ordered.append(name)
        elif name in path:
            raise _cycle([*path[path.index(name) :], name])
        elif name not in done:
            path.append(name)
            stack.append((name, True))
            stack.extend((parent, False) for parent in reversed(parents[name]) if parent not in done)


def _cycle(circle: Sequence[str]) -> SpaceError:
    return SpaceError(
        Fault(
            field=f"knobs.{circle[0]}.when",
            value=" -> ".join(circle),
            rule="conditions must not go round in a circle: each of these knobs waits for the next",
            fix="Remove one of these conditions, or turn it into a constraint",
        )
    )


def ancestors(name: str, parents: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Everything that the activity of `name` depends on, directly or not."""
    above: set[str] = set()
    open_names = list(parents[name])
    while open_names:
        parent = open_names.pop()
        if parent not in above:
            above.add(parent)
            open_names.extend(parents[parent])
    return frozenset(above)
