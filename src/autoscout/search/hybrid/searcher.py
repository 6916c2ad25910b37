"""Searcher `hybrid`: the paper's parts, guided by a surrogate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autoscout.common.stats import expected_improvement
from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.protocols import Simulator
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.search.hybrid.arms import Arms
from autoscout.search.hybrid.candidates import Candidates
from autoscout.search.hybrid.elsewhere import DOUBTED, STALLED, TURNS, WIDER, fruitless, seldom_tried
from autoscout.search.hybrid.guard import GuardedSurrogate
from autoscout.search.hybrid.ledger import Answer, Ledger, early_failures
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.orchestrator import Arm
from autoscout.search.hybrid.past import Belief
from autoscout.search.hybrid.prior import Prior
from autoscout.search.hybrid.reach import Reach, promising
from autoscout.search.hybrid.sparse import Ordering, guided, rewards
from autoscout.search.hybrid.surrogate import Memory, Surrogate
from autoscout.search.hybrid.tournament import orderings
from autoscout.search.hybrid.trust import trusted
from autoscout.space import Space
from autoscout.space.encode import Encoder, Floats, Rows

_NOTHING = Config()
CAUTION = 40.0
"""After this many successes the chance of success counts twice: early failures teach a boundary, late ones only cost."""
SAFE, UNSAFE = 0.65, 1e-120
"""Once the budget of failures is spent, candidates come after all others that may well fail, or do far more often than random ones."""
LESSONS, DARING = 40, 0.08
"""The budget of failures: one, and of the failures of random candidates this share of the steps, and so many times their rate to learn."""
DARE = 9.0
"""Nothing is too risky every so many failures of random candidates, because the boundary may be drawn wrong."""
FOREWARNED = 0.4
"""With a simulator of memory, failures teach less: this share of the budget while it is believed."""
HOPE = 0.6
"""All that is left has less chance of success than this when a search ends for its failures."""
SLIGHT, PATIENCE = 0.01, 60
"""An expected improvement, as a share of the loss, that is not worth a failure; and trials before anything is given up as hopeless."""
GOOD = 4
"""Around how many of the best configurations candidates are looked for."""
CLIMBS = 3
"""Steps uphill on the acquisition from the best candidate of a sampled space."""
DOUBT = 0.0005
"""An expected improvement, as a share of the loss, below which the model is done or wrong: no reason to follow it any further."""
TIES, TIED, VAIN = 8, 0.02, 0.01
"""Once so many configurations are within this share of the best, the model is doubted below that promise: it is telling ties apart."""
STARTERS = 400
"""Candidates that a far start is picked from."""
CAREFUL = 2
"""Where the default works and something failed, starts differ in so many knobs at most from what worked: far away is where things fail.
Where the default itself fails, what worked did by luck, and far starts find the optimum sooner."""


class HybridSearcher:
    """Tree search over structure, refinement of the incumbent, a bandit between them, and one surrogate that guides all three.

    A step: fit the surrogate to all told trials; weigh candidates by expected improvement times chance of success; the orchestrator
    picks an arm; SPARSE descends the tree (PUCT, the largest acquisition below a child is its prior), DENSE looks around the incumbent.
    Cells of the 2x2 grid that nobody measured are filled by the surrogate, so credit costs no trials. Given a simulator of the task,
    the surrogate starts from what that predicts and learns only where it is wrong, beside a plain one that takes over if it is all wrong.
    """

    learns_from_past: ClassVar[bool] = True
    takes_predictions: ClassVar[bool] = True

    def __init__(
        self, space: Space, task: Task, seed: int = 0, options: HybridOptions | None = None, simulator: Simulator | None = None
    ) -> None:
        self._space = space
        self._seed = seed
        self._options = options or HybridOptions()
        self._encoder = Encoder(space)
        self._ledger = Ledger(task.objective)
        self._belief = Belief(space, self._encoder, self._options.past)
        self._prior = None if simulator is None else Prior(self._encoder, simulator, task)
        self._cautious = self._options.cautious and simulator is None and not self._options.past  # these know more than the trials
        self._arms = Arms(space, self._encoder, self._options, self._entries())
        self._pools: dict[Config, Candidates] = {}
        self._memory: Memory = {}
        self._fitted: tuple[object, tuple[Config, ...], int, Surrogate] | None = None  # the last fit, for asks that change nothing

    def _entries(self) -> tuple[Ordering, ...]:
        if not self._options.tournament:
            return ()
        past = [study.ordering for study in self._options.past if study.ordering]
        return orderings(self._space, self._options.orderings, stream(self._seed, "hybrid", "orderings"), past)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._ledger.add(trials)

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1 or not self._space.feasible(given):
            return []
        pool = self._pool(given)
        waiting = [proposal.config for proposal in pending]
        found: list[Proposal] = []
        while len(found) < n:
            proposal = self._propose(pool, given, waiting)
            if proposal is None:
                break
            found.append(proposal)
            waiting.append(proposal.config)
        return found

    def _pool(self, given: Config) -> Candidates:
        if given not in self._pools:
            base, wanted = self._space.project(self._space.default(), given), given
            shape = None
            if self._options.dense_only:
                wanted = given.extend(self._space.structure(base))
            elif self._options.sparse_only:
                shape = lambda config: self._space.project(base, given.extend(self._space.structure(config)))  # noqa: E731
            self._pools[given] = Candidates(self._space, self._encoder, self._seed, wanted, shape)
        return self._pools[given]

    def _propose(self, pool: Candidates, given: Config, waiting: Sequence[Config]) -> Proposal | None:
        answers = self._ledger.answers()
        taken = {*self._ledger.seen, *waiting}
        step = len(answers) + len(waiting)
        if step < self._options.start:
            config = self._starter(pool, given, answers, waiting, taken)
            if config is not None or self._prior is None:
                return None if config is None else self._proposal(config, {"round": step, "arm": "start"})
        worked = sorted((answer for answer in answers if not answer.failed), key=lambda item: (not item.measured, item.loss, item.key))
        good = [answer.config for answer in worked if self._encoder.codes(answer.config) is not None][:GOOD]
        configs, rows = pool.weigh(taken, good, self._ledger.told + len(waiting))
        if self._prior is not None and not pool.whole:
            configs, rows = self._prior.widen(configs, rows, taken, given, self._seed)
        if not configs:
            config = None if pool.whole else pool.rest(taken, step)
            return None if config is None else self._proposal(config, {"round": step, "arm": "rest"})
        model = self._model(answers, waiting)
        rate = early_failures(answers)
        if self._prior is not None:  # it fails less, and so says less about random candidates
            rate = max(1e-3, model.failing(pool.rows) * (1.0 - (1.0 - FOREWARNED) * model.believed))
        (mean, spread), chance = model.predict(rows), model.chance(rows)
        acquisition = _promises(model, mean, spread, chance, step, rate)
        if pairs := self._ledger.snapped():
            first = promising(acquisition)
            configs, rows, chance = [configs[row] for row in first], rows.take(first), chance[first]
            answered, times = Reach(self._encoder, pairs).likely(rows, stream(self._seed, "hybrid", "reach", step))
            acquisition = _acquisition(model, answered, step, rate).reshape(times, -1).mean(0)
        if len(model.targets) > 1 and not waiting and self._settled(model, pool, taken, acquisition, chance, step, rate):
            return None
        doubtful = None if pairs else self._doubtful(model, good, rows, acquisition, chance)
        turn = (self._ledger.told + len(waiting)) % TURNS == 0  # not by steps: known answers would not end it
        patience = STALLED if doubtful is None else DOUBTED
        if self._options.elsewhere and turn and not pairs and fruitless(answers) >= patience:
            tried = self._encoder.rows([*(answer.config for answer in answers), *waiting])
            safe = np.flatnonzero(chance >= SAFE)  # a structure that hardly works is seldom tried for a reason
            shares = seldom_tried(rows.codes[safe], tried.codes, self._encoder.sparse)
            if shares is not None:
                wide = _promises(model, mean[safe], WIDER * spread[safe], chance[safe], step, rate) * shares
                return self._proposal(configs[int(safe[np.argmax(wide)])], {"round": step, "arm": "elsewhere"})
        if doubtful is not None:
            return self._proposal(configs[doubtful], {"round": step, "arm": "doubt"})
        weighed = acquisition
        if good and self._cautious:
            weighed = acquisition * trusted(self._apart(rows, good[:1]), len(self._encoder.names), len(answers))
        choice, origin = self._choose(model, answers, good, rows, weighed)
        config = configs[choice]
        if not pool.whole and not pairs:
            config = self._climb(model, pool, config, float(acquisition[choice]), taken, step, rate)
        return self._proposal(config, {"round": step, **origin})

    def _model(self, answers: Sequence[Answer], waiting: Sequence[Config]) -> Surrogate:
        unreachable = self._ledger.unreachable()
        last = self._fitted
        if last is not None and last[0] is answers and last[1] == tuple(waiting) and last[2] == len(unreachable):
            return last[3]
        model = Surrogate(self._encoder, self._seed, self._options, self._belief, self._memory)
        if self._prior is not None:
            model = GuardedSurrogate(self._prior, self._encoder, self._seed, self._options, self._memory)
        model.fit(answers, waiting, unreachable)
        self._fitted = (answers, tuple(waiting), len(unreachable), model)
        return model

    def _settled(
        self, model: Surrogate, pool: Candidates, taken: set[Config], acquisition: Floats, chance: Floats, step: int, rate: float
    ) -> bool:
        """Whether no candidate promises `stop_gain` of the best loss, or all that is left may well fail and promises next to nothing."""
        promise = float(acquisition.max()) * model.unit
        if promise < self._options.stop_gain:
            return True
        if not self._options.stop_failing or step < PATIENCE or promise >= SLIGHT:
            return False
        if not _failed_enough(model, step, rate) or (chance >= HOPE).any():
            return False
        left = pool.rows.take(pool.free(taken))
        return bool((model.chance(left) < HOPE).all()) and not any(_promising(other, left) for other in model.others)

    def _doubtful(self, model: Surrogate, good: Sequence[Config], rows: Rows, acquisition: Floats, chance: Floats) -> int | None:
        """Once the model promises nothing: the row next to a good configuration that it knows least about; None while it does promise.

        The best row of some tables lies among good ones and is far better than all of them: no smooth model expects it, and one that
        does not would go round it for good.
        """
        if len(model.targets) < 2:
            return None
        ties = int(((model.targets - model.best) * model.unit < TIED).sum())
        if float(acquisition.max()) * model.unit >= (VAIN if ties >= TIES else DOUBT):
            return None
        near = np.flatnonzero((self._apart(rows, good) == 1) & (chance >= SAFE))
        return int(near[np.argmax(model.predict(rows.take(near))[1])]) if len(near) else None

    def _apart(self, rows: Rows, configs: Sequence[Config]) -> NDArray[np.int64]:
        """In how many knobs each row differs from the most similar of some configurations of this space."""
        known = [codes for config in configs if (codes := self._encoder.codes(config)) is not None]
        found: NDArray[np.int64] = np.min([(rows.codes != codes).sum(1) for codes in known], axis=0)
        return found

    def _choose(
        self, model: Surrogate, answers: Sequence[Answer], good: Sequence[Config], rows: Rows, acquisition: Floats
    ) -> tuple[int, dict[str, Any]]:
        """The row of the candidate to propose, and why."""
        origin: dict[str, Any] = {}
        if self._options.orchestrator and good:
            arm = self._arms.choose(model, answers)
            origin = {"arm": arm.value, "base": good[0].key}
            if arm is Arm.DENSE:
                near = np.flatnonzero(self._apart(rows, good[:1]) <= 2)
                if len(near):
                    return int(near[np.argmax(acquisition[near])]), origin
        if not self._options.tree:
            return int(np.argmax(acquisition)), origin
        index, ordering = self._arms.ordering(model, answers)
        origin |= {"tree": index, "ordering": list(ordering)}
        columns = np.array([self._encoder.names.index(name) for name in ordering if name in self._encoder.names], dtype=np.int64)
        return guided(rows.codes, acquisition, columns, model.rows.codes, rewards(model.targets)), origin

    def _climb(
        self, model: Surrogate, pool: Candidates, config: Config, value: float, taken: set[Config], step: int, rate: float
    ) -> Config:
        """Uphill on the acquisition by single moves: a sample seldom holds its peak."""
        for _ in range(CLIMBS):
            near, rows = pool.around(config)
            free = [index for index, other in enumerate(near) if other not in taken]
            if not free:
                break
            values = _acquisition(model, rows.take(free), step, rate)
            best = int(np.argmax(values))
            if values[best] <= value * 1.0001:
                break
            config, value = near[free[best]], float(values[best])
        return config

    def _starter(
        self, pool: Candidates, given: Config, answers: Sequence[Answer], waiting: Sequence[Config], taken: set[Config]
    ) -> Config | None:
        """The default; then what was best on similar tasks; then the farthest from all that is known, within what `CAREFUL` allows.

        With a simulator only the default, which a study measures first in any case: it knows better than chance where to begin.
        """
        default = self._space.project(self._space.default(), given)
        for wish in (default, *(self._belief.best if self._prior is None else ())):
            config = self._space.project(wish, given)
            if config not in taken and (pool.whole or not self._options.sparse_only) and pool.holds(config):
                return config
        if self._prior is not None:
            return None
        free = pool.free(taken)
        if not len(free):
            return None if pool.whole else pool.rest(taken, len(taken))
        worked = [answer.config for answer in answers if not answer.failed]
        if len(worked) < len(answers) and default in worked:
            near = free[self._apart(pool.rows.take(free), worked) <= CAREFUL]
            free = near if len(near) else free
        rng = stream(self._seed, "hybrid", "start", len(answers) + len(waiting))
        drawn = rng.choice(free, size=min(len(free), STARTERS), replace=False)
        known = self._encoder.rows([*(answer.config for answer in answers), *waiting]).plain
        here = pool.rows.plain[drawn]
        apart = ((here[:, None, :] - known[None, :, :]) ** 2).sum(2).min(1) if len(known) else np.zeros(len(here))
        return pool.configs[int(drawn[np.argmax(apart)])]

    def _proposal(self, config: Config, why: dict[str, Any]) -> Proposal:
        return Proposal(config=config, origin=Origin(by="hybrid", notes={"key": config.key, **why}))


def _acquisition(model: Surrogate, rows: Rows, step: int, rate: float) -> Floats:
    """What each row promises."""
    return _promises(model, *model.predict(rows), model.chance(rows), step, rate)


def _promises(model: Surrogate, mean: Floats, spread: Floats, chance: Floats, step: int, rate: float) -> Floats:
    """Expected improvement times chance of success; what may well fail comes last once the budget of failures is spent."""
    found: Floats = expected_improvement(mean, spread, model.best) * chance ** (1.0 + len(model.rows) / CAUTION)
    safe = chance >= max(SAFE, 1.0 - 1.5 * rate)
    return np.where(safe, found, UNSAFE * found) if safe.any() and _failed_enough(model, step, rate) else found


def _promising(model: Surrogate, rows: Rows) -> bool:
    """Whether any row is worth a trial, failure or not."""
    chance = model.chance(rows)
    promise = expected_improvement(*model.predict(rows), model.best) * chance ** (1.0 + len(model.rows) / CAUTION) * model.unit
    return bool((promise >= SLIGHT).any())


def _failed_enough(model: Surrogate, step: int, rate: float) -> bool:
    """Whether the budget of failures is spent.

    Improvement fades exponentially where much is known and the chance of success does not, so that in the end only failures would
    look promising. So failures have a budget: some to learn from, then a share of what random candidates would cost.

    Args:
        model: Knows how many failed.
        step: Steps taken.
        rate: Share of failures that random candidates would have.
    """
    return step % max(1, round(DARE / rate)) != 0 and model.failures > 1.0 + rate * (LESSONS * rate + DARING * step)
