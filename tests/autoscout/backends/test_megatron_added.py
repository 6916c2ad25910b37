"""Any setting of megatron-core, and any variable, as a knob of a Megatron study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from megatron_checkout import make_checkout

from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import Setup, prepare


def study(checkout: Path | None, workload: dict[str, Any] | None = None, **blocks: Any) -> Setup:
    usual: dict[str, Any] = {"model": "qwen3-30b-a3b", "global_batch": 256, "checkout": str(checkout)} if checkout else {"model": "micro"}
    hardware = {"gpus": "8xH100", "cores": 8} if checkout else {"device": "cpu", "gpus": 0, "processes": 2}
    return prepare(
        build_campaign({"system": "megatron", "workload": {**usual, **(workload or {})}, "hardware": hardware, **blocks}, where="t")
    )


def launched(setup: Setup, **changes: Any) -> tuple[str, dict[str, str]]:
    config: Config = setup.complete(changes)
    assert all(config[name] == value for name, value in changes.items())
    launch = setup.backend.render(config, setup.task, 1)
    env = json.loads(launch.files["train_input.json"])["env"]
    return " ".join([*launch.argv, *launch.files.values()]), env


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkout(tmp_path_factory.mktemp("megatron"))


def test_settings_and_variables_are_knobs(checkout: Path) -> None:
    knobs = {
        "moe_router_dtype": {"values": ["fp32", "fp64"]},
        "deterministic_mode": {},
        "algorithm": {"env": "NCCL_ALGO", "values": ["Ring", "Tree"]},
    }
    setup = study(checkout, space={"knobs": knobs})
    assert set(setup.space.choices("algorithm")) >= {"Ring", "Tree"}
    text, env = launched(setup, moe_router_dtype="fp64", deterministic_mode=True, algorithm="Tree")
    assert "--moe-router-dtype" in text
    assert "fp64" in text
    assert "--deterministic-mode" in text
    assert env["NCCL_ALGO"] == "Tree"
    text, env = launched(setup)
    assert "--moe-router-dtype" not in text
    assert "NCCL_ALGO" not in env


def test_a_setting_may_be_pinned(checkout: Path) -> None:
    text, _ = launched(study(checkout, set={"moe_router_dtype": "fp32"}))
    assert "--moe-router-dtype" in text


def test_the_users_own_flag_is_where_such_a_knob_begins(checkout: Path) -> None:
    setup = study(checkout, {"arguments": "--adam-beta2 0.95"}, space={"knobs": {"adam_beta2": {"values": [0.95, 0.99]}}})
    assert setup.default["adam_beta2"] == 0.95
    text, _ = launched(setup)
    assert text.count("--adam-beta2") == 1
    assert "0.95" in text
    text, _ = launched(setup, adam_beta2=0.99)
    assert text.count("--adam-beta2") == 1
    assert "0.99" in text


def test_the_runner_takes_them_too() -> None:
    setup = study(None, space={"knobs": {"adam_eps": {"values": [1e-8, 1e-6]}}})
    launch = setup.backend.render(setup.complete({"adam_eps": 1e-6}), setup.task, 1)
    assert json.loads(launch.files["megatron.json"])["OptimizerConfig"]["adam_eps"] == 1e-6


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        ({"space": {"knobs": {"num_layers": {"values": [1, 2]}}}}, "is part of the work"),
        ({"space": {"knobs": {"tensor_model_parallel_size": {"values": [1, 2]}}}}, "Name tp instead"),
        ({"set": {"bf16": True}}, "the knob precision stands for it"),
        ({"space": {"knobs": {"moe_router_dtpe": {"values": [1]}}}}, "moe_router_dtype"),
        ({"set": {"adam_eps": "small"}}, "takes a number"),
    ],
)
def test_what_cannot_be_a_knob_is_said(blocks: dict[str, Any], told: str, checkout: Path) -> None:
    with pytest.raises(AutoScoutError, match=told):
        study(checkout, **blocks)
