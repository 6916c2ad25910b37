"""What the user runs today: measured next to the default, told to the searcher, and in the final."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import autoscout
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Infeasible, SpaceError
from autoscout.core.origin import By, Phase
from autoscout.core.trial import Trial
from autoscout.study.own import knobs_in

SPACE = {"x": range(21), "y": range(5)}


def bowl(config: Config) -> float:
    return 10.0 + abs(config["x"] - 14) + 3 * abs(config["y"] - 2)


def origins(trials: tuple[Trial, ...]) -> list[str]:
    return [str(trial.proposal.origin.by) for trial in trials]


def test_it_is_measured_right_after_the_default_and_repeated_like_it() -> None:
    outcome = autoscout.minimize(bowl, SPACE, 8, baseline={"x": 12}, rounds=3)
    search = [trial for trial in outcome.trials if trial.proposal.origin.phase is Phase.SEARCH]
    assert origins(outcome.trials)[:2] == [By.DEFAULT, By.BASELINE]
    assert outcome.setup.baseline == Config(x=12, y=0)
    assert origins(tuple(search)).count(By.BASELINE) == origins(tuple(search)).count(By.DEFAULT) == 4
    assert len({trial.config for trial in search}) == 8  # the budget counts both, once


def test_it_is_in_every_round_of_the_final() -> None:
    outcome = autoscout.minimize(bowl, SPACE, 8, baseline={"x": 12}, rounds=3)
    rounds: dict[int, set[Config]] = {}
    for trial in outcome.trials:
        if trial.proposal.origin.phase is Phase.FINAL:
            rounds.setdefault(trial.proposal.origin.round, set()).add(trial.config)
    assert len(rounds) == 3
    assert all({outcome.setup.default, outcome.setup.baseline} < configs for configs in rounds.values())


def test_where_nothing_else_runs_the_two_meet_in_the_final() -> None:
    def only_two(config: Config) -> float:
        if config["x"] not in (0, 12) or config["y"]:
            raise Infeasible("no")
        return 10.0 - config["x"] / 10

    outcome = autoscout.minimize(only_two, SPACE, 6, baseline={"x": 12}, rounds=3)
    final = [trial.config for trial in outcome.trials if trial.proposal.origin.phase is Phase.FINAL]
    assert set(final) == {Config(x=0, y=0), Config(x=12, y=0)}


@pytest.mark.parametrize("searcher", ["coordinate", "evolution", "hybrid", "random"])
def test_the_searcher_begins_around_it(searcher: str) -> None:
    outcome = autoscout.minimize(lambda config: abs(config["x"] - 900), {"x": range(1001)}, 4, baseline={"x": 700}, searcher=searcher)
    third = outcome.trials[2].config
    assert outcome.trials[1].ok
    if searcher == "coordinate":
        assert abs(third["x"] - 700) <= 2


def test_one_that_is_the_default_is_measured_once() -> None:
    outcome = autoscout.minimize(bowl, SPACE, 5, baseline={"x": 0})
    assert outcome.setup.baseline is None
    assert By.BASELINE not in origins(outcome.trials)


def test_a_study_is_resumed_with_it(tmp_path: Path) -> None:
    first = autoscout.minimize(bowl, SPACE, 4, baseline={"x": 12}, folder=tmp_path / "r")
    again = autoscout.minimize(bowl, SPACE, 6, baseline={"x": 12}, folder=tmp_path / "r")
    assert origins(again.trials)[: len(first.trials)] == origins(first.trials)
    assert len({trial.config for trial in again.trials}) == len(again.trials) == 6
    assert autoscout.load_study(tmp_path / "r").setup.baseline == Config(x=12, y=0)


def test_a_program_that_asks_is_given_it_second() -> None:
    with autoscout.create_study(SPACE, 4, baseline={"x": 12}, rounds=2) as study:
        configs = []
        while proposal := study.ask():
            configs.append(proposal.config)
            study.tell(proposal, bowl(proposal.config))
        outcome = study.outcome()
    assert configs[:2] == [Config(x=0, y=0), Config(x=12, y=0)]
    final = [trial.config for trial in outcome.trials if trial.proposal.origin.phase is Phase.FINAL]
    assert final.count(Config(x=12, y=0)) == 2


def test_values_that_the_space_lacks_are_refused_all_at_once() -> None:
    with pytest.raises(SpaceError) as caught:
        autoscout.minimize(bowl, SPACE, 4, baseline={"x": 99, "z": 1})
    assert {fault.field for fault in caught.value.faults} == {"x", "z"}
    assert {fault.where for fault in caught.value.faults} == {"baseline"}


def test_a_pinned_knob_must_not_be_something_else() -> None:
    with pytest.raises(ConfigError, match="baseline has 12"):
        autoscout.minimize(bowl, SPACE, 4, baseline={"x": 12}, given={"x": 3})
    outcome = autoscout.minimize(bowl, SPACE, 4, baseline={"x": 12}, given={"y": 2})
    assert outcome.setup.baseline == Config(x=12, y=2)


@pytest.mark.parametrize(
    ("text", "knobs"),
    [
        ("x=3", {"x": 3}),
        ("x=3, mode=fast,flag=on", {"x": 3, "mode": "fast", "flag": "on"}),
        ("""config={"a": 1, "b": [2, 3]},n=1.5""", {"config": {"a": 1, "b": [2, 3]}, "n": 1.5}),
        ("model-len=3,empty=", {"model-len": 3, "empty": ""}),
        ("vllm serve model --max-num-seqs=3", None),
        ("A=1 vllm serve model", None),
        ("llama-server", None),
        ("", None),
    ],
)
def test_knobs_are_told_from_commands(text: str, knobs: Mapping[str, object] | None) -> None:
    assert knobs_in(text) == knobs
