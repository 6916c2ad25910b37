from __future__ import annotations

import numpy as np

from autoscout.core.trial import Measurement, Status, Trial
from autoscout.search.hybrid import HybridSearcher
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.trust import trusted
from autoscout.space import Grid, Space
from autoscout.testing.searcher import TASK

SPACE = Space([Grid(f"k{index}", 1, 5, default=3) for index in range(8)])
DEFAULT = SPACE.default()


def test_each_further_knob_costs_a_share_that_fades() -> None:
    apart = np.array([0, 1, 2, 3])
    assert trusted(apart, 8, 0).tolist() == [1.0, 1.0, 0.5, 0.25]
    assert trusted(apart, 20, 0).tolist() == [1.0, 1.0, 0.5, 0.25], "no less, however many there are"
    assert trusted(apart, 4, 0).tolist() == [1.0, 1.0, 1.0, 1.0], "few knobs: two at once are no guess"
    assert trusted(apart, 8, 20)[2] > 0.8
    assert trusted(apart, 8, 200)[3] > 0.999


def changed(options: HybridOptions) -> float:
    """In how many knobs the first proposals of the model differ from the best so far; the default is the best there is."""
    searcher = HybridSearcher(SPACE, TASK, seed=0, options=options)
    counts = []
    for step in range(12):
        proposal = searcher.ask(1)[0]
        apart = sum(proposal.config[name] != DEFAULT[name] for name in SPACE.knobs)
        counts += [apart] if step >= options.start else []
        measurement = Measurement(status=Status.OK, metrics={"time_s": 1.0 + apart / 5})
        searcher.tell([Trial(proposal=proposal, measurement=measurement)])
    return float(np.mean(counts))


def test_a_young_model_is_followed_step_by_step() -> None:
    assert changed(HybridOptions()) < 2
    assert changed(HybridOptions()) < changed(HybridOptions(cautious=False)) - 0.5
