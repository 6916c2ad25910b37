"""Random search: fair, and exact about the end."""

from __future__ import annotations

from collections import Counter

import pytest

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.search.random import RandomOptions, RandomSearcher
from autoscout.space import Choice, Flag, Space
from autoscout.testing.searcher import SPACES, TASK, configs, finished


@pytest.mark.parametrize("listed", [0, 4096])
def test_every_valid_configuration_is_equally_likely(listed: int) -> None:
    space = Space([Choice("kind", ["a", "b"]), Choice("level", [1, 2, 3, 4, 5], when="kind == 'b'")])
    draws = 1200
    counts = Counter(RandomSearcher(space, TASK, seed, RandomOptions(listed=listed)).ask(1)[0].config for seed in range(draws))
    expected = draws / 6
    assert len(counts) == 6, "drawing kind first would give kind=a half of all draws"
    chi_squared = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_squared < 20.5, "0.1 % point for 5 degrees of freedom; the seeds are fixed"


def test_a_draw_does_not_depend_on_what_is_pending() -> None:
    searcher = RandomSearcher(SPACES["tiny"](), TASK, 1)
    three = searcher.ask(3)
    assert searcher.ask(2, pending=three[:1]) == three[1:]


def test_the_last_of_a_large_space_is_found() -> None:
    space = Space([Choice(f"c{index}", list(range(5))) for index in range(4)])
    searcher = RandomSearcher(space, TASK, 0, RandomOptions(listed=10))
    *most, last = space.enumerate()
    searcher.tell(finished([Proposal(config=config) for config in most]))
    assert configs(searcher.ask(5)) == [last]
    searcher.tell(finished([Proposal(config=last)]))
    assert searcher.ask(1) == []


def test_stopped_trials_do_not_shift_the_draws() -> None:
    space = SPACES["large"]()
    one, other = RandomSearcher(space, TASK, 3), RandomSearcher(space, TASK, 3)
    stopped = one.ask(1)
    one.tell([Trial(proposal=stopped[0], measurement=Measurement(status=Status.ABORTED))])
    assert configs(one.ask(2)) == configs(other.ask(3))[1:]


def test_an_impossible_given_has_no_proposals() -> None:
    space = Space([Flag("a"), Flag("b", when="a")])
    assert RandomSearcher(space, TASK, 0).ask(1, Config(a=False, b=True)) == []
    assert RandomSearcher(space, TASK, 0, RandomOptions(listed=0)).ask(1, Config(a=False, b=True)) == []


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="must not be negative"):
        RandomOptions(listed=-1)
