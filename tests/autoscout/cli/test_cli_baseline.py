"""`--baseline` and `--from` from the command line, without an engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from _cli_program import campaign, run
from autoscout.backends.llamacpp.model import ensure_model
from autoscout.space import Choice, Flag, Grid, Space
from autoscout.study.campaign import Campaign
from autoscout.study.own import Own, backend_of


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_model("random-tiny", "f16", tmp_path_factory.mktemp("models"))


def launches(here: Path, *arguments: object) -> list[tuple[str, dict[str, object]]]:
    done = run(here, "tune", *arguments, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    return [(launch["by"], launch["config"]) for launch in json.loads(done.stdout)["launches"]]


def test_a_study_of_a_command_measures_it(tmp_path: Path) -> None:
    done = run(tmp_path, "tune", campaign(tmp_path, baseline={"x": 2}), "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "autoscout_results/numbers/trials.jsonl").read_text().splitlines()]
    by = [row["origin"].get("by") for row in rows if "origin" in row]
    assert by[:2] == ["default", "baseline"]
    told = run(tmp_path, "explain", "autoscout_results/numbers")
    assert "baseline" in told.stdout
    resumed = run(tmp_path, "resume", "autoscout_results/numbers", "--max-trials", 7, "--json")
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.parametrize(
    "written",
    [["--baseline", "x=4,y=2"], ["--baseline", "x=4", "--baseline", "y=2"], ["--baseline", "mine.yaml"], ["--baseline", "mine.json"]],
)
def test_it_is_given_as_knobs_or_as_a_file(tmp_path: Path, written: list[str]) -> None:
    (tmp_path / "mine.yaml").write_text("x: 4\ny: 2\n")
    (tmp_path / "mine.json").write_text('{"x": 4, "y": 2}')
    order = launches(tmp_path, campaign(tmp_path, first=[{"x": 1}]), *written)
    assert order[:3] == [("default", {"x": 0, "y": 0}), ("baseline", {"x": 4, "y": 2}), ("given", {"x": 1, "y": 0})]


def test_the_stored_campaign_needs_no_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("x: 4\n")
    run(tmp_path, "tune", campaign(tmp_path), "--baseline", "mine.yaml", "--max-trials", 2, "--rounds", 0)
    (tmp_path / "mine.yaml").unlink()
    kept = yaml.safe_load((tmp_path / "autoscout_results/numbers/campaign.yaml").read_text())
    assert kept["baseline"] == {"x": 4}
    assert run(tmp_path, "report", "autoscout_results/numbers").returncode == 0


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (["--baseline", "x=4", "--set", "x=1"], "the baseline has 4 (found 1). Leave one of the two out"),
        (["--baseline", "xx=4"], "there is no such knob"),
        (["--baseline", "x=4", "--baseline", "mine.yaml"], "must read KNOB=VALUE where --baseline is given several times"),
        (["--baseline", "mine.yaml"], "there is no such file"),
        (["--baseline", "python train.py --lr 1"], "does not read launches"),
        (["--from", "python train.py"], "does not read launches"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, written: list[str], message: str) -> None:
    done = run(tmp_path, "tune", campaign(tmp_path), *written, "--dry-run")
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_a_launch_becomes_a_study(tmp_path: Path, model: Path) -> None:
    command = f"llama-server -m {model} -t 2 -np 2 --port 80"
    done = run(tmp_path, "tune", "--from", command, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["campaign"]["system"] == "llamacpp"
    assert plan["campaign"]["workload"]["model"] == str(model)
    assert plan["campaign"]["baseline"] == {"threads": 2, "parallel": 2, "threads_batch": 2, "kv_unified": False}
    assert "from" not in plan["campaign"]
    assert [launch["by"] for launch in plan["launches"][:2]] == ["default", "baseline"]
    assert plan["launches"][1]["config"]["parallel"] == 2


def test_what_a_launch_leaves_out_is_said_once(tmp_path: Path, model: Path) -> None:
    done = run(tmp_path, "tune", "--from", f"llama-server -m {model} --port 80", "--dry-run")
    assert done.stderr.count("Your launch: --port changes no speed") == 1


def test_a_launch_in_a_file_and_in_a_campaign(tmp_path: Path, model: Path) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/sh\nexec llama-server -m {model} -np 2\n")
    (tmp_path / "mine.yaml").write_text("system: llamacpp\nfrom: run.sh\n")
    by_flag = launches(tmp_path, "llamacpp", "--from", "run.sh")
    assert by_flag[:2] == launches(tmp_path, "mine.yaml")[:2]
    assert by_flag[1][1]["parallel"] == 2


def test_a_launch_and_the_rest_must_not_contradict(tmp_path: Path, model: Path) -> None:
    command = f"llama-server -m {model} -np 2"
    done = run(tmp_path, "tune", "llamacpp", "--model", "other.gguf", "--set", "parallel=4", "--from", command, "--dry-run")
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert f"workload: model: the launch of `from` has '{model}' (found 'other.gguf')" in said
    assert "set: parallel: the launch of `from` has 2 (found 4)" in said


def test_a_baseline_of_another_model_is_refused_with_both(tmp_path: Path, model: Path) -> None:
    command = f"llama-server -m {tmp_path / 'other.gguf'} -np 2"
    (tmp_path / "other.gguf").write_bytes(model.read_bytes())
    done = run(tmp_path, "tune", "llamacpp", "--model", model, "--baseline", command, "--dry-run")
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert str(model) in said
    assert str(tmp_path / "other.gguf") in said
    same = launches(tmp_path, "llamacpp", "--model", model, "--baseline", f"llama-server -m {model} -np 2")
    assert same[1][0] == "baseline"
    assert same[1][1]["parallel"] == 2


def test_render_shows_the_launch_and_lays_pins_over_it(tmp_path: Path, model: Path) -> None:
    command = f"llama-server -m {model} -np 2"
    shown = json.loads(run(tmp_path, "render", "--from", command, "--json").stdout)
    assert shown["config"]["parallel"] == 2
    shown = json.loads(run(tmp_path, "render", "llamacpp", "--from", command, "--set", "parallel=4", "--json").stdout)
    assert shown["config"]["parallel"] == 4


def test_the_space_of_a_launch(tmp_path: Path, model: Path) -> None:
    shown = run(tmp_path, "space", "show", "--from", f"llama-server -m {model} -np 2", "--json")
    assert json.loads(shown.stdout)["knobs"]["parallel"]["default"] != 2


def test_a_target_or_a_launch_is_needed(tmp_path: Path) -> None:
    done = run(tmp_path, "tune")
    assert done.returncode == 2
    assert "Give a backend" in done.stderr
    done = run(tmp_path, "tune", "--from", "sleep 3")
    assert done.returncode == 2
    assert "no backend takes it for a launch of its system" in done.stderr


def test_values_beyond_the_usual_ones_are_taken_as_they_are(tmp_path: Path, model: Path) -> None:
    command = f"llama-server -m {model} -t 64 -ub 7 -ctk q8_0 --poll 0"
    done = run(tmp_path, "tune", "--from", command, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    first, second = (launch["config"] for launch in plan["launches"][:2])
    assert (second["threads"], second["ubatch"], second["cache_type_k"]) == (64, 7, "q8_0")
    assert first["cache_type_k"] == "q8_0", "a cache that changes answers holds in every configuration"
    assert first["ubatch"] != 7


def test_what_the_task_has_no_knob_for_is_left_out() -> None:
    space = Space([Flag("fast"), Grid("depth", values=[1, 2], when="fast"), Choice("mode", ["a", "b"])])
    campaign = Campaign(system="toy", baseline={"depth": 2, "mode": "b", "other": 1})
    own = Own(campaign, ("--port changes nothing.",), is_launch=True).settled(space, space.default())
    assert own.campaign.baseline == {"mode": "b"}
    assert own.left_out == ("--port changes nothing.", "depth=2 has no effect with the rest.", "other=1 is no knob here.")


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("vllm serve llama-3.1-8b --max-num-seqs 12", "vllm"),
        ("python -m sglang.launch_server --model-path llama-3.1-8b", "sglang"),
        ("torchrun --nproc-per-node 2 train.py --lr 1", "pytorch"),
        ("torchrun pretrain_gpt.py --num-layers 2", "megatron"),
        ("llama-server -m model.gguf", "llamacpp"),
    ],
)
def test_the_backend_is_the_one_that_knows_the_launch(text: str, system: str) -> None:
    assert backend_of(text) == system
