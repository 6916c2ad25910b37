"""Grid search: enumeration, thinning, templates, duplicates, rules, stages, and skipping what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.search.grid.plan import coarse
from autoscout.search.grid.rules import Rule
from autoscout.search.grid.searcher import GridOptions, GridSearcher
from autoscout.space import Choice, Flag, Grid, Space
from autoscout.study.plugin_options import build_options
from autoscout.testing.searcher import SPACES, TASK, configs, finished

ZERO = Space(
    [
        Choice("zero_stage", [0, 1, 2, 3]),
        Grid("micro_batch", 1, 64, log=True, default=4),
        Flag("offload", when="zero_stage >= 2"),
        Grid("bucket_mb", 1, 512, default=25),
    ]
)


def trial(config: Config, loss: float | None, fidelity: Fidelity = Fidelity.MEASURED, repeat: int = 0) -> Trial:
    ok = loss is not None and math.isfinite(loss)
    measurement = Measurement(
        status=Status.OK if ok else Status.OOM_START, metrics={"time_s": loss} if ok and loss is not None else {}, fidelity=fidelity
    )
    return Trial(proposal=Proposal(config=config, repeat=repeat), measurement=measurement)


def everything(searcher: Searcher, loss: Callable[[Config], float | None], width: int = 5, given: Config = Config()) -> list[list[Config]]:
    found = []
    while asked := searcher.ask(width, given):
        found.append(configs(asked))
        searcher.tell([trial(config, loss(config)) for config in configs(asked)])
    return found


def flat(batches: list[list[Config]]) -> list[Config]:
    return [config for batch in batches for config in batch]


def test_the_whole_product_in_order() -> None:
    space = Space([Choice("a", [1, 2]), Choice("b", ["x", "y", "z"]), Flag("c")])
    found = flat(everything(GridSearcher(space, TASK), lambda config: 1.0))
    assert found == [Config(a=a, b=b, c=c) for a, b, c in product([1, 2], ["x", "y", "z"], [False, True])]


@pytest.mark.parametrize("name", ["tiny", "single", "conditional"])
def test_small_spaces_are_covered_exactly_as_brute_force_does(name: str) -> None:
    space = SPACES[name]()
    found = flat(everything(GridSearcher(space, TASK, 0, GridOptions(points=100)), lambda config: 1.0))
    assert len(found) == len(set(found))
    assert set(found) == set(space.enumerate())


def test_ranges_are_thinned_and_lists_are_kept() -> None:
    assert coarse(Grid("x", 0, 100), 3) == (0, 50, 100)
    assert coarse(Grid("x", 0, 100, default=7), 3) == (0, 7, 50, 100)
    assert coarse(Grid("x", 1, 1024, log=True), 3) == (1, 32, 1024)
    assert coarse(Grid("x", 1, 10_000, step=1, log=True), 3) == (1, 100, 10_000)
    assert coarse(Grid("x", values=[1, 2, 3, 5, 8, 13]), 3) == (1, 2, 3, 5, 8, 13)
    assert coarse(Choice("x", ["a", "b", "c", "d"]), 2) == ("a", "b", "c", "d")
    assert coarse(Grid("x", 0, 100, default=7), 1) == (7,)
    assert coarse(Grid("x", 0, 1), 3) == (0, 1)


def test_thinned_values_move_to_what_the_constraints_allow() -> None:
    space = Space([Grid("tp", 1, 8, default=1), Grid("dp", 1, 8, default=8)], ["tp * dp == 8"])
    found = flat(everything(GridSearcher(space, TASK, 0, GridOptions(points=2)), lambda config: 1.0))
    assert found == [Config(tp=1, dp=8), Config(tp=8, dp=1)]


def test_listed_values_are_taken_as_they_are() -> None:
    space = Space([Choice("tp", [1, 2, 4, 8]), Grid("dp", 1, 8)], ["tp * dp == 8"])
    options = GridOptions(values={"tp": (1, 2, 4), "dp": (8, 4)})
    assert flat(everything(GridSearcher(space, TASK, 0, options), lambda config: 1.0)) == [Config(tp=1, dp=8), Config(tp=2, dp=4)]


def test_combinations_that_fill_the_template_alike_are_one() -> None:
    space = Space([Choice("stage", [0, 1]), Choice("bucket", [1, 2, 3]), Choice("note", ["a", "b"])])
    template = {"zero": {"stage": "$STAGE", "bucket": "${bucket}"}, "logging": {"level": "info"}}
    searcher = GridSearcher(space, TASK, 0, GridOptions(template=template))
    found = flat(everything(searcher, lambda config: 1.0))
    assert len(found) == 6
    assert {(config["stage"], config["bucket"]) for config in found} == set(product([0, 1], [1, 2, 3]))


def test_what_was_measured_under_another_name_counts() -> None:
    space = Space([Choice("stage", [0, 1]), Choice("note", ["a", "b"])])
    searcher = GridSearcher(space, TASK, 0, GridOptions(template={"stage": "$stage"}))
    searcher.tell([trial(Config(stage=0, note="b"), 1.0)])
    assert configs(searcher.ask(9)) == [Config(stage=1, note="a")]
    assert searcher.ask(9, pending=[Proposal(config=Config(stage=1, note="b"))]) == []


def test_facts_may_stand_in_templates() -> None:
    space = Space([Choice("tp", [1, 2])], facts={"gpus": 8})
    rule = Rule(name="eight", need={"world": 8})
    searcher = GridSearcher(space, TASK, 0, GridOptions(template={"world": "$gpus", "tp": "$tp"}, rules=(rule,)))
    assert len(searcher.ask(9)) == 2


DEEPSPEED = {"zero_optimization": {"stage": "$zero_stage", "offload_optimizer": {"device": "$device"}}, "fp16": {"enabled": True}}
OFFLOAD = Space([Choice("zero_stage", [0, 1, 2, 3]), Choice("device", ["none", "cpu"], when="zero_stage >= 1")])


def test_deepspeed_rules_leave_out_offload_without_a_native_optimizer() -> None:
    bare = flat(everything(GridSearcher(OFFLOAD, TASK, 0, GridOptions(template=DEEPSPEED)), lambda config: 1.0))
    assert [config for config in bare if config.get("device") == "cpu"] == [Config(zero_stage=1, device="cpu")]
    native = DEEPSPEED | {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    found = flat(everything(GridSearcher(OFFLOAD, TASK, 0, GridOptions(template=native)), lambda config: 1.0))
    assert len([config for config in found if config.get("device") == "cpu"]) == 3
    without = GridOptions(template=DEEPSPEED, without_rules=("zero-offload-optimizer-needs-native-optimizer",))
    assert len(flat(everything(GridSearcher(OFFLOAD, TASK, 0, without), lambda config: 1.0))) == len(found)


def test_own_rules_as_data_from_a_file() -> None:
    given = {
        "rules": [{"name": "no-odd", "when": {"a": [1, 3]}, "need": {"b": {"min": 2}}}],
        "stages": [["a", "b"]],
        "values": {"a": [1, 2]},
    }
    options = build_options(GridSearcher, given, "search.options")
    space = Space([Choice("a", [1, 2, 3]), Choice("b", [1, 2])])
    assert flat(everything(GridSearcher(space, TASK, 0, options), lambda config: 1.0)) == [
        Config(a=1, b=2),
        Config(a=2, b=1),
        Config(a=2, b=2),
    ]


def test_stages_fix_the_best_of_the_stage_before() -> None:
    searcher = GridSearcher(ZERO, TASK, 0, GridOptions(stages=(("zero_stage",), ("micro_batch", "offload"))))
    best = {"zero_stage": 2, "micro_batch": 64, "offload": True}

    def loss(config: Config) -> float:
        return sum(config.get(name) != value for name, value in best.items()) + 0.0

    batches = everything(searcher, loss)
    assert batches[0] == [ZERO.project({"zero_stage": stage, "micro_batch": 4, "bucket_mb": 25}) for stage in range(4)]
    second = flat(batches[1:])
    assert all(config["zero_stage"] == 2 and config["bucket_mb"] == 25 for config in second)
    assert {(config["micro_batch"], config["offload"]) for config in second} == set(product([1, 4, 8, 64], [False, True])) - {(4, False)}
    assert len(flat(batches)) == 4 + 7, "two stages instead of 4 x 4 x 2 x 4 combinations"


def test_a_stage_waits_for_its_last_trial() -> None:
    searcher = GridSearcher(ZERO, TASK, 0, GridOptions(stages=(("zero_stage",), ("micro_batch",))))
    asked = searcher.ask(10)
    assert len(asked) == 4, "the next stage is not known yet"
    searcher.tell([trial(proposal.config, 1.0) for proposal in asked[:3]])
    assert searcher.ask(5, pending=asked[3:]) == []
    searcher.tell([trial(asked[3].config, 0.5)])
    assert {config["zero_stage"] for config in configs(searcher.ask(5))} == {3}


def test_a_stage_without_success_is_searched_again_with_the_next() -> None:
    space = Space([Choice("stage", [0, 1]), Choice("batch", [8, 4, 1])])
    searcher = GridSearcher(space, TASK, 0, GridOptions(stages=(("stage",), ("batch",))))
    found = everything(searcher, lambda config: None if config["batch"] != 1 else float(2 - int(str(config["stage"]))))
    assert found[0] == [Config(stage=0, batch=8), Config(stage=1, batch=8)]
    assert set(flat(found[1:])) == {Config(stage=stage, batch=batch) for stage in (0, 1) for batch in (4, 1)}


def test_the_winner_has_the_highest_fidelity_and_the_lowest_median() -> None:
    space = Space([Choice("a", [1, 2, 3]), Choice("b", [1, 2])])
    options = GridOptions(stages=(("a",), ("b",)))
    one, two, three = (Config(a=a, b=1) for a in (1, 2, 3))
    told = [trial(one, 0.1, Fidelity.SIMULATED), trial(two, 5.0), trial(two, 1.0, repeat=1), trial(two, 1.2, repeat=2), trial(three, 1.3)]
    told.append(trial(three, 0.01, Fidelity.PREDICTED))
    for order in (told, told[::-1]):
        searcher = GridSearcher(space, TASK, 0, options)
        searcher.tell(order)
        assert configs(searcher.ask(9)) == [Config(a=2, b=2)]


def test_unasked_trials_count_towards_stages() -> None:
    searcher = GridSearcher(ZERO, TASK, 0, GridOptions(stages=(("zero_stage",), ("micro_batch",))))
    default = ZERO.default()
    searcher.tell([trial(default, 0.1)])
    assert default not in configs(searcher.ask(9))
    searcher.tell([trial(config, 1.0) for config in configs(searcher.ask(9))])
    assert {config["zero_stage"] for config in configs(searcher.ask(9))} == {0}, "the default won its stage although nobody asked for it"


def test_pinned_knobs_stay_in_every_stage() -> None:
    searcher = GridSearcher(ZERO, TASK, 0, GridOptions(stages=(("zero_stage",), ("micro_batch",))))
    given = Config(zero_stage=3, bucket_mb=100)
    found = flat(everything(searcher, lambda config: 1.0, given=given))
    assert all(config.extends(given) for config in found)
    assert [config["micro_batch"] for config in found] == [4, 1, 8, 64]


def test_a_knob_of_the_space_pinned_beforehand_ignores_its_list() -> None:
    options = GridOptions(values={"bucket_mb": (25, 500)}, stages=(("bucket_mb",), ("zero_stage",)))
    found = flat(
        everything(GridSearcher(ZERO.pin(Config(bucket_mb=100)), TASK, 0, options), lambda config: 1.0, given=Config(bucket_mb=100))
    )
    assert len(found) == 4
    assert {config["bucket_mb"] for config in found} == {100}


def test_conditional_knobs_open_only_where_they_exist() -> None:
    options = GridOptions(stages=(("offload",), ("zero_stage",)))
    found = flat(everything(GridSearcher(ZERO, TASK, 0, options), lambda config: 1.0))
    assert found[0] == ZERO.default(), "offload does not exist at the default, so its stage is one configuration"
    assert len(found) == 4


def test_earlier_runs_are_skipped() -> None:
    first = GridSearcher(ZERO, TASK, 0)
    half = configs(first.ask(30))
    second = GridSearcher(ZERO, TASK, 0)
    second.tell(finished([Proposal(config=config) for config in half]))
    rest = flat(everything(second, lambda config: 1.0))
    assert not set(rest) & set(half)
    assert len(rest) + len(half) == len(first.ask(10_000))


def test_shuffling_keeps_the_set_and_follows_the_seed() -> None:
    space = SPACES["tiny"]()
    plain = configs(GridSearcher(space, TASK, 0).ask(99))
    one, again, other = (configs(GridSearcher(space, TASK, seed, GridOptions(shuffle=True)).ask(99)) for seed in (1, 1, 2))
    assert set(one) == set(plain)
    assert one == again
    assert one != plain != other != one


def test_too_many_to_shuffle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoscout.search.grid.searcher.SHUFFLED", 5)
    with pytest.raises(ConfigError, match="cannot be shuffled"):
        GridSearcher(SPACES["tiny"](), TASK, 0, GridOptions(shuffle=True)).ask(1)


def test_names_in_the_origin() -> None:
    space = Space([Choice("train_micro_batch_size_per_gpu", [8]), Choice("gradient_accumulation_steps", [4])])
    assert GridSearcher(space, TASK).ask(1)[0].origin == Origin(by="grid", notes={"name": "tmbspg8_gas4"})
    staged = GridSearcher(space, TASK, 0, GridOptions(stages=(("gradient_accumulation_steps",), ("train_micro_batch_size_per_gpu",))))
    assert staged.ask(1)[0].origin.notes["stage"] == 0


def test_bad_options_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        GridOptions(points=0, stages=(("a", "a"), ()), values={"b": ()}, without_rules=("zero-offload",))
    assert [fault.field for fault in caught.value.faults] == ["points", "stages", "stages", "values.b", "without_rules"]
    options = GridOptions(stages=(("zero_stge",),), values={"micro_batch": (4, 5), "nope": (1,)}, template={"a": "$offlod"})
    with pytest.raises(ConfigError) as caught:
        GridSearcher(ZERO, TASK, 0, options)
    text = str(caught.value)
    assert len(caught.value.faults) == 4
    assert "zero_stage" in text
    assert "The nearest is 4" in text
    assert "'offload'" in text


def test_a_huge_grid_is_never_listed() -> None:
    space = Space([Grid(f"k{index}", 1, 1000) for index in range(20)])
    searcher = GridSearcher(space, TASK)
    first = searcher.ask(50)
    searcher.tell(finished(first))
    assert len(set(configs(first)) | set(configs(searcher.ask(50)))) == 100
