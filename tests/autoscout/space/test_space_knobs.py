from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscout.core.errors import SpaceError
from autoscout.space import Choice, Flag, Grid, Knob


@pytest.mark.parametrize(
    ("knob", "expected"),
    [
        (Grid("x", 1, 5), [1, 2, 3, 4, 5]),
        (Grid("x", 1, 10, step=4), [1, 5, 9]),
        (Grid("x", 0.5, 0.9, step=0.1), [0.5, 0.6, 0.7, 0.8, 0.9]),
        (Grid("x", 0, 1, step=0.25), [0.0, 0.25, 0.5, 0.75, 1.0]),
        (Grid("x", 1, 64, log=True), [1, 2, 4, 8, 16, 32, 64]),
        (Grid("x", 1, 100, log=True), [1, 2, 4, 8, 16, 32, 64, 100]),
        (Grid("x", 1, 1000, log=True, base=10), [1, 10, 100, 1000]),
        (Grid("x", 1e-4, 1e-1, log=True, points=4), [0.0001, 0.001, 0.01, 0.1]),
        (Grid("x", 0, 100, points=5), [0, 25, 50, 75, 100]),
        (Grid("x", values=[8, 1, 4]), [1, 4, 8]),
        (Grid("x", values=[1, 2.5]), [1.0, 2.5]),
        (Grid("x", 1, 512, log=True, default=25), [1, 2, 4, 8, 16, 25, 32, 64, 128, 256, 512]),
        (Grid("x", 0, 10, step=5, default=7), [0, 5, 7, 10]),
        (Grid("x", 3, 3), [3]),
        (Flag("x"), [False, True]),
        (Choice("x", ["b", "a", None, 1, 1.0, True]), ["b", "a", None, 1, 1.0, True]),
    ],
)
def test_values(knob: Knob, expected: list[Any]) -> None:
    assert list(knob.values) == expected
    assert [type(value) for value in knob.values] == [type(value) for value in expected]
    assert [knob.position(value) for value in expected] == list(range(len(expected)))
    assert knob.default in knob


def test_kinds_of_values_are_told_apart() -> None:
    assert Grid("x", 1, 4).position(1.0) is None
    assert Grid("x", 1, 4).position(True) is None
    assert Flag("x").position(1) is None
    assert Choice("x", [1, "1"]).position("1") == 1
    assert Choice("x", [1]).position([1]) is None
    assert Grid("x", 0.0, 1.0, step=0.1).position(0.3) == 3


def test_defaults_and_density() -> None:
    assert (Choice("x", ["a", "b"]).default, Choice("x", ["a", "b"]).sparse) == ("a", True)
    assert (Flag("x").default, Flag("x", True).default, Flag("x").sparse) == (False, True, True)
    assert (Grid("x", 2, 9).default, Grid("x", 2, 9).sparse, Grid("x", 2, 9, sparse=True).sparse) == (2, False, True)
    assert Grid("x", 0.5, 1.0, step=0.25, default=1).default == 1.0


def test_a_range_of_a_billion_is_cheap() -> None:
    knob = Grid("x", 1, 10**9)
    assert len(knob.values) == 10**9
    assert knob.position(123_456_789) == 123_456_788
    assert knob.nearest(5.4e8) == 540_000_000
    fine = Grid("y", 0.0, 1000.0, step=1e-6)
    assert len(fine.values) == 10**9 + 1
    assert fine.position(999.123456) == 999_123_456
    assert fine.values[-1] == 1000.0
    assert fine.values[1:3] == (1e-6, 2e-6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Choice("x", []), "at least one value"),
        (lambda: Choice("x", "abc"), "must be a list"),
        (lambda: Choice("x", [1, 1]), "listed once"),
        (lambda: Choice("x", [[1]]), "number, text, true, false or null"),
        (lambda: Choice("x", [float("nan")]), "finite"),
        (lambda: Choice("x", ["a"], default="b"), r"one of the values \['a'\]"),
        (lambda: Flag("x", default=1), "one of the values"),  # type: ignore[arg-type]
        (lambda: Grid("x"), "low and a high end"),
        (lambda: Grid("x", 5, 1), "must not be above"),
        (lambda: Grid("x", 1, float("inf")), "must be finite"),
        (lambda: Grid("x", True, 3), "finite numbers"),
        (lambda: Grid("x", 1, 5, step=0), "above zero"),
        (lambda: Grid("x", 0, 5, log=True), "start above zero"),
        (lambda: Grid("x", 1, 5, base=2), "needs log"),
        (lambda: Grid("x", 1, 5, log=True, base=1), "above 1"),
        (lambda: Grid("x", 1, 5, points=1), "from 2 to 100,000"),
        (lambda: Grid("x", 1, 5, step=1, points=3), "exclude each other"),
        (lambda: Grid("x", 1, 5, default=9), r"in the range \[1, 5\]"),
        (lambda: Grid("x", 1, 5, default="2"), r"in the range"),  # type: ignore[arg-type]
        (lambda: Grid("x", 1, 5, values=[1]), "cannot both be given"),
        (lambda: Grid("x", values=["a"]), "numbers only"),  # type: ignore[list-item]
        (lambda: Grid("x", values=[1, 2], default=3), "one of the values"),
        (lambda: Flag(""), "printable name"),
        (lambda: Flag("a`b"), "printable name"),
        (lambda: Flag("a=b"), "printable name"),
    ],
)
def test_bad_knobs_are_refused(make: Any, words: str) -> None:
    with pytest.raises(SpaceError, match=words):
        make()


