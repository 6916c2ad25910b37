"""`hybrid` with simulators that are wrong: it is never much worse than without one."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.seeds import stream
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.learning.answers import AnswerSet
from autoscout.learning.gaussian import Process
from autoscout.search.hybrid import HybridSearcher
from autoscout.search.hybrid.model_choice import ChosenSurrogate
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.prior import InformedSurrogate, Prior
from autoscout.search.hybrid.success import averaged, boundary, left_out
from autoscout.search.hybrid.target import ruler, standardise
from autoscout.space import Choice, Grid, Space
from autoscout.space.encode import Encoder

SPACE = Space(
    [
        Choice("kind", ["a", "b", "c"]),
        Grid("batch", values=[1, 2, 4, 8, 16]),
        Grid("queue", values=[1, 2, 3, 4, 5, 6]),
        Grid("stages", values=[1, 2, 4]),
    ]
)
SMALL = Space([Choice("kind", ["a", "b"]), Grid("batch", values=[1, 4, 8, 16]), SPACE.knobs["queue"], Grid("stages", values=[1, 2])])
TASK = Task(system="toy", objective=Objective(metric="step_s"))
BEST = Config(kind="b", batch=4, queue=5, stages=2)


def number(config: Config, name: str) -> int:
    return int(str(config[name]))


def step_s(config: Config) -> float:
    apart = abs(np.log2(number(config, "batch")) - 2) + abs(number(config, "queue") - 5) + 2 * abs(np.log2(number(config, "stages")) - 1)
    return 10.0 * float(1.0 + 0.2 * apart + {"a": 0.3, "b": 0.0, "c": 0.5}[str(config["kind"])])


def fits(config: Config) -> bool:
    return number(config, "batch") * number(config, "queue") <= 24


def chance(config: Config, salt: str) -> float:
    return (zlib.crc32(f"{config.key}{salt}".encode()) % 9973 + 0.5) / 9973


class Model(Simulator):
    """Says the truth about time and memory, or its contrary, or anything."""

    knobs = frozenset(SPACE.knobs)

    def __init__(self, times: str = "true", memory: str = "true") -> None:
        self.times, self.memory = times, memory

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        seconds = np.array([step_s(config) for config in configs])
        ran = np.array([float(fits(config)) for config in configs])
        if self.times != "true":
            drawn = np.array([10.0 * np.exp(chance(config, "time")) for config in configs])
            seconds = 300.0 / seconds if self.times == "reversed" else drawn
        if self.memory != "true":
            drawn = np.array([float(chance(config, "memory") < 0.5) for config in configs])
            ran = 1.0 - ran if self.memory == "reversed" else drawn
        ones = np.ones(len(configs))
        return Prediction(value=seconds, spread=0.1 * ones, feasible=0.05 + 0.9 * ran, known=ones)

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        raise AssertionError("the prior must not depend on what was told")


def trial_of(config: Config) -> Trial:
    good = fits(config)
    measurement = Measurement(status=Status.OK, metrics={"step_s": step_s(config)}) if good else Measurement(status=Status.OOM_START)
    return Trial(proposal=Proposal(config=config), measurement=measurement)


def search(searcher: HybridSearcher, most: int) -> list[Trial]:
    found: list[Trial] = []
    while len(found) < most and (asked := searcher.ask(1)):
        found.append(Trial(proposal=asked[0], measurement=trial_of(asked[0].config).measurement))
        searcher.tell(found[-1:])
    return found


def guarded(model: Model, configs: Sequence[Config]) -> ChosenSurrogate:
    encoder, told = Encoder(SPACE), AnswerSet(SPACE, TASK.objective)
    found = ChosenSurrogate(Prior(encoder, model, TASK), encoder, {})
    told.add([trial_of(config) for config in configs])
    found.fit(told.answers())
    return found


def drawn(count: int) -> list[Config]:
    configs = list(SPACE.enumerate())
    return [configs[row] for row in stream(5, "guard").permutation(len(configs))[:count]]


@cache
def to_best(times: str = "", memory: str = "", most: int = 60) -> float:
    """Evaluations until the best configuration, over three seeds; without a simulator where none is described."""
    found = []
    for seed in range(3):
        searcher = HybridSearcher(SPACE, TASK, seed, simulator=Model(times, memory) if times else None)
        place = 2 * most
        for count in range(1, most + 1):
            (trial,) = search(searcher, 1)
            if trial.config == BEST:
                place = count
                break
        found.append(place)
    return sum(found) / len(found)


@pytest.mark.parametrize(("times", "memory"), [("reversed", "true"), ("random", "true"), ("true", "reversed"), ("true", "random")])
def test_a_wrong_simulator_costs_little(times: str, memory: str) -> None:
    assert to_best(times, memory) <= 1.5 * to_best() + 4


def test_a_right_one_leads_straight_to_the_best() -> None:
    assert to_best("true", "true") <= 3


def test_a_search_that_knows_what_fits_ends_before_it_has_tried_all_that_fails() -> None:
    everything = list(SMALL.enumerate())
    bad = sum(not fits(config) for config in everything)
    trials = search(HybridSearcher(SMALL, TASK, options=HybridOptions(stop_gain=0.001), simulator=Model()), len(everything))
    failed = sum(not trial.ok for trial in trials)
    assert len(trials) < len(everything), "it ended by itself"
    assert failed < bad / 4
    assert min(step_s(trial.config) for trial in trials if trial.ok) == min(step_s(config) for config in everything if fits(config))
    to_the_end = search(HybridSearcher(SMALL, TASK, simulator=Model()), len(everything))
    assert sum(not trial.ok for trial in to_the_end) == bad


def test_the_better_model_predicts() -> None:
    told = drawn(30)
    right, wrong = guarded(Model(), told), guarded(Model("reversed", "reversed"), told)
    assert right.trust > 0.6
    assert wrong.trust < 0.05
    rows = Encoder(SPACE).rows([BEST, Config(kind="c", batch=1, queue=1, stages=4)])
    for model in (right, wrong):
        mean, _ = model.predict(rows)
        assert mean[0] < mean[1] - 0.5
    odds = wrong.chance(Encoder(SPACE).rows([Config(kind="a", batch=1, queue=1, stages=1), Config(kind="a", batch=16, queue=6, stages=1)]))
    assert odds[0] > odds[1] + 0.4


def test_with_few_trials_the_simulator_is_believed() -> None:
    assert isinstance(guarded(Model("reversed"), [config for config in drawn(12) if fits(config)][:3])._chosen, InformedSurrogate)
    few = guarded(Model(), drawn(2))
    assert few.trust > 0.6
    assert few.chance(Encoder(SPACE).rows([Config(kind="a", batch=16, queue=6, stages=1)]))[0] < 0.3


def test_the_verdict_does_not_depend_on_the_order_of_telling() -> None:
    trials = [trial_of(config) for config in drawn(25)]
    one, other = (HybridSearcher(SPACE, TASK, 1, simulator=Model("random", "reversed")) for _ in range(2))
    one.tell(trials)
    for trial in reversed(trials):
        other.tell([trial])
        other.ask(1)
    assert one.ask(3) == other.ask(3)


def test_leaving_one_out_is_what_leaving_one_out_gives() -> None:
    encoder = Encoder(SPACE)
    configs = drawn(12)
    rows, targets = encoder.rows(configs), standardise(np.array([step_s(config) for config in configs]))[0]
    process = Process(encoder)
    process.condition(rows, targets)
    mean, deviation = process.left_out(targets)
    noise = float(np.exp(2 * process.scales.noise)) + 1e-6
    for row in range(len(configs)):
        others = [index for index in range(len(configs)) if index != row]
        process.condition(rows.take(others), targets[others])
        expected, spread = process.predict(rows.take([row]))
        assert mean[row] == pytest.approx(expected[0], abs=1e-3)
        assert deviation[row] ** 2 == pytest.approx(spread[0] ** 2 + noise, rel=1e-2)


def test_leaving_an_outcome_out_is_near_what_leaving_it_out_gives() -> None:
    rng = stream(3, "guard")
    places = rng.uniform(-1, 1, (14, 2))
    columns = 2.0 * np.hstack([np.ones((14, 1)), places])
    labels, expected = (places.sum(1) > 0).astype(float), np.full(14, 0.5)
    found = np.exp(left_out(columns, labels, expected, *boundary(columns, labels, expected)))
    for row in range(14):
        others = np.array([index for index in range(14) if index != row])
        weights, whiten = boundary(columns[others], labels[others], expected[others])
        variance = ((whiten @ columns[row]) ** 2).sum()
        ran = averaged(expected[row] + columns[row] @ weights, variance)
        assert found[row] == pytest.approx(ran if labels[row] else 1.0 - ran, abs=0.05)


def test_a_ruler_carries_other_values_to_the_same_targets() -> None:
    losses = np.array([3.0, 1.0, 7.0, 2.5, 40.0])
    scale, values = ruler(losses)
    assert scale.targets(values) == pytest.approx(standardise(losses)[0])
    near = np.array([values.min() - 0.5, values.mean() + 0.2, values.max()])
    assert scale.slope(near) == pytest.approx((scale.targets(near + 1e-6) - scale.targets(near - 1e-6)) / 2e-6, rel=1e-3)
    assert scale.slope(near)[0] == pytest.approx(1.0 / scale.unit)
