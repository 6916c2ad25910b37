"""Another evaluator's answers with noise on top: how robust is a search against a wrong simulator?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoscout.core import seeds
from autoscout.core.errors import require
from autoscout.core.protocols import Evaluator
from autoscout.core.trial import Measurement, Proposal, Trial


@dataclass(frozen=True, kw_only=True)
class NoisyOptions:
    """How much noise.

    Attributes:
        noise: Standard deviation of the error as a share of the value; the paper's study uses 0, 0.4 and 0.8.
        seed: The error of a configuration is drawn once and stays: asking again does not average it away.
        fresh: Draw anew for each deliberate repeat, as measurements do, instead of staying wrong as simulators do.
    """

    noise: float = 0.4
    seed: int = 0
    fresh: bool = False

    def __post_init__(self) -> None:
        require("noisy", self, {"noise": (self.noise >= 0, "must not be negative")})


class NoisyEvaluator(Evaluator):
    """Adds noise to every metric of another evaluator; failures pass unchanged. Values keep at least a twentieth of themselves."""

    def __init__(self, evaluator: Evaluator, options: NoisyOptions | None = None) -> None:
        self._evaluator = evaluator
        self._options = options or NoisyOptions()

    @property
    def slots(self) -> int:
        return self._evaluator.slots

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        return [self._blurred(proposal, answer) for proposal, answer in zip(proposals, self._evaluator.evaluate(proposals), strict=True)]

    def recheck(self) -> list[Proposal]:
        return self._evaluator.recheck()

    def cancel(self) -> None:
        self._evaluator.cancel()

    @property
    def learns(self) -> bool:
        return self._evaluator.learns

    def learn(self, trials: Sequence[Trial]) -> None:
        self._evaluator.learn(trials)

    def _blurred(self, proposal: Proposal, answer: Measurement) -> Measurement:
        if not answer.ok or self._options.noise == 0:
            return answer
        draw = seeds.stream(self._options.seed, "noisy", proposal.config.key, proposal.repeat if self._options.fresh else 0)
        factor = max(0.05, 1.0 + self._options.noise * float(draw.standard_normal()))
        return replace(answer, metrics={name: value * factor for name, value in answer.metrics.items()})


__all__ = ["NoisyEvaluator"]
