"""Random spaces against brute force."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from autoscout.core.config import Config
from autoscout.core.errors import SpaceError
from autoscout.space import Choice, Flag, Grid, Knob, Space

sys.path.insert(0, str(Path(__file__).parent))
from brute_force import everything, valid

NAMES = ["alpha", "beta", "gamma", "delta", "omega"]
FACTS = {"gpus": 4, "limit": 2.5}


def knob(name: str, kind: int, when: str | None) -> Knob:
    made: list[Knob] = [
        Choice(name, [1, 2, 4], when=when),
        Flag(name, when=when),
        Choice(name, ["red", "green"], when=when),
        Grid(name, 0, 3, when=when),
        Grid(name, 0.5, 2.0, step=0.5, when=when),
        Choice(name, [0, "auto", None, True], when=when),
        Grid(name, 1, 12, when=when, default=3),
    ]
    return made[kind % len(made)]


NUMBERS = (0, 1, 3, 4, 6)  # kinds of knob() that hold numbers


@st.composite
def numbers(draw: Any, names: list[str], depth: int = 2) -> str:
    options = ["constant", "fact"] + (["knob"] * 3 if names else []) + (["op"] * 3 if depth else [])
    chosen = draw(st.sampled_from(options))
    if chosen == "constant":
        return str(draw(st.sampled_from([0, 1, 2, 3, 4, 8, 0.5])))
    if chosen == "fact":
        return draw(st.sampled_from(sorted(FACTS)))
    if chosen == "knob":
        return draw(st.sampled_from(names))
    left, right = draw(numbers(names, depth - 1)), draw(numbers(names, depth - 1))
    form = draw(
        st.sampled_from(
            [
                "({} + {})",
                "({} - {})",
                "({} * {})",
                "({} * {})",
                "({} % {})",
                "({} // {})",
                "({} / {})",
                "min({}, {})",
                "max({}, {})",
                "-abs({} - {})",
            ]
        )
    )
    return form.format(left, right)


@st.composite
def booleans(draw: Any, names: list[str], numeric: list[str], depth: int = 2) -> str:
    options = ["compare"] * 3 + (["text", "member", "active", "odd"] if names else []) + (["and", "or", "not", "if"] if depth else [])
    chosen = draw(st.sampled_from(options))
    if chosen == "text":
        return f"{draw(st.sampled_from(names))} {draw(st.sampled_from(['==', '!=']))} {draw(st.sampled_from(['1', repr('red'), repr('auto'), 'True', '2.0', 'None']))}"
    if chosen == "odd":
        return draw(st.sampled_from(names))
    if chosen == "member":
        return f"{draw(st.sampled_from(names))} in ({draw(numbers(numeric, 0))}, {draw(numbers(numeric, 0))}, 'red')"
    if chosen == "active":
        return f"active({draw(st.sampled_from(names))})"
    if chosen == "compare":
        op = draw(st.sampled_from(["==", "<=", "<", ">", ">=", "!="]))
        return f"{draw(numbers(numeric))} {op} {draw(numbers(numeric))}"
    parts = [draw(booleans(names, numeric, depth - 1)) for _ in range(3)]
    if chosen == "not":
        return f"not ({parts[0]})"
    if chosen == "if":
        return f"(({parts[0]}) if ({parts[1]}) else ({parts[2]}))"
    return f"({parts[0]}) {chosen} ({parts[1]})"


@st.composite
def spaces(draw: Any) -> Space:
    count = draw(st.integers(1, 5))
    kinds = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    names = NAMES[:count]
    knobs = []
    for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        before = names[:place]
        numeric = [other for other, its in zip(before, kinds, strict=False) if its in NUMBERS]
        conditional = before and draw(st.booleans())
        knobs.append(knob(name, kind, draw(booleans(before, numeric, 1)) if conditional else None))
    numeric = [name for name, kind in zip(names, kinds, strict=True) if kind in NUMBERS]
    rules = draw(st.lists(booleans(names, numeric), max_size=3))
    shuffled = draw(st.permutations(knobs))
    try:
        return Space(shuffled, rules, FACTS)
    except SpaceError as error:
        if "never hold" in str(error) or "hold together" in str(error):
            bare = Space(shuffled, (), FACTS)
            assert not [config for config in everything(bare) if all(valid(_with(shuffled, rule), config) for rule in rules)], error
        assume(False)
        raise


def _with(knobs: Any, rule: str) -> Any:
    class Loose:
        """A space that may be empty, for the reference reading only."""

        facts = FACTS

    loose = Loose()
    bare = Space(knobs, (), FACTS)
    loose.knobs = bare.knobs  # type: ignore[attr-defined]
    from autoscout.space import Constraint

    loose.constraints = (Constraint(rule),)  # type: ignore[attr-defined]
    return loose


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
    for name, knob in space.knobs.items():  # ancestors first, each the nearest that can be completed
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
