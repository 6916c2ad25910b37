"""Names are readable, stable and never shared by two configurations."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from autoscout.core.config import Config, Value
from autoscout.core.names import LENGTH, Names


def test_the_deepspeed_example() -> None:
    names = Names(["train_micro_batch_size_per_gpu", "gradient_accumulation_steps"])
    assert names.name({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4}) == "tmbspg8_gas4"


def test_order_follows_the_knobs_and_inactive_knobs_are_left_out() -> None:
    names = Names(["tp", "pp", "bucket_mb"])
    assert names.name({"bucket_mb": 25, "tp": 2, "pp": 1}) == "tp2_pp1_bm25"
    assert names.name({"pp": 4, "tp": 1}) == "tp1_pp4"
    assert names.name({}) == "exp"


def test_nested_keys_use_the_leaf_until_two_leaves_clash() -> None:
    assert Names(["zero_optimization.stage"]).acronyms == {"zero_optimization.stage": "s"}
    clash = Names(["offload_param.device", "offload_optimizer.device"]).acronyms
    assert clash == {"offload_param.device": "opd", "offload_optimizer.device": "ood"}


def test_clashing_acronyms_grow_on_both_sides_whatever_the_order() -> None:
    assert Names(["batch", "bucket"]).acronyms == {"batch": "ba", "bucket": "bu"}
    assert Names(["bucket", "batch"]).acronyms == {"batch": "ba", "bucket": "bu"}
    assert Names(["threads", "threads_batch"]).acronyms == {"threads": "t", "threads_batch": "tb"}


def test_names_that_differ_only_in_punctuation_stay_apart() -> None:
    acronyms = Names(["a_b", "a-b", "a.b", "A_B"]).acronyms
    assert len(set(acronyms.values())) == 4


def test_values_are_short_and_exact() -> None:
    names = Names(["bucket_size", "flag", "kind", "rate"])
    assert names.name({"bucket_size": 500_000_000, "flag": True, "kind": "q8_0", "rate": 0.5}) == "bs5e8_fT_k-q8-0_r0.5"
    assert names.name({"kind": "round-robin"}) == "k-round--robin"
    assert names.name({"bucket_size": 16384, "flag": False}) == "bs16384_fF"
    assert names.name({"bucket_size": 16385}) != names.name({"bucket_size": 16384})


def test_strings_that_look_like_something_else_are_marked() -> None:
    names = Names(["mode"])
    seen = {names.name({"mode": value}) for value in ("T", True, "1", 1, 1.0, None, "N", "a-b", "a_b", "", "a b", "a/b")}
    assert len(seen) == 12
    assert all(re.fullmatch(r"[A-Za-z0-9._~=+-]+", name) for name in seen)


def test_long_names_are_cut_but_stay_apart() -> None:
    names = Names([f"knob_{index}" for index in range(60)])
    one = {f"knob_{index}": index for index in range(60)}
    other = {**one, "knob_59": 0}
    assert len(names.name(one)) <= LENGTH
    assert names.name(one) != names.name(other)


def test_strange_knobs_are_named_in_full() -> None:
    assert Names(["tp"]).name({"tp": 2, "other": 3}) == "tp2_other=3"


_VALUES: st.SearchStrategy[Value] = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(-100_000, 10_000_000),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.text(alphabet="abTF1_-. /~", max_size=6),
)
_CONFIGS = st.dictionaries(st.sampled_from(["a", "ab", "batch_size", "bs", "x1", "x.y", "z.y"]), _VALUES)


@given(one=_CONFIGS, other=_CONFIGS)
def test_different_configs_never_share_a_name(one: dict[str, Value], other: dict[str, Value]) -> None:
    names = Names(["a", "ab", "batch_size", "bs", "x1", "x.y", "z.y"])
    assert (names.name(one) == names.name(other)) == (Config(one) == Config(other))
