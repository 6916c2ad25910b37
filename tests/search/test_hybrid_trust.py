from __future__ import annotations

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.trial import Measurement, Status, Trial
from autoscout.search.hybrid import HybridSearcher
from autoscout.search.hybrid.ledger import Answer
from autoscout.search.hybrid.trust import stands_out, trusted
from autoscout.space import Grid, Space
from autoscout.testing.searcher import TASK

SPACE = Space([Grid(f"k{index}", 1, 5, default=3) for index in range(8)])
DEFAULT = SPACE.default()


def answer(config: Config, loss: float) -> Answer:
    return Answer(config=config, key=config.key, loss=loss, simulated=None, origin={}, measured=True)


def test_each_further_knob_costs_a_share_that_fades() -> None:
    apart = np.array([0, 1, 2, 3])
    assert trusted(apart, 8, 0).tolist() == [1.0, 1.0, 0.5, 0.25]
    assert trusted(apart, 20, 0).tolist() == [1.0, 1.0, 0.5, 0.25], "no less, however many there are"
    assert trusted(apart, 4, 0).tolist() == [1.0, 1.0, 1.0, 1.0], "few knobs: two at once are no guess"
    assert trusted(apart, 8, 20)[2] > 0.8
    assert trusted(apart, 8, 200)[3] > 0.999


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (1.0, [2.0, 1.2], True),
        (1.0, [2.0, 1.1], False),  # not by so much
        (1.0, [0.9], False),
        (-120.0, [-100.0], True),  # rates
        (-105.0, [-100.0], False),
        (-1.0, [1.0], False),  # of mixed signs nothing can be said
        (float("inf"), [1.0], False),
        (1.0, [float("inf")], False),  # failures say nothing about speed
        (1.0, [], False),
    ],
)
def test_a_default_that_stands_out(own: float, others: list[float], expected: bool) -> None:
    answers = [answer(DEFAULT, own), *(answer(DEFAULT.extend(k0=place + 1), loss) for place, loss in enumerate(others))]
    assert stands_out(answers, DEFAULT) is expected


def arms(default_s: float, far_s: float, steps: int) -> tuple[list[str | None], list[int]]:
    """Who proposed, and in how many knobs that differs from the best so far; everything but the default is alike."""
    searcher = HybridSearcher(SPACE, TASK, seed=0)
    names, changed = [], []
    best = DEFAULT
    fastest = np.inf
    for _ in range(steps):
        proposal = searcher.ask(1)[0]
        names.append(proposal.origin.get("arm"))
        changed.append(sum(proposal.config[name] != best[name] for name in SPACE.knobs))
        apart = sum(proposal.config[name] != DEFAULT[name] for name in SPACE.knobs)
        time_s = default_s if apart == 0 else far_s + apart / 100
        if time_s < fastest:
            best, fastest = proposal.config, time_s
        searcher.tell([Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"time_s": time_s}))])
    return names, changed


def test_a_good_default_ends_the_starts_and_is_searched_around() -> None:
    names, changed = arms(default_s=1.0, far_s=3.0, steps=9)
    assert names[:4] == ["start", "start", "start", None]
    assert np.mean(changed[3:]) < 2
    names, _ = arms(default_s=3.0, far_s=3.0, steps=5)
    assert names == ["start"] * 4 + [None]
