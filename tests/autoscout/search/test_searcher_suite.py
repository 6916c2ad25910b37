"""The suite must catch broken searchers: each mutant breaks one promise, and the check of that promise must fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.search.random import RandomSearcher
from autoscout.space import Space
from autoscout.testing.searcher import SPACES, SearcherSuite


class _Mutant(RandomSearcher):
    def __init__(self, space: Space, task: Task, seed: int) -> None:
        super().__init__(space, task, seed)
        self.space = space


class AsksTwice(_Mutant):
    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        return super().ask(1, given, pending) * n


class ForgetsTrials(_Mutant):
    def tell(self, trials: Sequence[Trial]) -> None:
        self._count += len(trials)


class IgnoresGiven(_Mutant):
    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        return super().ask(n, Config(), pending)


class IgnoresPending(_Mutant):
    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        return super().ask(n, given)


class Remembers(_Mutant):
    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        found = super().ask(n, given, pending)
        self._count += 1
        return found


class CountsBatches(_Mutant):
    def tell(self, trials: Sequence[Trial]) -> None:
        before = self._count
        super().tell(trials)
        self._count = before + 1


class MindsTheOrder(_Mutant):
    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        self._seed = hash(trials[-1].config.canonical) if trials else self._seed


class ProposesNonsense(_Mutant):
    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        found = super().ask(n, given, pending)
        return [Proposal(config=proposal.config.extend(nonsense=1)) for proposal in found]


class OverfillsTheOrder(_Mutant):
    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        return super().ask(n + 1, given, pending)


class HasStrangeOrigins(_Mutant):
    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        return [Proposal(config=proposal.config, origin=Origin.from_json({"at": (1, 2)})) for proposal in super().ask(n, given, pending)]


class NeverEnds(_Mutant):
    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        return super().ask(n, given, pending) or [Proposal(config=self.space.default())]


class GivesUpEarly(_Mutant):
    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        return super().ask(n, given, pending) if self._count < 6 else []


class TrustsEveryTrial(_Mutant):
    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        assert all(trial.measurement.metrics for trial in trials)


class KnowsOnlyThisSpace(_Mutant):
    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        for trial in trials:
            assert not self.space.check(trial.config)


CATCHES: dict[type[_Mutant], Callable[[SearcherSuite, Callable[[Space, Task, int], Searcher], Space], None]] = {
    AsksTwice: SearcherSuite.test_proposals_are_valid_distinct_and_new,
    ForgetsTrials: SearcherSuite.test_proposals_are_valid_distinct_and_new,
    ProposesNonsense: SearcherSuite.test_proposals_are_valid_distinct_and_new,
    OverfillsTheOrder: SearcherSuite.test_nothing_is_asked_for,
    IgnoresGiven: SearcherSuite.test_proposals_extend_given,
    IgnoresPending: SearcherSuite.test_pending_is_not_proposed_again,
    Remembers: SearcherSuite.test_asking_changes_nothing,
    CountsBatches: SearcherSuite.test_replay_all_at_once,
    MindsTheOrder: SearcherSuite.test_order_within_a_batch_does_not_matter,
    HasStrangeOrigins: SearcherSuite.test_origins_survive_files,
    NeverEnds: lambda suite, make, space: suite.test_a_small_space_is_exhausted(make),
    GivesUpEarly: lambda suite, make, space: suite.test_a_small_space_is_exhausted(make),
    TrustsEveryTrial: SearcherSuite.test_tell_takes_anything,
    KnowsOnlyThisSpace: SearcherSuite.test_trials_of_an_older_space_do_no_harm,
}


@pytest.mark.parametrize("mutant", CATCHES, ids=lambda mutant: mutant.__name__)
def test_each_mutant_is_caught(mutant: type[_Mutant]) -> None:
    with pytest.raises(AssertionError):
        CATCHES[mutant](SearcherSuite(), mutant, SPACES["constrained"]())


@pytest.mark.parametrize("check", [name for name in dir(SearcherSuite) if name.startswith("test_")])
def test_the_original_passes_every_check(check: str) -> None:
    method = getattr(SearcherSuite(), check)
    space = (SPACES["constrained"](),) if "space" in method.__code__.co_varnames[: method.__code__.co_argcount] else ()
    method(_Mutant, *space)
