"""Searcher `hybrid-paper`: Algorithm 1 line by line."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.history import Past, PastTrial
from autoscout.core.origin import Origin
from autoscout.core.seeds import stream
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.learning.answers import Answer
from autoscout.search.hybrid_paper.orchestrator import Arm, Quad
from autoscout.search.hybrid_paper.rounds import CELLS, SIMULATED_WEIGHT, Course, Round, Turn, progress
from autoscout.search.hybrid_paper.scores import Scores, costs
from autoscout.search.hybrid_paper.searcher import HybridPaperOptions, HybridPaperSearcher
from autoscout.search.hybrid_paper.tournament import halve, stage
from autoscout.search.hybrid_paper.uct import Tree
from autoscout.space import Choice, Flag, Grid, Space
from autoscout.testing.searcher import SPACES, TASK

SPACE = Space(
    [
        Choice("kernel", ["a", "b", "c", "d"]),
        Flag("fused"),
        Flag("padded", when="fused"),
        Grid("block", 16, 512, log=True),
        Grid("tile", 1, 16),
        Grid("depth", 1, 8, when="fused"),
    ]
)
NO_TOURNAMENT = HybridPaperOptions(tournament=False)


def time_s(config: Config) -> float:
    """Best with kernel c, fused, not padded, block 128, tile 11; out of memory when tile * block is large."""
    block, tile = float(str(config["block"])), float(str(config["tile"]))
    if tile * block > 2500:
        return math.inf
    slow = {"a": 1.5, "b": 1.3, "c": 1.0, "d": 2.0}[str(config["kernel"])] * (1.0 if config["fused"] else 1.4)
    slow *= 1.2 if config.get("padded") else 1.0
    return slow * (1 + 0.2 * abs(math.log2(block / 128)) + 0.02 * abs(tile - 11) + 0.05 * abs(float(str(config.get("depth", 3))) - 3))


def measured(proposal: Proposal, cost: Callable[[Config], float] = time_s, fidelity: Fidelity = Fidelity.MEASURED) -> Trial:
    value = cost(proposal.config)
    answer = Measurement(status=Status.OOM_START, fidelity=fidelity)
    if math.isfinite(value):
        answer = Measurement(status=Status.OK, metrics={"time_s": value}, fidelity=fidelity)
    return Trial(proposal=proposal, measurement=answer)


def own(proposal: Proposal) -> Mapping[str, Any]:
    """What the searcher wrote for itself."""
    assert proposal.origin.by == "hybrid-paper"
    return proposal.origin.notes


def run(searcher: HybridPaperSearcher, budget: int, width: int = 1) -> list[Trial]:
    found: list[Trial] = []
    while len(found) < budget:
        trials = [measured(proposal) for proposal in searcher.ask(width)]
        assert trials
        searcher.tell(trials)
        found += trials
    return found


def answers(losses: dict[Config, float], simulated: dict[Config, float] | None = None) -> list[Answer]:
    guesses = simulated or {}
    return [
        Answer(
            config=config,
            age=(0, 0, config.key),
            loss=losses.get(config, guesses.get(config, math.inf)),
            simulated=guesses.get(config),
            origin=Origin(),
            measured=config in losses,
        )
        for config in sorted({**losses, **guesses}, key=lambda config: config.key)
    ]


# --- line 5: the tournament ------------------------------------------------------------------------------------


def test_a_round_of_the_tournament_has_k_iterations_and_zigzags() -> None:
    """Four trees, then two, each round four iterations long: forwards, backwards, forwards."""
    places = [stage(4, iteration) for iteration in range(9)]
    assert [place.number for place in places if place] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [place.place for place in places if place] == [0, 1, 2, 3, 1, 0, 0, 1]
    assert places[8] is None


@pytest.mark.parametrize(("trees", "iterations"), [(1, 0), (2, 2), (5, 5 + 6 + 6), (10, 10 + 10 + 12 + 10), (40, 40 * 4 + 42 + 40)])
def test_the_tournament_ends_after_k_log_k_iterations(trees: int, iterations: int) -> None:
    assert sum(stage(trees, at) is not None for at in range(1000)) == iterations


@pytest.mark.parametrize("trees", [3, 5, 7, 10])
def test_within_a_round_every_tree_alive_proposes_equally_often(trees: int) -> None:
    for _, turns in itertools.groupby(filter(None, (stage(trees, at) for at in range(200))), key=lambda place: place.number):
        counts = np.bincount([place.place for place in turns])
        assert len(set(counts)) == 1


def test_the_worse_half_leaves_and_ties_go_to_the_earlier() -> None:
    assert halve((0, 1, 2, 3), {0: 0.1, 1: 0.6, 2: 0.2, 3: 0.9}) == (1, 3)
    assert halve((0, 2, 4), {0: 1.0, 2: 0.0, 4: 0.0}) == (0, 2)


def test_every_iteration_of_the_tournament_is_one_evaluation_of_the_tree_whose_turn_it_is() -> None:
    space = Space([*SPACE.knobs.values(), Flag("cached"), Choice("layout", ["row", "column"])])
    searcher = HybridPaperSearcher(space, TASK, 3, HybridPaperOptions(orderings=4))
    first, *turns = run(searcher, 9)
    assert first.config == space.default()
    origins = [own(trial.proposal) for trial in turns]
    assert [origin["turn"] for origin in origins] == list(range(8))
    assert [origin["tree"] for origin in origins[:4]] == [0, 1, 2, 3]
    alive = origins[4]["alive"]
    assert len(alive) == 2
    assert [origin["tree"] for origin in origins[4:]] == [alive[1], alive[0], alive[0], alive[1]]
    assert "round" in own(searcher.ask(1)[0]), "the main loop begins when one tree is left"


def test_the_tree_with_the_larger_cumulative_reward_stays() -> None:
    one, other, third = Config(x=1), Config(x=2), Config(x=3)
    past = Course((Turn(0, 0, (0, 1), one), Turn(1, 1, (0, 1), other)))
    scores = Scores(answers({one: 2.0, other: 1.0, third: 3.0}), switched=True)
    assert past.alive(2, 1, scores) == (1,)
    assert past.alive(2, 0, scores) == (0, 1)


def test_what_was_eliminated_stays_so_when_ranks_change() -> None:
    one, other, third = Config(x=1), Config(x=2), Config(x=3)
    past = Course((Turn(0, 0, (0, 1, 2), one), Turn(1, 1, (0, 1, 2), other), Turn(3, 1, (0, 1), third)))
    scores = Scores(answers({one: 9.0, other: 8.0, third: 1.0}), switched=True)
    assert past.alive(3, 1, scores) == (0, 1), "as the turns of that round say, though tree 0 is now worst"


def test_the_winner_is_the_tree_of_the_main_loop_for_good() -> None:
    searcher = HybridPaperSearcher(SPACE, TASK, 0)
    trials = run(searcher, 60)
    rounds = [own(trial.proposal) for trial in trials if "round" in own(trial.proposal)]
    assert len({origin["tree"] for origin in rounds}) == 1
    assert len({tuple(origin["ordering"]) for origin in rounds}) == 1


def test_k_changes_the_run() -> None:
    runs = [[trial.config for trial in run(HybridPaperSearcher(SPACE, TASK, 0, HybridPaperOptions(orderings=k)), 30)] for k in (1, 2, 3)]
    assert runs[0] != runs[1] != runs[2]


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3), (3, 1)])
def test_a_study_may_go_on_with_another_k(before: int, after: int) -> None:
    for told in (2, 5, 9, 30):
        trials = run(HybridPaperSearcher(SPACE, TASK, 0, HybridPaperOptions(orderings=before)), told)
        searcher = HybridPaperSearcher(SPACE, TASK, 0, HybridPaperOptions(orderings=after))
        searcher.tell(trials)
        configs = [trial.config for trial in [*trials, *run(searcher, 12)]]
        assert len(set(configs)) == len(configs), "none is measured twice"


def test_past_winners_enter_first() -> None:
    options = HybridPaperOptions(orderings=2, first=(("fused", "padded", "kernel"),))
    trials = run(HybridPaperSearcher(SPACE, TASK, 0, options), 12)
    assert own(trials[1].proposal)["tree"] == 0
    entered = {own(trial.proposal)["tree"]: own(trial.proposal)["ordering"] for trial in trials if "round" in own(trial.proposal)}
    assert entered.get(0, ["fused", "padded", "kernel"]) == ["fused", "padded", "kernel"]


def test_past_studies_give_a_start_and_an_ordering() -> None:
    good = SPACE.project({}, Config(kernel="c", fused=True, padded=False))
    trials = (PastTrial(config=SPACE.default().to_json(), loss=9.0), PastTrial(config=good.to_json(), loss=1.0))
    past = (Past(similarity=0.8, trials=trials, last={"ordering": ["fused", "padded", "kernel"]}), Past(similarity=0.6, trials=()))
    searcher = HybridPaperSearcher(SPACE, TASK, 0, HybridPaperOptions(orderings=1, past=past))
    assert [proposal.config for proposal in searcher.ask(2)] == [SPACE.default(), good]
    assert own(run(searcher, 6)[-1].proposal)["ordering"] == ["fused", "padded", "kernel"]


# --- the tree --------------------------------------------------------------------------------------------------


def test_the_tree_expands_every_child_before_it_returns_to_one() -> None:
    tree = Tree(SPACE, ("kernel", "fused", "padded"))
    told: list[Config] = []
    for step in range(4):
        count = tree.count(told, np.ones(len(told)))
        told.append(SPACE.project({}, tree.descend(count, stream(0, step), Config(), 0.5)))
    assert {config["kernel"] for config in told} == {"a", "b", "c", "d"}


def test_the_tree_goes_where_rewards_are() -> None:
    tree = Tree(SPACE, ("kernel", "fused", "padded"))
    told = [SPACE.project({}, structure) for structure in tree.structures(Config())]
    assert len(told) == len(set(told)) == 12
    good = np.array([1.0 if config["kernel"] == "c" and config["fused"] else 0.0 for config in told])
    found = tree.descend(tree.count(told, good), stream(1), Config(), 0.1)
    assert (found["kernel"], found["fused"]) == ("c", True)


def test_one_result_is_told_to_the_trees_of_all_orderings() -> None:
    told = [SPACE.project({}, Config(kernel=kernel, fused=False)) for kernel in "abcd"]
    for ordering in (("kernel", "fused", "padded"), ("fused", "kernel", "padded")):
        tree = Tree(SPACE, ordering)
        found = tree.descend(tree.count(told, np.zeros(4)), stream(2), Config(), 0.5)
        assert found["fused"] is True, "the child without a visit is expanded in either"


def test_what_is_under_way_counts_as_a_visit() -> None:
    tree = Tree(SPACE, ("kernel", "fused", "padded"))
    waiting = [SPACE.project({}, Config(kernel=kernel)) for kernel in "abd"]
    assert tree.descend(tree.count([], np.zeros(0), waiting), stream(3), Config(), 0.5)["kernel"] == "c"


def test_descents_decide_every_active_sparse_knob_under_given() -> None:
    tree = Tree(SPACE, ("fused", "padded", "kernel"))
    for step in range(20):
        found = tree.descend(tree.count([], np.zeros(0)), stream(4, step), Config(tile=4), 0.5)
        assert found["tile"] == 4
        assert {"kernel", "fused"} <= set(found)
        assert ("padded" in found) == bool(found["fused"])


# --- lines 14-27: the grid -------------------------------------------------------------------------------------


def test_the_first_grid_is_two_by_two() -> None:
    four = HybridPaperSearcher(SPACE, TASK, 0, NO_TOURNAMENT).ask(4)
    assert [own(proposal)["cell"] for proposal in four] == ["bb", "bc", "cb", "cc"]
    bb, bc, cb, cc = (proposal.config for proposal in four)
    assert SPACE.structure(bb) == SPACE.structure(bc) != SPACE.structure(cb) == SPACE.structure(cc)
    assert bb == SPACE.default()


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_grid_is_finished_before_the_next_is_planned(width: int) -> None:
    searcher = HybridPaperSearcher(SPACE, TASK, 0, NO_TOURNAMENT)
    for trial in run(searcher, 50, width):
        quad = own(trial.proposal)["quad"]
        assert trial.config.to_json() == quad[own(trial.proposal)["cell"]]
    told = {trial.config for trial in run(HybridPaperSearcher(SPACE, TASK, 0, NO_TOURNAMENT), 50)}
    trials = run(HybridPaperSearcher(SPACE, TASK, 0, NO_TOURNAMENT), 50)
    last = own(trials[-1].proposal)["round"]
    for trial in trials:
        if own(trial.proposal)["round"] < last:
            assert all(Config(cell) in told for cell in own(trial.proposal)["quad"].values())
    numbers = [own(trial.proposal)["round"] for trial in trials]
    assert numbers == sorted(numbers)
    assert last >= 10


def test_known_cells_cost_nothing_and_the_base_is_the_incumbent() -> None:
    trials = run(HybridPaperSearcher(SPACE, TASK, 1, NO_TOURNAMENT), 40)
    for at, trial in enumerate(trials):
        begins = min(index for index, other in enumerate(trials) if own(other.proposal)["round"] == own(trial.proposal)["round"])
        before = [other for other in trials[:begins] if other.ok]
        if before:
            best = min(TASK.objective.loss(other.measurement) for other in before)
            assert time_s(Config(own(trial.proposal)["quad"]["bb"])) == best
        assert trial.config not in [other.config for other in trials[:at]]


def test_a_grid_lost_in_flight_is_asked_for_again() -> None:
    searcher = HybridPaperSearcher(SPACE, TASK, 0, NO_TOURNAMENT)
    four = searcher.ask(4)
    searcher.tell([measured(four[0]), measured(four[2])])
    assert [own(proposal)["cell"] for proposal in searcher.ask(2)] == ["bc", "cc"]
    (more,) = searcher.ask(1, pending=[four[1], four[3]])
    assert own(more)["round"] == 1


def test_the_arm_that_is_pulled_brings_the_new_candidate() -> None:
    for trial in run(HybridPaperSearcher(SPACE, TASK, 2, NO_TOURNAMENT), 40)[4:]:
        origin = own(trial.proposal)
        quad = {name: Config(cell) for name, cell in origin["quad"].items()}
        if origin["arm"] == "sparse":
            assert SPACE.structure(quad["cb"]) != SPACE.structure(quad["bb"])
        else:
            knob, direction, _ = origin["move"]
            assert direction * (float(str(quad["bc"][knob])) - float(str(quad["bb"][knob]))) > 0
            assert [name for name in quad["bb"] if quad["bb"][name] != quad["bc"][name]] == [knob]


def test_a_disabled_dense_knob_is_masked_and_comes_back() -> None:
    """`depth` exists under `fused` only: projected out of one structure, it keeps its place in the other."""
    trials = run(HybridPaperSearcher(SPACE, TASK, 4), 80)
    assert all(("depth" in trial.config) == bool(trial.config["fused"]) for trial in trials)
    assert any(trial.config["fused"] and trial.config["depth"] != SPACE.project({}, Config(fused=True))["depth"] for trial in trials)


def cells(bb: float, bc: float, cb: float, cc: float) -> tuple[dict[str, Config], dict[Config, float]]:
    configs = {name: Config(cell=name) for name in CELLS}
    return configs, dict(zip(configs.values(), (bb, bc, cb, cc), strict=True))


def test_credit_is_the_difference_of_differences() -> None:
    grid, losses = cells(10.0, 8.0, 9.0, 6.0)
    scores = Scores(answers(losses), switched=True)
    for arm in Arm:
        (pull,) = progress([Round(0, arm, 0, None, grid)], scores, ()).pulls
        assert pull.gain == pytest.approx(Quad(bb=10.0, bc=8.0, cb=9.0, cc=6.0).gain(arm))
        assert pull.weight == 1.0


def test_an_open_grid_is_expected_to_earn_the_average() -> None:
    grid, losses = cells(10.0, 8.0, 9.0, 6.0)
    scores = Scores(answers(losses), switched=True)
    later = Round(1, Arm.SPARSE, 0, None, {name: Config(later=name) for name in CELLS})
    done, waiting = progress([Round(0, Arm.SPARSE, 0, None, grid), later], scores, ()).pulls
    assert waiting.gain == done.gain


def test_after_the_switch_simulated_credit_is_a_weak_prior() -> None:
    grid, losses = cells(10.0, 8.0, 9.0, 6.0)
    entry = Round(0, Arm.SPARSE, 0, None, grid)
    (before,) = progress([entry], Scores(answers({}, losses), switched=False), ()).pulls
    (after,) = progress([entry], Scores(answers({Config(real=1): 99.0}, losses), switched=True), ()).pulls
    assert (before.weight, after.weight) == (1.0, SIMULATED_WEIGHT)
    assert before.gain == after.gain


def test_rewards_compare_only_what_the_same_instrument_answered() -> None:
    guesses = {Config(x=1): 0.1, Config(x=2): 0.2}
    scores = Scores(answers({Config(x=3): 50.0, Config(x=4): 60.0}, guesses), switched=True)
    assert scores.reward(Config(x=3)) == scores.reward(Config(x=1)) == 1.0
    assert scores.incumbent(Config()) == Config(x=3), "what was measured comes first"


def test_while_simulators_answer_their_best_is_the_base() -> None:
    searcher = HybridPaperSearcher(SPACE, TASK, 0, NO_TOURNAMENT)
    searcher.tell([measured(Proposal(config=SPACE.default(), origin=Origin(by="default")))])
    for _ in range(30):
        searcher.tell([measured(searcher.ask(1)[0], lambda config: 0.5 * time_s(config), Fidelity.SIMULATED)])
    assert own(searcher.ask(1)[0])["quad"]["bb"] != SPACE.default().to_json()


def test_costs_are_positive_whatever_the_objective() -> None:
    assert costs(np.array([1.0, 4.0, math.inf])).tolist() == [1.0, 4.0, 8.0]
    assert costs(np.array([-10.0, -5.0, math.inf])).tolist() == [0.1, 0.2, 0.4]
    assert costs(np.array([-1.0, 3.0])).tolist() == [1.0, 2.0]


# --- switches, and all together --------------------------------------------------------------------------------


def test_without_the_orchestrator_the_arms_take_turns() -> None:
    options = HybridPaperOptions(tournament=False, orchestrator=False)
    arms = {own(trial.proposal)["round"]: own(trial.proposal)["arm"] for trial in run(HybridPaperSearcher(SPACE, TASK, 0, options), 30)}
    assert [arms[number] for number in sorted(arms)][:6] == ["sparse", "dense"] * 3


def test_sparse_only_ends_when_all_structures_are_known() -> None:
    searcher = HybridPaperSearcher(SPACE, TASK, 0, HybridPaperOptions(sparse_only=True))
    found = searcher.ask(100)
    assert len({SPACE.structure(proposal.config) for proposal in found}) == len(found) == 12
    assert searcher.ask(5, pending=found) == []


def test_dense_only_reaches_every_dense_point() -> None:
    space = SPACES["dense"]()
    searcher = HybridPaperSearcher(space, TASK, 0, HybridPaperOptions(dense_only=True))
    assert len(searcher.ask(40)) == 40


def test_it_improves_on_its_start() -> None:
    losses = [TASK.objective.loss(trial.measurement) for trial in run(HybridPaperSearcher(SPACE, TASK, 1), 60)]
    assert min(losses) < 0.75 * losses[0]


def test_sixteen_under_way_come_from_several_grids() -> None:
    searcher = HybridPaperSearcher(SPACE, TASK, 0, NO_TOURNAMENT)
    run(searcher, 12)
    many = searcher.ask(16)
    assert len({proposal.config for proposal in many}) == 16
    assert len({own(proposal).get("round") for proposal in many}) >= 4
