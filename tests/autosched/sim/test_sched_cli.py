from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autosched.cli.verbs import app
from autoscout.core.errors import ConfigError

SYNTHETIC = "synthetic:philly:300:1:3"


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_simulate_writes_everything(tmp_path: Path) -> None:
    table, picture = tmp_path / "jobs.csv", tmp_path / "run.svg"
    found = json.loads(
        run(
            *("simulate", "--trace", SYNTHETIC, "--cluster", "16x8", "--scheduler", "tiresias"),
            *("--set", "queues=3", "--set", "threshold=240", "--by", "size", "--output", str(table), "--plot", str(picture), "--json"),
        )
    )
    assert found["config"]["queues"] == 3
    assert found["metrics"]["ended"] == 300
    assert sum(part["jobs"] for part in found["by"].values()) == 300
    assert len(table.read_text().splitlines()) == 301
    assert picture.read_text().startswith("<svg")


def test_tune_pins_and_improves(tmp_path: Path) -> None:
    question = ("tune", "--trace", SYNTHETIC, "--cluster", "4x8", "--trials", "6", "--seed", "1", "--set", "priority=service")
    found = json.loads(run(*question, "--workers", "2", "--output-dir", str(tmp_path), "--json"))
    assert found["task"]["objective"]["metric"] == "mean_jct_s"
    assert {found[who]["config"]["priority"] for who in ("default", "best")} == {"service"}
    assert found["best"]["metrics"]["mean_jct_s"] == found["best"]["value"]


def test_tune_upwards(tmp_path: Path) -> None:
    question = ("tune", "--trace", SYNTHETIC, "--cluster", "4x8", "--scheduler", "themis", "--trials", "4", "--metric", "fair_share")
    found = json.loads(run(*question, "--output-dir", str(tmp_path), "--json"))
    assert found["task"]["objective"]["direction"] == "maximize"


def test_traces_go_round(tmp_path: Path) -> None:
    whole, part = str(tmp_path / "t.csv.gz"), str(tmp_path / "part.csv")
    assert "200 jobs" in run("trace", "generate", whole, "--profile", "venus", "--jobs", "200", "--days", "2", "--seed", "5")
    assert json.loads(run("trace", "describe", whole, "--json"))["jobs"] == 200
    run("trace", "slice", whole, part, "--from", "2019-12-30", "--to", "2019-12-31")
    sliced = json.loads(run("trace", "describe", part, "--json"))
    assert 0 < sliced["jobs"] < 200
    run("trace", "convert", part, str(tmp_path / "again.csv"))
    assert (tmp_path / "again.csv").read_text() == Path(part).read_text()
    run("trace", "plot", part, str(tmp_path / "t.svg"))
    assert (tmp_path / "t.svg").read_text().startswith("<svg")


def test_tables_for_people(tmp_path: Path) -> None:
    assert "tiresias" in run("list")
    assert "mean_jct_s" in run("simulate", "--trace", SYNTHETIC, "--cluster", "16x8", "--scheduler", "fifo")
    tuned = run("tune", "--trace", SYNTHETIC, "--cluster", "16x8", "--scheduler", "srtf", "--trials", "2", "--output-dir", str(tmp_path))
    assert "mean_jct_s" in tuned
    assert set(json.loads(run("list", "--json"))["themis"]["knobs"]) == {"priority", "lease_s", "fairness", "spread_above"}
    assert "median_duration_s" in run("trace", "describe", SYNTHETIC)


def test_stop_keep_resume(tmp_path: Path) -> None:
    question = ("simulate", "--trace", SYNTHETIC, "--cluster", "4x8", "--json")
    whole, kept = json.loads(run(*question)), str(tmp_path / "s.npz")
    first = json.loads(run(*question, "--until", "1577980800", "--keep", kept))
    later = json.loads(run(*question, "--snapshot", kept))
    assert 0 < first["metrics"]["ended"] < 300
    assert first["metrics"]["ended"] + later["metrics"]["ended"] == whole["metrics"]["ended"] == 300
    changes = tmp_path / "changes.yaml"
    begin = json.loads(run("trace", "describe", SYNTHETIC, "--json"))["first_arrival_s"]
    changes.write_text(f"- {{at: {begin + 3_600}, set: {{threshold: 3250}}}}\n- {{at: {begin + 43_200}, scheduler: themis}}\n")
    changed = json.loads(run(*question, "--changes", str(changes)))
    assert changed["metrics"]["ended"] == 300
    assert changed["metrics"]["mean_jct_s"] != whole["metrics"]["mean_jct_s"]
    changes.write_text("- {at: 5, set: {threshold: x}}\n- {set: {}}\n- {at: 5, scheduler: luck}\n")
    with pytest.raises(ConfigError) as caught:
        run(*question, "--changes", str(changes))
    assert len(caught.value.faults) == 3
    with pytest.raises(ConfigError, match="goes with --until"):
        run(*question, "--keep", kept)
    with pytest.raises(ConfigError, match="moment at which it was printed"):
        run(*question, "--snapshot", str(changes))


def test_runs_next_to_each_other(tmp_path: Path) -> None:
    page = tmp_path / "runs.svg"
    wanted = ("fifo", "tiresias", "tiresias:threshold=20000,queues=2")
    found = json.loads(run("compare", "--trace", SYNTHETIC, "--cluster", "4x8", "--page", str(page), "--json", *wanted))
    assert tuple(found) == wanted
    assert found[wanted[2]]["config"]["threshold"] == 20_000
    assert {metrics["metrics"]["ended"] for metrics in found.values()} == {300}
    picture = page.read_text()
    assert "GPUs of the cluster" in picture
    assert "3 runs on 4x8" in picture
    assert "fragmentation" in run("compare", "--trace", SYNTHETIC, "--cluster", "16x8", "fifo", "sjf")
    for arguments, words in ((("luck",), "no such scheduler"), (("fifo", "--page", "x.png"), "must end in .svg")):
        with pytest.raises(ConfigError, match=words):
            run("compare", "--trace", SYNTHETIC, "--cluster", "16x8", *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "queue=3", "--set", "threshold=abc"), ("KNOB=VALUE", "knobs.threshold")),
        (("--by", "moon"), ("vc or size",)),
        (("--plot", "run.png"), ("must end in .svg",)),
        (("--from", "yesterday"), ("seconds or a date",)),
        (("--from", "2050-01-01"), ("no job is left",)),
        (("--set", "threshold=240", "--set", "queues=1"), ("threshold",)),
    ],
)
def test_bad_flags_are_explained(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        run("simulate", "--trace", SYNTHETIC, "--cluster", "16x8", *arguments)
    assert all(word in str(caught.value) for word in words)


def test_bad_synthetic_names() -> None:
    with pytest.raises(ConfigError, match="synthetic:PROFILE"):
        run("trace", "describe", "synthetic:philly:many")
    with pytest.raises(ConfigError, match="must be one of philly"):
        run("trace", "describe", "synthetic:atlantis")
    with pytest.raises(ConfigError, match="no such metric"):
        run("tune", "--trace", SYNTHETIC, "--cluster", "16x8", "--metric", "beauty")
