from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autosched.cli.verbs import app
from autosched.live.slurm.knobs import read_settings
from autosched.tune.modes import MODES
from autoscout.core.errors import ConfigError

TRACE = ("assess", "--trace", "synthetic:philly:300:3:3", "--cluster", "6x8", "--days", "0.5")


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, mode in MODES.items():
        every = mode.every_s if np.isinf(mode.every_s) else 21_600.0
        predictor = replace(mode.predictor, model="frequency")
        search = replace(mode.search, trials=5)
        monkeypatch.setitem(MODES, name, replace(mode, every_s=every, start_trials=5, search=search, predictor=predictor))


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_strategies_are_compared_and_written(tmp_path: Path) -> None:
    found = json.loads(run(*TRACE, "--mode", "fixed-history", "--mode", "paper", "--output", str(tmp_path / "out"), "--json"))
    assert [row["mode"] for row in found["strategies"]] == ["static", "fixed-history", "paper"]
    assert found["strategies"][0]["gain"] == 1.0
    assert found["recommendation"]
    assert found["settings"]["queues"]
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"report.md", "over_time.svg", "causes.svg", "causes.dot"}
    assert found["recommendation"] in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_a_table_and_a_sentence_for_people() -> None:
    told = run(*TRACE, "--mode", "default")
    assert "strategy" in told
    assert "Settings:\n  --set " in told
    assert "noise" in told


def test_an_operator_tunes_for_a_metric_of_their_own(tmp_path: Path) -> None:
    own = ("--metric", "small=mean(wait[gpus <= 2])", "--metric", "served = maximize share(wait < 600)")
    graph = (
        "--intermediate",
        "served",
        "--intermediate",
        "idle_gpus",
        "--edge",
        "queues -> served",
        "--goal",
        "small",
        "--limit",
        "served>=0.5x",
    )
    out = tmp_path / "out"
    found = json.loads(run(*TRACE, "--mode", "paper", *own, *graph, "--output", str(out), "--json"))
    rows = {row["mode"]: row for row in found["strategies"]}
    assert rows["static"]["small"] > 0
    assert 0 < rows["static"]["served"] <= 1
    assert rows["paper"]["gain"] == pytest.approx((rows["static"]["small"] + 1e-3) / (rows["paper"]["small"] + 1e-3))
    dot = (out / "causes.dot").read_text(encoding="utf-8")
    assert '"queues" -> "served"' in dot
    assert '"served" -> "small"' in dot, "from an intermediate metric to the goal"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--metric", "mean(wait)"), "NAME=FORMULA"),
        (("--metric", "a=mean(wait)", "--metric", "a=max(wait)"), "named twice"),
        (("--metric", "a=mean(wiat)"), "metrics.a: column 6.*Did you mean 'wait'"),
        (("--limit", "queue_s"), "limits: .*Example: queue_s<=600"),
        (("--metric", "a=mean(wait)", "--edge", "queues -> b"), "must end at an intermediate metric"),
        (("--mode", "magic"), "must be among"),
        (("--goal", "fame"), "must be one of time, fair"),
        (("--scheduler", "magic"), "must be one of"),
        (("--days", "2"), "need at least as many before"),
    ],
)
def test_bad_input_is_named(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(*TRACE, *arguments)


def block(report: str, language: str) -> str:
    return report.split(f"```{language}\n")[1].split("```")[0]


def test_the_report_has_the_settings_as_other_commands_take_them(tmp_path: Path) -> None:
    found = json.loads(run(*TRACE, "--mode", "fixed-history", "--output", str(tmp_path), "--json"))
    arguments = shlex.split(block((tmp_path / "report.md").read_text(encoding="utf-8"), "bash").replace("\\\n", ""))
    pairs = [text for text in arguments if text != "--set"]
    assert {text.split("=")[0] for text in pairs} == set(found["settings"])
    told = json.loads(run("simulate", *TRACE[1:5], "--scheduler", "tiresias", *arguments, "--json"))
    assert told["config"] == found["settings"], "read back as they were"


def test_the_report_has_a_fragment_of_slurm_conf(tmp_path: Path) -> None:
    found = json.loads(run(*TRACE, "--scheduler", "slurm", "--mode", "fixed-history", "--output", str(tmp_path), "--json"))
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    lines = dict(line.split("=", 1) for line in block(report, "ini").splitlines())
    read = read_settings(lines)
    said = {name: value for name, value in found["settings"].items() if name in read and f"`{name}`" not in report}
    assert {name: read[name] for name in said} == said
    assert "priority_weight_age" in said
    assert "`placement`" in report, "what slurm.conf cannot say is named"


def test_what_is_left_alone_is_recommended_with_its_own_settings(tmp_path: Path) -> None:
    found = json.loads(run(*TRACE[:-2], "--days", "0.5", "--cluster", "600x8", "--mode", "fixed-history", "--json"))
    assert found["recommendation"].startswith("Leave the default settings")
    assert found["settings"] == found["strategies"][0]["start"]


def test_the_policy_is_chosen_too_and_the_report_says_for_whom(tmp_path: Path) -> None:
    arguments = ("assess", "--trace", "synthetic:philly:600:4:3", "--cluster", "2x8", "--days", "1", "--slack", "100")
    arguments = (*arguments, "--scheduler", "fifo")
    found = json.loads(run(*arguments, "--policies", "themis, srtf", "--mode", "fixed-history", "--output", str(tmp_path), "--json"))
    assert found["scheduler"] == "fifo+themis+srtf"
    assert [row["seeds"] for row in found["strategies"]] == [1, 3]
    assert len(found["strategies"][1]["gains"]) == 3
    policy = found["settings"]["policy"]
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    command = shlex.split(block(report, "bash").replace("\\\n", ""))
    assert command[:2] == ["--scheduler", policy]
    assert json.loads(run("simulate", *arguments[1:5], *command, "--json"))["scheduler"] == policy
    assert f"{found['load']:.2f} times what the cluster can do" in report
    assert f"{found['jobs_at_start']:,} jobs in the system" in report
    assert {each["by"] for each in found["whom"]} == {"size", "user"}
    assert "| size: up to 1 GPUs |" in report
    picture = (tmp_path / "whom.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg ")
    assert picture.count("<rect") == len(found["whom"]) + 1
    assert all(each["jobs"] and each["before_s"] > 0 for each in found["whom"])


def test_an_interrupted_assessment_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autosched.tune import assess as module

    class Stopped(module.Loop):
        def run(self) -> object:
            if self._name == "default":
                raise KeyboardInterrupt
            return super().run()

    monkeypatch.setattr(module, "Loop", Stopped)
    CliRunner().invoke(app, [*TRACE, "--mode", "fixed-history", "--mode", "default", "--seeds", "1", "--output", str(tmp_path)])
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| fixed-history |" in report
    assert "| default |" not in report


def test_the_terminal_says_the_load_and_stays_narrow() -> None:
    lines = run(*TRACE, "--mode", "fixed-history", "--seeds", "2").splitlines()
    assert "The jobs of the window are" in lines[0]
    assert sum("fixed" in line for line in lines if line.startswith("│")) == 1, "a line for a strategy"


@pytest.mark.parametrize("policies", ["magic", "slurm", "tiresias"])
def test_wrong_policies_are_named(policies: str) -> None:
    with pytest.raises(ConfigError, match="--policies"):
        run(*TRACE, "--policies", policies)
