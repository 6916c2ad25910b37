from __future__ import annotations

import numpy as np
import pytest

from autosched.bluefin import BlueFinOptions, BlueFinSearcher
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.origin import By, Origin
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.space import Choice, Grid, Space

TASK = Task(system="toy", objective=Objective(metric="loss"))


def told(proposal: Proposal, loss: float, fidelity: Fidelity = Fidelity.MEASURED, metric: str = "loss") -> Trial:
    return Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={metric: loss}, fidelity=fidelity))


def bowl(config: Config) -> float:
    """Best at x = 80, y = 20."""
    return 1.0 + ((float(config["x"]) - 80) / 100) ** 2 + ((float(config["y"]) - 20) / 100) ** 2  # type: ignore[arg-type]


PLANE = Space([Grid("x", 0, 100, default=50), Grid("y", 0, 100, default=50)])


@pytest.mark.parametrize("points", [1, 2])
def test_the_centre_moves_to_the_best_place(points: int) -> None:
    distances = []
    for seed in range(5):
        searcher = BlueFinSearcher(PLANE, TASK, seed, BlueFinOptions(points=points))
        searcher.tell([told(Proposal(config=PLANE.default(), origin=Origin(by=By.DEFAULT)), bowl(PLANE.default()))])
        for _ in range(60):
            (proposal,) = searcher.ask(1)
            searcher.tell([told(proposal, bowl(proposal.config))])
        last = searcher.ask(2)[0].origin.notes.get("centre")
        assert last is not None
        distances.append(abs(last[0] - 0.8) + abs(last[1] - 0.2))
    assert np.median(distances) < (0.15 if points == 2 else 0.4)  # it began at 0.6


def test_the_two_points_of_a_step_are_opposite() -> None:
    searcher = BlueFinSearcher(PLANE, TASK, 3)
    first, second = (proposal.config for proposal in searcher.ask(2))
    assert (float(first["x"]) + float(second["x"]), float(first["y"]) + float(second["y"])) == pytest.approx((100, 100), abs=1)  # type: ignore[arg-type]
    assert first != second


def test_good_categories_become_likelier() -> None:
    numbers = [Grid(name, 0, 1000, default=500) for name in "xyz"]
    space = Space([Choice("kind", ["bad", "good", "worse"]), *numbers])
    searcher = BlueFinSearcher(space, TASK, 1)
    kinds = []
    for _ in range(120):
        (proposal,) = searcher.ask(1)
        kinds.append(proposal.config["kind"])
        searcher.tell([told(proposal, {"bad": 2.0, "good": 1.0, "worse": 3.0}[str(proposal.config["kind"])])])
    assert kinds[-60:].count("good") > 1.5 * kinds[:40].count("good")
    assert kinds[-60:].count("good") > 30


def test_a_predicted_answer_moves_the_centre_and_is_no_answer() -> None:
    """What was rejected is told with its prediction: the next pair begins elsewhere, as it would had it been measured."""
    centres = {}
    for fidelity in (Fidelity.PREDICTED, Fidelity.MEASURED):
        searcher = BlueFinSearcher(PLANE, TASK, 3)
        pair = searcher.ask(2)
        searcher.tell([told(pair[0], 1.0), told(pair[1], 2.0, fidelity)])
        centres[fidelity] = searcher.ask(1)[0].origin.notes["centre"]
    assert centres[Fidelity.PREDICTED] == centres[Fidelity.MEASURED] != [0.5, 0.5]


def test_gains_are_climbed_too() -> None:
    task = Task(system="toy", objective=Objective(metric="rate", direction=Direction.MAXIMIZE))
    searcher = BlueFinSearcher(PLANE, task, 0)
    for _ in range(40):
        (proposal,) = searcher.ask(1)
        searcher.tell([told(proposal, 3.0 - bowl(proposal.config), metric="rate")])
    x, y = searcher.ask(1)[0].origin.notes["centre"]
    assert x > 0.6
    assert y < 0.4


def test_a_fixed_knob_stays_while_others_move() -> None:
    searcher = BlueFinSearcher(PLANE, TASK, 0)
    seen = set()
    for _ in range(12):
        (proposal,) = searcher.ask(1, Config(x=7))
        assert proposal.config["x"] == 7
        seen.add(proposal.config["y"])
        searcher.tell([told(proposal, bowl(proposal.config))])
    assert len(seen) == 12


def test_wrong_options_are_refused_together() -> None:
    with pytest.raises(ConfigError) as caught:
        BlueFinOptions(points=3, rate=0.0, radius=0.5, step="adam")
    assert len(caught.value.faults) == 4
