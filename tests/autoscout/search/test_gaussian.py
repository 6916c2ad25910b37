from __future__ import annotations

from typing import Any

import numpy as np

from autoscout.core.config import Config
from autoscout.learning.gaussian import PLAIN, SHORT_AND_LONG, Mixture, Process
from autoscout.space import Choice, Flag, Grid, Space
from autoscout.space.encode import Encoder, Rows

SPACE = Space([Flag("flag"), Choice("name", ["a", "b", "c"]), Grid("number", 1, 5)])


def rows(encoder: Encoder, *changes: dict[str, Any]) -> Rows:
    return encoder.rows([Config({"flag": False, "name": "a", "number": 1, **change}) for change in changes])


def test_the_other_value_of_a_switch_is_nearer_than_the_other_end_of_a_range() -> None:
    """What one trial says about others before anything is known of the knobs: most about the other value of a switch."""
    encoder = Encoder(SPACE)
    process = Process(encoder)
    process.condition(rows(encoder, {}), np.array([0.0]))
    _, spread = process.predict(rows(encoder, {"flag": True}, {"name": "b"}, {"number": 5}, {"number": 2}))
    switch, other_name, other_end, next_value = spread
    assert switch < other_name < other_end
    assert next_value < switch, "a small step is not an end-to-end one"


def test_a_switch_that_turns_everything_round_is_learnt() -> None:
    encoder = Encoder(SPACE)
    process = Process(encoder)
    known = rows(encoder, *({"flag": flag, "number": number} for flag in (False, True) for number in range(1, 6)))
    targets = np.array([-1.0, -0.5, 0.0, 0.5, 1.0, 1.0, 0.5, 0.0, -0.5, -1.0])
    before = process.scales.length[0]
    after = process.fit(known, targets).length[0]
    assert after < before
    process.condition(known, targets)
    mean, _ = process.predict(rows(encoder, {"number": 1}, {"flag": True, "number": 1}))
    assert mean[0] < -0.5 < 0.5 < mean[1]


def test_a_switch_with_knobs_below_it_may_change_everything() -> None:
    gate = Encoder(Space([Flag("flag"), Flag("other"), Grid("number", 1, 5, when="flag")]))
    longer = Process(gate).scales.length
    assert longer[gate.names.index("flag")] < longer[gate.names.index("other")]


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
