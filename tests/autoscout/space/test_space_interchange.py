from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from random_spaces import spaces

from autoscout.common.templates import fill
from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError, ConfigError
from autoscout.space import Choice, Constraint, Flag, Grid, Space, read_space
from autoscout.space.interchange import read_sweep, read_tuning_space, tuning_template
from autoscout_lab.configspace import read_configspace, write_configspace

cs = pytest.importorskip("ConfigSpace", reason="the package ConfigSpace proves that the files load there")
RECIPE = Path(__file__).parents[3] / "recipes" / "megatron_space.yaml"


def loaded(text: str, folder: Path) -> Any:
    path = folder / "space.json"
    path.write_text(text)
    return cs.ConfigurationSpace.from_json(path)


def allows(other: Any, config: Config) -> bool:
    try:
        cs.Configuration(other, values=dict(config))
    except (ValueError, KeyError):  # what the errors of ConfigSpace are
        return False
    return True


def plain(configuration: Any) -> Config:
    return Config({name: value.item() if hasattr(value, "item") else value for name, value in dict(configuration).items()})


def candidates(space: Space) -> list[Config]:
    """Every assignment of values or absence."""
    absent = object()
    found = []
    for values in itertools.product(*([*knob.values, *([absent] if knob.when else [])] for knob in space.knobs.values())):
        found.append(Config({name: value for name, value in zip(space.knobs, values, strict=True) if value is not absent}))  # type: ignore[misc]
    return found


def test_the_recipe_there_and_back(tmp_path: Path) -> None:
    space = read_space(RECIPE)
    export = write_configspace(space, tmp_path / "out.json")
    assert export.lost == ()
    assert read_configspace(tmp_path / "out.json") == space
    other = cs.ConfigurationSpace.from_json(tmp_path / "out.json")
    other.seed(1)
    for configuration in other.sample_configuration(50):
        assert space.check(plain(configuration)) == []
    for config in itertools.islice(space.enumerate(), 0, None, 5000):
        assert allows(other, config)
    other.to_json(tmp_path / "saved.json")  # ConfigSpace keeps none of our own notes
    again = read_configspace(tmp_path / "saved.json")
    assert again.count() == space.count()
    assert again.default() == space.default()
    assert again.knobs["bucket_mb"].unit == "MB"


@given(spaces())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_spaces_mean_the_same_in_configspace(tmp_path_factory: pytest.TempPathFactory, space: Space) -> None:
    assume(not any(None in knob.values for knob in space.knobs.values()))  # ConfigSpace has no empty value
    assume(space.count().value <= 500)
    export = write_configspace(space)
    assert read_configspace(export.text).fingerprint() == space.fingerprint() or "autoscout" not in json.loads(export.text)
    other = loaded(export.text, tmp_path_factory.mktemp("configspace"))
    always = {name for name in space.knobs if any(text.startswith(f"condition of {name} ") for text in export.lost)}
    for config in candidates(space)[:2000]:
        valid = not space.check(config)
        if valid and always <= config.keys():
            assert allows(other, config), export.text
        elif not export.lost:
            assert not allows(other, config), (config, export.text)


def test_what_cannot_be_said_is_named() -> None:
    space = Space(
        [Grid("a", 1, 1000), Grid("b", 1, 1000), Grid("c", 1, 1000), Flag("f", when="a * b > 7"), Flag("g", when="not active(f)")],
        ["a * b * c <= 4096", "a <= b", Constraint("f == f", strict=True)],
    )
    export = write_configspace(space)
    assert len(export.lost) == 4
    assert any("condition of f" in text for text in export.lost)
    assert any("condition of g" in text and "inactive" in text for text in export.lost)
    assert any("a * b * c" in text for text in export.lost)
    assert {"type": "RELATION_LT", "left": "b", "right": "a"} in json.loads(export.text)["forbiddens"]
    assert read_configspace(export.text) == space


def test_a_constraint_on_a_knob_whose_condition_is_lost_is_lost_too(tmp_path: Path) -> None:
    beta = Choice("beta", [1, 2, 4], when="0 == 0")
    omega = Choice("omega", [1, 2, 4], when="((0 == 0) if (0 == 1) else (0 == beta))")  # never active, which ConfigSpace cannot say
    export = write_configspace(Space([beta, omega], ["0 == omega"]))
    assert [text.partition(" ")[0] for text in export.lost] == ["condition", "constraint"]
    assert len(loaded(export.text, tmp_path).sample_configuration(5)) == 5


def test_a_knob_whose_condition_is_lost_is_always_active(tmp_path: Path) -> None:
    space = Space([Flag("a"), Flag("b", when="a"), Grid("c", values=[1, 2], when="(active(b) and b) if a else not active(b)")])
    export = write_configspace(space)
    assert [text.split(",")[0] for text in export.lost] == ["condition of c ((active(b) and b) if a else not active(b))"]
    assert "always active" in export.lost[0]
    other = loaded(export.text, tmp_path)
    assert not space.check(Config(a=True, b=False))
    assert not allows(other, Config(a=True, b=False))
    assert all(allows(other, config) for config in space.enumerate() if "c" in config)


