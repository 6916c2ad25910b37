"""Made-up spaces for comparing searchers, drawn by number: failure edges, interactions, conditional knobs, small ones. None is real.

What is drawn are the knobs, which of them matter, how they act on each other, what fails and what the default is. A searcher that is good
on all of them is not good by luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.space import Choice, Flag, Grid, Knob, Space
from benchmarks.synthetic import Written

Floats = NDArray[np.float64]
STRUCTURE_ERROR = 0.02
"""Of the logarithm of a time: what no knob explains."""
REFUSALS = 20
"""Values, or pairs of them, that are tried for a space that refuses some."""


@dataclass(frozen=True)
class _Rows:
    """The configurations of a space, its knobs, and the logarithms of times."""

    configs: Sequence[Config]
    knobs: Sequence[Knob]
    logs: Floats


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is drawn.

    Attributes:
        knobs: Fewest and most.
        rows: Fewest and most configurations.
        spread: Standard deviation of the logarithm of times.
        pairs: Share of the variance that knobs cause in pairs.
        failing: Fewest and most of the rows that fail.
        reasons: Why they fail, by number in turn: they need too much `memory`, go past one of some `limits`, hold `values` or pairs of
            values (`clashes`) that are refused, take too much `time`, or by `chance`.
        gates: Flags below which other knobs exist.
    """

    knobs: tuple[int, int] = (5, 9)
    rows: tuple[int, int] = (500, 8_000)
    spread: float = 0.4
    pairs: float = 0.2
    failing: tuple[float, float] = (0.0, 0.0)
    reasons: tuple[str, ...] = ("memory",)
    gates: int = 0


KINDS = {
    "edges": Kind(failing=(0.3, 0.7)),
    "interactions": Kind(pairs=0.7),
    "conditional": Kind(gates=2, failing=(0.0, 0.3)),
    "noisy": Kind(spread=0.3, failing=(0.0, 0.2)),
    "small": Kind(knobs=(2, 4), rows=(8, 60)),
    "small-refusals": Kind(knobs=(2, 4), rows=(8, 60), failing=(0.1, 0.6), reasons=("limits", "values", "clashes", "time", "chance")),
    "small-edges": Kind(knobs=(2, 4), rows=(8, 60), failing=(0.2, 0.6)),
}


def drawn_space(name: str, number: int) -> Written:
    """Table `number` of a kind."""
    kind, rng = KINDS[name], stream(number, "drawn spaces", name)
    while True:
        knobs = _knobs(kind, rng)
        size = math.prod(len(knob.values) for knob in knobs if knob.when is None)
        if size <= 4 * kind.rows[1]:
            space = Space(knobs)
            if kind.rows[0] <= space.count(limit=2 * kind.rows[1]).value <= kind.rows[1]:
                break
    configs = list(space.enumerate())
    logs = _logs(configs, knobs, kind, rng)
    rate = float(rng.uniform(*kind.failing))
    reason = kind.reasons[number % len(kind.reasons)]
    fails = _fails(reason, _Rows(configs, knobs, logs), rate, rng) if rate else np.zeros(len(configs), dtype=np.bool_)
    rows = [(config, None if failed else math.exp(log)) for config, log, failed in zip(configs, logs, fails, strict=True)]
    return Written(name=f"{name}-{number}", space=space, rows=rows, unit="s", workload={"synthetic": True})


def _knobs(kind: Kind, rng: np.random.Generator) -> list[Knob]:
    knobs: list[Knob] = [Flag(f"gate{index}", default=bool(rng.integers(2))) for index in range(kind.gates)]
    for index in range(int(rng.integers(kind.knobs[0], kind.knobs[1] + 1)) - kind.gates):
        gate = f"gate{index}" if index < kind.gates else None
        if rng.random() < 0.35:
            values: list[str] = [f"v{value}" for value in range(int(rng.integers(2, 5)))]
            knobs.append(Choice(f"kind{index}", values, default=values[int(rng.integers(len(values)))], when=gate))
        else:
            numbers = [2**power for power in range(int(rng.integers(3, 8)))]
            knobs.append(Grid(f"size{index}", values=numbers, default=numbers[int(rng.integers(len(numbers)))], when=gate, log=True))
    return knobs


