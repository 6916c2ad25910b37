"""What every simulator must do. Subclass `SimulatorSuite` in a test module and give it three fixtures:

    class TestMySimulator(SimulatorSuite):
        @pytest.fixture
        def make(self):
            return MySimulator

        @pytest.fixture
        def space(self):
            return example(MySimulator)[0]

        @pytest.fixture
        def task(self):
            return example(MySimulator)[1]

`example` is the space and task that the simulator brings for this purpose, or a small one for a simulator
that takes any task.

Needs no pytest itself; the methods are plain functions of a maker, a space and a task. How accurate a simulator is, they do not ask.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable

import numpy as np

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.seeds import number, stream
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.space import Choice, Flag, Grid, Space

Make = Callable[[], Simulator]
"""Builds a fresh simulator."""

CONFIGS = 16
"""Configurations that are predicted, the default among them."""

PARTS = ("value", "spread", "feasible", "known")

TASK = Task(system="toy", objective=Objective(metric="time_s"))


def _toy_space() -> Space:
    return Space(
        [
            Grid("threads", 1, 32, log=True, default=4),
            Choice("kernel", ["plain", "tiled", "fused"]),
            Flag("padding", when="kernel == 'tiled'"),
            Grid("share", 0.1, 0.9, step=0.1, default=0.5),
        ]
    )


def example(kind: type[Simulator]) -> tuple[Space, Task]:
    """The space and task that a simulator brings for this suite, or a small one for a simulator that takes any."""
    space, task = kind.example() or (_toy_space(), TASK)
    assert isinstance(space, Space)
    return space, task


def configs(space: Space) -> list[Config]:
    """The default and some random valid configurations, all different."""
    random, distinct = stream(0, "simulator suite"), [space.default()]
    for _ in range(10 * CONFIGS):
        config = space.sample(random)
        if config is not None and config not in distinct and len(distinct) < CONFIGS:
            distinct.append(config)
    return distinct


def measured(space: Space, task: Task, fidelity: Fidelity = Fidelity.MEASURED) -> list[Trial]:
    """Trials that went well, with values that depend on nothing but the configuration."""
    return [_trial(config, task, 1.0 + number(1, config.canonical) % 1000 / 100, fidelity) for config in configs(space)]


def failed(space: Space) -> list[Trial]:
    """A trial of every other kind: all failures, one that was stopped, one without the metric."""
    endings = [Measurement(status=status) for status in Status if status is not Status.OK]
    endings.append(Measurement(status=Status.OK, metrics={"another_metric": 1.0}))
    return [Trial(proposal=Proposal(config=config), measurement=end) for config, end in zip(2 * configs(space), endings, strict=False)]


def check(prediction: Prediction, count: int) -> None:
    """What holds for every prediction of `count` configurations."""
    assert isinstance(prediction, Prediction)
    for part in PARTS:
        values = getattr(prediction, part)
        assert isinstance(values, np.ndarray), f"{part} is an array"
        assert values.shape == (count,), f"{part} has one number per configuration"
        assert values.dtype == np.float64, part
    assert not np.isinf(prediction.value).any(), "a value is finite, or NaN where there is no answer"
    assert np.isfinite(prediction.spread).all()
    assert (prediction.spread >= 0).all()
    for part in ("feasible", "known"):
        values = getattr(prediction, part)
        assert ((values >= 0) & (values <= 1)).all(), f"{part} is between 0 and 1"


def is_same(one: Prediction, other: Prediction) -> bool:
    """Whether two predictions agree, but for the last digits of sums in another order."""
    return all(np.allclose(getattr(one, part), getattr(other, part), rtol=1e-9, atol=1e-12, equal_nan=True) for part in PARTS)


class PredictSuite:
    """`predict`: plain arrays, the same for the same question."""

    def test_is_a_simulator(self, make: Make) -> None:
        simulator = make()
        assert isinstance(simulator, Simulator)
        assert isinstance(simulator.knobs, frozenset)
        assert all(isinstance(name, str) for name in simulator.knobs)

    def test_one_answer_for_each(self, make: Make, space: Space, task: Task) -> None:
        for simulator in (make(), self.fitted(make, space, task)):
            asked = configs(space)
            check(simulator.predict(asked, task), len(asked))
            check(simulator.predict(asked[:1], task), 1)

    def test_nothing_asked_nothing_answered(self, make: Make, space: Space, task: Task) -> None:
        for simulator in (make(), self.fitted(make, space, task)):
            check(simulator.predict([], task), 0)

    def test_together_as_one_by_one(self, make: Make, space: Space, task: Task) -> None:
        for simulator in (make(), self.fitted(make, space, task)):
            asked = configs(space)
            together = simulator.predict(asked, task)
            for place, config in enumerate(asked):
                alone = simulator.predict([config], task)
                assert is_same(alone, _row(together, place)), f"{config} gets another answer in company"

    def test_predicting_changes_nothing(self, make: Make, space: Space, task: Task) -> None:
        for simulator in (make(), self.fitted(make, space, task)):
            asked, before = configs(space), json.dumps(task.to_json(), sort_keys=True)
            first = simulator.predict(asked, task)
            simulator.predict(asked[::-1], task)
            assert is_same(simulator.predict(asked, task), first)
            assert json.dumps(task.to_json(), sort_keys=True) == before, "the task is only read"

    def test_two_of_a_kind_agree(self, make: Make, space: Space, task: Task) -> None:
        asked = configs(space)
        assert is_same(make().predict(asked, task), make().predict(asked, Task.from_json(task.to_json())))
        assert is_same(self.fitted(make, space, task).predict(asked, task), self.fitted(make, space, task).predict(asked, task))

    def test_other_knobs_are_ignored(self, make: Make, space: Space, task: Task) -> None:
        for simulator in (make(), self.fitted(make, space, task)):
            asked = configs(space)
            more = [config.extend({"no_such_knob_anywhere": 3, "nor_this_one": "text"}) for config in asked]
            assert is_same(simulator.predict(more, task), simulator.predict(asked, task))

    def test_it_pickles(self, make: Make, space: Space, task: Task) -> None:
        for simulator in (make(), self.fitted(make, space, task)):
            before = simulator.predict(configs(space), task)
            assert is_same(pickle.loads(pickle.dumps(simulator)).predict(configs(space), task), before)

    def fitted(self, make: Make, space: Space, task: Task) -> Simulator:
        """A simulator that has learned from some trials."""
        simulator = make()
        simulator.fit([*measured(space, task), *failed(space)], task)
        return simulator


class FitSuite:
    """`fit`: takes any trials, and depends on nothing else."""

    def test_any_trials_will_do(self, make: Make, space: Space, task: Task) -> None:
        good = measured(space, task)
        strange = [_trial(Config(), task, 1.0), _trial(Config(no_such_knob_anywhere=3), task, 1.0)]
        negative = [_trial(config, task, value) for config, value in zip(configs(space), (0.0, -1.0), strict=False)]
        for trials in ([], failed(space), good[:1], good[:2], good, measured(space, task, Fidelity.SIMULATED), [*good, *strange], negative):
            simulator = make()
            simulator.fit(trials, task)
            check(simulator.predict(configs(space), task), len(configs(space)))

    def test_simulated_answers_teach_nothing(self, make: Make, space: Space, task: Task) -> None:
        one, other = make(), make()
        one.fit(measured(space, task, Fidelity.SIMULATED), task)
        other.fit([], task)
        assert is_same(one.predict(configs(space), task), other.predict(configs(space), task))

    def test_a_longer_list_replaces_a_shorter_one(self, make: Make, space: Space, task: Task) -> None:
        trials = [*measured(space, task), *failed(space)]
        often, once = make(), make()
        for count in (0, 1, len(trials) // 2, len(trials)):
            often.fit(trials[:count], task)
        once.fit(trials, task)
        assert is_same(often.predict(configs(space), task), once.predict(configs(space), task))
        often.fit([], task)
        assert is_same(often.predict(configs(space), task), make().predict(configs(space), task)), "told nothing, it knows nothing"


class AbilitySuite:
    """What a simulator may offer besides."""

    def test_without_trials_it_has_an_answer_or_refuses_the_task(self, make: Make, space: Space, task: Task) -> None:
        simulator = make()
        if not simulator.needs_no_trials:
            return
        assert simulator.knobs & space.knobs.keys(), "it reads a knob of its own example"
        assert (np.nan_to_num(simulator.predict(configs(space), task).value) > 0).any()
        for strange in (TASK, Task(system=task.system, objective=task.objective)):
            assert _refuses(make(), strange), f"answered for a task that says nothing of what it reads: {strange}"

    def test_parts_of_the_time_are_seconds(self, make: Make, space: Space, task: Task) -> None:
        simulator = make()
        if type(simulator).breakdown is Simulator.breakdown:
            return
        parts = simulator.breakdown(space.default(), task)
        assert parts
        assert all(isinstance(name, str) and np.isfinite(seconds) and seconds >= 0 for name, seconds in parts.items())


class SimulatorSuite(PredictSuite, FitSuite, AbilitySuite):
    """The contract of `autoscout.core.protocols.Simulator`, one method per rule."""


def _refuses(simulator: Simulator, task: Task) -> bool:
    try:
        simulator.predict([Config()], task)
    except ConfigError:
        return True
    return False


def _trial(config: Config, task: Task, value: float, fidelity: Fidelity = Fidelity.MEASURED) -> Trial:
    done = Measurement(status=Status.OK, metrics={task.objective.metric: value}, fidelity=fidelity, cost_s=1.0)
    return Trial(proposal=Proposal(config=config), measurement=done)


def _row(prediction: Prediction, place: int) -> Prediction:
    value, spread, feasible, nearness = (getattr(prediction, part)[place : place + 1] for part in PARTS)
    return Prediction(value=value, spread=spread, feasible=feasible, known=nearness)


__all__ = ["SimulatorSuite", "check", "configs", "example", "failed", "is_same", "measured"]