def test_functions_are_tabulated(tmp_path: Path) -> None:
    space = Space([Grid("a", 1, 4), Grid("b", 1, 4)], [lambda a, b: a * b in (2, 4)])
    other = loaded(write_configspace(space).text, tmp_path)
    assert {config for config in candidates(space) if allows(other, config)} == set(space.enumerate())


def test_everything_configspace_has(tmp_path: Path) -> None:
    source = cs.ConfigurationSpace("all", seed=0)
    color = cs.CategoricalHyperparameter("color", ["red", "green", "blue"], default_value="green", weights=[1, 2, 1])
    flag = cs.CategoricalHyperparameter("flag", [False, True])
    size = cs.OrdinalHyperparameter("size", ["small", "medium", "large"])
    level = cs.OrdinalHyperparameter("level", [1, 2, 4, 8], default_value=2)
    fixed = cs.Constant("fixed", "text")
    whole = cs.UniformIntegerHyperparameter("whole", 1, 1000, log=True, default_value=10)
    part = cs.UniformFloatHyperparameter("part", 0.1, 1.0, default_value=0.55)
    bell = cs.NormalIntegerHyperparameter("bell", mu=5, sigma=2, lower=1, upper=9)
    hill = cs.BetaFloatHyperparameter("hill", alpha=2, beta=3, lower=0, upper=1)
    source.add(color, flag, size, level, fixed, whole, part, bell, hill)
    source.add(cs.AndConjunction(cs.EqualsCondition(whole, color, "red"), cs.GreaterThanCondition(whole, size, "small")))
    source.add(cs.OrConjunction(cs.InCondition(part, color, ["red", "blue"]), cs.LessThanCondition(part, level, 4)))
    source.add(cs.NotEqualsCondition(hill, flag, True))
    source.add(cs.ForbiddenAndConjunction(cs.ForbiddenEqualsClause(color, "red"), cs.ForbiddenInClause(size, ["large"])))
    source.add(cs.ForbiddenGreaterThanClause(bell, 7))
    source.add(cs.ForbiddenLessThanRelation(bell, level))
    source.to_json(tmp_path / "in.json")
    space = read_configspace(tmp_path / "in.json")
    assert len(space.knobs) == 9
    assert isinstance(space.knobs["flag"], Flag)
    assert isinstance(space.knobs["size"], Choice)
    assert isinstance(space.knobs["level"], Grid)
    assert len(space.knobs["whole"].values) == 1000
    assert space.knobs["whole"].log
    assert space.default()["color"] == "green"
    for configuration in source.sample_configuration(200):
        config = space.project(plain(configuration))  # fractions move to the nearest point of their grid
        found = plain(configuration)
        exact = [name for name in found if name not in ("part", "hill")]
        assert config.only(exact) == found.only(exact)
    for seed in range(3):
        drawn = space.sample(np.random.default_rng(seed))
        assert drawn is not None
        assert allows(source, drawn)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"a": 1}, "no list of hyperparameters"),
        ({"hyperparameters": [{"name": "a", "type": "magic"}]}, "unknown type of hyperparameter 'magic'"),
        ({"hyperparameters": [{"name": "a", "type": "categorical"}]}, "lacks the key 'choices'"),
        ({"hyperparameters": [{"name": "a", "type": "normal_float", "lower": None, "upper": None}]}, "no bounds"),
        ({"hyperparameters": [], "conditions": [{"type": "XOR", "child": "a", "parent": "b"}]}, "unknown kind of condition"),
        ({"hyperparameters": [], "forbiddens": [{"type": "NEVER"}]}, "unknown kind of forbidden"),
    ],
)
def test_broken_configspace_files(data: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_configspace(data)


def test_broken_json(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1,\n "b" 2}')
    with pytest.raises(ConfigError, match=r"x\.json:2: not valid JSON"):
        read_configspace(tmp_path / "x.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_sweep(tmp_path / "missing.json")


def test_old_configspace_files() -> None:
    data = {
        "hyperparameters": [
            {"name": "a", "type": "uniform_int", "lower": 2, "upper": 10, "q": 2, "default": 4, "log": False},
            {"name": "b", "type": "uniform_int", "lower": 1, "upper": 9, "default": 3, "log": False},
        ],
        "conditions": [],
        "forbiddens": [{"type": "RELATION", "left": "a", "right": "b", "lambda": "LT"}],
    }
    space = read_configspace(data)
    assert space.knobs["a"].values == range(2, 11, 2)
    assert space.choices("b", Config(a=2)) == (1, 2)


def test_a_sweep_is_exactly_its_points(tmp_path: Path) -> None:
    points = [
        {"max_num_seqs": 32, "max-num-batched-tokens": 1024, "compilation_config": {"mode": 3}},
        {"max_num_seqs": 64, "max-num-batched-tokens": 1024, "compilation_config": {"mode": 3}},
        {"max_num_seqs": 64, "max-num-batched-tokens": 2048, "compilation_config": {"mode": 0}},
        {"max_num_seqs": 32, "max-num-batched-tokens": 1024, "compilation_config": {"mode": 3}},
    ]
    path = tmp_path / "serve_params.json"
    path.write_text(json.dumps(points))
    space = read_sweep(path)
    assert read_space(path) == space
    expected = [
        {"max_num_seqs": a, "max_num_batched_tokens": b, "compilation_config.mode": c}
        for a, b, c in [(32, 1024, 3), (64, 1024, 3), (64, 2048, 0)]
    ]
    assert [config.to_json() for config in space.enumerate()] == [Config(point).to_json() for point in expected]
    assert space.default() == Config(expected[0])
    assert space.choices("max_num_seqs", Config({"compilation_config.mode": 0})) == (64,)
    assert space.dense == ()


def test_a_sweep_whose_points_differ_in_what_they_set() -> None:
    source = {"small": {"seqs": 8}, "large": {"seqs": 64, "eager": True, "sizes": [1, 2]}, "plain": {}}
    space = read_sweep(source)
    assert list(space.enumerate()) == [
        Config({"_benchmark_name": "small", "seqs": 8}),
        Config({"_benchmark_name": "large", "seqs": 64, "eager": True, "sizes": "[1, 2]"}),
        Config({"_benchmark_name": "plain"}),
    ]


def test_a_sweep_of_hundreds_of_points() -> None:
    points = [{"a": n, "b": n * 7 % 13, "c": f"name {n % 5}", "d": bool(n % 2)} for n in range(400)]
    space = read_sweep(points)
    assert space.count().value == 400
    assert space.choices("b", Config(a=17)) == (17 * 7 % 13,)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([], "list of points"),
        ({}, "list of points"),
        ([1], "map parameters"),
        ([{"_benchmark_name": "x", "a": 1}, {"_benchmark_name": "x", "a": 2}], "name of its own"),
    ],
)
def test_broken_sweeps(source: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_sweep(source)


def test_a_tuning_space(tmp_path: Path) -> None:
    source = {
        "train_micro_batch_size_per_gpu": [1, 2, "$MAX_BATCH"],
        "zero_optimization": {"stage": [0, 2, 3], "overlap_comm": [True, False], "reduce_bucket_size": [5e7, 5e8], "cpu": False},
        "optimizer": {"type": "Adam"},
    }
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(source))
    space = read_tuning_space(path, {"max_batch": 16})
    assert read_space(path, facts={"max_batch": 16}) == space
    assert {name: list(knob.values) for name, knob in space.knobs.items()} == {
        "train_micro_batch_size_per_gpu": [1, 2, 16],
        "zero_optimization.stage": [0, 2, 3],
        "zero_optimization.overlap_comm": [False, True],
        "zero_optimization.reduce_bucket_size": [5e7, 5e8],
    }
    assert space.count().value == 36
    assert space.default()["zero_optimization.overlap_comm"] is True
    filled = fill(tuning_template(path), space.default())
    assert filled["zero_optimization"] == {"stage": 0, "overlap_comm": True, "reduce_bucket_size": 5e7, "cpu": False}
    assert filled["optimizer"] == {"type": "Adam"}
    constrained = space.constrain("zero_optimization.stage != 3 or zero_optimization.overlap_comm")
    assert constrained.count().value == 30


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([1], "nested mapping"),
        ({"a": 1}, "nothing to choose"),
        ({"a": []}, "must not be empty"),
        ({"a": [1, "$what"]}, r"\$what is not a fact"),
    ],
)
def test_broken_tuning_spaces(source: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_tuning_space(source)


@pytest.mark.parametrize(
    "change",
    [
        {"conditions": 5},
        {"conditions": [{"child": "b", "parent": {"x": 1}, "type": "EQ", "value": 1}]},
        {"conditions": [{"type": "EQ", "parent": "a", "value": 1}]},
        {"forbiddens": [[]]},
        {"hyperparameters": [7]},
        {"hyperparameters": [{"name": "a", "type": "categorical", "choices": 3}]},
        {"hyperparameters": [{"name": "a", "type": "uniform_int", "lower": "x", "upper": 3}]},
        {"hyperparameters": [{"name": ["a"], "type": "constant", "value": 3}]},
    ],
)
def test_configspace_files_with_holes(change: dict[str, Any]) -> None:
    knob = {"name": "a", "type": "categorical", "choices": [1, 2], "default_value": 1}
    good: dict[str, Any] = {"hyperparameters": [knob], "conditions": [], "forbiddens": []}
    assert read_configspace(good).count().value == 2
    with pytest.raises(AutoScoutError):
        read_configspace({**good, **change})


def test_a_sweep_with_an_endless_number() -> None:
    with pytest.raises(ConfigError, match=r"\[1\]\.n: a number must be finite"):
        read_sweep('[{"n": 1}, {"n": Infinity}]')
