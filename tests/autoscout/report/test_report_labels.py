"""Readable names of configurations: the knobs that they change."""

from __future__ import annotations

from autoscout.analysis.labels import NAME_CHARS, namer
from autoscout.core.config import Config
from autoscout.space import Choice

DEFAULT = Config(parallel=1, flash_attention=False, tile=64)


def test_changed_knobs_are_named_in_the_order_of_the_space() -> None:
    name_of = namer(DEFAULT, [Choice("parallel", [1, 8]), Choice("flash_attention", [False, True])])
    assert name_of(Config(parallel=8, flash_attention=True, tile=64)) == "parallel=8, flash_attention=on"
    assert name_of(DEFAULT) == "default"


def test_a_knob_that_is_not_used_any_more_is_named_only_where_nothing_else_changed() -> None:
    name_of = namer(DEFAULT)
    assert name_of(Config(parallel=2, flash_attention=False)) == "parallel=2"
    assert name_of(DEFAULT.without("tile")) == "without tile"


def test_a_long_name_counts_what_it_leaves_out() -> None:
    name = namer(Config())(Config({f"knob_{number}": number for number in range(60)}))
    assert name.startswith("knob_0=0, ")
    assert name.endswith("more")
    assert len(name) < NAME_CHARS + 20


def test_a_value_with_control_characters_stays_on_one_line() -> None:
    assert namer(Config())(Config(text="a\nb\x1b[2J\tü")) == "text=a\\nb\\x1b[2J\\tü"


def test_a_long_value_is_cut() -> None:
    assert len(namer(Config())(Config(text="x" * 10_000))) == NAME_CHARS
