"""Random spaces against brute force."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import pytest
from brute_force import everything, valid
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from random_spaces import FACTS, declarations, spaces

from autoscout.core.config import Config
from autoscout.core.errors import SpaceError
from autoscout.space import Constraint, Grid, Knob, Space, read_space, write_space
from autoscout.space import solver as solver_module

common = settings(
    max_examples=int(os.environ.get("SPACE_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


@given(spaces())
@common
def test_count_enumerate_and_check_agree_with_brute_force(space: Space) -> None:
    truth = everything(space)
    listed = list(space.enumerate())
    assert set(listed) == set(truth)
    assert len(listed) == len(truth)
    found = space.count()
    assert (found.value, found.exact) == (len(truth), True)
    assert all(not space.check(config) for config in truth)
    assert not space.check(space.default())


@given(spaces(), st.data())
@common
def test_check_refuses_what_brute_force_refuses(space: Space, data: Any) -> None:
    config = Config({name: data.draw(st.sampled_from(list(knob.values))) for name, knob in space.knobs.items() if data.draw(st.booleans())})
    assert (not space.check(config)) == valid(space, config)


@given(spaces(), st.data())
@common
def test_choices_are_exactly_the_values_with_a_completion(space: Space, data: Any) -> None:
    truth = everything(space)
    partial = Config(
        {name: data.draw(st.sampled_from(list(knob.values))) for name, knob in space.knobs.items() if data.draw(st.integers(0, 2)) == 0}
    )
    completions = [config for config in truth if config.extends(partial)]
    assert space.feasible(partial) == bool(completions)
    for name, knob in space.knobs.items():
        if name in partial:
            completions_without = [config for config in truth if config.extends(partial.without(name))]
            expected = [v for v in knob.values if any(name in c and c.extends(Config({name: v})) for c in completions_without)]
        else:
            expected = [v for v in knob.values if any(name in c and c.extends(Config({name: v})) for c in completions)]
        found = space.choices(name, partial)
        assert [(type(v), v) for v in found] == [(type(v), v) for v in expected], (name, partial)
    open_names = {name for config in completions for name in config} - set(partial)
    assert set(space.undecided(partial)) == open_names
    assert space.count(given=partial).value == len(completions)
    assert set(space.enumerate(partial)) == set(completions)


@given(spaces(), st.randoms(use_true_random=False))
@common
def test_any_legal_order_of_decisions_reaches_a_valid_configuration(space: Space, random: Any) -> None:
    partial = Config()
    while open_names := space.undecided(partial):
        ready = [name for name in open_names if not (space.ancestors(name) & set(open_names))]
        assert ready[0] == open_names[0]
        name = random.choice(ready)
        choices = space.choices(name, partial)
        assert choices, (name, partial)
        partial = partial.extend({name: random.choice(choices)})
    assert not space.check(partial)


@given(spaces(), st.data())
@common
def test_samples_are_valid_and_extend_what_is_given(space: Space, data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    whole = space.sample(rng)
    assert whole is not None
    assert not space.check(whole)
    part = Config({name: value for name, value in whole.items() if data.draw(st.booleans())})
    again = space.sample(rng, part)
    assert again is not None
    assert not space.check(again)
    assert again.extends(part)


@given(spaces(), st.data())
@common
def test_project_and_mask_agree_with_brute_force(space: Space, data: Any) -> None:
    truth = everything(space)
    structure = space.structure(data.draw(st.sampled_from(truth)))
    completions = [config for config in truth if config.extends(structure)]
    mask = space.mask(structure)
    assert set(mask) == {name for config in completions for name in config if name in space.dense}
    for name, values in mask.items():
        assert set(values) == {config[name] for config in completions if name in config}
    wanted = {name: data.draw(st.floats(-1, 9)) for name in space.dense}
    found = space.project(wanted, structure)
    assert found in completions
    pool = completions
    for name in space.knobs:  # ancestors first, each the nearest that can be completed
        if name in found and name in wanted and name not in structure:
            best = min(abs(config[name] - wanted[name]) for config in pool if name in config)  # type: ignore[operator]
            assert abs(found[name] - wanted[name]) == pytest.approx(best)  # type: ignore[operator]
        pool = [config for config in pool if config.get(name, ...) == found.get(name, ...)]
    for config in data.draw(st.lists(st.sampled_from(truth), max_size=2)):
        assert space.project(config) == config


@given(spaces(), st.data())
@common
def test_neighbours_are_valid_and_other(space: Space, data: Any) -> None:
    config = data.draw(st.sampled_from(everything(space)))
    found = space.neighbours(config)
    assert config not in found
    assert len(set(found)) == len(found)
    assert all(not space.check(other) for other in found)


@given(spaces(), st.data())
@common
def test_a_pinned_space_is_the_part_that_extends_the_pins(space: Space, data: Any) -> None:
    truth = everything(space)
    whole = data.draw(st.sampled_from(truth))
    pins = Config({name: value for name, value in whole.items() if data.draw(st.booleans())})
    pinned = space.pin(pins)
    assert set(pinned.enumerate()) == {config for config in truth if config.extends(pins)}
    assert pinned.default().extends(pins)


@st.composite
def product_spaces(draw: Any) -> Space:
    """Whole numbers tied by products, remainders and sums: what layouts of parallel jobs look like."""
    names = ["a", "b", "c", "d"]
    knobs = [
        Grid(name, low, low + draw(st.integers(1, 9)), when=draw(st.sampled_from([None, None, "a > 1"])) if name == "d" else None)
        for name, low in zip(names, draw(st.lists(st.integers(-4, 3), min_size=4, max_size=4)), strict=True)
    ]
    forms = ["{} * {} * {} == {k}", "{} * {} == {k}", "{k} % ({} * {}) == 0", "{} % {} == 0", "{} * {} <= {k}", "{} + {} - {} == {m}"]
    forms += ["{k} == 2 * {} * {}", "{} * {} != {k}", "3 * {} - 2 * {} < {m}", "{} // {} >= 1", "{} * ({} + {}) == {k}"]
    rules = []
    for form in draw(st.lists(st.sampled_from(forms), min_size=1, max_size=3)):
        chosen = draw(st.permutations(names))
        rules.append(form.format(*chosen, k=draw(st.sampled_from([0, 1, 4, 6, 8, 12, -6])), m=draw(st.integers(-5, 9))))
    try:
        return Space(knobs, rules)
    except SpaceError:
        assume(False)
        raise


@given(product_spaces(), st.data())
@common
def test_products_agree_with_brute_force(space: Space, data: Any) -> None:
    truth = everything(space)
    assert set(space.enumerate()) == set(truth)
    assert space.count().value == len(truth)
    partial = data.draw(st.sampled_from(truth)).only(data.draw(st.sets(st.sampled_from(list(space.knobs)))))
    for name in space.knobs:
        others = partial.without(name)
        assert set(space.choices(name, partial)) == {config[name] for config in truth if config.extends(others) and name in config}


def _solutions(knobs: list[Knob], rules: tuple[str, ...]) -> list[Config]:
    bare = Space(knobs, (), FACTS)
    bare.constraints = tuple(Constraint(rule) for rule in rules)  # for the reference reading only
    return everything(bare)


@given(declarations())
@common
def test_a_contradiction_is_named_by_a_smallest_set_of_constraints(declared: tuple[list[Knob], list[str]]) -> None:
    knobs, rules = declared
    try:
        Space(knobs, rules, FACTS)
    except SpaceError as error:
        message = str(error)
    else:
        message = ""
    assume("hold" in message and "constraints[" in message)
    named = tuple(rule for number, rule in enumerate(rules) if f"constraints[{number}]" in message)
    assert not _solutions(knobs, named)
    for fewer in itertools.combinations(named, len(named) - 1):
        assert _solutions(knobs, fewer)


@given(spaces())
@common
def test_yaml_gives_the_same_space_back(space: Space) -> None:
    again = read_space(write_space(space))
    assert again == space
    assert list(again.knobs.values()) == list(space.knobs.values())


@given(spaces(), st.data())
@common
def test_forgetting_changes_no_answer(space: Space, data: Any) -> None:
    truth = everything(space)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver_module, "MAX_STATES", 1)
        assert set(space.enumerate()) == set(truth)
        assert space.count().value == len(truth)
        sample = space.sample(np.random.default_rng(0))
        assert sample in truth
        partial = data.draw(st.sampled_from(truth)).only(data.draw(st.sets(st.sampled_from(list(space.knobs)))))
        for name in space.undecided(partial):
            assert set(space.choices(name, partial)) == {c[name] for c in truth if c.extends(partial) and name in c}
