"""Adapters to other tuners: what the conformance suite, which lives in one process, cannot see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.space import Flag, Grid, Space
from autoscout_lab.configspace import write_configspace
from autoscout_lab.search.smac import SmacOptions, _drawn_lean, _known_as, _scaled

LIFE = """
import json, sys
from autoscout.core import plugins
from autoscout.testing.searcher import SPACES, TASK, configs, live
searcher = plugins.get("searcher", sys.argv[1])(SPACES["dense"](), TASK, 1)
print(json.dumps([dict(config) for batch in live(searcher, batches=int(sys.argv[2]), width=1) for config in configs(batch)]))
"""


def _life(name: str, hashes: int, proposals: int) -> list[dict[str, object]]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hashes), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LIFE, name, str(proposals)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: list[dict[str, object]] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("name", "proposals"),
    [
        ("hybrid", 18),
        ("cherrypick", 18),
        *(pytest.param(name, 18, marks=pytest.mark.adapters, id=name) for name in ("optuna-gp", "optuna-tpe", "smac")),
        *(pytest.param(name, 8, marks=pytest.mark.adapters, id=name) for name in ("ax", "openbox")),  # a second or more for a proposal
    ],
)
def test_another_process_proposes_the_same(name: str, proposals: int) -> None:
    life = _life(name, 1, proposals)
    assert len(life) == proposals
    assert _life(name, 2, proposals) == life, "a study that is resumed elsewhere must continue alike"


@pytest.mark.parametrize("losses", [[1.0, 2.0, 4.0], [-400.0, -20.0, -1.0], [0.0, 0.0, 3.0], [5.0, 5.0, 5.0], [-1e-9, 1e9, 2e9], [7.0]])
def test_costs_for_smac_keep_their_order_and_are_finite(losses: list[float]) -> None:
    scaled = _scaled(np.array(losses))
    assert np.isfinite(scaled).all()
    assert (np.diff(scaled) >= 0).all()
    assert scaled[-1] == pytest.approx(0.0)


def test_the_best_rate_is_no_outlier_to_smac() -> None:
    scaled = _scaled(-np.linspace(1000.0, 100.0, 50))  # a metric that is maximised
    steps = np.diff(scaled)
    assert steps[0] < 20 * steps[-1]


def test_smac_wants_challengers() -> None:
    with pytest.raises(ConfigError, match="challengers"):
        SmacOptions(challengers=0)


def test_smac_takes_what_it_was_not_told_the_condition_of(tmp_path: Path) -> None:
    configspace = pytest.importorskip("ConfigSpace")
    space = Space([Flag("a"), Flag("b", when="a"), Grid("c", values=[1, 2], when="(active(b) and b) if a else not active(b)")])
    export = write_configspace(space, tmp_path / "space.json")
    assert len(export.lost) == 1
    other = configspace.ConfigurationSpace.from_json(tmp_path / "space.json")
    assert dict(_known_as(Config(a=True, b=False), other)) == {"a": True, "b": False, "c": 1}
    assert dict(_known_as(Config(a=False, c=2), other)) == {"a": False, "c": 2}


def test_smac_draws_no_more_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("ConfigSpace")
    made: list[object] = []
    module = sys.modules["ConfigSpace.configuration_space"]
    make = module.Configuration
    monkeypatch.setattr(module, "Configuration", lambda *given, **named: made.append(None) or make(*given, **named))
    space = library.ConfigurationSpace({"a": [1, 2, 3, 4, 5, 6], "b": [1, 2, 3, 4, 5, 6]}, seed=1)
    forbidden = [(a, b) for a in range(1, 7) for b in range(1, a)]
    for a, b in forbidden:
        clauses = (library.ForbiddenEqualsClause(space["a"], a), library.ForbiddenEqualsClause(space["b"], b))
        space.add(library.ForbiddenAndConjunction(*clauses))
    lean = _drawn_lean(space)
    lean.seed(1)
    assert len(lean.forbidden_clauses) == 15
    drawn = lean.sample_configuration(400)
    assert len(drawn) == 400
    assert len(made) < 1000, "56 times as many would be drawn by ConfigSpace itself"
    pairs = {(config["a"], config["b"]) for config in drawn}
    assert not pairs & set(forbidden)
    assert len(pairs) == 21, "all that is allowed"