def _places(configs: Sequence[Config], knob: Knob) -> tuple[Floats, NDArray[np.bool_]]:
    """Where each configuration lies along a knob, 0 to 1, and whether it has that knob."""
    step = {value: index / max(1, len(knob.values) - 1) for index, value in enumerate(knob.values)}
    has = np.array([knob.name in config for config in configs])
    return np.array([step[config[knob.name]] if knob.name in config else 0.0 for config in configs]), has


def _logs(configs: Sequence[Config], knobs: Sequence[Knob], kind: Kind, rng: np.random.Generator) -> Floats:
    """Logarithms of times: few knobs matter much, ordered ones have one best place, pairs shift it."""
    alone, together = np.zeros(len(configs)), np.zeros(len(configs))
    curves: list[Floats] = []
    for knob in knobs:
        place, has = _places(configs, knob)
        if knob.ordered:
            best, bend = rng.uniform(-0.2, 1.2), rng.uniform(0.5, 1.5)
            curve = np.abs(place - best) ** (1.0 + bend)
        else:
            curve = rng.standard_normal(len(knob.values))[np.rint(place * max(1, len(knob.values) - 1)).astype(int)]
        curve = np.where(has, (curve - curve.mean()) / max(float(curve.std()), 1e-9), 0.0)
        curves.append(curve)
        alone += math.exp(0.9 * float(rng.standard_normal())) * curve
    for one, other in combinations(range(len(knobs)), 2):
        together += math.exp(1.2 * float(rng.standard_normal())) * float(rng.choice([-1.0, 1.0])) * curves[one] * curves[other]
    parts = [(alone, 1.0 - kind.pairs), (together, kind.pairs)]
    logs = sum((math.sqrt(share) * part / max(float(part.std()), 1e-9) for part, share in parts), np.zeros(len(configs)))
    return np.asarray(kind.spread * logs / max(float(logs.std()), 1e-9) + STRUCTURE_ERROR * rng.standard_normal(len(configs)))


def _fails(reason: str, drawn: _Rows, rate: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """About the share `rate` of the rows, at least one of which works."""
    if reason == "memory":  # a product of some ordered knobs
        fails = _largest(_needs(drawn, rng, np.add), rate)
    elif reason == "limits":  # too much of any of them, whatever the others are
        fails = _largest(_needs(drawn, rng, np.maximum), rate)
    elif reason == "time":
        fails = _largest(drawn.logs, rate)
    elif reason == "values":
        fails = _refused(drawn.configs, [(knob,) for knob in drawn.knobs], rate, rng)
    elif reason == "clashes":
        fails = _refused(drawn.configs, list(combinations(drawn.knobs, 2)), rate, rng)
    else:  # nothing that a knob explains
        fails = rng.random(len(drawn.configs)) < rate
    if fails.all():
        fails[int(rng.integers(len(fails)))] = False
    return np.asarray(fails)


def _needs(drawn: _Rows, rng: np.random.Generator, join: Callable[[Floats, Floats], Floats]) -> Floats:
    """How much each needs of something, by about half of the ordered knobs, each in the direction in which it is fast, if there is one."""
    total = 0.1 * rng.standard_normal(len(drawn.configs))
    ordered = [knob for knob in drawn.knobs if knob.ordered] or list(drawn.knobs)
    some = rng.permutation(len(ordered))[: max(2, len(ordered) // 2)]
    logs = drawn.logs
    for index in some:
        place, has = _places(drawn.configs, ordered[int(index)])
        faster = float(np.corrcoef(place[has], logs[has])[0, 1]) if has.sum() > 2 and place[has].std() > 0 and logs[has].std() > 0 else -1.0
        total = join(total, np.where(has, place if faster <= 0 else 1.0 - place, 0.0) * math.exp(0.4 * float(rng.standard_normal())))
    return total


def _largest(need: Floats, rate: float) -> NDArray[np.bool_]:
    fails = need > np.quantile(need, 1.0 - rate)
    if fails.all():
        fails[int(np.argmin(need))] = False
    return np.asarray(fails)


def _refused(configs: Sequence[Config], where: Sequence[Sequence[Knob]], rate: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Values of some knobs together that the system refuses, as many as the share allows."""
    fails = np.zeros(len(configs), dtype=np.bool_)
    for _ in range(REFUSALS):
        knobs = where[int(rng.integers(len(where)))]
        wanted = {knob.name: knob.values[int(rng.integers(len(knob.values)))] for knob in knobs}
        more = fails | np.array([all(config.get(name) == value for name, value in wanted.items()) for config in configs])
        fails = more if more.mean() <= rate else fails
    return fails
