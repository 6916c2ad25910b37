"""What a simulator says before anything was measured, and how measurements correct it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.protocols import Simulator
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Task
from autoscout.learning.answers import Answer
from autoscout.learning.gaussian import PLAIN, Mixture
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.candidates import Candidates
from autoscout.search.hybrid.success import Success
from autoscout.search.hybrid.surrogate import Memory, Surrogate, outcomes
from autoscout.space.encode import Codes, Encoder, Floats, Rows


class Prior:
    """A simulator's predictions by row: logarithm of the loss, expected error, log odds to run. Asked once per configuration.

    The simulator is never fitted here, so that what it says stays the same whatever was told, and in which order.
    """

    def __init__(self, encoder: Encoder, simulator: Simulator, task: Task) -> None:
        self._encoder, self._simulator, self._task = encoder, simulator, task
        self._sign = 1.0 if task.objective.direction is Direction.MINIMIZE else -1.0
        self._predictions: dict[bytes, tuple[float, float, float]] = {}
        self._favourites: dict[Config, list[Config]] = {}
        space = encoder.space
        self._values = [space.knobs[name].values for name in encoder.names]
        self._fixed = {name: knob.values[0] for name, knob in space.knobs.items() if name not in encoder.names}

    def predict(self, rows: Rows) -> tuple[Floats, Floats, Floats]:
        """Logarithm of the loss (NaN where the simulator has no answer), standard deviation of its error, log odds to run."""
        codes = np.ascontiguousarray(rows.codes)
        keys = [row.tobytes() for row in codes]
        new = {key: index for index, key in enumerate(keys) if key not in self._predictions}
        if new:
            self._ask(list(new), [self._config(codes[index]) for index in new.values()])
        predictions = np.array([self._predictions[key] for key in keys]).reshape(-1, 3)
        return predictions[:, 0], predictions[:, 1], predictions[:, 2]

    def can_answer(self) -> bool:
        """Whether the simulator predicts this metric at all: for the default, or one of a few others."""
        space, rng = self._encoder.space, stream(0, "hybrid", "prior answers")
        drawn = (space.sample(rng) for _ in range(8))
        try:
            configs = [space.default(), *(config for config in drawn if config is not None)]
            return bool(np.isfinite(self.predict(self._encoder.rows(configs))[0]).any())
        except ConfigError:
            return False

    def _ask(self, keys: Sequence[bytes], configs: Sequence[Config]) -> None:
        answer = self._simulator.predict(configs, self._task)
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.where(answer.value > 0, self._sign * np.log(answer.value), np.nan)
        # Far from its calibration data a simulator's word about its own error means nothing.
        spread = np.maximum(answer.spread, tuning.MIN_SIMULATOR_ERROR) + tuning.BIAS_DEVIATION * (1.0 - answer.known)
        chance = np.clip(answer.feasible, 1e-6, 1.0 - 1e-6)
        odds = np.clip(np.log(chance / (1.0 - chance)), -tuning.MAX_MEMORY_ODDS, tuning.MAX_MEMORY_ODDS)
        self._predictions.update(zip(keys, zip(level.tolist(), spread.tolist(), odds.tolist(), strict=True), strict=True))

    def _config(self, codes: Codes) -> Config:
        active = {
            name: values[code] for name, values, code in zip(self._encoder.names, self._values, codes.tolist(), strict=True) if code >= 0
        }
        return Config({**self._fixed, **active})

    def widen(self, configs: list[Config], rows: Rows, taken: set[Config], pool: Candidates) -> tuple[list[Config], Rows]:
        """Candidates of a large space and the simulator's favourites, which a search that draws candidates seldom meets."""
        if pool.given not in self._favourites:
            self._favourites[pool.given] = self._best(pool)
        held = {*configs, *taken}
        more = [config for config in self._favourites[pool.given] if config not in held]
        return configs + more, Rows.join([rows, self._encoder.rows(more)])

    def _best(self, pool: Candidates) -> list[Config]:
        """What the simulator thinks best: of a random sample, then of the neighbours of the best, as long as these are better."""
        costs = dict(zip(pool.configs, self._costs(pool.rows), strict=True))
        configs: set[Config] = set()
        while len(costs) < 2 * tuning.RANDOM_CANDIDATES:
            best = [config for config in sorted(costs, key=costs.__getitem__)[: tuning.BEST_CONFIGS] if config not in configs]
            if not best:
                break
            configs.add(best[0])
            near, rows = pool.around(best[0])
            costs.update(zip(near, self._costs(rows), strict=True))
        return sorted(costs, key=costs.__getitem__)[: tuning.RANDOM_CANDIDATES]

    def _costs(self, rows: Rows) -> list[float]:
        """The loss over the chance to run, as logarithms."""
        level, _, odds = self.predict(rows)
        costs: list[float] = (np.where(np.isnan(level), np.inf, level) + np.logaddexp(0.0, -odds)).tolist()
        return costs


