from __future__ import annotations

import math
from typing import Any

import pytest
from brute_force import BROKEN, MISSING, read
from hypothesis import given, settings
from hypothesis import strategies as st
from random_spaces import booleans, numbers

from autoscout.core.errors import SpaceError
from autoscout.space.algebra import FAILED, UNDEFINED
from autoscout.space.constraint import value_of
from autoscout.space.parser import MAX_CHAIN, MAX_LENGTH, name_text, parse, value_text

VALUES = {"alpha": 3, "beta": 2.5, "gamma": True, "delta": "red", "gpus": 4, "limit": 2.5}


def result(text: str, **values: Any) -> Any:
    return value_of(parse(text), {**VALUES, **values})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("7 // 2 * 2 + 7 % 2", 7),
        ("10 - 3 - 2", 5),
        ("1_000 + .5 + 1e2 + 2.", 1102.5),
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("not 1 == 2", True),
        ("not True or True", True),
        ("not (True or True)", False),
        ("True or False and False", True),
        ("3 in (1, 2, 3)", True),
        ("3 in [1, 2,]", False),
        ("3 not in (1, 2)", True),
        ("3 in (3,)", True),
        ("'ed' in delta", True),
        ('delta == "red"', True),
        (r"'it\'s' == 'it' + ''", FAILED),
        ("alpha is None", False),
        ("alpha is not None", True),
        ("gamma is True", True),
        ("5 if alpha > 2 else 6", 5),
        ("5 if alpha > 3 else 6 if gamma else 7", 6),
        ("min(3, alpha, 2) + max(1, 2) + abs(-4)", 8),
        ("floor(2.7) + ceil(2.2) + round(2.6) + gcd(12, 18)", 14),
        ("log2(8) + sqrt(16)", 7.0),
        ("true and not false and null is None", True),
        ("(alpha, gamma) in ((1, True), (3, True))", True),
        ("(alpha, gamma) not in ((1, True), (3, False))", True),
        ("'red'in(delta,`delta`)and not'a'in delta", True),
        ("missing == 1", UNDEFINED),
        ("active(missing) or active(alpha)", True),
        ("missing == 1 or True", True),
        ("missing == 1 and False", False),
        ("1 / 0 > 1", FAILED),
        ("1 / 0 > 1 or True", True),
        ("delta * 3", FAILED),
        ("delta % 3", FAILED),
        ("'a' < 1", FAILED),
    ],
)
def test_meaning(text: str, expected: Any) -> None:
    found = result(text)
    assert found == expected or found is expected
    assert type(found) is type(expected)


