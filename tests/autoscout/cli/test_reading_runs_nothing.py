"""Whoever looks at a result folder of somebody else starts nothing that it names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import autoscout
from _cli_program import run

MARKED = """
from pathlib import Path
Path({marker!r}).write_text("imported")

def f(config):
    return float(config["x"])
"""


def study_of_a_function(place: Path) -> tuple[Path, Path]:
    """A finished study of a function, and the file that says whether its module was imported since."""
    marker, module = place / "marker", place / "helper.py"
    module.write_text(MARKED.format(marker=str(marker)))
    data: dict[str, Any] = {
        "system": "function",
        "name": "shared",
        "workload": {"function": f"{module}:f"},
        "budget": {"trials": 4},
        "search": {"searcher": "random"},
        "space": {"knobs": {"x": {"range": [0, 9], "default": 5}}},
    }
    (place / "campaign.yaml").write_text(yaml.safe_dump(data))
    done = run(place, "tune", "campaign.yaml")
    assert done.returncode == 0, done.stderr
    assert marker.exists()  # `tune` does import it
    marker.unlink()
    for name in [name for name in sys.modules if name.startswith("autoscout_function_")]:
        del sys.modules[name]
    return place / "autoscout_results" / "shared", marker


READERS: list[tuple[str, ...]] = [
    ("report", "HOME"),
    ("report", "HOME", "--json"),
    ("explain", "HOME"),
    ("explain", "HOME", "--trial", "1"),
    ("compare", "HOME"),
    ("resume", "HOME", "--dry-run"),
    ("resume", "HOME", "--dry-run", "--json", "--max-trials", "9"),
    ("space", "show", "HOME/campaign.yaml"),
    ("render", "HOME/campaign.yaml", "--set", "x=3"),
]


def test_reading_a_study_imports_no_function(tmp_path: Path) -> None:
    home, marker = study_of_a_function(tmp_path)
    for words in READERS:
        done = run(tmp_path, *(word.replace("HOME", str(home)) for word in words))
        assert done.returncode == 0, (words, done.stderr)
        assert not marker.exists(), words
    autoscout.load_study(home)
    assert not marker.exists()
    assert run(tmp_path, "resume", home, "--max-trials", "6").returncode == 0
    assert marker.exists()


def test_a_report_is_made_where_the_function_is_not(tmp_path: Path) -> None:
    home, _ = study_of_a_function(tmp_path)
    (tmp_path / "helper.py").unlink()
    (home / "report.html").unlink()
    done = run(tmp_path, "report", home)
    assert done.returncode == 0, done.stderr
    assert (home / "report.html").exists()
    refused = run(tmp_path, "resume", home, "--max-trials", "9")
    assert refused.returncode == 2
    assert "cannot be loaded" in refused.stderr


def test_a_study_made_in_python_is_reported_elsewhere(tmp_path: Path) -> None:
    autoscout.minimize(lambda config: float(config["x"]), {"x": range(5)}, trials=4, folder=tmp_path / "study", seed=1)
    done = run(tmp_path, "report", tmp_path / "study")
    assert done.returncode == 0, done.stderr


SERVER = """#!/bin/sh
echo started >> {marker}
exit 1
"""


@pytest.mark.parametrize("system", ["llamacpp", "vllm", "sglang"])
def test_reading_a_study_starts_no_program_that_it_names(tmp_path: Path, system: str) -> None:
    home, marker = tmp_path / "foreign", tmp_path / "marker"
    home.mkdir()
    server = tmp_path / "llama-server"
    server.write_text(SERVER.format(marker=marker))
    server.chmod(0o755)
    own = (
        {"server": [str(server)], "model": "random-tiny"}
        if system == "llamacpp"
        else {"model": "llama-3.1-8b", "engine_command": str(server)}
    )
    (home / "campaign.yaml").write_text(yaml.safe_dump({"system": system, "name": "foreign", "workload": own}))
    (home / "trials.jsonl").touch()
    started = False
    for words in READERS:
        run(tmp_path, *(word.replace("HOME", str(home)) for word in words if word != "x=3" and word != "--set"))
        if words[0] not in ("space", "render"):  # which are asked about a campaign of one's own
            assert not marker.exists(), words
        started |= marker.exists()
        marker.unlink(missing_ok=True)
    assert started == (system == "llamacpp")  # so that it is known that others would have started it


def test_the_dashboard_shows_a_study_of_a_function_without_importing_it(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra web is not installed")
    pytest.importorskip("uvicorn", reason="the extra web is not installed")
    from _dashboard_site import Site

    sys.path.insert(0, str(Path(__file__).parents[3]))
    from benchmarks._browser import dashboard

    home, marker = study_of_a_function(tmp_path)
    with dashboard(str(home)) as (url, library):
        site = Site(url, library)
        for path in ("/", "/studies/KEY", "/studies/KEY/parts/why", "/api/studies/KEY", "/studies/KEY/trials/1"):
            assert site.ask(path)[0] == 200
    assert not marker.exists()


def test_a_dry_run_of_resume_shows_what_comes_next_and_changes_nothing(tmp_path: Path) -> None:
    home, _ = study_of_a_function(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file()}
    done = run(tmp_path, "resume", home, "--max-trials", "9", "--dry-run")
    assert "4 trials stored" in done.stderr
    after = {
        path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file() and path.name not in ("store.db-shm", "store.db-wal")
    }
    assert {path: at for path, at in before.items() if path in after} == after
