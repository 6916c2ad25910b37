from __future__ import annotations

import doctest
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.errors import SpaceError
from autoscout.core.protocols import SpaceLike
from autoscout.space import Choice, Constraint, Count, Flag, Grid, Space, read_space
from autoscout.space import space as space_module

RECIPE = Path(__file__).parents[3] / "recipes" / "megatron_space.yaml"


def layout(gpus: int = 8) -> Space:
    return Space(
        [
            Choice("tp", [1, 2, 4, 8]),
            Choice("pp", [1, 2, 4, 8]),
            Choice("dp", [1, 2, 4, 8]),
            Flag("sp", when="tp > 1"),
            Grid("bucket_mb", 1, 512, log=True, default=25, when="dp > 1"),
        ],
        ["tp * pp * dp == gpus", "layers % pp == 0"],
        {"gpus": gpus, "layers": 12},
    )


def small(budget: int) -> bool:
    return budget < 3


def _above(bound: int) -> Callable[[int], bool]:
    return lambda a: a > bound


def test_docstring() -> None:
    assert doctest.testmod(space_module).failed == 0


def test_is_what_the_core_expects() -> None:
    assert isinstance(layout(), SpaceLike)


def test_megatron_by_hand() -> None:
    space = layout()
    # (tp, pp, dp) with product 8 and pp in {1, 2, 4}: 12 % 8 != 0
    triples = [(t, p, d) for t in (1, 2, 4, 8) for p in (1, 2, 4) for d in (1, 2, 4, 8) if t * p * d == 8]
    expected = sum((2 if t > 1 else 1) * (11 if d > 1 else 1) for t, _, d in triples)
    assert space.count() == Count(expected, exact=True)
    assert space.choices("pp") == (1, 2, 4)
    assert space.choices("dp", Config(tp=4)) == (1, 2)
    assert space.choices("pp", Config(tp=4, dp=2)) == (1,)
    assert space.choices("sp", Config(tp=1)) == ()
    assert space.choices("tp", Config(sp=True)) == (2, 4, 8)
    assert space.choices("dp", Config(bucket_mb=25)) == (2, 4, 8)
    assert space.choices("dp", Config(tp=3)) == ()
    assert space.undecided(Config(tp=1, dp=8)) == ("pp", "bucket_mb")
    assert space.undecided(Config(tp=8)) == ("pp", "dp", "sp")
    assert space.undecided(Config(tp=8, dp=8)) == ()
    assert space.default() == Config(tp=1, pp=1, dp=8, bucket_mb=25)
    assert space.structure(space.default()) == Config(tp=1, pp=1, dp=8)
    assert space.mask(Config(tp=1, pp=1, dp=8)) == {"bucket_mb": (1, 2, 4, 8, 16, 25, 32, 64, 128, 256, 512)}
    assert space.mask(Config(tp=8, pp=1, dp=1, sp=True)) == {}
    assert space.project({"bucket_mb": 300}, Config(tp=1, pp=1, dp=8))["bucket_mb"] == 256
    assert space.project({"tp": 4, "dp": 100}) == Config(tp=4, sp=False, pp=1, dp=2, bucket_mb=25)


def test_order_parents_and_ancestors() -> None:
    space = Space([Flag("c", when="b"), Flag("b", when="a and d"), Flag("a"), Flag("d")])
    assert tuple(space.knobs) == ("a", "d", "b", "c")
    assert space.declared == ("c", "b", "a", "d")
    assert space.parents("c") == ("b",)
    assert space.ancestors("c") == {"a", "b", "d"}
    assert space.parents("a") == ()
    with pytest.raises(SpaceError, match="Did you mean"):
        Space([Flag("alpha")]).parents("alpa")


