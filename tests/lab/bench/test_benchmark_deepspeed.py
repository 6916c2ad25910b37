"""The benchmark against DeepSpeed's own tuner: what AutoScout renders is what the table of measurements is asked about."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.deepspeed import SCOPE, SHARDED, TABLE, autoscout, distinct, key_of_config, key_of_file, space_setup


def test_files_and_configurations_mean_the_same_experiments() -> None:
    setup = space_setup()
    for config in setup.space.enumerate():
        file = json.loads(setup.backend.render(config, setup.task, seed=0).files["ds_config.json"])
        assert key_of_file(file) == key_of_config(config)


def test_every_experiment_of_the_space_was_measured_in_every_round() -> None:
    keys = {json.dumps(key) for key in distinct(space_setup())}
    table = json.loads(TABLE.read_text())
    assert table["scope"] == SCOPE
    assert len(table["seconds"]) >= 3
    for taken in table["seconds"]:
        assert set(taken) == keys
        assert min(taken.values()) > 0


def test_the_grid_of_a_tuning_space_runs_each_combination_once() -> None:
    rates = {key: 1.0 / (1 + number) for number, key in enumerate(distinct(space_setup()))}
    seen = autoscout(None)(SHARDED, rates, 0)
    assert len(seen) == len({key for key, _ in seen}) == 36
