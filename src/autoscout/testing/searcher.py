"""What every searcher must do. Subclass `SearcherSuite` in a test module and give it the fixtures `make` and `space`:

    class TestMySearcher(SearcherSuite):
        @pytest.fixture
        def make(self):
            return lambda space, task, seed: MySearcher(space, task, seed)

        @pytest.fixture(params=SPACES)
        def space(self, request):
            return SPACES[request.param]()

Needs no pytest itself; the methods are plain functions of a maker and a space.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from autoscout.core.config import Config
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import number, stream
from autoscout.core.task import Direction, Goal, Limit, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.space import Choice, Flag, Grid, Space

Make = Callable[[Space, Task, int], Searcher]
"""Builds a fresh searcher for a space, a task and a seed."""

TASK = Task(system="toy", objective=Objective(metric="time_s"))
BATCHES = 5
WIDTH = 3


def _tiny() -> Space:
    return Space([Choice("kind", ["a", "b", "c"]), Flag("fast"), Choice("level", [1, 2])])


def _single() -> Space:
    return Space([Choice("only", ["one"]), Flag("never", when="only == 'two'")])


def _conditional() -> Space:
    return Space(
        [
            Choice("engine", ["sync", "async", "mixed"]),
            Flag("pinned", when="engine != 'sync'"),
            Grid("queue", 1, 64, log=True, when="engine == 'async' and pinned", default=8),
            Choice("policy", ["lifo", "fifo"], when="engine == 'mixed'"),
        ]
    )


def _constrained() -> Space:
    return Space(
        [
            Choice("tp", [1, 2, 4, 8]),
            Choice("pp", [1, 2, 4, 8]),
            Choice("dp", [1, 2, 4, 8], default=8),
            Flag("sp", when="tp > 1"),
            Grid("micro_batch", 1, 32, log=True, default=4),
            Grid("bucket_mb", 1, 64, step=7, when="dp > 1"),
        ],
        ["tp * pp * dp == gpus", "layers % pp == 0", "micro_batch * dp <= 64"],
        {"gpus": 8, "layers": 12},
    )


def _dense() -> Space:
    return Space([Grid("x", 0.0, 1.0, step=0.01), Grid("y", 1, 1000, default=37), Grid("z", 0.001, 10, log=True, points=20)])


def _large() -> Space:
    return Space(
        [Choice(f"c{index}", list(range(10))) for index in range(6)] + [Grid("w", 1, 1000)],
        ["c0 + c1 + c2 <= 20", "(c3 * c4) % 3 == 0"],
    )


def _listed() -> Space:
    whole = Space(
        [
            Choice("kernel", ["tiled", "flat"]),
            Grid("block", 8, 128, step=8, default=64),
            Grid("unroll", values=[1, 2, 4, 8]),
            Flag("padding", when="kernel == 'tiled'"),
            Choice("order", ["row", "column", "z"], sparse=False),
        ]
    )
    return whole.among(config for config in whole.enumerate() if number(0, config.canonical) % 5 == 0)


SPACES: Mapping[str, Callable[[], Space]] = {
    "tiny": _tiny,
    "single": _single,
    "conditional": _conditional,
    "constrained": _constrained,
    "dense": _dense,
    "large": _large,
    "listed": _listed,
}
"""Small spaces of every shape: categories, one point, nested conditions, arithmetic, numbers, too many to list, a list without rules."""


def measured(proposal: Proposal, seed: int = 0) -> Measurement:
    """An answer that depends on nothing but the configuration: mostly a number, sometimes a failure or a bound."""
    draw = number(seed, proposal.config.canonical) % 1000
    if draw < 120:
        kinds = [status for status in Status if status.failed]
        return Measurement(status=kinds[draw % len(kinds)], cost_s=0.1)
    if draw >= 900:  # the slowest were stopped early
        return Measurement(status=Status.BOUNDED, bounds={"time_s": 9.0, "memory_gb": 1.0}, cost_s=0.1)
    return Measurement(status=Status.OK, metrics={"time_s": 1.0 + draw / 100, "memory_gb": float(draw % 7)}, cost_s=0.1)


def finished(proposals: Sequence[Proposal], seed: int = 0) -> list[Trial]:
    """The trials of some proposals."""
    return [Trial(proposal=proposal, measurement=measured(proposal, seed)) for proposal in proposals]


def live(searcher: Searcher, batches: int = BATCHES, width: int = WIDTH) -> list[list[Trial]]:
    """A short life: ask and tell; the batches that were told."""
    trials = []
    for _ in range(batches):
        batch = finished(searcher.ask(width))
        if not batch:
            break
        searcher.tell(batch)
        trials.append(batch)
    return trials


def configs(proposals: Sequence[Proposal] | Sequence[Trial]) -> list[Config]:
    """The configurations, in order."""
    return [proposal.config for proposal in proposals]


def partials(space: Space) -> list[Config]:
    """Some partial configurations that can be completed: single values of every knob, and half of the default."""
    configs = []
    for name, knob in space.knobs.items():
        for value in dict.fromkeys((knob.values[-1], knob.default)):
            if space.feasible(Config({name: value})):
                configs.append(Config({name: value}))
    default = space.default()
    half = list(default)[: max(1, len(default) // 2)]
    return [*configs, default.only(half)]


class SearcherSuite:
    """The contract of `autoscout.core.protocols.Searcher`, one method per rule."""

    covers = True
    """Whether it proposes every configuration of a small space of categories in the end."""

    # --- what is proposed --------------------------------------------------------------------------------------

    def test_is_a_searcher(self, make: Make, space: Space) -> None:
        assert isinstance(make(space, TASK, 0), Searcher)

    def test_proposals_are_valid_distinct_and_new(self, make: Make, space: Space) -> None:
        searcher = make(space, TASK, 1)
        earlier: set[Config] = set()
        for batch in live(searcher, batches=8):
            assert 0 < len(batch) <= WIDTH
            for config in configs(batch):
                assert space.check(config) == [], f"{config} is not valid"
                assert config not in earlier, f"{config} was proposed twice"
                earlier.add(config)

    def test_proposals_are_first_looks(self, make: Make, space: Space) -> None:
        for batch in live(make(space, TASK, 0), batches=2):
            assert all(trial.proposal.repeat == 0 for trial in batch), "repeats are the study's business"

    def test_nothing_is_asked_for(self, make: Make, space: Space) -> None:
        assert make(space, TASK, 0).ask(0) == []

    def test_origins_survive_files(self, make: Make, space: Space) -> None:
        for batch in live(make(space, TASK, 2)):
            for trial in batch:
                written = json.dumps(trial.proposal.to_json(), allow_nan=False)
                assert Proposal.from_json(json.loads(written)) == trial.proposal, f"{trial.proposal.origin} does not survive JSON"

    def test_proposals_extend_given(self, make: Make, space: Space) -> None:
        searcher = make(space, TASK, 3)
        live(searcher, batches=1, width=1)
        for part in partials(space):
            for config in configs(searcher.ask(2, part)):
                assert space.check(config) == []
                assert config.extends(part), f"{config} does not extend {part}"

    def test_a_life_under_given(self, make: Make, space: Space) -> None:
        given = partials(space)[0]
        searcher = make(space, TASK, 3)
        earlier: set[Config] = set()
        for _ in range(4):
            batch = finished(searcher.ask(2, given))
            assert all(config.extends(given) and config not in earlier for config in configs(batch))
            earlier.update(configs(batch))
            searcher.tell(batch)

    def test_pending_is_not_proposed_again(self, make: Make, space: Space) -> None:
        searcher = make(space, TASK, 4)
        earlier = [config for batch in live(searcher, batches=1) for config in configs(batch)]
        pending = searcher.ask(WIDTH)
        more = searcher.ask(WIDTH, pending=pending)
        assert not set(configs(more)) & {*configs(pending), *earlier}

    def test_pending_from_elsewhere_is_respected(self, make: Make, space: Space) -> None:
        elsewhere = Proposal(config=space.default(), origin=Origin(by="somebody else"))
        assert space.default() not in configs(make(space, TASK, 4).ask(50, pending=[elsewhere]))

    # --- purity and replay -------------------------------------------------------------------------------------

    def test_asking_changes_nothing(self, make: Make, space: Space) -> None:
        one, other = make(space, TASK, 5), make(space, TASK, 5)
        first = one.ask(WIDTH)
        one.ask(1)
        one.ask(7, partials(space)[-1])
        one.ask(2, pending=first)
        assert one.ask(WIDTH) == first
        batch = finished(first)
        one.tell(batch)
        other.tell(batch)
        assert one.ask(WIDTH) == other.ask(WIDTH), "a searcher that was asked less often must propose the same"

    def test_same_seed_and_history_same_proposals(self, make: Make, space: Space) -> None:
        one, other = live(make(space, TASK, 6)), live(make(space, TASK, 6))
        assert one == other

    def test_replay_batch_by_batch(self, make: Make, space: Space) -> None:
        searcher, fresh = make(space, TASK, 7), make(space, TASK, 7)
        for batch in live(searcher):
            fresh.tell(batch)
        assert fresh.ask(WIDTH) == searcher.ask(WIDTH)

    def test_replay_all_at_once(self, make: Make, space: Space) -> None:
        searcher, fresh = make(space, TASK, 8), make(space, TASK, 8)
        fresh.tell([trial for batch in live(searcher) for trial in batch])
        assert fresh.ask(WIDTH) == searcher.ask(WIDTH)

    def test_replay_one_by_one_from_files(self, make: Make, space: Space) -> None:
        searcher, fresh = make(space, TASK, 9), make(space, TASK, 9)
        for batch in live(searcher):
            for trial in batch:
                fresh.tell([Trial.from_json(json.loads(json.dumps(trial.to_json())))])
        assert fresh.ask(WIDTH) == searcher.ask(WIDTH)

    def test_every_point_of_a_life_can_be_resumed(self, make: Make, space: Space) -> None:
        searcher = make(space, TASK, 10)
        trials: list[list[Trial]] = []
        for _ in range(4):
            fresh = make(space, TASK, 10)
            for batch in trials:
                fresh.tell(batch)
            asked = searcher.ask(2)
            assert fresh.ask(2) == asked
            trials.append(finished(asked))
            searcher.tell(trials[-1])

    def test_order_within_a_batch_does_not_matter(self, make: Make, space: Space) -> None:
        one, other = make(space, TASK, 11), make(space, TASK, 11)
        for _ in range(4):
            asked = one.ask(4)
            assert other.ask(4) == asked
            batch = finished(asked)
            one.tell(batch)
            other.tell(batch[::-1])

    # --- what is told ------------------------------------------------------------------------------------------

    def test_tell_takes_anything(self, make: Make, space: Space) -> None:
        searcher = make(space, TASK, 12)
        rng = stream(12, "suite", "unasked")
        unasked = [Proposal(config=config, origin=Origin(by=By.GIVEN)) for _ in range(3) if (config := space.sample(rng)) is not None]
        ok = Measurement(status=Status.OK, metrics={"time_s": 1.0})
        searcher.tell([])
        searcher.tell([Trial(proposal=unasked[0], measurement=Measurement(status=status)) for status in Status if status is not Status.OK])
        searcher.tell(
            [Trial(proposal=proposal, measurement=replace(ok, fidelity=fidelity)) for fidelity in Fidelity for proposal in unasked]
        )
        searcher.tell([Trial(proposal=replace(unasked[0], repeat=repeat), measurement=ok) for repeat in (1, 2, 2)])
        searcher.tell([Trial(proposal=unasked[1], measurement=Measurement(status=Status.OK, metrics={}))])
        asked = searcher.ask(WIDTH)
        assert all(space.check(config) == [] for config in configs(asked))
        assert not set(configs(asked)) & {proposal.config for proposal in unasked}

    def test_trials_of_an_older_space_do_no_harm(self, make: Make, space: Space) -> None:
        searcher = make(space, TASK, 13)
        strange = [Config(no_such_knob=1), Config(), space.default().extend({next(iter(space.knobs)): "no such value"})]
        ok = Measurement(status=Status.OK, metrics={"time_s": 0.5})
        searcher.tell(
            [Trial(proposal=Proposal(config=config, origin=Origin(notes={"odd": [1, None]})), measurement=ok) for config in strange]
        )
        for batch in live(searcher, batches=3):
            assert all(space.check(config) == [] for config in configs(batch))

    def test_a_life_of_failures(self, make: Make, space: Space) -> None:
        searcher = make(space, TASK, 14)
        earlier: set[Config] = set()
        for status in (Status.OOM_START, Status.CRASHED, Status.TIMEOUT, Status.INVALID):
            asked = searcher.ask(2)
            assert all(space.check(config) == [] and config not in earlier for config in configs(asked))
            earlier.update(configs(asked))
            searcher.tell([Trial(proposal=proposal, measurement=Measurement(status=status)) for proposal in asked])

    def test_a_stopped_trial_is_no_answer(self, make: Make, space: Space) -> None:
        searcher = make(space, TASK, 15)
        asked = searcher.ask(2)
        searcher.tell([Trial(proposal=proposal, measurement=Measurement(status=Status.ABORTED)) for proposal in asked])
        assert all(space.check(config) == [] for config in configs(searcher.ask(2)))

    def test_maximising_under_limits(self, make: Make, space: Space) -> None:
        objective = Objective(metric="time_s", direction=Direction.MAXIMIZE, limits=(Limit.parse("memory_gb<=3"),))
        searcher = make(space, replace(TASK, objective=objective), 16)
        for batch in live(searcher):
            assert all(space.check(config) == [] for config in configs(batch))

    def test_several_goals(self, make: Make, space: Space) -> None:
        # One that looks at the first goal only passes as well: a study tells it one loss made of all.
        several = replace(TASK, objective=Objective(metric="time_s", also=(Goal(metric="memory_gb", direction=Direction.MAXIMIZE),)))
        searcher, again = make(space, several, 22), make(space, several, 22)
        earlier: list[Config] = []
        for batch in live(searcher):
            assert all(space.check(config) == [] and config not in earlier for config in configs(batch))
            earlier += configs(batch)
            again.tell(batch)
        assert again.ask(WIDTH) == searcher.ask(WIDTH), "told trials alone must decide, also with several goals"

    def test_two_workers_out_of_step(self, make: Make, space: Space) -> None:
        searcher = make(space, TASK, 17)
        pending: list[Proposal] = searcher.ask(2)
        trials: list[Trial] = []
        for step in range(6):
            if not pending:
                break
            done = finished([pending.pop(step % len(pending))])
            searcher.tell(done)
            trials += done
            fresh = make(space, TASK, 17)
            fresh.tell(trials)
            more = searcher.ask(1, pending=pending)
            assert fresh.ask(1, pending=pending) == more, "a killed study must continue as if it had not been killed"
            assert not set(configs(more)) & {*configs(pending), *configs(trials)}
            pending += more

    # --- the end -----------------------------------------------------------------------------------------------

    def test_a_small_space_is_exhausted(self, make: Make) -> None:
        for name in ("tiny", "single"):
            space = SPACES[name]()
            everything = set(space.enumerate())
            searcher = make(space, TASK, 18)
            proposed: list[Config] = []
            for _ in range(4 * len(everything) + 4):
                batch = finished(searcher.ask(2))
                if not batch:
                    break
                proposed += configs(batch)
                searcher.tell(batch)
            assert searcher.ask(1) == [], "nothing is left, and that must be said"
            assert len(proposed) == len(set(proposed)) <= len(everything)
            assert not self.covers or set(proposed) == everything

    def test_more_is_asked_for_than_there_is(self, make: Make) -> None:
        space = SPACES["tiny"]()
        asked = make(space, TASK, 19).ask(500)
        assert len(set(configs(asked))) == len(asked) <= space.count().value
        assert all(space.check(config) == [] for config in configs(asked))

    def test_the_last_one_is_pending(self, make: Make) -> None:
        space = SPACES["tiny"]()
        *others, last = (Proposal(config=config) for config in space.enumerate())
        searcher = make(space, TASK, 20)
        searcher.tell(finished(others))
        assert searcher.ask(3, pending=[last]) == []
        assert not self.covers or configs(searcher.ask(3)) == [last.config]

    def test_given_leaves_one(self, make: Make) -> None:
        space = SPACES["tiny"]()
        default = space.default()
        searcher = make(space, TASK, 21)
        assert not self.covers or configs(searcher.ask(5, default)) == [default]
        searcher.tell(finished([Proposal(config=default)]))
        assert searcher.ask(5, default) == []


__all__ = ["SPACES", "TASK", "Make", "SearcherSuite", "configs", "finished", "live", "measured", "partials"]
