from __future__ import annotations

import numpy as np
import pytest
from report_studies import DEFAULT, draw, make_study, make_task, make_trial, truth

from autoscout.analysis.ablation import ablate
from autoscout.analysis.importance import MIN_CONFIGS, knob_importance, observations
from autoscout.common.forest import Forest, ForestEncoder
from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.trial import Status


def test_a_forest_learns_a_step_and_a_category() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 10, 300), rng.integers(0, 4, 300)]).astype(float)
    target = np.where(rows[:, 0] > 4, 1.0, 0.0) + np.array([0.0, 3.0, 0.0, 3.0])[rows[:, 1].astype(int)]
    forest = Forest(rows, target, np.array([False, True]), rng, trees=40)
    asked = np.array([[2.0, 0.0], [8.0, 0.0], [2.0, 1.0], [8.0, 3.0]])
    assert forest.predict(asked) == pytest.approx([0.0, 1.0, 3.0, 4.0], abs=0.15)
    assert 0.3 < forest.outside.mean() < 0.45  # a bootstrap sample leaves out about 1/e


def test_encoding_ranks_numbers_and_fills_inactive_knobs_with_the_middle() -> None:
    configs = [Config(n=1, c="x"), Config(n=1024, c="y", child=5), Config(n=2, c="x", child=7), Config(n=8, c="x", child=6)]
    encoder = ForestEncoder(configs)
    rows = encoder.encode(configs)
    assert encoder.names == ("c", "child", "n")
    assert list(encoder.categorical) == [True, False, False]
    assert list(rows[:, 2]) == [0.0, 3.0, 1.0, 2.0]
    assert rows[0, 1] == 1.0  # child is inactive there: the middle of 5, 6, 7
    assert list(encoder.active(configs)[:, 1]) == [False, True, True, True]
    assert encoder.encode([Config(n=5, c="never seen")])[0, 2] == pytest.approx(1.5)


def test_flags_and_numbers_of_the_same_value_are_different() -> None:
    configs = [Config(a=True), Config(a=1)]
    assert len({float(row[0]) for row in ForestEncoder(configs).encode(configs)}) == 2


def test_importance_of_a_known_function() -> None:
    importance = knob_importance(make_task(), make_study(120))
    shares = {knob.name: knob for knob in importance.knobs}
    assert [knob.name for knob in importance.knobs][:2] == ["threads", "flash"]
    assert shares["threads"].share > 0.6
    assert shares["threads"].certain
    assert shares["flash"].certain
    for name in ("noise", "batch", "tile"):
        assert shares[name].share < 0.03
    assert importance.fit > 0.9
    assert importance.note == ""
    for knob in importance.knobs:
        assert 0.0 <= knob.low <= knob.share <= knob.high <= 1.0


def test_shares_agree_with_the_indices_of_sobol() -> None:
    """y = 2 a + b + 0 c on uniform independent grids: total indices 0.8, 0.2, 0."""
    rng = np.random.default_rng(5)
    trials = []
    for number in range(300):
        a, b, c = (int(value) for value in rng.integers(0, 8, 3))
        trials.append(make_trial(number, Config(a=a, b=b, c=c, n=number), float(np.exp(2 * a / 7 + b / 7))))
    shares = {knob.name: knob.share for knob in knob_importance(make_task(), trials).knobs}
    assert shares["a"] == pytest.approx(0.8, abs=0.1)
    assert shares["b"] == pytest.approx(0.2, abs=0.06)
    assert shares["c"] < 0.02


def test_importance_is_the_same_every_time() -> None:
    trials = make_study(30)
    assert knob_importance(make_task(), trials) == knob_importance(make_task(), trials)


def test_too_few_trials_say_so() -> None:
    ok = make_study(40, rounds=0, failures=0.0)
    importance = knob_importance(make_task(), ok[: MIN_CONFIGS - 1])
    assert not importance.is_known
    assert "too few trials: 9 different configurations" in importance.note
    failed = [make_trial(i, draw(np.random.default_rng(i)), status=Status.CRASHED) for i in range(30)]
    assert "too few trials: 0" in knob_importance(make_task(), failed).note
    repeats = [make_trial(i, DEFAULT, 10.0 + i, repeat=i) for i in range(30)]
    assert "too few trials: 1" in knob_importance(make_task(), repeats).note


def test_pure_noise_is_called_unreliable() -> None:
    rng = np.random.default_rng(9)
    trials = [make_trial(i, draw(rng).extend(noise=i), float(np.exp(rng.normal()))) for i in range(25)]
    importance = knob_importance(make_task(), trials)
    assert importance.fit < 0.05
    assert "do not trust" in importance.note