class InformedSurrogate(Surrogate):
    """The simulator's prediction, times one factor, times what a Gaussian process finds wrong with it from place to place.

    The better the simulator proves, the smaller the errors that are expected of it at other places, and vice versa.
    """

    def __init__(self, prior: Prior, encoder: Encoder, memory: Memory) -> None:
        super().__init__(encoder, memory)
        self.prior = prior
        self._odds, self._share = Success(encoder, slope=0.0), 1.0
        self._logs: Floats = np.zeros(0)
        self._middle, self.holds = 0.0, 1.0
        self._centre, self.unit, self._bias, self._error = 0.0, 1.0, 0.0, 1.0

    def fit(self, answers: Sequence[Answer], pending: Sequence[Config] = ()) -> None:
        ordered = sorted(answers, key=lambda answer: answer.key)
        worked = [answer for answer in ordered if not answer.failed]
        self.rows = self._encoder.rows(answer.config for answer in worked)
        self._fit_odds(*outcomes(self._encoder, ordered))
        self._level(np.array([answer.loss for answer in worked]))
        self._correct(pending)

    def _level(self, losses: Floats) -> None:
        """Targets: logarithms of losses, standardised once there are two."""
        logs = np.log(losses) if (losses > 0).all() else -np.log(np.maximum(-losses, 1e-300))
        self._logs = logs
        self._centre = float(logs.mean()) if len(logs) else 0.0
        self.unit = max(float(logs.std()), 1e-9) if len(logs) > 1 else 1.0
        self.targets = (logs - self._centre) / self.unit
        self.best = float(self.targets.min()) if len(logs) else 0.0

    def _correct(self, pending: Sequence[Config]) -> None:
        level, spread, _ = self.prior.predict(self.rows)
        good = np.flatnonzero(np.isfinite(level))
        trust = float(np.mean(spread)) if len(spread) else 1.0
        self._holds(level[good], self._logs[good], trust)
        level = self._scaled(level)
        wrong = self._logs[good] - level[good]
        self._bias = float(wrong.sum()) / (len(wrong) + (trust / tuning.BIAS_DEVIATION) ** 2) if len(wrong) else 0.0
        rest = wrong - self._bias
        squares = tuning.PRIOR_TRIALS + float(rest @ rest) / trust**2
        self._error = float(np.sqrt(squares / (tuning.PRIOR_TRIALS + len(rest))))  # in units of the simulator's own spread
        rows = self.rows.take(good)
        self._process = Mixture(self._encoder, PLAIN)
        if len(rows) >= tuning.PRIOR_TRIALS:
            self._process.scales = self._scales("prior", self._process, rows, np.exp(wrong))
        if len(rows):
            reach = self._error * spread[good]
            mean, deviation = self._condition(rows, rest / reach, np.zeros(len(rows)), pending)
            self.left_out = (good, level[good] + self._bias + reach * mean, reach * deviation)

    def _holds(self, level: Floats, logs: Floats, trust: float) -> None:
        """How much of the differences that the simulator predicts is true: 1 when it knows, 0 when they have nothing to do with it."""
        self.holds = 1.0
        if not len(level):
            return
        self._middle = float(level.mean())
        apart, measured = level - self._middle, logs - logs.mean()
        weight = trust**2  # the share is expected to be 1 with a standard deviation of 1
        self.holds = float(np.clip((weight + apart @ measured) / (weight + apart @ apart), 0.0, 1.0))

    def _scaled(self, level: Floats) -> Floats:
        return self._middle + self.holds * (level - self._middle)

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        level, spread, _ = self.prior.predict(rows)
        level = self._scaled(level)
        reach = self._error * spread
        mean, deviation = self._process.predict(rows) if len(self.left_out[0]) else (np.zeros(len(rows)), np.ones(len(rows)))
        expected = level + self._bias + reach * mean
        blind = np.isnan(expected)
        centre = self._centre
        if not len(self._logs) and not blind.all():
            centre = float(np.median(expected[~blind]))  # nothing ran yet: better than the middle is what counts as an improvement
        return np.where(blind, 0.0, (expected - centre) / self.unit), np.where(blind, 1.0, reach * deviation / self.unit)

    def _fit_odds(self, rows: Rows, labels: Floats) -> None:
        """Correct the simulator's log odds by what ran and what failed, after scaling them by the most likely share of them.

        A simulator that proves wrong about memory is no longer asked: its share falls to 0.
        """
        odds = self.prior.predict(rows)[2]
        shares = np.linspace(0.0, 1.0, 21)
        signed = np.where(labels > 0, 1.0, -1.0) * odds
        likelihood = -np.logaddexp(0.0, -signed[:, None] * shares).sum(axis=0) - 0.5 * ((1.0 - shares) / tuning.BIAS_DEVIATION) ** 2
        self._share = float(shares[int(np.argmax(likelihood))])
        self.evidence = self._odds.fit(rows, labels, self._share * odds)

    def chance(self, rows: Rows) -> Floats:
        return self._odds.chance(rows, self._share * self.prior.predict(rows)[2])
