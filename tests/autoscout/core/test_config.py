from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscout.core.config import Config

values = st.one_of(
    st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8), st.none()
)
configs = st.dictionaries(st.text(min_size=1, max_size=6), values, max_size=6)


@given(configs)
def test_json_and_pickle_bring_back_the_same_config(data: dict) -> None:
    config = Config(data)
    assert Config(json.loads(config.canonical)) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(Config(dict(reversed(data.items())))) == hash(config)


def test_types_that_python_calls_equal_are_different_configs() -> None:
    assert len({Config(a=1), Config(a=True), Config(a=1.0), Config(a="1")}) == 4
    assert len({Config(a=1).key, Config(a=True).key, Config(a=1.0).key}) == 3


def test_values_of_one_kind() -> None:
    config = Config(batch=8, rate=0.5, mode="fast", fused=True)
    assert (config.whole("batch"), config.number("batch"), config.number("rate")) == (8, 8, 0.5)
    assert (config.text("mode"), config.flag("fused")) == ("fast", True)
    for read, name in (
        (config.whole, "rate"),
        (config.whole, "fused"),
        (config.number, "mode"),
        (config.text, "batch"),
        (config.flag, "batch"),
    ):
        with pytest.raises(TypeError, match=f"knob '{name}' holds"):
            read(name)
    with pytest.raises(KeyError):
        config.whole("other")


def test_key_is_stable_across_machines() -> None:
    assert Config(tp=2, pp=4).key == "b3e7d67dbcfb9a71"
    assert Config(tp=2, pp=4).canonical == '{"pp":4,"tp":2}'


def test_extend_without_only_and_extends() -> None:
    config = Config(a=1, b=2)
    assert config.extend(b=3, c=4) == Config(a=1, b=3, c=4)
    assert config.without("a", "zzz") == Config(b=2)
    assert config.only(["a", "c"]) == Config(a=1)
    assert config.extends(Config(a=1))
    assert config.extends(Config())
    assert not config.extends(Config(a=True))
    assert not config.extends(Config(c=None))
    assert config == Config(a=1, b=2), "a config never changes"


@pytest.mark.parametrize("bad", [[1], {"x": 1}, object()])
def test_only_json_scalars(bad: object) -> None:
    with pytest.raises(TypeError, match="knob 'a' must hold a JSON scalar"):
        Config(a=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_only_finite_numbers(bad: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        Config(a=bad)
