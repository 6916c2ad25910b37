"""What the baselines do that the conformance suite does not ask of everybody."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.learning.answers import AnswerSet, finite_losses
from autoscout.search.coordinate import CoordinateSearcher
from autoscout.search.evolution import EvolutionOptions, EvolutionSearcher
from autoscout.space import Choice, Flag, Grid, Space
from autoscout.space.neighbours import fresh, mutate
from autoscout_lab.search._shared.adapter import history, propose
from autoscout_lab.search.cherrypick import CherrypickOptions, CherrypickSearcher
from autoscout_lab.search.metis.cost import MetisPlan, Model, find_parts
from autoscout_lab.search.metis.searcher import MetisOptions, MetisSearcher
from autoscout_lab.search.udo import UdoOptions, UdoSearcher

TASK = Task(system="toy", objective=Objective(metric="time_s"))
BOWL = Space([Grid("x", 0, 30), Grid("y", 0, 30, default=30), Choice("c", ["p", "q", "r"])])


def bowl(config: Config) -> float:
    x, y = float(config["x"]), float(config["y"])  # type: ignore[arg-type]
    return 1.0 + (x - 21) ** 2 / 50 + (y - 9) ** 2 / 50 + {"p": 2.0, "q": 0.0, "r": 1.0}[str(config["c"])]


def answered(proposal: Proposal, cost: Callable[[Config], float]) -> Trial:
    value = cost(proposal.config)
    if math.isinf(value):
        return Trial(proposal=proposal, measurement=Measurement(status=Status.OOM_START))
    return Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"time_s": value}))


def run(searcher: Searcher, cost: Callable[[Config], float], budget: int) -> list[Trial]:
    trials: list[Trial] = []
    for _ in range(budget):
        asked = searcher.ask(1)
        if not asked:
            break
        trials += [answered(asked[0], cost)]
        searcher.tell(trials[-1:])
    return trials


def best(trials: Sequence[Trial]) -> float:
    return min(trial.measurement.metrics.get("time_s", math.inf) for trial in trials)


@pytest.mark.parametrize("name", ["evolution", "coordinate", "cherrypick", "udo"])
def test_a_bowl_is_found_by_more_than_chance(name: str) -> None:
    def middle(which: str) -> float:
        kind = plugins.get("searcher", which)
        return float(np.median([best(run(kind(BOWL, TASK, seed), bowl, 60)) for seed in range(5)]))

    assert middle(name) < middle("random")


# --- what is remembered -------------------------------------------------------------------------------------------


def told(*trials: Trial) -> AnswerSet:
    memory = AnswerSet(BOWL, TASK.objective)
    memory.add(trials)
    return memory


def trial_at(x: int, value: float | None, round_: int | None = None, fidelity: Fidelity = Fidelity.MEASURED) -> Trial:
    origin = {} if round_ is None else {"round": round_, "place": 0}
    metrics = {} if value is None else {"time_s": value}
    status = Status.CRASHED if value is None else Status.OK
    measurement = Measurement(status=status, metrics=metrics, fidelity=fidelity)
    return Trial(proposal=Proposal(config=Config(x=x, y=0, c="p"), origin=Origin.from_json(origin)), measurement=measurement)


def test_age_comes_from_the_origin_and_not_from_arrival() -> None:
    memory = told(trial_at(1, 1.0, 7), trial_at(2, 2.0, 3), trial_at(3, 3.0))
    assert [answer.config["x"] for answer in memory.answers()] == [3, 2, 1]


def test_the_highest_fidelity_counts_and_failures_stand_at_the_worst() -> None:
    memory = told(trial_at(1, 9.0, 0, Fidelity.SIMULATED), trial_at(1, 2.0, 0), trial_at(2, None, 1), trial_at(3, 5.0, 2))
    assert [answer.loss for answer in memory.answers()] == [2.0, math.inf, 5.0]
    assert finite_losses(memory.answers()) == [2.0, 5.0, 5.0]
    assert [loss for _, loss in history(memory)] == [2.0, 5.0, 5.0]


def test_predictions_and_foreign_configurations_teach_nothing() -> None:
    odd = Trial(proposal=Proposal(config=Config(z=1)), measurement=Measurement(status=Status.OK, metrics={"time_s": 0.1}))
    memory = told(odd, trial_at(1, 1.0, 0, Fidelity.PREDICTED))
    assert memory.answers() == []
    assert len(memory.configs) == 2


# --- moves --------------------------------------------------------------------------------------------------------


def test_mutations_are_valid_small_and_keep_what_is_given() -> None:
    space = Space([Choice("tp", [1, 2, 4]), Choice("dp", [1, 2, 4], default=4), Flag("sp", when="tp > 1")], ["tp * dp == 4"])
    rng = stream(0, "moves")
    config = space.default()
    for _ in range(50):
        child = mutate(space, config, rng, Config())
        assert child is not None
        assert space.check(child) == []
        assert child != config
        config = child
    assert mutate(space, Config(tp=1, dp=4), rng, Config(tp=1, dp=4)) is None


def test_near_values_are_likelier() -> None:
    rng = stream(1, "moves")
    start = Config(x=15, y=15, c="p")
    moved = [mutate(BOWL, start, rng, Config(y=15, c="p")) for _ in range(200)]
    steps = [abs(int(config["x"]) - 15) for config in moved if config is not None]  # type: ignore[arg-type]
    assert np.median(steps) <= 2
    assert max(steps) > 2


def test_fresh_finds_the_last_one() -> None:
    everything = list(BOWL.enumerate(Config(x=1, c="p")))
    assert fresh(BOWL, stream(0, "f"), Config(x=1, c="p"), set(everything[:-1])) == everything[-1]
    assert fresh(BOWL, stream(0, "f"), Config(x=1, c="p"), set(everything)) is None


# --- evolution ----------------------------------------------------------------------------------------------------


def test_children_come_from_the_best_of_the_young() -> None:
    searcher = EvolutionSearcher(BOWL, TASK, 0, EvolutionOptions(population=4, sample=4, second=0.0))
    trials = run(searcher, bowl, 4)
    assert trials[0].config == BOWL.default()
    parent = min(trials, key=lambda trial: bowl(trial.config))
    (child,) = searcher.ask(1)
    assert child.origin.notes["parent"] == parent.config.key
    assert sum(child.config[name] != parent.config[name] for name in BOWL.knobs) == 1


def test_the_oldest_leaves_even_if_it_is_the_best() -> None:
    searcher = EvolutionSearcher(BOWL, TASK, 0, EvolutionOptions(population=3, sample=3))
    searcher.tell([trial_at(1, 0.1, 0), trial_at(2, 5.0, 1), trial_at(3, 4.0, 2), trial_at(4, 6.0, 3)])
    (child,) = searcher.ask(1)
    assert child.origin.notes["parent"] == Config(x=3, y=0, c="p").key


# --- coordinate ---------------------------------------------------------------------------------------------------


def test_steps_double_while_they_pay() -> None:
    line = Space([Grid("x", 0, 100, default=0)])
    trials = run(CoordinateSearcher(line, TASK, 0), lambda config: 200.0 - float(config["x"]), 9)  # type: ignore[arg-type]
    assert [trial.config["x"] for trial in trials[:7]] == [0, 1, 3, 7, 15, 31, 63]


def test_a_new_start_when_nothing_near_is_better() -> None:
    line = Space([Grid("x", 0, 100, default=50)])
    trials = run(CoordinateSearcher(line, TASK, 0), lambda config: 1.0 + abs(float(config["x"]) - 50), 9)  # type: ignore[arg-type]
    assert [trial.config["x"] for trial in trials[:7]] == [50, 51, 49, 52, 48, 54, 46]
    assert trials[7].proposal.origin.notes["start"] == 1


# --- cherrypick ---------------------------------------------------------------------------------------------------


def test_its_stopping_rule() -> None:
    flat = run(CherrypickSearcher(BOWL, TASK, 0, CherrypickOptions(stop=0.1)), lambda config: 1.0 + 1e-6 * bowl(config), 50)
    assert 6 <= len(flat) < 20
    assert len(run(CherrypickSearcher(BOWL, TASK, 0), lambda config: 1.0 + 1e-6 * bowl(config), 30)) == 30


# --- udo ----------------------------------------------------------------------------------------------------------


def test_light_settings_are_tried_in_a_row_and_heavy_ones_grouped() -> None:
    space = Space([Choice("index", ["none", "one", "two"]), Grid("memory", 1, 50, restart=False)])
    searcher = UdoSearcher(space, TASK, 0, UdoOptions(light_steps=3))
    trials = run(searcher, lambda config: float(config["memory"]), 9)  # type: ignore[arg-type]
    heavy = [str(trial.config["index"]) for trial in trials]
    assert all(len(set(heavy[start : start + 3])) == 1 for start in (0, 3, 6))
    batch = [str(proposal.config["index"]) for proposal in searcher.ask(12)]
    changes = sum(one != other for one, other in pairwise(batch))
    assert changes == len(set(batch)) - 1


def test_udo_prefers_what_paid() -> None:
    space = Space([Choice("kind", ["bad", "good", "worse"]), Grid("x", 1, 200)])
    cost = {"bad": 10.0, "good": 1.0, "worse": 20.0}
    trials = run(UdoSearcher(space, TASK, 0, UdoOptions(light_steps=1)), lambda config: cost[str(config["kind"])], 60)
    kinds = [trial.config["kind"] for trial in trials[10:]]
    assert kinds.count("good") > len(kinds) / 2


# --- metis --------------------------------------------------------------------------------------------------------

MEGATRON = Space(
    [
        Choice("tensor_parallel", [1, 2, 4, 8]),
        Choice("pp", [1, 2, 4, 8]),
        Choice("dp", [1, 2, 4, 8], default=8),
        Grid("micro-batch-size", values=[1, 2, 4]),
        Flag("recompute"),
        Grid("bucket", 1, 9, default=4),
    ],
    ["tensor_parallel * pp * dp == 8"],
)


def test_the_knobs_of_a_plan_are_known_by_their_usual_names() -> None:
    assert find_parts(MEGATRON.knobs) == {"tp": "tensor_parallel", "pp": "pp", "dp": "dp", "mbs": "micro-batch-size"}


def test_all_plans_by_cost_and_nothing_else_moves() -> None:
    searcher = MetisSearcher(MEGATRON, TASK, 0)
    trials = run(searcher, lambda config: 1.0, 100)
    assert len(trials) == 10 * 3, "ten ways to share 8 GPUs, three micro batches"
    assert {trial.config["bucket"] for trial in trials} == {4}
    assert {trial.config["recompute"] for trial in trials} == {False}
    fits = [trial.proposal.origin.notes["estimate_s"] for trial in trials if trial.proposal.origin.notes["memory_gb"] <= 80]
    assert fits == sorted(fits)


def test_a_plan_that_ran_out_of_memory_prunes_larger_ones() -> None:
    trials = run(MetisSearcher(MEGATRON, TASK, 0), lambda config: math.inf, 12)
    needs = [trial.proposal.origin.notes["memory_gb"] for trial in trials]
    assert all(need < needs[0] for need in needs[1:4])


def test_a_plan_costs_what_it_should() -> None:
    model = Model.of({"layers": 40, "hidden": 5120, "gpus": 64, "seq_len": 2048, "global_batch": 64})
    assert model.parameters == pytest.approx(12 * 40 * 5120**2 + 32000 * 5120)
    assert MetisPlan(tp=2).memory_gb(model) < MetisPlan(tp=1).memory_gb(model) < MetisPlan(mbs=4).memory_gb(model)
    assert MetisPlan(pp=8, dp=8, mbs=8).step_s(model) > MetisPlan(pp=8, dp=8, mbs=1).step_s(model), (
        "one micro batch fills one stage at a time"
    )
    assert MetisPlan(tp=16, dp=4).step_s(model) > MetisPlan(tp=8, dp=8).step_s(model), "tensor parallelism across nodes"


def test_a_knob_of_a_plan_can_be_named() -> None:
    space = Space([Choice("shards", [1, 2, 4]), Flag("other")])
    assert {trial.config["other"] for trial in run(MetisSearcher(space, TASK, 0, MetisOptions(tp="shards")), lambda config: 1.0, 9)} == {
        False
    }
    with pytest.raises(ConfigError, match="no such knob"):
        MetisSearcher(space, TASK, 0, MetisOptions(tp="shard"))


MIXED = Space(
    [
        Choice("a100", [4, 8], default=8),
        Choice("a40", [0, 4], default=4),
        Choice("tp", [1, 2, 4]),
        Choice("pp", [1, 2, 3, 4, 6]),
        Choice("dp", [1, 2, 3, 4, 6, 8, 12], default=12),
        Choice("mbs", [1, 2]),
        Grid("a40_share", values=[0.2, 0.4, 0.6, 0.8, 1.0], default=1.0, when="a40 > 0"),
        Flag("stages_inner", when="a40 > 0"),
        Flag("recompute"),
    ],
    ["tp * pp * dp == a100 + a40"],
)


def test_plans_on_two_kinds_of_gpu_are_balanced_by_their_speed() -> None:
    task = replace(TASK, workload={"model": "llama-3.2-3b", "sequence": 4096, "global_batch": 96}, hardware={"gpus": "8xA100-80+4xA40"})
    trials = run(MetisSearcher(MIXED, task, 0), lambda config: 1.0, 400)
    assert {trial.config.get("a40_share") for trial in trials} == {0.4, None}, "an A40 is 0.45 times as fast"
    assert {(trial.config["a100"], trial.config["a40"]) for trial in trials} == {(4, 0), (4, 4), (8, 0), (8, 4)}
    assert {trial.config["recompute"] for trial in trials} == {False}
    first = trials[0].config
    assert (first["a100"], first["a40"]) == (8, 4), "twelve GPUs are faster than eight"
    equally = MetisPlan(pp=3, dp=4, counts=(8, 4), shares=(1, 1)).step_s(Model.of({"global_batch": 96}, task.workload, task.hardware))
    by_speed = MetisPlan(pp=3, dp=4, counts=(8, 4), shares=(1, 0.4)).step_s(Model.of({"global_batch": 96}, task.workload, task.hardware))
    assert by_speed < 0.7 * equally


def test_the_smaller_gpus_of_a_plan_limit_it() -> None:
    model = Model.of({"global_batch": 96}, {"model": "llama-3.2-3b"}, {"gpus": "8xA100-80+4xA40"})
    replicas, alone = MetisPlan(dp=12, counts=(8, 4), shares=(1, 1)), MetisPlan(dp=8, counts=(8, 0), shares=(1, 1))
    assert replicas.memory_gb(model) > 1.4 * alone.memory_gb(model), "the same copy takes more of an A40"


# --- adapters -----------------------------------------------------------------------------------------------------


def test_a_tuner_that_repeats_itself_is_moved_on() -> None:
    memory = AnswerSet(BOWL, TASK.objective)
    wish = {"x": 3.2, "y": 5, "c": "q"}
    (first,) = propose("stuck", 1, BOWL, 0, memory, Config(), [], lambda place, attempt: wish)
    assert first.config == Config(x=3, y=5, c="q")
    assert first.origin.notes["how"] == "model"
    memory.add([answered(first, bowl)])
    (second,) = propose("stuck", 1, BOWL, 0, memory, Config(), [], lambda place, attempt: wish)
    assert second.origin.notes["how"] == "near"
    (third,) = propose("silent", 1, BOWL, 0, memory, Config(c="r"), [], lambda place, attempt: None)
    assert third.origin.notes["how"] == "chance"
    assert third.config["c"] == "r"


@pytest.mark.parametrize("name", ["optuna-tpe", "optuna-gp", "smac", "ax", "openbox"])
def test_adapters_name_the_extra_that_is_missing(name: str) -> None:
    health = plugins.health("searcher", name)
    assert health.usable or "autoscout[" in health.why


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (lambda: EvolutionOptions(population=1, sample=5), "population"),
        (lambda: CherrypickOptions(stop=2.0), "stop"),
        (lambda: UdoOptions(light_steps=0), "light_steps"),
        (lambda: MetisOptions(headroom=0), "headroom"),
    ],
)
def test_options_are_checked(options: Callable[[], object], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        options()


def test_gpus_are_known_also_where_the_model_is_not() -> None:
    known = Model.of({"layers": 24}, {"model": "nobody-knows-it"}, {"gpus": "8xA100-80+4xA40"})
    assert known.shape is None
    assert (known.layers, known.gpus, len(known.kinds)) == (24.0, 12.0, 2)