def test_sparse_and_dense() -> None:
    space = layout()
    assert space.sparse == ("tp", "pp", "dp", "sp")
    assert space.dense == ("bucket_mb",)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Config(tp=2, pp=1, dp=4, bucket_mb=25), ["Knob 'sp' has no value although tp > 1"]),
        (Config(tp=8, pp=1, dp=1, sp=True, bucket_mb=25), ["'bucket_mb' is set to 25 but inactive: dp > 1 is not true with dp=1"]),
        (Config(tp=3, pp=1, dp=1), ["Knob 'tp' cannot be 3; it takes one of [1, 2, 4, 8]"]),
        (Config(tp=1.0, pp=1, dp=8, bucket_mb=25), ["Did you mean 1 (int)?"]),
        (Config(tp=1, pp=1, dp=4, bucket_mb=25), ["Constraint tp * pp * dp == gpus is broken with tp=1, pp=1, dp=4, gpus=8"]),
        (Config(tp=1, pp=8, dp=1), ["Constraint layers % pp == 0 is broken with layers=12, pp=8"]),
        (Config(tp=1, pp=1, dp=8, bucket_mb=25, buket=1), ["There is no knob 'buket'. Did you mean 'bucket_mb'?"]),
        (Config(), ["'tp' has no value", "'pp' has no value", "'dp' has no value"]),
    ],
)
def test_check_explains(config: Config, words: list[str]) -> None:
    text = "\n".join(layout().check(config))
    for part in words:
        assert part in text


def test_the_reason_of_a_constraint_is_shown() -> None:
    space = Space([Grid("a", 1, 4)], [Constraint("a % 2 == 0", why="pairs only")])
    assert space.check(Config(a=3)) == ["Constraint a % 2 == 0 is broken with a=3 (pairs only)."]
    assert space.why_not(Config(a=3)) == ["Nothing valid has a=3 because of a % 2 == 0 (pairs only)."]


def test_why_not_names_the_culprits() -> None:
    space = layout()
    assert space.why_not(Config(tp=4, pp=2, sp=True)) == []
    (reason,) = space.why_not(Config(tp=8, dp=8, sp=True))
    assert reason.startswith("Nothing valid has dp=8, tp=8 because of tp * pp * dp == gpus")
    assert "cannot be 3" in space.why_not(Config(tp=3))[0]
    with pytest.raises(SpaceError, match="Nothing valid has"):
        space.project({}, Config(tp=8, dp=8))
    with pytest.raises(SpaceError, match="Nothing valid has"):
        space.mask(Config(tp=8, dp=8))
    assert space.sample(np.random.default_rng(0), Config(tp=8, dp=8)) is None
    assert list(space.enumerate(Config(tp=8, dp=8))) == []
    assert space.count(given=Config(tp=8, dp=8)) == Count(0, exact=True)


def test_enumeration_is_ordered_and_lazy() -> None:
    space = Space([Grid("b", 1, 2), Grid("a", 1, 10**9)])
    listed = space.enumerate()
    assert [next(listed) for _ in range(2)] == [Config(a=1, b=1), Config(a=2, b=1)]
    assert list(Space([Flag("x"), Flag("y")]).enumerate(Config(y=True))) == [Config(x=False, y=True), Config(x=True, y=True)]


def test_samples_are_uniform() -> None:
    space = Space([Choice("tp", [1, 2, 4]), Flag("sp", when="tp > 1"), Choice("dp", [1, 2, 4])], ["tp * dp <= 4"])
    whole = list(space.enumerate())
    rng = np.random.default_rng(7)
    draws = 300 * len(whole)
    seen = Counter(space.sample(rng) for _ in range(draws))
    assert set(seen) == set(whole)
    chi_squared = sum((count - 300) ** 2 / 300 for count in seen.values())
    assert chi_squared < 2.5 * len(whole)  # 8 degrees of freedom: passed by chance less than once in a thousand


def test_same_generator_same_sample() -> None:
    space = layout()
    first = [space.sample(np.random.default_rng(seed)) for seed in range(5)]
    assert first == [layout().sample(np.random.default_rng(seed)) for seed in range(5)]


