"""Why nothing satisfies the constraints: a smallest set of them that cannot hold together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoscout.core.config import Value
from autoscout.core.errors import Fault, SpaceError
from autoscout.space.algebra import Node
from autoscout.space.constraint import Constraint
from autoscout.space.knobs import Knob, shown
from autoscout.space.solver import Solver


def explain(
    solver: Solver,
    conditions: Sequence[Node],
    rules: Sequence[Node],
    constraints: Sequence[Constraint],
    knobs: Sequence[Knob],
    facts: Mapping[str, Value],
) -> SpaceError:
    """The error for a space without any valid configuration, naming a minimal conflict."""
    conflict = list(range(len(rules)))
    for number in range(len(rules)):
        fewer = [other for other in conflict if other != number]
        root = solver.root(dict(enumerate(conditions)), [rules[other] for other in fewer])
        if root is None or not solver.feasible(root):
            conflict = fewer
    chosen = [constraints[number] for number in conflict]
    names = list(dict.fromkeys(name for constraint in chosen for name in constraint.names()))
    by_name = {knob.name: knob for knob in knobs}
    readings = [f"{name}={facts[name]!r}" if name in facts else f"{name} in {shown(by_name[name].values)}" for name in names]
    texts = [
        f"`{constraint.text}`" + (f" ({constraint.where})" if place and constraint.where else "") for place, constraint in enumerate(chosen)
    ]
    rule = "this constraint can never hold" if len(chosen) == 1 else "these constraints cannot hold together"
    return SpaceError(
        Fault(
            where=next((constraint.where for constraint in chosen if constraint.where), ""),
            field=", ".join(f"constraints[{number}]" for number in conflict),
            rule=f"{rule}: {' and '.join(texts)}",
            value=", ".join(readings),
            fix="Loosen one of them, or give these knobs more values",
        )
    )
