from __future__ import annotations

from pathlib import Path

import pytest

from autoscout.core.errors import ConfigError, SpaceError
from autoscout.study.campaign import build_campaign, campaign_schema, duration_s, read_campaign


@pytest.mark.parametrize(
    ("text", "seconds"), [(90, 90.0), ("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("1.5 h", 5400.0), ("1d", 86400.0)]
)
def test_durations(text: object, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "10 parsecs", "m10", "1h-", "-5m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="a duration reads like"):
        duration_s(text)


def test_yaml_round_trip(tmp_path: Path) -> None:
    first = build_campaign(
        {"system": "command", "budget": {"wall": "10m"}, "goal": {"slo": ["a<=1"]}, "set": {"x": 1, "on": True}}, where="test"
    )
    (tmp_path / "c.yaml").write_text(first.to_yaml())
    assert read_campaign(tmp_path / "c.yaml") == first
    assert "search" not in first.to_yaml(), "blocks at their defaults are left out"


def test_text_that_looks_like_a_number_stays_text(tmp_path: Path) -> None:
    values = ["1e-5", "12E3", "on", "2024-01-02", "0x1f", "1_000", "null", "0.5", "ünï", ""]
    first = build_campaign({"system": "command", "workload": {"values": values, "same": values}}, where="test")
    (tmp_path / "c.yaml").write_text(first.to_yaml(), encoding="utf-8")
    assert read_campaign(tmp_path / "c.yaml") == first


def test_faults_point_at_the_line_and_flags_at_their_block(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("system: command\nsearch:\n  seed: one\n")
    with pytest.raises(ConfigError) as caught:
        read_campaign(path, lambda data: {**data, "finals": {"rounds": -1}})
    assert [(fault.where, fault.field) for fault in caught.value.faults] == [(f"{path}:3", "search.seed"), (str(path), "finals.rounds")]


def test_a_final_is_bounded() -> None:
    with pytest.raises(ConfigError, match=r"finals.rounds: must be at most 1000"):
        build_campaign({"system": "command", "finals": {"rounds": 100_000_000}}, where="test")


def test_a_key_that_stands_twice(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("system: command\nbudget: {trials: 3}\nbudget: {trials: 30}\n")
    with pytest.raises(ConfigError, match=r"c\.yaml:3: budget: the key is there twice"):
        read_campaign(path)


def test_the_space_block_reports_its_own_lines_and_sees_facts_of_the_hardware(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "system: command\nhardware: {gpus: 4}\nspace:\n  knobs:\n    tp: {values: [1, 2, 4]}\n  constraints:\n    - tp <= gpsu\n"
    )
    with pytest.raises(SpaceError, match=r"c\.yaml:7"):
        read_campaign(path).declared_space()
    path.write_text(path.read_text().replace("gpsu", "gpus // 2"))
    declared = read_campaign(path).declared_space()
    assert declared is not None
    assert declared.count().value == 2


def test_the_schema_names_every_block() -> None:
    schema = campaign_schema()
    assert {"system", "workload", "goal", "budget", "space", "search", "finals"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False
