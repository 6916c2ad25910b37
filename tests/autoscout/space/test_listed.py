"""Spaces that are lists: against the same space with rules, and on their own."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_spaces import spaces

from autoscout.core.config import Config
from autoscout.core.errors import SpaceError
from autoscout.space import Choice, Flag, Grid, Listed, Space, json_schema, mask, read_space, write_space
from autoscout.space.interchange import read_sweep
from autoscout_lab.configspace import read_configspace, write_configspace

common = settings(
    max_examples=int(os.environ.get("SPACE_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def kernels() -> Space:
    """Conditions and constraints together."""
    return Space(
        [
            Choice("kind", ["tiled", "flat", "wave"]),
            Grid("block", 8, 64, step=8, default=32),
            Grid("tile", values=[1, 2, 4, 8], when="kind != 'flat'"),
            Flag("padding", when="kind == 'tiled' and tile > 1"),
            Choice("depth", ["low", "high"], sparse=False),
        ],
        ["block % (tile * 4) == 0", "block <= limit or depth == 'low'"],
        {"limit": 48},
    )


def partial_of(space: Space, data: Any) -> Config:
    """Any values of some knobs, mostly what goes together."""
    base = dict(data.draw(st.sampled_from(list(space.enumerate()))))
    for name, knob in space.knobs.items():
        what = data.draw(st.integers(0, 5))
        if what == 0:
            base[name] = data.draw(st.sampled_from(list(knob.values)))
        elif what < 3:
            base.pop(name, None)
    return Config(base)


@given(spaces(), st.data())
@common
def test_a_list_of_everything_answers_as_the_rules_do(space: Space, data: Any) -> None:
    listed = space.among(reversed(list(space.enumerate())))
    partial = partial_of(space, data)
    assert listed.feasible(partial) == space.feasible(partial)
    assert listed.undecided(partial) == space.undecided(partial)
    assert listed.count(given=partial) == space.count(given=partial)
    assert list(listed.enumerate(partial)) == list(space.enumerate(partial))
    assert listed.check(partial) == space.check(partial)
    assert listed.why_not(partial) == space.why_not(partial)
    for name in space.knobs:
        assert listed.choices(name, partial) == space.choices(name, partial)
    structure = space.structure(partial)
    if space.feasible(structure):
        assert listed.mask(structure) == space.mask(structure)
    else:
        with pytest.raises(SpaceError, match="cannot be completed"):
            listed.mask(structure)


@given(spaces(), st.data())
@common
def test_what_is_left_of_a_space_is_exact(space: Space, data: Any) -> None:
    everything = list(space.enumerate())
    kept = [config for config in everything if data.draw(st.booleans())] or everything[:1]
    listed = Listed([space.knobs[name] for name in space.declared], kept, space.constraints, space.facts)
    assert list(listed.enumerate()) == kept
    partial = partial_of(space, data)
    completions = [config for config in kept if config.extends(partial)]
    assert listed.feasible(partial) == bool(completions) == (not listed.why_not(partial))
    assert listed.count(given=partial).value == len(completions)
    assert list(listed.enumerate(partial)) == completions
    assert (not listed.check(partial)) == (partial in kept)
    for name, knob in listed.knobs.items():
        held = [config[name] for config in kept if config.extends(partial.without(name)) and name in config]
        assert list(listed.choices(name, partial)) == [
            value for value in knob.values if any(value is other or (value == other and type(value) is type(other)) for other in held)
        ]
    for member in kept:
        assert listed.project(member) == member
        if member.extends(partial):
            assert listed.project(member, partial) == member
        near = listed.neighbours(member)
        assert set(near) <= set(kept) - {member}
        assert len(set(near)) == len(near)
    wanted = partial_of(space, data)
    assert listed.project(wanted) in kept
    if completions:
        found = listed.project(wanted, partial)
        assert found in completions
        sampled = listed.sample(np.random.default_rng(0), partial)
        assert sampled in completions
        pinned = listed.pin(partial)
        assert list(pinned.enumerate()) == completions
        assert all(len(pinned.knobs[name].values) == 1 for name in partial)
    else:
        assert listed.sample(np.random.default_rng(0), partial) is None
        with pytest.raises(SpaceError):
            listed.project(wanted, partial)
        with pytest.raises(SpaceError):
            listed.pin(partial)


def apart(space: Space, one: Config, other: Config) -> float:
    """The distance that `project` documents, spelt out."""
    total = 0.0
    for name, knob in space.knobs.items():
        if (name in one) != (name in other):
            total += 1.0
        elif name in one and knob.ordered:
            total += abs((knob.position(one[name]) or 0) - (knob.position(other[name]) or 0)) / max(1, len(knob.values) - 1)
        elif name in one:
            total += one[name] != other[name] or type(one[name]) is not type(other[name])
    return total


@given(st.integers(0, 2**32 - 1))
@common
def test_project_takes_the_nearest_and_the_first_of_those(seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = Space(list(kernels().knobs.values()))
    everything = list(whole.enumerate())
    listed = whole.among([everything[row] for row in rng.choice(len(everything), size=12, replace=False)])
    wanted = everything[int(rng.integers(len(everything)))]
    rows = list(listed.enumerate())
    nearest = min(apart(listed, wanted, row) for row in rows)
    assert listed.project(wanted) == next(row for row in rows if apart(listed, wanted, row) <= nearest + 1e-9)
    given_ = rows[int(rng.integers(12))].only(["kind"])
    among = [row for row in rows if row.extends(given_)]
    target = whole.project(wanted, given_)
    nearest = min(apart(listed, target, row) for row in among)
    assert listed.project(wanted, given_) == next(row for row in among if apart(listed, target, row) <= nearest + 1e-9)


def test_project_takes_numbers_off_the_grid_unknown_names_and_nothing() -> None:
    space = Space([Grid("x", 0, 100, default=50), Choice("kind", ["a", "b"])]).among(
        [Config(x=x, kind=kind) for x, kind in ((3, "a"), (60, "b"), (90, "a"))]
    )
    assert space.project({"x": 2.6, "kind": "a", "colour": "red"}) == Config(x=3, kind="a")
    assert space.project({"x": 1e9, "kind": "unheard of"}) == Config(x=90, kind="a")
    assert space.default() == space.project({}) == Config(x=90, kind="a")  # 40 of 100 away; 60 is another kind
    assert space.project({"kind": "b"}) == Config(x=60, kind="b")


def test_a_step_of_a_knob_goes_to_the_next_value_that_is_there() -> None:
    space = Space([Grid("x", 0, 9), Grid("y", 0, 9)]).among(
        [Config(x=0, y=0), Config(x=4, y=1), Config(x=4, y=7), Config(x=9, y=0), Config(x=0, y=5)]
    )
    assert space.neighbours(Config(x=0, y=0)) == [Config(x=4, y=1)]  # the next x; the next y is the same
    assert space.neighbours(Config(x=4, y=1)) == [Config(x=0, y=0), Config(x=9, y=0), Config(x=0, y=5)]
    assert space.neighbours(Config(x=1, y=1)) == [Config(x=0, y=0), Config(x=4, y=1), Config(x=0, y=5)]  # not a member itself


def test_neighbours_are_projections_of_single_moves() -> None:
    space = kernels()
    listed = space.among([config for number, config in enumerate(space.enumerate()) if number % 3 != 1])
    for config in listed.enumerate():
        assert listed.neighbours(config) == mask.neighbours(listed, config)


def test_samples_are_uniform() -> None:
    space = kernels()
    listed = space.among(list(space.enumerate())[::2])
    rng = np.random.default_rng(7)
    for under in (Config(), Config(kind="tiled")):
        size = listed.count(given=under).value
        seen = Counter(listed.sample(rng, under) for _ in range(200 * size))
        assert len(seen) == size
        assert sum((number - 200) ** 2 / 200 for number in seen.values()) < size + 6 * (2 * size) ** 0.5  # chi squared


def test_many_values_of_a_knob_are_told_as_few_are() -> None:
    space = Space([Grid("x", 0, 999), Flag("odd")]).among(Config(x=x, odd=bool(x % 2)) for x in range(0, 1000, 7))
    assert space.choices("x", Config(odd=True)) == tuple(range(7, 1000, 14))
    assert space.choices("odd", Config(x=7)) == (True,)
    assert space.count() == space.count(limit=1)


def test_equal_lists_are_equal_spaces_and_survive_copies() -> None:
    space = kernels()
    configs = list(space.enumerate())
    listed = space.among(configs)
    assert listed == space.among(configs[::-1]) == space.among([*configs, *configs])
    assert hash(listed) == hash(space.among(configs[::-1]))
    assert listed != space
    assert listed != space.among(configs[1:])
    reordered = Space(list(space.knobs.values())[::-1], space.constraints, space.facts)
    assert reordered == space
    assert reordered.among(configs) == listed
    for twin in (pickle.loads(pickle.dumps(listed)), copy.deepcopy(listed)):
        assert isinstance(twin, Listed)
        assert twin == listed
        assert list(twin.enumerate()) == list(listed.enumerate())
        assert twin.check(configs[0]) == []
        assert twin.declared == listed.declared


def test_the_text_of_a_large_one_is_short() -> None:
    space = Space([Grid("x", 0, 99), Grid("y", 0, 99)])
    text = repr(space.among(space.enumerate()))
    assert "<10,000 configurations>" in text
    assert len(text) < 400


def test_constraints_narrow_the_list() -> None:
    space = kernels()
    listed = space.among(list(space.enumerate())[::2])
    narrow = listed.constrain("block > 16", "kind != 'wave'")
    assert isinstance(narrow, Listed)
    assert list(narrow.enumerate()) == [c for c in listed.enumerate() if c["block"] > 16 and c["kind"] != "wave"]  # type: ignore[operator]
    assert list(listed.constrain().enumerate()) == list(listed.enumerate())
    with pytest.raises(SpaceError, match="none of the"):
        space.among([Config(kind="flat", block=8, depth="low")]).constrain("block > 16")


def test_sentences_say_what_is_wrong() -> None:
    space = Space([Grid("x", 0, 9), Choice("kind", ["a", "b"])]).among([Config(x=3, kind="a"), Config(x=7, kind="b")])
    assert space.check(Config(x=4, kind="a")) == ["It is none of the 2 listed configurations; the nearest has x=3."]
    assert space.check(Config(x=3)) == ["Knob 'kind' has no value; it takes one of ['a', 'b']."]
    assert space.check(Config(x=12, kind="a"))[0].startswith("Knob 'x' cannot be 12")
    assert space.why_not(Config(x=3, kind="b")) == ["None of the 2 listed configurations has kind='b', x=3."]
    assert space.why_not(Config(x=4, kind="b")) == ["None of the 2 listed configurations has x=4."]
    assert space.why_not(Config(z=4))[0].startswith("There is no knob 'z'")
    with pytest.raises(SpaceError, match="there is no such knob"):
        space.choices("z")


def test_what_the_rules_refuse_cannot_be_listed() -> None:
    space = kernels()
    good = list(space.enumerate())
    broken = [config.extend(block=block) for config in good if "tile" in config and config["tile"] == 8 for block in (8, 24)]
    assert len(broken) > 5
    with pytest.raises(SpaceError) as caught:
        space.among([*good[:2], *broken])
    faults = caught.value.faults
    assert faults[0].field == "among[2]"
    assert "block % (tile * 4) == 0" in faults[0].rule
    assert f"{len(broken)} of the {len(broken) + 2} listed configurations are not valid" in faults[-1].rule
    assert len(faults) < 12
    with pytest.raises(SpaceError, match="inactive"):
        space.among([Config(kind="flat", block=8, tile=1, depth="low")])
    with pytest.raises(SpaceError, match="has no value"):
        space.among([Config(kind="tiled", block=8, depth="low")])
    with pytest.raises(SpaceError, match="cannot be 9"):
        space.among([Config(kind="flat", block=9, depth="low")])
    with pytest.raises(SpaceError, match="no knob 'colour'"):
        space.among([Config(kind="flat", block=8, depth="low", colour="red")])
    with pytest.raises(SpaceError, match="at least one"):
        space.among([])


BLOCK = """
knobs:
  kind: [a, b]
  size: {values: [0.5, 1.0, 2.0], when: kind == 'a'}
