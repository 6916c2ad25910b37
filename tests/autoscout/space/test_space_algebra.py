from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_spaces import FACTS, booleans, numbers

from autoscout.core.errors import SpaceError
from autoscout.space.algebra import ACTIVE, FAILED, INACTIVE, UNDEFINED, Node, Table, compute, evaluate, predicate_of
from autoscout.space.constraint import build, value_of
from autoscout.space.parser import parse
from autoscout.space.vector import as_array, satisfying

NAMES = ["alpha", "beta", "gamma", "delta"]
DOMAINS: list[list[Any]] = [[1, 2, 4, 8], [0.1, 0.2, 0.3, 1.5], [False, True], [-3, 0, 3]]


def scope(table: Table, sure: bool = True) -> dict[str, Node]:
    named = {name: table.variable(index, sure=sure) for index, name in enumerate(NAMES)}
    return {**named, **{name: table.constant(value) for name, value in FACTS.items()}}


def same(one: Any, other: Any) -> bool:
    return one is other if other in (UNDEFINED, FAILED) else bool(one == other)


expressions = st.one_of(numbers(NAMES, 3), booleans(NAMES, NAMES, 2))


@given(expressions, st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=400, deadline=None)
def test_filling_in_any_order_gives_what_the_expression_gives(text: str, chance: random.Random, sure: bool) -> None:
    """Bit for bit, fractions included: the solver and `check` must never disagree."""
    table = Table(DOMAINS)
    node = build(text, table, scope(table, sure))
    chosen = [chance.randrange(len(domain)) if sure or chance.random() < 0.7 else INACTIVE for domain in DOMAINS]
    values = {name: DOMAINS[index][at] for index, (name, at) in enumerate(zip(NAMES, chosen, strict=True)) if at != INACTIVE}
    expected = value_of(parse(text), {**FACTS, **values})
    by_index = {index: DOMAINS[index][at] if at != INACTIVE else UNDEFINED for index, at in enumerate(chosen)}
    assert same(evaluate(node, by_index), expected)
    order = list(range(len(NAMES)))
    chance.shuffle(order)
    for index in order:
        if not sure and chosen[index] != INACTIVE and chance.random() < 0.5:
            node = table.fill(node, index, ACTIVE)
        node = table.fill(node, index, chosen[index])
    assert node.constant
    assert same(node.value, expected)


@given(expressions)
@settings(max_examples=300, deadline=None)
def test_bounds_hold_and_total_nodes_never_fail(text: str) -> None:
    table = Table(DOMAINS)
    node = build(text, table, scope(table))
    for alpha in DOMAINS[0]:
        for beta in DOMAINS[1]:
            for gamma in DOMAINS[2]:
                for delta in DOMAINS[3]:
                    value = evaluate(node, {0: alpha, 1: beta, 2: gamma, 3: delta})
                    if node.total:
                        assert value not in (UNDEFINED, FAILED)
                    if node.bound is not None and value is not FAILED:
                        assert node.bound[0] <= value <= node.bound[1]


@given(booleans(["alpha"], ["alpha"], 2), st.sampled_from([range(-5, 60), range(1, 4000, 7), [0.5 * step for step in range(-4, 40)]]))
@settings(max_examples=300, deadline=None)
def test_arrays_agree_with_single_values(text: str, domain: Any) -> None:
    table = Table([domain])
    names = {"alpha": table.variable(0, sure=True), **{name: table.constant(value) for name, value in FACTS.items()}}
    rule = table.make("holds", (build(text, table, names),))
    found = satisfying(rule, as_array(domain))
    expected = [position for position, value in enumerate(domain) if evaluate(rule, {0: value})]
    if rule.constant:
        assert bool(rule.value) == (len(expected) == len(domain))
        return
    assert found is None or found == expected
    predicate = predicate_of(rule, 0)
    assert [position for position, value in enumerate(domain) if predicate(value)] == expected


def test_equal_questions_are_one_node() -> None:
    table = Table([[1, 2, 4, 8]] * 4)
    names = {name: table.variable(index, sure=True) for index, name in enumerate(["tp", "pp", "cp", "dp"])}
    product = build("tp * pp * cp * dp == 64", table, names)
    one = table.fill(table.fill(product, 0, 1), 1, 2)  # 2 * 4
    other = table.fill(table.fill(product, 0, 3), 1, 0)  # 8 * 1
    assert one is other
    assert table.fill(build("64 == dp * (cp * (pp * tp))", table, names), 0, 1) is table.fill(product, 0, 1)
    assert build("tp + pp <= 5 - cp", table, names) is build("cp + tp + pp - 2 < 4", table, names)


def test_impossible_products_are_seen_at_once() -> None:
    table = Table([[1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8]])
    names = {name: table.variable(index, sure=True) for index, name in enumerate("abc")}
    assert table.fill(build("a * b * c == 64", table, names), 0, 2) is table.false
    assert build("a * b * c == 200", table, names) is table.false
    assert build("a * b * c <= 192", table, names) is table.true


@pytest.mark.parametrize("op", ["and", "or"])
def test_truth_is_a_chain(op: str) -> None:
    chain = [False, FAILED, UNDEFINED, True]
    for one in chain:
        for other in chain:
            rank = (min if op == "and" else max)(chain.index(one), chain.index(other))
            assert compute(op, [one, other]) is chain[rank]
    assert [compute("holds", [value]) for value in chain] == [False, False, True, True]
    assert [compute("sure", [value]) for value in chain] == [False, False, False, True]
    assert [compute("not", [value]) for value in chain] == [True, FAILED, UNDEFINED, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("color * 2 > 1", "arithmetic"),
        ("color < 3", "no order"),
        ("colour == 'red'", "Did you mean 'color'?"),
        ("9 ** 9 ** 9 > size", "too large"),
        ("(1, 2)", "after 'in'"),
    ],
)
def test_building_refuses(text: str, words: str) -> None:
    table = Table([["red", "green"], [1, 2]])
    with pytest.raises(SpaceError, match="column") as caught:
        build(text, table, {"color": table.variable(0, sure=True), "size": table.variable(1, sure=True)})
    assert words in str(caught.value)


def test_functions_fail_only_where_arithmetic_does() -> None:
    table = Table([[0, 1, 2]])
    size = table.variable(0, sure=True)

    def inverse(size: int) -> bool:
        return 1 / size > 0.6

    def confused(size: int) -> bool:
        return size.no_such_thing  # type: ignore[attr-defined, no-any-return]

    node = table.make("holds", (table.function(inverse, [size]),))
    assert [evaluate(node, {0: value}) for value in (0, 1, 2)] == [False, True, False]
    assert [predicate_of(node, 0)(value) for value in (0, 1, 2)] == [False, True, False]
    with pytest.raises(AttributeError):
        evaluate(table.function(confused, [size]), {0: 1})
