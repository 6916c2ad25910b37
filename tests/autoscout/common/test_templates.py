"""Trees with holes: filling, what inactive knobs leave out, pruning, canonical form."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoscout.common.templates import as_text, canonical, fill, flatten, holes, prune, resolve, unflatten


def test_whole_holes_keep_the_type_and_embedded_ones_become_text() -> None:
    tree = {"stage": "$stage", "overlap": "$overlap", "lr": "${lr}", "path": "/data/${run}_$stage", "fixed": 3, "list": ["$stage", 1]}
    filled = fill(tree, {"stage": 2, "overlap": True, "lr": 0.5, "run": "a"})
    assert filled == {"stage": 2, "overlap": True, "lr": 0.5, "path": "/data/a_2", "fixed": 3, "list": [2, 1]}
    assert tree["stage"] == "$stage", "the template itself must not change"


def test_capitals_as_deepspeed_writes_them() -> None:
    assert fill("$TRAIN_MICRO_BATCH_SIZE_PER_GPU", {"train_micro_batch_size_per_gpu": 8}) == 8
    assert resolve("AB", ["ab", "Ab"]) is None, "two candidates are none"
    assert resolve("ab", ["ab", "Ab"]) == "ab"


def test_a_dollar_sign_is_doubled() -> None:
    assert fill("cost: $$5 and $x", {"x": 1}) == "cost: $5 and 1"
    assert holes("$$x") == set()


def test_dotted_names_need_braces() -> None:
    assert fill("${zero_optimization.stage}", {"zero_optimization.stage": 3}) == 3


def test_entries_of_inactive_knobs_go_and_take_empty_sections_along() -> None:
    tree = {"zero": {"stage": "$stage", "offload": {"device": "$device", "pin": {"n": "$n"}}}, "args": ["$device"], "empty": {}}
    assert fill(tree, {"stage": 1}) == {"zero": {"stage": 1}, "empty": {}}
    assert fill(tree, {"stage": 1, "device": "cpu"}) == {"zero": {"stage": 1, "offload": {"device": "cpu"}}, "args": ["cpu"], "empty": {}}
    assert fill({"a": "$x"}, {}) == {}


def test_a_key_may_be_a_hole() -> None:
    assert fill({"$name": 1}, {"name": "adam"}) == {"adam": 1}
    assert holes({"$name": "$x"}) == {"name", "x"}


def test_pruning_drops_sections_no_knob_touches() -> None:
    tree = {"zero": {"stage": "$stage"}, "optimizer": {"type": "Adam"}, "logging": {"level": "info"}, "steps": 10, "hooks": [1]}
    assert prune(tree) == {"zero": {"stage": "$stage"}, "steps": 10}
    assert prune(tree, keep=["optimizer.type"]) == {"zero": {"stage": "$stage"}, "optimizer": {"type": "Adam"}, "steps": 10}


def test_canonical_form_ignores_the_order_of_keys() -> None:
    assert canonical({"b": 1, "a": {"d": 2, "c": 3}}) == canonical({"a": {"c": 3, "d": 2}, "b": 1})
    assert canonical({"a": 1}) != canonical({"a": True})


def test_values_as_text() -> None:
    assert [as_text(value) for value in (True, None, 1, 0.5, "a b")] == ["true", "null", "1", "0.5", "a b"]


def test_a_name_that_is_value_and_section_becomes_the_section() -> None:
    assert unflatten({"a": 1, "a.b": 2}) == {"a": {"b": 2}}


_LEAVES = st.one_of(st.integers(), st.booleans(), st.text(max_size=3), st.lists(st.integers(), max_size=2))
_TREES = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), _LEAVES),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), st.one_of(_LEAVES, inner)),
    max_leaves=8,
)


@given(_TREES)
def test_flatten_and_unflatten_are_inverse(tree: dict[str, object]) -> None:
    assert unflatten(flatten(tree)) == tree