def test_constant_objectives_and_knobs() -> None:
    trials = [make_trial(i, DEFAULT.extend(noise=i), 10.0) for i in range(20)]
    importance = knob_importance(make_task(), trials)
    assert importance.note == "all configurations measured the same"
    assert set(importance.unvaried) == {"threads", "batch", "flash", "kv"}


def test_values_that_are_not_positive() -> None:
    trials = [make_trial(i, DEFAULT.extend(noise=i % 10, batch=i // 10), float(i % 10) - 5.0) for i in range(60)]
    importance = knob_importance(make_task(), trials)
    assert importance.knobs[0].name == "noise"
    assert importance.fit > 0.8


def test_a_parents_credit_does_not_go_to_its_child() -> None:
    """Whether `tile` is active says everything about `flash`; the credit must stay with `flash`."""
    rng = stream(0, "test")
    trials = []
    for number in range(80):
        flash = bool(rng.integers(2))
        config = Config(flash=flash, batch=int(rng.integers(6))).extend({"tile": int(rng.integers(1, 5))} if flash else {})
        trials.append(make_trial(number, config.extend(n=number), 2.0 if flash else 1.0))
    shares = {knob.name: knob.share for knob in knob_importance(make_task(), trials).knobs}
    assert shares["flash"] > 0.8
    assert shares["tile"] < 0.1


def test_observations_pool_repeats_of_the_highest_fidelity() -> None:
    trials = [
        make_trial(0, DEFAULT, 4.0),
        make_trial(1, DEFAULT, 9.0, repeat=1),
        make_trial(3, DEFAULT, 5.0, repeat=2),
        make_trial(2, DEFAULT.extend(noise=1)),
    ]
    assert observations(make_task(), trials) == {DEFAULT: 5.0}


def test_ablation_walks_from_the_default_to_the_best() -> None:
    trials = make_study(80)
    best = max((t for t in trials if t.ok and "tile" in t.config), key=lambda t: truth(t.config)).config
    ablation = ablate(make_task(), trials, DEFAULT, best)
    assert ablation.note == ""
    assert ablation.steps[0].knobs == ("threads",)  # the largest single change
    assert ablation.steps[1].knobs == ("flash",)
    assert ablation.steps[-1].source == "measured"  # the best itself
    assert {step.source for step in ablation.steps[:-1]} <= {"measured", "predicted"}
    assert ablation.steps[0].source == "predicted"
    product = float(np.prod([step.gain for step in ablation.steps]))
    assert ablation.steps[-1].total == pytest.approx(product)
    assert sum(abs(step.gain - 1) > 0.08 for step in ablation.steps if step.gain) == 2


def test_measured_steps_are_taken_from_the_measurement() -> None:
    trials = make_study(60)
    middle, best = DEFAULT.extend(threads=16), DEFAULT.extend(threads=16, kv="q8_0")
    trials += [make_trial(900, middle, 200.0), make_trial(901, best, 210.0)]
    steps = ablate(make_task(), trials, DEFAULT, best).steps
    assert [(step.knobs, step.source) for step in steps] == [(("threads",), "measured"), (("kv",), "measured")]
    assert steps[0].value == pytest.approx(200.0)
    assert steps[1].gain == pytest.approx(1.05)


def test_ablation_stays_on_valid_configurations() -> None:
    """flash and tile must change together: a tile without flash, or flash without a tile, is not valid."""

    def check(config: Config) -> list[str]:
        return [] if config["flash"] == ("tile" in config) else ["tile goes with flash"]

    trials = make_study(60)
    best = max((t for t in trials if t.ok and "tile" in t.config), key=lambda t: truth(t.config)).config
    steps = ablate(make_task(), trials, DEFAULT, best, check=check).steps
    assert ("flash", "tile") in [tuple(sorted(step.knobs)) for step in steps]
    assert sum(len(step.knobs) for step in steps) == len({knob for step in steps for knob in step.knobs})


def test_no_ablation_without_data() -> None:
    task, other = make_task(), DEFAULT.extend(threads=8, kv="q8_0")
    few = [make_trial(0, DEFAULT, 10.0), make_trial(1, other, 20.0)]
    assert "too few trials" in ablate(task, few, DEFAULT, other).note
    assert "no measurement of the best" in ablate(task, few[:1], DEFAULT, other).note
    assert "default is the best" in ablate(task, few, DEFAULT, DEFAULT).note
    single = ablate(task, [few[0], make_trial(1, DEFAULT.extend(threads=8), 20.0)], DEFAULT, DEFAULT.extend(threads=8))
    assert [step.gain for step in single.steps] == [pytest.approx(2.0)]