def test_functions_as_constraints() -> None:
    def fits(tp: int, memory_gb: float) -> bool:
        return 40 / tp <= memory_gb

    space = Space([Choice("tp", [1, 2, 4]), Grid("bucket", 1, 3, when="tp > 2")], [fits, lambda bucket: bucket != 2], {"memory_gb": 20})
    assert [dict(config) for config in space.enumerate()] == [{"tp": 2}, {"tp": 4, "bucket": 1}, {"tp": 4, "bucket": 3}]
    assert space.check(Config(tp=1)) == ["Constraint fits(tp, memory_gb) is broken with tp=1, memory_gb=20."]
    with pytest.raises(SpaceError, match="reads 'memory'"):
        Space([Grid("x", 1, 2)], [lambda x, memory: True])
    assert Space([Grid("x", 1, 9)], [lambda x, limit=3: x < limit]).count().value == 2
    for odd in (lambda *x: True, lambda *, x: True, 7, True):
        with pytest.raises(SpaceError, match="a constraint"):
            Space([Grid("x", 1, 2)], [odd])  # type: ignore[list-item]


def test_contradictions_name_the_smallest_set() -> None:
    knobs = [Grid("a", 1, 4), Grid("b", 1, 4), Grid("c", 1, 4)]
    with pytest.raises(SpaceError) as caught:
        Space(knobs, ["c > 1", "a + b == c", "a > 2", "b > 2", "c != 2"])
    assert "`a + b == c` and `a > 2` and `b > 2`" in str(caught.value)
    assert "constraints[1], constraints[2], constraints[3]" in str(caught.value)
    with pytest.raises(SpaceError, match="this constraint can never hold: `a \\* b == gpus`"):
        Space(knobs, ["a * b == gpus"], {"gpus": 7})
    with pytest.raises(SpaceError, match="never hold: `gpus > 9`"):
        Space(knobs, ["gpus > 9"], {"gpus": 7})


def test_a_part_that_cannot_be_computed_breaks_the_whole() -> None:
    with pytest.raises(SpaceError, match="can never hold"):
        Space([Choice("a", ["red", "green"])], ["1 % 0 == 0 and a == 'red'"])
    space = Space([Grid("a", 0, 2), Choice("b", ["red", "green"])], ["8 % a == 0 and b == 'red'"])
    assert [dict(config) for config in space.enumerate()] == [{"a": 1, "b": "red"}, {"a": 2, "b": "red"}]


def test_circles_are_named() -> None:
    with pytest.raises(SpaceError, match="a -> b -> c -> a"):
        Space([Flag("a", when="b"), Flag("b", when="c or d"), Flag("c", when="a"), Flag("d")])
    with pytest.raises(SpaceError, match="a -> a"):
        Space([Flag("a", when="a")])


def test_all_faults_of_a_stage_come_together() -> None:
    with pytest.raises(SpaceError) as caught:
        Space([Flag("a", when="bb"), Flag("b", when="1 +")], [], {})
    assert [fault.field for fault in caught.value.faults] == ["knobs.a.when", "knobs.b.when"]
    with pytest.raises(SpaceError) as caught:
        Space([Flag("a"), Flag("b")], ["a == x", "b ==", "a or b"], {})
    assert [fault.field for fault in caught.value.faults] == ["constraints[0]", "constraints[1]"]
    with pytest.raises(SpaceError) as caught:
        Space([Flag("a"), Flag("a"), Flag("b")], [], {"b": 1, "c": [1], "d": float("inf")})  # type: ignore[dict-item]
    assert len(caught.value.faults) == 4


def test_an_inactive_knob_leaves_constraints_alone() -> None:
    space = Space([Flag("on"), Grid("size", 1, 4, when="on")], ["size > 2", "size > 2 or on"])
    assert {config.canonical for config in space.enumerate()} == {'{"on":false}', '{"on":true,"size":3}', '{"on":true,"size":4}'}
    forced = Space([Flag("on"), Grid("size", 1, 4, when="on")], [Constraint("size > 2", strict=True)])
    assert all("size" in config for config in forced.enumerate())
    chained = Space([Flag("a"), Flag("b", when="a"), Flag("c", when="not b")])
    assert chained.count().value == 4  # a off; a on, b on; a on, b off with two values of c


def test_pins() -> None:
    space = layout()
    pinned = space.pin(Config(bucket_mb=16, tp=2))
    assert pinned.default() == Config(tp=2, pp=1, dp=4, sp=False, bucket_mb=16)
    assert set(pinned.enumerate()) == set(space.enumerate(Config(bucket_mb=16, tp=2)))
    assert pinned.knobs["tp"].values == (2,)
    assert pinned.fingerprint() != space.fingerprint()
    with pytest.raises(SpaceError, match="Nothing valid has"):
        space.pin(Config(tp=8, dp=2))
    with pytest.raises(SpaceError, match="There is no knob 'xp'"):
        space.pin(Config(xp=8))


