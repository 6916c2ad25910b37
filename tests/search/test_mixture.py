"""Two Gaussian processes side by side."""

from __future__ import annotations

import numpy as np

from autoscout.core.config import Config
from autoscout.search._shared.gaussian import Process
from autoscout.search._shared.mixture import PLAIN, SHORT_AND_LONG, Mixture
from autoscout.space import Grid, Space
from autoscout.space.encode import Encoder


def test_a_mixture_of_processes_is_less_certain_where_they_disagree() -> None:
    space = Space([Grid("x", 1, 41), Grid("y", 1, 41)])
    encoder = Encoder(space)
    known = encoder.rows([Config(x=x, y=y) for x, y in ((1, 1), (11, 31), (21, 11), (31, 21), (41, 41), (5, 20))])
    targets = np.array([0.4, -1.0, 0.2, 1.2, -0.3, -0.5])
    others = encoder.rows([Config(x=x, y=y) for x in (3, 17, 29, 40) for y in (2, 15, 38)])
    parts = [Process(encoder, belief) for belief in SHORT_AND_LONG]
    mixture, alone = Mixture(encoder, SHORT_AND_LONG), Mixture(encoder, PLAIN)
    plain = Process(encoder)
    for model in (*parts, mixture, alone, plain):
        model.fit(known, targets)
        model.condition(known, targets)
    (short, short_spread), (long, long_spread) = (part.predict(others) for part in parts)
    mean, spread = mixture.predict(others)
    assert np.allclose(mean, (short + long) / 2)
    assert np.allclose(spread**2, (short_spread**2 + long_spread**2) / 2 + ((short - long) / 2) ** 2)
    assert (short != long).all()
    assert np.array_equal(alone.predict(others)[0], plain.predict(others)[0])
    assert np.allclose(mixture.left_out(targets)[0], np.mean([part.left_out(targets)[0] for part in parts], axis=0))
    again = Mixture(encoder, SHORT_AND_LONG)
    again.scales = mixture.scales
    again.condition(known, targets)
    assert np.array_equal(again.predict(others)[0], mean), "hyperparameters are all it takes"
    assert (mixture.sensitivity > 0).all()
