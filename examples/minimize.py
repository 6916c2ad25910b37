"""Tune a plain Python function over knobs that depend on each other."""

import autoscout
from autoscout import Choice, Config, Flag, Grid, Space

space = Space(
    [
        Choice("tp", [1, 2, 4, 8]),
        Choice("dp", [1, 2, 4, 8], default=8),
        Flag("sequence_parallel", when="tp > 1"),
        Grid("bucket_mb", 1, 64, log=True, default=32, when="dp > 1", unit="MB"),
    ],
    constraints=["tp * dp == gpus"],
    facts={"gpus": 8},
)


def step_time_s(config: Config) -> float:
    compute = 4.0 / config["tp"] ** 0.8 + 0.02 * config["dp"]
    if config["tp"] > 1:
        compute *= 0.95 if config["sequence_parallel"] else 1.0
    if config["dp"] > 1:
        compute += 0.01 * abs(config["bucket_mb"] - 8) / 8
    return compute


print(f"{space.count().value} valid configurations out of {4 * 4 * 2 * 7} combinations")
found = autoscout.minimize(step_time_s, space, trials=20, seed=1)
print(f"default {found.trials[0].config}: {found.trials[0].measurement.metrics['value']:.3f} s")
print(f"best    {found.best}: {found.value:.3f} s after {len(found.trials)} trials")