@given(
    st.one_of(
        numbers(["alpha", "beta", "gamma"], 3), booleans(["alpha", "beta", "gamma", "absent"], ["alpha", "beta", "gamma", "absent"], 3)
    )
)
@settings(max_examples=300, deadline=None)
def test_means_what_python_means(text: str) -> None:
    expected = read(text, VALUES)
    found = value_of(parse(text), VALUES)
    if isinstance(expected, str) and expected in (MISSING, BROKEN):
        assert found is {MISSING: UNDEFINED, BROKEN: FAILED}[expected]
    elif isinstance(expected, float) and math.isnan(expected):
        assert found is FAILED
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("__import__('os').system('true')", 1, "double underscore"),
        ("alpha.__class__", 1, "double underscore"),
        ("().__class__", 3, "attributes"),
        ("() == alpha", 1, "empty parentheses"),
        ("(alpha)(2)", 2, "cannot be called"),
        ("min(*alpha)", 5, "not allowed"),
        ("alpha, gamma", 1, "only after 'in'"),
        ("(1).real", 4, "attributes"),
        ("alpha[0]", 6, "subscripts"),
        ("open('/etc/passwd')", 1, "cannot be called"),
        ("eval('1')", 1, "not allowed"),
        ("exec('1')", 1, "not allowed"),
        ("print(1)", 1, "cannot be called"),
        ("lambda: 1", 1, "run no code"),
        ("[x for x in y]", 4, "run no code"),
        ("{1: 2}", 1, "not allowed"),
        ("alpha := 2", 7, "not allowed"),
        ("alpha = 2", 7, "Write '=='"),
        ("alpha && gamma", 7, "Write 'and'"),
        ("alpha || gamma", 7, "Write 'or'"),
        ("!alpha", 1, "Write 'not'"),
        ("alpha; gamma", 6, "not allowed"),
        ("import os", 1, "run no code"),
        ("alpha +", 8, "ends too early"),
        ("(alpha", 1, "never closed"),
        ("alpha)", 6, "unexpected ')'"),
        ("1if gamma else 2", 2, "Write a space before it"),
        ("alpha in.5", 9, "Write a space before it"),
        ("(alpha gamma)", 8, "unexpected 'gamma'"),
        ("alpha == not gamma", 10, "unexpected 'not'"),
        (" \n alpha *", 11, "ends too early"),
        ("alpha beta", 7, "unexpected 'beta'"),
        ("'open", 1, "closing quote"),
        ("", 1, "must not be empty"),
        ("   ", 1, "must not be empty"),
        ("alpha is 1", 7, "None, True or False"),
        ("alpha is 3", 7, "None, True or False"),
        ("(1, 2) == alpha", 8, "only after 'in'"),
        ("(1, 2) + 3", 1, "only after 'in'"),
        ("(alpha, gamma) in (1, 2)", 16, "rows of the same length"),
        ("(alpha, gamma) in ((1, 2, 3),)", 16, "rows of the same length"),
        ("min(1)", 1, "takes 2 to 50 arguments"),
        ("active(1 + 2)", 1, "name of a knob"),
        ("f'{alpha}'", 2, "unexpected"),
        ("9" * 60, 1, "40 characters"),
        ("1e999", 1, "too large"),
        ("alpha if gamma", 15, "expected 'else'"),
        ("(" * 100 + "alpha" + ")" * 100, 31, "nested deeper"),
        ("2 ** " * (MAX_CHAIN + 1) + "2", None, "operators in a row"),
        ("+".join(["alpha"] * (MAX_CHAIN + 2)), None, "operators in a row"),
        ("not " * (MAX_CHAIN + 1) + "alpha", None, "operators in a row"),
        ("-" * (MAX_CHAIN + 1) + "alpha", None, "operators in a row"),
        ("alpha" + " " * MAX_LENGTH, 1, "characters at most"),
        ("alpha \x00", 7, "unexpected character"),
    ],
)
def test_refusals_name_the_column(text: str, column: int | None, words: str) -> None:
    with pytest.raises(SpaceError) as caught:
        parse(text)
    message = str(caught.value)
    assert words in message
    assert column is None or f"column {column}:" in message
    assert len(message) < 500


@pytest.mark.parametrize(
    "part",
    ["-", "not ", "+ ", "2 ** ", "a + ", "a if b else ", "a < ", "a and ", "(", "[", "f(", "-(", "not (a, ", "a in [", "a b ", "a[", "()"],
)
@pytest.mark.parametrize("end", ["", "a", "a b", ")", "a" + ")" * 29, "a b" + ")" * 29])
@pytest.mark.parametrize("times", [25, 2000, MAX_LENGTH // 12])
def test_hostile_text_is_parsed_or_refused_at_once(part: str, end: str, times: int) -> None:
    message = "column"
    try:
        parse(part * times + end)
    except SpaceError as error:
        message = str(error)
    assert "column" in message


@given(st.text(max_size=30))
@settings(max_examples=500, deadline=None)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    message = "column"
    try:
        parse(text)
    except SpaceError as error:
        message = str(error)
    assert "column" in message


def test_names_are_listed_with_their_columns() -> None:
    assert list(parse("tp * zero.stage + `max-len` in (1, tp)").names()) == [("tp", 0), ("zero.stage", 5), ("max-len", 18), ("tp", 35)]


@given(st.text(min_size=1).filter(lambda text: "`" not in text))
def test_every_name_can_be_written(name: str) -> None:
    assert [found for found, _ in parse(f"{name_text(name)} == 1").names()] == [name]


@given(st.one_of(st.text(), st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none()))
def test_every_value_can_be_written(value: Any) -> None:
    found = value_of(parse(value_text(value)), {})
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["a >> 1", "a << 2 < 3"])
def test_shifts_are_not_a_pair_of_comparisons(text: str) -> None:
    with pytest.raises(SpaceError, match="column 3"):
        parse(text)
