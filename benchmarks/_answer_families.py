"""Functions whose truth is known, for `benchmarks.answer`: families for development, and others that are only reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.task import Limit

MEMORY = 0.97
"""Share of the drift of one call that is left at the next."""


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """How a measurement differs from the truth; all shares are of its value.

    Attributes:
        share: Standard deviation of a measurement.
        tail: How often other work makes it worse.
        tail_size: By how much, on average.
        drift: Standard deviation of what changes slowly from call to call.
    """

    share: float
    tail: float = 0.0
    tail_size: float = 0.0
    drift: float = 0.0

    def __str__(self) -> str:
        tail = f", {self.tail:.0%} of the runs {self.tail_size:.0%} worse" if self.tail else ""
        drift = f", drift of {self.drift:.0%}" if self.drift else ""
        return f"{self.share:.0%}{tail}{drift}"


@dataclass(frozen=True, kw_only=True)
class Family:
    """A function of a few knobs, each with levels 0, 1, 2, ... of which 0 is the default.

    Attributes:
        name: A word or two.
        text: What it is, for the page.
        base: Every metric at the default; the first is the goal.
        effects: By metric and knob the factor at each level.
        inert: The number of levels of each knob that changes nothing.
        gates: Knobs that do nothing unless another one has at least this level.
        maximize: Whether more of the goal is better.
        limits: What has to be kept.
        disturbance: Of a measurement.
        trials: Of the search.
        reported: Whether it is only reported, never looked at while the method is made.
    """

    name: str
    text: str
    base: Mapping[str, float]
    effects: Mapping[str, Mapping[str, Sequence[float]]]
    inert: Sequence[int] = ()
    gates: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    maximize: bool = False
    limits: tuple[str, ...] = ()
    disturbance: Disturbance
    trials: int = 40
    reported: bool = False

    @property
    def metric(self) -> str:
        return next(iter(self.base))

    @property
    def idle(self) -> tuple[str, ...]:
        """Names of the knobs that change nothing."""
        return tuple(f"idle_{number}" for number in range(len(self.inert)))

    @property
    def levels(self) -> dict[str, int]:
        """How many levels each knob has."""
        active = {knob: len(factors) for by_knob in self.effects.values() for knob, factors in by_knob.items()}
        return {**active, **dict(zip(self.idle, self.inert, strict=True))}

    def truth(self, config: Mapping[str, Any]) -> dict[str, float]:
        """All metrics without noise."""
        metrics = dict(self.base)
        for metric, by_knob in self.effects.items():
            for knob, factors in by_knob.items():
                gate, least = self.gates.get(knob, (knob, 0))
                if int(config[gate]) >= least:
                    metrics[metric] *= factors[int(config[knob])]
        return metrics

    def keeps(self, config: Mapping[str, Any]) -> bool:
        """Whether it truly keeps every limit."""
        metrics = self.truth(config)
        return all(limit.allows(metrics[limit.metric]) for limit in map(Limit.parse, self.limits))

    def gain(self, config: Mapping[str, Any], over: Mapping[str, Any]) -> float:
        """How many times better it truly is, by the goal."""
        one, other = self.truth(config)[self.metric], self.truth(over)[self.metric]
        return one / other if self.maximize else other / one

    def best(self) -> dict[str, int] | None:
        """The best of all configurations that truly keep every limit, without changes that do nothing; None where none does."""
        active = [knob for knob in self.levels if knob not in self.idle]
        still = dict.fromkeys(self.levels, 0)
        configs = (
            {**still, **dict(zip(active, levels, strict=True))} for levels in product(*(range(self.levels[knob]) for knob in active))
        )
        return max((config for config in configs if self.keeps(config)), key=lambda config: self.gain(config, still), default=None)

    def measured(self, seed: int) -> Callable[[Config], dict[str, float]]:
        """The function as it is measured; every call draws anew, and the machine drifts from call to call."""
        draw, noise = stream(seed, "benchmarks", "answer", self.name), self.disturbance
        drift = 0.0

        def answer(config: Config) -> dict[str, float]:
            nonlocal drift
            drift = MEMORY * drift + math.sqrt(1.0 - MEMORY**2) * noise.drift * float(draw.standard_normal())
            slow = float(draw.exponential(noise.tail_size)) if draw.random() < noise.tail else 0.0
            metrics = {}
            for metric, value in self.truth(config).items():
                worse = -1.0 if metric == self.metric and self.maximize else 1.0
                log = noise.share * float(draw.standard_normal()) + worse * (drift + math.log1p(slow))
                metrics[metric] = value * math.exp(log)
            return metrics

        return answer


_GENTLE, _USUAL, _ROUGH = Disturbance(share=0.02), Disturbance(share=0.03), Disturbance(share=0.05)

DEVELOPMENT = (
    Family(
        name="near a limit",
        text="the default keeps its limit by 0.5 %; keeping more distance costs 40 % of the goal",
        base={"throughput": 100.0, "p95_ms": 99.5},
        effects={"throughput": {"cap": (1.0, 0.6)}, "p95_ms": {"cap": (1.0, 0.8)}},
        inert=(6,),
        maximize=True,
        limits=("p95_ms<=100",),
        disturbance=_USUAL,
        trials=12,
    ),
    Family(
        name="over a limit",
        text="the default breaks its limit by 15 %; keeping it costs 12 % of the goal",
        base={"throughput": 100.0, "p95_ms": 115.0},
        effects={"throughput": {"cap": (1.0, 0.94, 0.88, 0.6)}, "p95_ms": {"cap": (1.0, 0.9, 0.78, 0.6)}},
        inert=(5, 3),
        maximize=True,
        limits=("p95_ms<=100",),
        disturbance=_USUAL,
        trials=20,
    ),
    Family(
        name="middling",
        text="a large effect (1.94x), two middling ones (5 %, 3 %), two knobs that do nothing",
        base={"throughput": 100.0},
        effects={
            "throughput": {
                "seqs": (1.0, 1.4, 1.75, 1.94, 1.9),
                "tokens": (1.0, 1.02, 1.05, 1.03),
                "kv": (1.0, 1.03),
            }
        },
        inert=(3, 3),
        maximize=True,
        disturbance=_USUAL,
    ),
    Family(
        name="many idle",
        text="two large effects (2.08x together), eight knobs that do nothing",
        base={"time_s": 10.0},
        effects={"time_s": {"a": (1.0, 0.85, 0.7, 0.6, 0.75), "b": (1.0, 0.9, 0.8, 0.85, 0.95)}},
        inert=(5,) * 8,
        disturbance=_GENTLE,
    ),
    Family(
        name="nothing helps",
        text="six knobs that do nothing, one that harms",
        base={"time_s": 10.0},
        effects={"time_s": {"harm": (1.0, 1.1, 1.3)}},
        inert=(4, 4, 3, 3, 2, 2),
        disturbance=_USUAL,
        trials=30,
    ),
    Family(
        name="gated",
        text="a large effect without which a middling one (6 %) does nothing, another one (4 %), three knobs that do nothing",
        base={"time_s": 10.0},
        effects={"time_s": {"a": (1.0, 0.9, 0.6, 0.65), "b": (1.0, 0.97, 0.943), "c": (1.0, 0.962, 1.05)}},
        gates={"b": ("a", 2)},
        inert=(4, 3, 2),
        disturbance=_GENTLE,
    ),
    Family(
        name="heavy tails",
        text="a large effect (1.6x), a middling one (8 %), four knobs that do nothing",
        base={"time_s": 10.0},
        effects={"time_s": {"a": (1.0, 0.8, 0.625, 0.7), "b": (1.0, 0.926, 0.96)}},
        inert=(4, 4, 3, 2),
        disturbance=Disturbance(share=0.02, tail=0.08, tail_size=0.2),
    ),
    Family(
        name="drift",
        text="a large effect (1.5x), a middling one (6 %), three knobs that do nothing",
        base={"throughput": 100.0},
        effects={"throughput": {"a": (1.0, 1.2, 1.5, 1.3), "b": (1.0, 1.06, 0.98)}},
        inert=(4, 3, 3),
        maximize=True,
        disturbance=Disturbance(share=0.02, drift=0.06),
    ),
)

REPORTED = (
    Family(
        name="close to a limit",
        text="the default keeps its limit by 1 %; keeping more distance costs 25 %, and a knob that looks harmless breaks it",
        base={"time_s": 4.0, "memory_gib": 39.6},
        effects={
            "time_s": {"cache": (1.0, 1.25, 1.4), "wide": (1.0, 0.99)},
            "memory_gib": {"cache": (1.0, 0.85, 0.7), "wide": (1.0, 1.12)},
        },
        inert=(4, 3),
        limits=("memory_gib<=40",),
        disturbance=_GENTLE,
        trials=16,
        reported=True,
    ),
    Family(
        name="clearly over a limit",
        text="the default breaks its limit by 30 %; two knobs are needed to keep it, at 20 % of the goal",
        base={"throughput": 50.0, "p99_ms": 260.0},
        effects={
            "throughput": {"slots": (1.0, 0.9, 0.7), "chunk": (1.0, 0.89, 0.8)},
            "p99_ms": {"slots": (1.0, 0.82, 0.7), "chunk": (1.0, 0.84, 0.78)},
        },
        inert=(3, 5),
        maximize=True,
        limits=("p99_ms<=200",),
        disturbance=_USUAL,
        trials=24,
        reported=True,
    ),
    Family(
        name="two middling",
        text="a large effect (2.5x), two middling ones (4 %, 5 %), three knobs that do nothing",
        base={"time_s": 30.0},
        effects={
            "time_s": {
                "workers": (1.0, 0.7, 0.5, 0.4, 0.45, 0.6),
                "pin": (1.0, 0.96),
                "depth": (1.0, 0.98, 0.95, 0.97),
            }
        },
        inert=(4, 2, 3),
        disturbance=_USUAL,
        reported=True,
    ),
    Family(
        name="middling, noisy",
        text="a large effect (1.8x), two middling ones (5 %, 4 %), two knobs that do nothing",
        base={"throughput": 900.0},
        effects={"throughput": {"batch": (1.0, 1.3, 1.6, 1.8), "mode": (1.0, 1.05, 1.01), "queue": (1.0, 1.02, 1.04)}},
        inert=(5, 2),
        maximize=True,
        disturbance=_ROUGH,
        reported=True,
    ),
    Family(
        name="idle knobs",
        text="one large effect (1.7x), nine knobs that do nothing",
        base={"throughput": 10.0},
        effects={"throughput": {"a": (1.0, 1.5, 1.7, 1.2)}},
        inert=(3, 4, 5, 6, 2, 2, 3, 4, 5),
        maximize=True,
        disturbance=_USUAL,
        reported=True,
    ),
    Family(
        name="nothing to gain",
        text="five knobs that do nothing, two that harm",
        base={"throughput": 10.0},
        effects={"throughput": {"harm": (1.0, 0.8, 0.7), "worse": (1.0, 0.95)}},
        inert=(6, 5, 4, 3, 2),
        maximize=True,
        disturbance=_ROUGH,
        reported=True,
    ),
    Family(
        name="together only",
        text="a large effect (1.5x) without which two middling ones (5 %, 4 %) do nothing, two knobs that do nothing",
        base={"throughput": 200.0},
        effects={"throughput": {"a": (1.0, 1.2, 1.5), "b": (1.0, 1.02, 1.05), "c": (1.0, 1.04)}},
        gates={"b": ("a", 1), "c": ("a", 2)},
        inert=(4, 4),
        maximize=True,
        disturbance=_GENTLE,
        reported=True,
    ),
    Family(
        name="heavier tails",
        text="a large effect (2x), two middling ones (7 %, 5 %), three knobs that do nothing",
        base={"time_s": 1.0},
        effects={"time_s": {"a": (1.0, 0.7, 0.5), "b": (1.0, 0.93, 0.97), "c": (1.0, 0.95)}},
        inert=(4, 3, 2),
        disturbance=Disturbance(share=0.02, tail=0.12, tail_size=0.25),
        reported=True,
    ),
    Family(
        name="more drift",
        text="a large effect (1.4x), two middling ones (5 %, 4 %), three knobs that do nothing",
        base={"time_s": 100.0},
        effects={"time_s": {"a": (1.0, 0.9, 0.714, 0.8), "b": (1.0, 0.95), "c": (1.0, 1.02, 0.96)}},
        inert=(5, 4, 2),
        disturbance=Disturbance(share=0.025, drift=0.1),
        reported=True,
    ),
)

__all__ = ["DEVELOPMENT", "REPORTED", "Family"]
