"""Rules as data, and DeepSpeed's own."""

from __future__ import annotations

from typing import Any

import pytest

from autoscout.core.errors import ConfigError
from autoscout.search.grid.rules import BUILT_IN, Rule


@pytest.mark.parametrize(
    ("wanted", "found", "holds"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (True, 1, False),
        ("adam", "Adam", True),
        ([1, 2], 2, True),
        ([1, 2], 3, False),
        ({"present": True}, 0, True),
        ({"present": True}, None, False),
        ({"present": False}, 0, False),
        ({"not": 1}, 2, True),
        ({"not": [1, 2]}, 2, False),
        ({"min": 2}, 2, True),
        ({"min": 2}, 1.9, False),
        ({"max": 2}, 3, False),
        ({"min": 0}, True, False),
        ({"min": 0}, "5", False),
        (None, None, True),
    ],
)
def test_tests(wanted: Any, found: Any, holds: bool) -> None:
    assert Rule(name="r", need={"a.b": wanted}).holds({"a": {"b": found}}) is holds


@pytest.mark.parametrize(("wanted", "holds"), [(1, False), ({"present": False}, True), ({"not": 1}, True), ({"min": 0}, False)])
def test_a_path_that_is_not_there(wanted: Any, holds: bool) -> None:
    rule = Rule(name="r", need={"a.b.c": wanted})
    assert all(rule.holds(tree) is holds for tree in ({}, {"a": 1}, {"a": {"b": {}}}, {"a": {"x": 1}}))


def test_when_all_conditions_match_the_needs_count() -> None:
    rule = Rule(name="r", when={"a": 1, "b.c": [2, 3]}, need={"d": {"present": True}})
    assert rule.holds({"a": 1, "b": {"c": 4}})
    assert not rule.holds({"a": 1, "b": {"c": 3}})
    assert rule.holds({"a": 1, "b": {"c": 3}, "d": {}})
    assert rule.paths == ("a", "b.c", "d")


def test_names_with_dots_are_found() -> None:
    assert Rule(name="r", need={"a.b": 1}).holds({"a.b": 1})
    assert Rule(name="r", need={"a.b.c": 1}).holds({"a.b": {"c": 1}})


def test_broken_rules_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Rule(name="r", when={"a": {"above": 1}, "b": {"min": 1, "max": 2}}, need={})
    assert len(caught.value.faults) == 3


def config(stage: int, **more: Any) -> dict[str, Any]:
    optimizer, root = more.pop("optimizer", None), more.pop("root", {})
    return {"zero_optimization": {"stage": stage, **more}, **({"optimizer": {"type": optimizer}} if optimizer else {}), **root}


@pytest.mark.parametrize(
    ("tree", "broken"),
    [
        (config(0), None),
        (config(1, offload_optimizer={"device": "cpu"}), None),
        (config(2, offload_optimizer={"device": "none"}), None),
        (config(2, offload_optimizer={"device": "cpu"}), "zero-offload-optimizer-needs-native-optimizer"),
        (config(2, offload_optimizer={"device": "cpu"}, optimizer="SGD"), "zero-offload-optimizer-needs-native-optimizer"),
        (config(2, offload_optimizer={"device": "cpu"}, optimizer="AdamW"), None),
        (config(2, offload_optimizer={"device": "cpu"}, root={"zero_force_ds_cpu_optimizer": False}), None),
        (config(3, offload_param={"device": "cpu"}), "zero-offload-param-needs-native-optimizer"),
        (config(3, offload_param={"device": "cpu"}, optimizer="OneBitAdam"), None),
        (config(2, offload_param={"device": "cpu"}, optimizer="Adam"), "zero-offload-param-needs-stage-3"),
        (config(2, cpu_offload=True), "zero-cpu-offload-needs-native-optimizer"),
        (config(3, offload_param={"device": "nvme"}, optimizer="Adam"), "zero-offload-param-nvme-needs-path"),
        (config(3, offload_optimizer={"device": "nvme", "nvme_path": "/nvme"}, optimizer="Adam"), None),
        (config(2, offload_optimizer={"device": "nvme", "nvme_path": "/nvme"}, optimizer="Adam"), "zero-offload-nvme-needs-stage-3"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "fp16-excludes-bf16"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": False}}, None),
        ({"tp": 4, "stage": 2}, None),
    ],
)
def test_deepspeed(tree: dict[str, Any], broken: str | None) -> None:
    found = [name for name, rule in BUILT_IN.items() if not rule.holds(tree)]
    assert found == ([broken] if broken else [])
