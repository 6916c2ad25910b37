from __future__ import annotations

import numpy as np
import pytest

from autosched.tune.causal.model import CausalModel
from autosched.tune.search import SearchOptions, search
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Infeasible
from autoscout.core.task import Direction, Limit, Objective
from autoscout.space import Choice, Grid, Space

SPACE = Space(
    [Grid("x", 0, 60, default=30), Grid("y", 0, 60, default=30), Choice("kind", ["plain", "bad"]), Grid("nothing", 0, 20, default=4)]
)
TIME = Objective(metric="time_s")


def ask(config: Config) -> dict[str, float]:
    x, y = float(config["x"]), float(config["y"])  # type: ignore[arg-type]
    queue = 50.0 + 0.05 * (x - 45) ** 2 + 0.05 * (y - 15) ** 2 + 40.0 * (config["kind"] == "bad")
    return {"queue_s": queue, "time_s": 100.0 + queue}


def model(known: int = 120) -> CausalModel:
    made = CausalModel(SPACE, ("queue_s",), "time_s")
    rng = np.random.default_rng(3)
    configs = [config for config in (SPACE.sample(rng) for _ in range(known)) if config is not None]
    made.add([(config, ask(config)) for config in configs], ask(SPACE.default()))
    made.learn(resamples=4)
    return made


@pytest.mark.parametrize("searcher", ["bluefin", "hybrid", "coordinate", "random"])
def test_any_searcher_finds_better_settings_and_never_worse(searcher: str) -> None:
    found = search(SPACE, ask, TIME, SPACE.default(), SearchOptions(searcher=searcher, trials=30))
    assert found.metrics["time_s"] <= found.start["time_s"] == ask(SPACE.default())["time_s"]
    assert found.metrics["time_s"] < 165
    assert found.metrics == ask(found.best)
    assert found.rejected == 0


def test_predicted_bad_ones_are_not_simulated_at_equal_quality() -> None:
    asked: list[Config] = []

    def counted(config: Config) -> dict[str, float]:
        asked.append(config)
        return ask(config)

    plain = search(SPACE, counted, TIME, SPACE.default(), SearchOptions(trials=40, reject=0.0, scope=False))
    without = len(asked)
    asked.clear()
    found = search(SPACE, counted, TIME, SPACE.default(), SearchOptions(trials=40, reject=1.0, first=0, scope=False), model())
    assert found.rejected > 8
    assert len(asked) == without - found.rejected
    assert found.metrics["time_s"] <= 1.05 * plain.metrics["time_s"]
    assert sum(config["kind"] == "bad" for config in asked) < 8


def test_the_first_ones_are_never_rejected() -> None:
    found = search(SPACE, ask, TIME, SPACE.default(), SearchOptions(trials=12, reject=1.0, relax=100.0, first=5, scope=False), model())
    assert len(found.runs) == 1 + 5
    assert found.rejected == 7


def test_a_better_configuration_is_never_taken_for_bad() -> None:
    """Rewards are ratios above zero: the published rule with negative rewards would reject what beats the best."""
    known = model(400)
    best = min(
        (config for config, _ in search(SPACE, ask, TIME, SPACE.default(), SearchOptions(searcher="random", trials=60)).runs),
        key=lambda c: ask(c)["time_s"],
    )
    found = search(
        SPACE, ask, TIME, best, SearchOptions(searcher="coordinate", trials=30, reject=1.0, first=0, relax=0.95, scope=False), known
    )
    assert found.metrics["time_s"] <= ask(best)["time_s"]


def test_knobs_without_effect_are_frozen() -> None:
    found = search(SPACE, ask, TIME, SPACE.default(), SearchOptions(trials=30, reject=0.0), model())
    assert found.frozen.get("nothing", 0) > 0
    assert found.frozen.get("nothing", 0) >= found.frozen.get("x", 0)


def test_failures_and_limits_are_survived() -> None:
    def fragile(config: Config) -> dict[str, float]:
        if float(config["x"]) > 40:  # type: ignore[arg-type]
            raise Infeasible("jobs never end")
        return ask(config)

    found = search(SPACE, fragile, TIME, SPACE.default(), SearchOptions(trials=25))
    assert float(found.best["x"]) <= 40  # type: ignore[arg-type]
    guarded = Objective(metric="share", direction=Direction.MAXIMIZE, limits=(Limit(metric="time_s", op="<=", value=170.0),))

    def shared(config: Config) -> dict[str, float]:
        metrics = ask(config)
        return {**metrics, "share": float(config["y"]) / 60}  # type: ignore[arg-type]

    found = search(SPACE, shared, guarded, Config(x=45, y=15, kind="plain", nothing=4), SearchOptions(trials=40, reject=0.0))
    assert found.metrics["time_s"] <= 170.0
    assert found.metrics["share"] > 0.25


def test_equal_seeds_equal_searches() -> None:
    one, other = (search(SPACE, ask, TIME, SPACE.default(), SearchOptions(trials=15, seed=4), model()) for _ in range(2))
    assert one.runs == other.runs


def test_wrong_options_are_refused_together() -> None:
    with pytest.raises(ConfigError) as caught:
        SearchOptions(searcher="magic", trials=0, reject=2.0)
    assert len(caught.value.faults) == 3
