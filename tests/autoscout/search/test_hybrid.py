"""Searcher `hybrid`: learns, avoids failures, spreads parallel proposals, and starts warm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.history import Past, PastTrial, recall
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher, StudyRecord
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.search.hybrid import HybridSearcher, tuning
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid_paper.searcher import HybridPaperOptions, HybridPaperSearcher
from autoscout.search.random import RandomSearcher
from autoscout.space import Choice, Flag, Grid, Space
from autoscout.store.memory import MemoryStore
from autoscout.study.plugin_options import build_options
from autoscout.testing.searcher import SPACES, TASK

SPACE = Space(
    [
        Choice("kernel", ["a", "b", "c", "d"]),
        Flag("fused"),
        Flag("padded", when="fused"),
        Grid("block", 16, 512, log=True),
        Grid("tile", 1, 16),
        Grid("depth", 1, 8),
    ]
)


def time_s(config: Config) -> float:
    """A job with a clear optimum (kernel c, fused, not padded, block 128, tile 11, depth 3); out of memory when tile * block is large."""
    block, tile = float(str(config["block"])), float(str(config["tile"]))
    if tile * block > 2500:
        return math.inf
    slow = {"a": 1.5, "b": 1.3, "c": 1.0, "d": 2.0}[str(config["kernel"])] * (1.0 if config["fused"] else 1.4)
    slow *= 1.2 if config.get("padded") else 1.0
    return slow * (1 + 0.2 * abs(math.log2(block / 128)) + 0.02 * abs(tile - 11) + 0.05 * abs(float(str(config["depth"])) - 3))


def measured(proposal: Proposal, cost: Callable[[Config], float] = time_s) -> Trial:
    value = cost(proposal.config)
    if math.isinf(value):
        return Trial(proposal=proposal, measurement=Measurement(status=Status.OOM_START))
    return Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"time_s": value}))


def run(searcher: Searcher, budget: int, width: int = 1) -> list[float]:
    losses: list[float] = []
    while len(losses) < budget:
        trials = [measured(proposal) for proposal in searcher.ask(width)]
        assert trials
        searcher.tell(trials)
        losses += [TASK.objective.loss(trial.measurement) for trial in trials]
    return losses


def median_best(make: Callable[[int], Searcher], budget: int, seeds: Sequence[int] = range(3)) -> float:
    return float(np.median([min(run(make(seed), budget)) for seed in seeds]))


def test_it_is_near_the_optimum_long_before_random_is() -> None:
    assert median_best(lambda seed: HybridSearcher(SPACE, TASK, seed), 30) <= 1.05
    assert median_best(lambda seed: RandomSearcher(SPACE, TASK, seed), 30) > 1.1


def test_it_stays_small() -> None:
    files = Path(tuning.__file__).parent.glob("*.py")
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= 1100
    assert sum(name.isupper() for name in vars(tuning)) <= 25, "numbers that were given rather than fitted"


def test_the_default_is_the_first_proposal() -> None:
    assert HybridSearcher(SPACE, TASK, 5).ask(1)[0].config == SPACE.default()


def test_a_cautious_search_fails_less_and_finds_as_much() -> None:
    runs = [run(HybridSearcher(SPACE, TASK, seed, HybridOptions(cautious=careful)), 40) for careful in (False, True) for seed in range(4)]
    bold, cautious = (sum(math.isinf(loss) for losses in some for loss in losses) for some in (runs[:4], runs[4:]))
    assert cautious < 0.8 * bold
    assert max(min(losses) for losses in runs) <= 1.05


def test_parallel_proposals_are_spread_and_still_good() -> None:
    searcher = HybridSearcher(SPACE, TASK, 1)
    searcher.tell([measured(proposal) for proposal in searcher.ask(8)])
    four = searcher.ask(4)
    assert len({proposal.config for proposal in four}) == 4
    assert min(run(HybridSearcher(SPACE, TASK, 1), 48, width=8)) <= 1.15


def test_proposals_say_why() -> None:
    searcher = HybridSearcher(SPACE, TASK, 2)
    first = searcher.ask(1)[0].origin
    assert first == Origin(by="hybrid", notes={"round": 0, "proposer": "start"})
    run(searcher, 6)
    assert searcher.ask(1)[0].origin.notes == {"round": 6, "proposer": "acquisition"}


def test_sparse_only_moves_no_dense_knob() -> None:
    searcher = HybridPaperSearcher(SPACE, TASK, 0, HybridPaperOptions(sparse_only=True))
    default = SPACE.default()
    for _ in range(6):
        trials = [measured(proposal) for proposal in searcher.ask(1)]
        assert all(trial.config[name] == default[name] for trial in trials for name in SPACE.dense)
        searcher.tell(trials)


def test_dense_only_keeps_the_structure() -> None:
    searcher = HybridPaperSearcher(SPACE, TASK, 0, HybridPaperOptions(dense_only=True))
    structure = SPACE.structure(SPACE.default())
    for _ in range(8):
        trials = [measured(proposal) for proposal in searcher.ask(2)]
        assert all(SPACE.structure(trial.config) == structure for trial in trials)
        searcher.tell(trials)


def test_it_stops_when_nothing_is_to_be_gained() -> None:
    searcher = HybridSearcher(SPACE, TASK, 0, HybridOptions(stop_gain=0.01))
    told = 0
    while told < 300 and (proposals := searcher.ask(1)):
        searcher.tell([measured(proposal) for proposal in proposals])
        told += 1
    assert 10 < told < 150


def test_what_was_aborted_is_not_asked_for_again() -> None:
    searcher = HybridSearcher(SPACES["tiny"](), TASK, 0)
    asked = searcher.ask(1)[0]
    other = SPACES["tiny"]().project({}, Config(kind="c", fast=True, level=2))
    trial = measured(Proposal(config=other, origin=asked.origin), lambda _: 1.0)
    searcher.tell([trial, Trial(proposal=asked, measurement=Measurement(status=Status.ABORTED))])
    assert asked.config not in [proposal.config for proposal in searcher.ask(20)]


def test_a_simulator_gives_a_head_start() -> None:
    """Told simulated trials of a biased simulator, the first model-guided measurements are good at once."""
    searcher = HybridSearcher(SPACE, TASK, 3)
    told = [measured(proposal) for proposal in RandomSearcher(SPACE, TASK, 9).ask(60)]
    simulated = [
        Trial(
            proposal=trial.proposal,
            measurement=Measurement(
                status=trial.measurement.status,
                metrics={"time_s": 1.3 * trial.measurement.metrics["time_s"]} if trial.ok else {},
                fidelity=Fidelity.SIMULATED,
            ),
        )
        for trial in told
    ]
    searcher.tell(simulated)
    assert min(run(searcher, 5)) < 1.15


# --- warm start ------------------------------------------------------------------------------------------------


def past_study(bias: float = 1.0) -> Past:
    trials = []
    for proposal in RandomSearcher(SPACE, TASK, 77).ask(60):
        loss = bias * time_s(proposal.config)
        trials.append(PastTrial(config=proposal.config.to_json(), loss=None if math.isinf(loss) else loss))
    return Past(similarity=0.8, trials=tuple(trials))


def test_a_similar_past_study_saves_evaluations() -> None:
    options = HybridOptions(past=(past_study(bias=3.0),))
    warm = [min(run(HybridSearcher(SPACE, TASK, seed, options), 8)) for seed in range(3)]
    cold = [min(run(HybridSearcher(SPACE, TASK, seed), 8)) for seed in range(3)]
    assert np.median(warm) < np.median(cold)
    assert np.median(warm) < 1.2


def test_a_misleading_past_study_does_no_lasting_harm() -> None:
    upside_down = Past(
        similarity=0.9,
        trials=tuple(PastTrial(config=trial.config, loss=None if trial.loss is None else 1 / trial.loss) for trial in past_study().trials),
    )
    assert median_best(lambda seed: HybridSearcher(SPACE, TASK, seed, HybridOptions(past=(upside_down,))), 40) <= 1.15


def test_the_store_remembers_similar_tasks() -> None:
    store = MemoryStore()
    store.open(StudyRecord(name="old", task=TASK, space=SPACE.fingerprint(), spec={}))
    searcher = HybridSearcher(SPACE, TASK, 0)
    for _ in range(10):
        trials = [measured(proposal) for proposal in searcher.ask(1)]
        store.append("old", trials)
        searcher.tell(trials)
    (past,) = recall(store, TASK)
    assert past.similarity == 1.0
    assert len(past.trials) == 10
    assert past.last["round"] == 9
    assert recall(store, TASK, exclude=["old"]) == ()
    best = min((trial for trial in past.trials if trial.loss is not None), key=lambda trial: trial.loss or 0.0)
    second = HybridSearcher(SPACE, TASK, 1, HybridOptions(past=(past,))).ask(2)[1]
    assert best.config in (second.config.to_json(), SPACE.default().to_json())


# --- options ---------------------------------------------------------------------------------------------------


def test_all_bad_options_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        HybridOptions(start=0, stop_gain=-1.0)
    assert {fault.field for fault in caught.value.faults} == {"start", "stop_gain"}
    with pytest.raises(ConfigError) as caught:
        HybridPaperOptions(orderings=0, decay=2.0, sparse_only=True, dense_only=True)
    assert {fault.field for fault in caught.value.faults} == {"orderings", "decay", "dense_only"}


def test_options_come_from_plain_data() -> None:
    trial = {"config": {"kernel": "c"}, "loss": 1.0}
    built = build_options(HybridSearcher, {"start": 3, "past": [{"similarity": 0.5, "trials": [trial]}]}, "searcher")
    assert built.past[0].trials[0].config == {"kernel": "c"}
    with pytest.raises(ConfigError):
        build_options(HybridSearcher, {"past": [{"similarity": 2, "trials": []}]}, "searcher")
