"""A searcher of your own: `ask` and `tell` are all it takes. docs/extending/searcher.md explains it and makes a package of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import autoscout
from autoscout import Config, Grid, Proposal, Space, Task, Trial
from autoscout.core.errors import require
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream


@dataclass(frozen=True, kw_only=True)
class DownhillOptions:
    """How often a random configuration is drawn before the searcher gives up."""

    draws: int = 100

    def __post_init__(self) -> None:
        require("downhill", self, {"draws": (self.draws >= 1, "must be at least 1")})


class Downhill(Searcher):
    """Walks downhill from the best configuration so far."""

    def __init__(self, space: Space, task: Task, seed: int, options: DownhillOptions | None = None) -> None:
        self.space, self.task, self.seed, self.options = space, task, seed, options or DownhillOptions()
        self.losses: dict[Config, float] = {}

    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        taken = {*self.losses, *(proposal.config for proposal in pending)}
        found: list[Config] = []
        if self.losses:
            best = min(self.losses, key=lambda config: (self.losses[config], config.canonical))
            found = [config for config in self.space.neighbours(best) if config not in taken and config.extends(given)]
        rng = stream(self.seed, "downhill", len(taken))
        for _ in range(self.options.draws):
            if len(found) >= n:
                break
            config = self.space.sample(rng, given)
            if config is not None and config not in taken and config not in found:
                found.append(config)
        return [Proposal(config=config, origin=Origin(by="downhill")) for config in found[:n]]

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            self.losses[trial.config] = self.task.objective.loss(trial.measurement)


if __name__ == "__main__":
    space = Space([Grid("x", 0, 63, default=50), Grid("y", 0, 63, default=50)])
    found = autoscout.minimize(lambda config: (config["x"] - 20) ** 2 + (config["y"] - 31) ** 2, space, trials=400, searcher=Downhill)
    print(f"{found.best} has {found.value:g}, after {len(found.trials)} of {space.count().value} configurations")