def test_further_constraints() -> None:
    assert set(layout().constrain("tp == 2").enumerate()) == {config for config in layout().enumerate() if config["tp"] == 2}


def test_fingerprints() -> None:
    assert layout() == layout()
    assert hash(layout()) == hash(layout())
    assert layout(8).fingerprint() != layout(4).fingerprint()
    assert Space([Grid("a", 1, 3)]).fingerprint() == Space([Grid("a", values=[1, 2, 3])]).fingerprint()
    assert Space([Grid("a", 1, 3)]).fingerprint() == Space([Grid("a", 1, 3, help="words", unit="MB")]).fingerprint()
    different = [Space([Grid("a", 1, 3)], [rule]) for rule in (lambda a: a > 1, lambda a: a < 3)]
    assert different[0] != different[1]
    closed = [Space([Grid("a", 1, 3)], [_above(bound)]) for bound in (1, 2, 1)]
    assert closed[0] != closed[1]
    assert closed[0] == closed[2]


def test_spaces_travel_between_processes() -> None:
    space = Space([Grid("budget", 1, 9), Flag("x", when="budget > 2")], [small, "budget > 0"])
    again = pickle.loads(pickle.dumps(space))
    assert again == space
    assert list(again.enumerate()) == list(space.enumerate())


def test_neighbours_repair_what_a_move_breaks() -> None:
    space = layout()
    here = Config(tp=2, pp=1, dp=4, sp=True, bucket_mb=25)
    found = space.neighbours(here)
    assert Config(tp=2, pp=1, dp=4, sp=False, bucket_mb=25) in found
    assert Config(tp=2, pp=1, dp=4, sp=True, bucket_mb=32) in found
    assert Config(tp=2, pp=1, dp=4, sp=True, bucket_mb=16) in found
    assert Config(tp=4, pp=1, dp=2, sp=True, bucket_mb=25) in found
    assert Config(tp=1, pp=2, dp=4, bucket_mb=25) in found or Config(tp=1, pp=1, dp=8, bucket_mb=25) in found
    assert all(not space.check(other) for other in found)


def test_an_empty_space_has_one_configuration() -> None:
    space = Space([])
    assert space.count() == Count(1, exact=True)
    assert space.default() == Config()
    assert list(space.enumerate()) == [Config()]
    assert space.sample(np.random.default_rng(0)) == Config()


def test_a_knob_that_can_never_be_active() -> None:
    space = Space([Flag("a"), Grid("b", 1, 4, when="gpus > 1")], ["b > 2"], {"gpus": 1})
    assert space.choices("b") == ()
    assert space.undecided() == ("a",)
    assert space.count().value == 2
    assert space.check(Config(a=True, b=3)) != []


