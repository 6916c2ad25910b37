"""A space as a file: on the command line and in a campaign, ours, another tool's, or in the system's own form."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from _blocks import ROOT, blocks
from _cli_program import run
from autoscout.core.errors import ConfigError, SpaceError
from autoscout.study.campaign import build_campaign, read_campaign
from autoscout.study.setup import prepare

SCOPE = {"zero_optimization": {"stage": [2, 3]}, "train_micro_batch_size_per_gpu": [1, 2], "train_batch_size": 16}


@pytest.fixture
def tuning_space(tmp_path: Path) -> Path:
    path = tmp_path / "scope.json"
    path.write_text(json.dumps(SCOPE))
    return path


def test_a_tuning_space_is_tuned_from_the_command_line(tmp_path: Path, tuning_space: Path) -> None:
    counted = run(tmp_path, "space", "count", tuning_space.name)
    answer = run(tmp_path, "tune", "deepspeed", "--space", tuning_space.name, "--hardware", "processes=2", "--dry-run", "--json")
    assert answer.returncode == 0, answer.stderr
    data = json.loads(answer.stdout)
    configs = [row["config"] for row in data["launches"]]
    assert {(config["zero_stage"], config["micro_batch"]) for config in configs} == {(2, 1), (2, 2), (3, 1), (3, 2)}
    assert counted.stdout.strip() == str(len(configs))
    assert data["campaign"]["search"]["searcher"] == "grid"


def test_the_commands_of_the_guide(tmp_path: Path, tuning_space: Path) -> None:
    (block,) = [block for block in blocks(ROOT / "docs" / "guides" / "training.md") if tuning_space.name in block.text]
    for line in block.text.splitlines():
        words = shlex.split(line)[1:]
        answer = run(tmp_path, *words, *(["--dry-run"] if words[0] == "tune" else []))
        assert answer.returncode == 0, answer.stderr


def test_a_campaign_names_a_file_as_its_space(tmp_path: Path, tuning_space: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump({"system": "deepspeed", "space": tuning_space.name}))
    campaign = read_campaign(path)
    assert campaign.space is None
    assert Path(campaign.workload["tuning_space"]).is_absolute(), "a resumed study may run in another folder"
    setup = prepare(campaign)
    assert {name for name, knob in setup.space.knobs.items() if len(knob.values) > 1} == {"zero_stage", "micro_batch"}


def test_another_system_takes_a_tuning_space_by_its_dotted_names(tuning_space: Path) -> None:
    workload = {"command": "echo --stage {zero_optimization.stage} --micro {train_micro_batch_size_per_gpu}"}
    setup = prepare(build_campaign({"system": "command", "workload": workload, "space": str(tuning_space)}, "here"))
    assert setup.space.count().value == 4


def test_a_yaml_space_keeps_its_lines_in_messages(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("space:\n  knobs:\n    x: {values: [1, 2]}\n  constraints:\n    - x < nothing\n")
    campaign = build_campaign({"system": "command", "workload": {"command": "echo {x}"}, "space": str(path)}, "here")
    with pytest.raises(SpaceError, match=r"space.yaml:5"):
        prepare(campaign)


@pytest.mark.parametrize(("text", "words"), [('{"a": 1}', "no space"), ("{", "JSON"), ("[1]", "parameters")])
def test_files_that_are_no_space_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "space.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        build_campaign({"system": "command", "space": str(path)}, "here")