@given(st.floats(-10, 2000), st.lists(st.integers(0, 9), min_size=1, unique=True), st.booleans())
@settings(max_examples=200, deadline=None)
def test_nearest_is_nearest(wanted: float, kept: list[int], log: bool) -> None:
    knob = Grid("x", 1, 512, log=log, points=10)
    among = [knob.values[place] for place in sorted(kept)]
    found: Any = knob.nearest(wanted, among)
    if log and wanted > 0:
        ratios = {value: max(value / wanted, wanted / value) for value in among}  # type: ignore[operator]
        assert ratios[found] == pytest.approx(min(ratios.values()))
    elif not log:
        assert abs(found - wanted) == pytest.approx(min(abs(value - wanted) for value in among))  # type: ignore[operator]


def test_nearest_of_categories() -> None:
    knob = Choice("x", ["a", "b", "c"], default="b")
    assert knob.nearest("c") == "c"
    assert knob.nearest("z") == "b"
    assert knob.nearest("z", ["a", "c"]) == "a"
    assert Choice("x", [True, 1]).nearest(1) == 1
    assert type(Choice("x", [True, 1]).nearest(1)) is int
    assert Choice("x", [1, 8, 4, "auto"]).nearest(5) == 4
    assert Choice("x", ["auto", True]).nearest(1) == "auto"
    assert Grid("x", 1, 8, default=5).nearest("nonsense") == 5
    assert Grid("x", 1, 8, default=5).nearest(None, [1, 8]) == 8


@pytest.mark.parametrize(
    ("knob", "text", "expected"),
    [
        (Grid("x", 1, 8), "4", 4),
        (Grid("x", 1, 8), "4.0", 4),
        (Grid("x", 0.0, 1.0, step=0.5), "1", 1.0),
        (Flag("x"), "on", True),
        (Flag("x"), "False", False),
        (Choice("x", ["on", "off"]), "on", "on"),
        (Choice("x", [None, "fp8"]), "null", None),
        (Choice("x", ["1", "2"]), "2", "2"),
        (Grid("x", 1, 10**7), "1234567", 1234567),
    ],
)
def test_command_line_spellings(knob: Knob, text: str, expected: Any) -> None:
    assert knob.parse(text) == expected
    assert type(knob.parse(text)) is type(expected)


def test_unknown_spellings_are_refused() -> None:
    for knob, text in ((Grid("x", 1, 8), "9"), (Grid("x", 1, 8), "four"), (Choice("x", ["a"]), "b")):
        with pytest.raises(SpaceError, match="must be one of"):
            knob.parse(text)


def test_knobs_compare_copy_and_narrow() -> None:
    knob = Grid("x", 1, 8, when="y > 1", unit="MB", help="size", restart=False)
    assert knob == Grid("x", 1, 8, when="y > 1", unit="MB", help="size", restart=False)
    assert knob != Grid("x", 1, 8)
    assert Choice("x", [1, 2]) != Grid("x", values=[1, 2])
    assert pickle.loads(pickle.dumps(knob)) == knob
    assert knob.only(3).values == (3,)
    assert knob.only(3).default == 3
    assert len(knob.values) == 8
    with pytest.raises(SpaceError, match="must be one of"):
        knob.only(9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"points": 100_000_000_000}, "from 2 to 100,000"),
        ({"points": True}, "from 2 to 100,000"),
        ({"log": True, "base": 1.0000001}, "at most 100,000 values"),
        ({"log": True, "base": []}, "a base must be above 1"),
        ({"step": []}, "a step must be a number"),
        ({"step": float("nan")}, "a step must be a number"),
        ({"step": 1e-30}, "at most 1,000,000,000,000 values"),
        ({"high": 10**400}, "at most 63 bits"),
        ({"high": 10**15}, "at most 1,000,000,000,000 values"),
        ({"high": 10**9, "step": 7, "default": 3}, "must contain its default"),
    ],
)
def test_ranges_beyond_every_bound(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SpaceError, match=words):
        Grid("x", **{"low": 1, "high": 1000, **given})


def test_long_lists_are_checked_in_one_go() -> None:
    assert len(Choice("x", [f"v{number}" for number in range(50_000)]).values) == 50_000
    with pytest.raises(SpaceError, match="may be listed once"):
        Choice("x", [*range(50_000), 7])


def test_a_number_between_two_values_can_be_added() -> None:
    knob = Grid("x", 1, 512, log=True, default=8)
    wider = knob.reaching(100)
    assert wider.position(100) == wider.position(64) + 1
    assert (wider.default, len(knob.values) + 1) == (8, len(wider.values))
    assert Grid("x", values=wider.spec()["values"], default=8, log=False).values == wider.values
    for value in (8, 0, 1000, 2.5, True, "100", None, float("nan")):
        assert knob.reaching(value) is knob
    assert Grid("x", 0.5, 0.95, step=0.05).reaching(0.873).values[-3:] == (0.873, 0.9, 0.95)
    assert Choice("x", [1, 3]).reaching(2).values == (1, 3)