among:
  - {kind: a, size: 1}
  - {kind: a, size: 2.0}
  - {kind: b}
"""


def test_a_list_is_read_from_yaml_and_written_back(tmp_path: Path) -> None:
    space = read_space(BLOCK)
    assert isinstance(space, Listed)
    assert list(space.enumerate()) == [Config(kind="a", size=1.0), Config(kind="a", size=2.0), Config(kind="b")]
    assert read_space(write_space(space, tmp_path / "space.yaml")) == read_space(tmp_path / "space.yaml") == space
    narrow = space.constrain("size > 1")
    assert read_space(write_space(narrow)) == narrow
    assert json_schema()["properties"]["among"]["type"] == "array"


def test_faults_of_a_list_stand_at_their_lines() -> None:
    text = BLOCK.replace("{kind: a, size: 2.0}", "{kind: a, size: 3}").replace("{kind: b}", "{kind: b, size: 1.0}")
    with pytest.raises(SpaceError) as caught:
        read_space(text, where="mine.yaml")
    assert [fault.where for fault in caught.value.faults] == ["mine.yaml:7", "mine.yaml:8"]  # of values and of conditions
    with pytest.raises(SpaceError) as caught:
        read_space(BLOCK.replace("{kind: b}", "{kind: b, size: 1.0}\n  - {kind: a}"), where="mine.yaml")
    assert [(fault.where, fault.field) for fault in caught.value.faults] == [("mine.yaml:8", "among[2]"), ("mine.yaml:9", "among[3]")]
    for line, words in (("[1]", "must be a mapping"), ("{kind: [a]}", "a value must be a number"), ("{colour: red}", "no knob 'colour'")):
        with pytest.raises(SpaceError, match=words) as caught:
            read_space(BLOCK.replace("{kind: b}", line), where="mine.yaml")
        assert caught.value.faults[0].where == "mine.yaml:8"
    with pytest.raises(SpaceError, match="must be a list"):
        read_space("knobs: {kind: [a]}\namong: all\n")
    with pytest.raises(SpaceError, match="at least one") as caught:
        read_space("knobs: {kind: [a]}\namong: []\n", where="mine.yaml")
    assert caught.value.faults[0].where == "mine.yaml:2"


def test_configspace_forbids_what_is_not_listed_or_is_told_less() -> None:
    space = Space([Grid("x", 0, 9), Choice("kind", ["a", "b"])]).among(
        [Config(x=3, kind="a"), Config(x=3, kind="b"), Config(x=7, kind="b")]
    )
    export = write_configspace(space)
    assert export.lost == ()
    clauses = json.loads(export.text)["forbiddens"]
    assert {
        "type": "AND",
        "clauses": [{"type": "EQUALS", "name": "kind", "value": "a"}, {"type": "IN", "name": "x", "values": [0, 1, 2, 4, 5, 6, 7, 8, 9]}],
    } in clauses
    assert read_configspace(export.text) == space
    conditional = read_space(BLOCK)
    export = write_configspace(conditional)
    assert export.lost == ("the list of 3 configurations: it depends on which knobs are active",)
    assert read_configspace(export.text) == conditional


def test_configspace_itself_agrees(tmp_path: Path) -> None:
    foreign = pytest.importorskip("ConfigSpace")
    space = Space([Grid("x", 0, 9), Choice("kind", ["a", "b"])]).among(
        [Config(x=3, kind="a"), Config(x=3, kind="b"), Config(x=7, kind="b")]
    )
    write_configspace(space, tmp_path / "space.json")
    other = foreign.ConfigurationSpace.from_json(tmp_path / "space.json")
    assert {Config(x=int(one["x"]), kind=str(one["kind"])) for one in other.sample_configuration(200)} == set(space.enumerate())


def test_a_sweep_is_a_list() -> None:
    points = [{"seqs": 2 ** (n % 6), "eager": n % 2 == 0, "mode": f"m{n % 5}"} for n in range(30)]
    space = read_sweep(points)
    assert isinstance(space, Listed)
    assert set(space.enumerate()) == {Config(point) for point in points}
    assert space.default() == Config(points[0])
