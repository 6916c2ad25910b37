"""`hybrid` with a simulator: it begins where the simulator points, and learns where that is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.learning.answers import AnswerSet
from autoscout.search.hybrid import HybridSearcher
from autoscout.search.hybrid.model_choice import ChosenSurrogate
from autoscout.search.hybrid.prior import InformedSurrogate, Prior
from autoscout.space import Choice, Flag, Grid, Space
from autoscout.space.encode import Encoder

SPACE = Space(
    [
        Choice("kind", ["a", "b", "c"]),
        Grid("batch", values=[1, 2, 4, 8, 16]),
        Grid("queue", values=[1, 2, 3, 4, 5, 6]),
        Flag("fast", when="kind == 'c'"),
        Choice("only", ["one"]),
    ]
)
LARGE = Space([Grid(f"k{index}", 1, 12) for index in range(6)])
BEST = Config(kind="b", batch=8, queue=5, only="one")


def step_s(config: Config) -> float:
    apart = abs(np.log2(float(str(config["batch"]))) - 3) + abs(int(str(config["queue"])) - 5)
    return 10.0 * float(1.0 + 0.2 * apart + {"a": 0.3, "b": 0.0, "c": 0.5}[str(config["kind"])])


def fits(config: Config) -> bool:
    return int(str(config["batch"])) * int(str(config["queue"])) <= 48


class Model(Simulator):
    """Knows the truth up to a factor; `upside_down` the contrary of it."""

    knobs = frozenset({"kind", "batch", "queue"})

    def __init__(self, factor: float = 1.0, upside_down: bool = False, maximize: bool = False) -> None:
        self.asked: list[Config] = []
        self.factor, self.upside_down, self.maximize = factor, upside_down, maximize

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        self.asked += configs
        seconds = np.array([self.factor * step_s(config) for config in configs])
        good = np.array([fits(config) != self.upside_down for config in configs])
        value = 100.0 / seconds if self.upside_down != self.maximize else seconds
        ones = np.ones(len(configs))
        return Prediction(value=value, spread=0.05 * ones, feasible=np.where(good, 0.95, 0.05), known=ones)

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        raise AssertionError("the prior must not depend on what was told")


def task_of(direction: Direction = Direction.MINIMIZE) -> Task:
    return Task(system="toy", objective=Objective(metric="step_s", direction=direction))


def trial_of(proposal: Proposal, maximize: bool = False) -> Trial:
    if not fits(proposal.config):
        return Trial(proposal=proposal, measurement=Measurement(status=Status.OOM_START))
    seconds = step_s(proposal.config)
    return Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"step_s": 1.0 / seconds if maximize else seconds}))


def search(searcher: HybridSearcher, steps: int, maximize: bool = False) -> list[Trial]:
    found = []
    for _ in range(steps):
        found.append(trial_of(searcher.ask(1)[0], maximize))
        searcher.tell(found[-1:])
    return found


@pytest.mark.parametrize("maximize", [False, True])
def test_the_default_comes_first_then_the_best_of_a_good_simulator(maximize: bool) -> None:
    direction = Direction.MAXIMIZE if maximize else Direction.MINIMIZE
    trials = search(HybridSearcher(SPACE, task_of(direction), simulator=Model(3.0, maximize=maximize)), 3, maximize)
    assert [trial.config for trial in trials[:2]] == [SPACE.default(), BEST], "what a study measures first, then the favourite"
    assert all(trial.ok for trial in trials)


def test_without_a_simulator_nothing_changes() -> None:
    plain, same = HybridSearcher(SPACE, task_of(), 3), HybridSearcher(SPACE, task_of(), 3, None, None)
    assert [trial.config for trial in search(plain, 8)] == [trial.config for trial in search(same, 8)]


def test_a_simulator_that_is_wrong_about_everything_is_outvoted() -> None:
    trials = search(HybridSearcher(SPACE, task_of(), simulator=Model(upside_down=True)), 60)
    assert BEST in [trial.config for trial in trials]
    late = trials[30:]
    assert sum(not trial.ok for trial in late) < len(late) / 2


def test_proposals_depend_on_what_was_told_and_not_on_its_order() -> None:
    trials = search(HybridSearcher(SPACE, task_of(), 1, simulator=Model(2.0)), 9)
    one, other = HybridSearcher(SPACE, task_of(), 1, simulator=Model(2.0)), HybridSearcher(SPACE, task_of(), 1, simulator=Model(2.0))
    one.tell(trials)
    for trial in reversed(trials):
        other.tell([trial])
        other.ask(1)
    assert one.ask(3) == other.ask(3)


def test_parallel_proposals_differ() -> None:
    searcher = HybridSearcher(SPACE, task_of(), simulator=Model())
    first = searcher.ask(4)
    second = searcher.ask(4, pending=first)
    assert len({proposal.config for proposal in [*first, *second]}) == 8


def test_pinned_knobs_hold() -> None:
    searcher = HybridSearcher(SPACE, task_of(), simulator=Model())
    assert all(proposal.config["kind"] == "c" for proposal in searcher.ask(5, Config(kind="c")))


class Sum(Simulator):
    """Predicts the sum of all knobs, and asks that nothing be close to the edge."""

    knobs = frozenset(LARGE.knobs)

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        value = np.array([float(sum(int(str(item)) for item in config.values())) for config in configs])
        ones = np.ones(len(configs))
        return Prediction(value=value, spread=0.05 * ones, feasible=ones, known=ones)

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        raise AssertionError("never fitted")


def test_a_space_too_large_to_list_is_entered_near_the_favourites() -> None:
    config = HybridSearcher(LARGE, task_of(), simulator=Sum()).ask(1)[0].config
    assert sum(int(str(item)) for item in config.values()) <= 16  # a draw of three thousand seldom has less than 15; the mean is 39


def test_the_first_proposals_of_a_large_space_ask_the_simulator_little() -> None:
    class Counting(Sum):
        asked = 0

        def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
            self.asked += len(configs)
            return super().predict(configs, task)

    simulator = Counting()
    searcher = HybridSearcher(LARGE, task_of(), simulator=simulator)
    (default,) = searcher.ask(1)
    searcher.tell([Trial(proposal=default, measurement=Measurement(status=Status.OK, metrics={"step_s": 20.0}))])
    (second,) = searcher.ask(1)
    assert simulator.asked < 1500, "serving a load once takes a simulator ten milliseconds"
    assert sum(int(str(item)) for item in second.config.values()) <= 8, "the least that is possible is 6"


def test_every_configuration_is_asked_once_and_whole() -> None:
    model = Model()
    search(HybridSearcher(SPACE, task_of(), simulator=model), 10)
    assert len(set(model.asked)) == len(model.asked)
    assert all(not SPACE.check(config) for config in model.asked)


def test_few_measurements_correct_a_constant_factor() -> None:
    encoder = Encoder(SPACE)
    model = InformedSurrogate(Prior(encoder, Model(5.0), task_of()), encoder, {})
    searcher = HybridSearcher(SPACE, task_of())
    searcher.tell([trial_of(Proposal(config=config)) for config in list(SPACE.enumerate())[:8] if fits(config)])
    model.fit(searcher._trials.answers())
    mean, spread = model.predict(encoder.rows([BEST]))
    told = [answer.loss for answer in searcher._trials.answers() if not answer.failed]
    assert np.exp(mean * np.std(np.log(told)) + np.mean(np.log(told)))[0] == pytest.approx(10.0, rel=0.1)
    assert spread[0] > 0.0


def test_where_the_simulator_has_no_answer_the_middle_is_assumed() -> None:
    class Silent(Model):
        def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
            found = super().predict(configs, task)
            return Prediction(value=np.full(len(configs), np.nan), spread=found.spread, feasible=found.feasible, known=found.known)

    trials = search(HybridSearcher(SPACE, task_of(), simulator=Silent()), 12)
    assert len({trial.config for trial in trials}) == 12
    assert sum(trial.ok for trial in trials) >= 9  # it still knows what fits


def test_what_ran_and_what_failed_correct_the_odds() -> None:
    encoder, told = Encoder(SPACE), AnswerSet(SPACE, task_of().objective)
    model = ChosenSurrogate(Prior(encoder, Model(upside_down=True), task_of()), encoder, {})
    configs = list(SPACE.enumerate())
    pair = encoder.rows([configs[0], Config(kind="a", batch=16, queue=6, only="one")])
    before = model.chance(pair)
    assert before[0] < 0.5 < before[1]
    told.add([trial_of(Proposal(config=config)) for config in configs[::2]])
    model.fit(told.answers())
    after = model.chance(pair)
    assert after[0] > 0.8
    assert after[1] < min(before[1] - 0.1, after[0] - 0.2), "the rest is learned by the plain model"
