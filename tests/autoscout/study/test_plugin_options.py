from __future__ import annotations

from dataclasses import dataclass

import pytest

from autoscout.core.errors import ConfigError, require
from autoscout.core.plugins import option_names, options_type
from autoscout.study.plugin_options import build_options


@dataclass(frozen=True, kw_only=True)
class Options:
    depth: int = 3
    rate: float = 0.5
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require("thing", self, {"depth": (self.depth > 0, "must be above zero")})


class Thing:
    def __init__(self, space: object, options: Options | None = None) -> None: ...


class Plain:
    def __init__(self, space: object) -> None: ...


def test_plain_data_becomes_the_options_a_plug_in_declares() -> None:
    assert options_type(Thing) is Options
    assert option_names(Thing) == ("depth", "rate", "names")
    assert option_names(Plain) == ()
    assert build_options(Thing, {"depth": 4, "names": ["a", "b"]}, "search.options") == Options(depth=4, names=("a", "b"))
    assert build_options(Thing, {}, "search.options") == Options()
    assert build_options(Plain, {}, "search.options") is None


def test_all_faults_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        build_options(Thing, {"dpeth": 4, "rate": "fast"}, "search.options")
    assert [fault.field for fault in caught.value.faults] == ["dpeth", "rate"]
    assert "Did you mean 'depth'?" in str(caught.value)
    with pytest.raises(ConfigError, match=r"search\.options: depth: must be above zero"):
        build_options(Thing, {"depth": 0}, "search.options")
    with pytest.raises(ConfigError, match="takes no options"):
        build_options(Plain, {"x": 1}, "search.options")