def test_a_billion_raw_points_open_and_answer() -> None:
    powers = [2**step for step in range(13)]
    space = Space(
        [Grid(f"k{number}", values=powers, sparse=True) for number in range(9)],
        ["k0 * k1 * k2 * k3 * k4 == 4096", "k4 * k5 * k6 * k7 * k8 == 1024", "k0 % k5 == 0", "k1 <= k2"],
    )
    assert 13**9 > 10**9
    assert space.choices("k4", Config(k0=1024)) == (1, 2, 4)
    count = space.count()
    assert count.exact
    drawn = space.sample(np.random.default_rng(0))
    assert drawn is not None
    assert space.check(drawn) == []
    # by hand, over exponents: a0+..+a4 == 12, a4+..+a8 == 10, a5 <= a0, a1 <= a2
    ways = 0
    for a0 in range(13):
        for a4 in range(11):
            rest = 12 - a0 - a4
            if rest < 0:
                continue
            left = sum(1 for a1 in range(rest + 1) for a2 in range(a1, rest - a1 + 1))
            right = sum(1 for a5 in range(min(a0, 10 - a4) + 1) for _ in range((10 - a4 - a5 + 1) * (10 - a4 - a5 + 2) // 2))
            ways += left * right
    assert count.value == ways


def test_more_than_the_limit_is_a_labelled_estimate() -> None:
    space = Space([Grid(f"x{number}", 1, 60) for number in range(5)], [lambda x0, x1, x2, x3, x4: (x0 * x1 + x2 * x3 + x4) % 2 == 0])
    count = space.count(limit=1_000_000)
    assert not count.exact
    assert 0.7 < count.value / (60**5 / 2) < 1.4
    assert str(count).startswith("about ")
    drawn = space.sample(np.random.default_rng(1))
    assert drawn is not None
    assert space.check(drawn) == []


def test_hundreds_of_linked_knobs() -> None:
    space = Space([Grid(f"k{n}", 0, 3) for n in range(300)], [f"k{n} <= k{n + 1}" for n in range(299)])
    assert space.choices("k150", Config(k10=2, k250=2)) == (2,)
    assert space.count().value == 303 * 302 * 301 // 6  # places of the three steps among 300 knobs


def test_a_free_knob_may_have_a_billion_values() -> None:
    space = Space([Grid("seed", 0, 10**9), Flag("on"), Grid("scale", 0.0, 1.0, step=1e-8, when="on")])
    assert space.count().value == (10**9 + 1) * (1 + 10**8 + 1)
    choices = space.choices("seed")
    assert len(choices) == 10**9 + 1
    assert choices[12345] == 12345
    assert choices[5:7][1] == 6
    assert space.project({"seed": 7e8, "on": True, "scale": 0.123456789}) == Config(seed=700_000_000, on=True, scale=0.12345679)
    drawn = space.sample(np.random.default_rng(3))
    assert drawn is not None
    assert space.check(drawn) == []
    assert len(space.neighbours(space.default())) == 16, "the flag, and steps of 1, 4, 16, ... of the seed"
    assert len(space.neighbours(space.project({"seed": 5e8}))) == 31
    with pytest.raises(SpaceError, match="1,000,000 values at most"):
        Space([Grid("seed", 0, 10**9)], ["seed % 2 == 0"])


def test_an_astronomic_estimate_can_be_shown() -> None:
    assert str(Count(10**400 + 1, exact=False)) == "about 1.0e+400"


def test_two_large_domains() -> None:
    space = Space([Grid("tokens", 1, 32768), Grid("sequences", 1, 32768)], ["tokens >= sequences"])
    assert len(space.choices("tokens")) == 32768
    assert space.choices("tokens", Config(sequences=32000)) == tuple(range(32000, 32769))
    assert space.project({"tokens": 10, "sequences": 20}) == Config(tokens=10, sequences=10)


def test_the_recipe_is_short_and_right() -> None:
    assert len(RECIPE.read_text().splitlines()) <= 30
    space = read_space(RECIPE)
    facts = space.facts
    seen = 0
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 5, 8, 10):
            for cp in (1, 2, 4, 8):
                for dp in (1, 2, 4, 8, 16, 32, 64):
                    partial = Config(tp=tp, pp=pp, cp=cp, dp=dp)
                    legal = tp * pp * cp * dp == facts["gpus"] and 40 % pp == 0 and 40 % (tp * cp) == 0
                    assert space.feasible(partial) == legal
                    if legal:
                        assert space.feasible(partial.extend(sp=True)) == (tp > 1)
                        assert space.feasible(partial.extend(bucket_mb=64)) == (dp > 1)
                        seen += 1
    assert seen > 5
    assert space.check(space.default()) == []


def test_sixty_knobs_in_one_sum_of_products_are_estimated() -> None:
    knobs = [Grid(f"k{number}", 1, 20) for number in range(60)]
    space = Space(knobs, [" + ".join(f"k{number} * k{number + 1}" for number in range(0, 60, 2)) + " <= 5000"])
    count = space.count()
    assert not count.exact
    assert 1e76 < count.value < 20**60
    assert space._solver.effort < 3_000_000, "a few seconds"


def test_an_empty_list_holds_nothing() -> None:
    space = Space([Grid("a", 1, 8)], ["not (a in [])"])
    assert space.count().value == 8
    with pytest.raises(SpaceError, match="can never hold"):
        Space([Grid("a", 1, 8)], ["a in []"])
