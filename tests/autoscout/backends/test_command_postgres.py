"""recipes/postgres.yaml against a real PostgreSQL, with a tiny budget."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from _postgres import missing
from autoscout.common.files import let_others_enter
from autoscout.report.publish import publish
from autoscout.study.assemble import run
from autoscout.study.campaign import read_campaign
from autoscout.study.folder import Folder
from autoscout.study.setup import prepare

RECIPE = Path(__file__).parents[3] / "recipes" / "postgres.yaml"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Root's PostgreSQL runs as another user, whom pytest does not let into its folders."""
    with tempfile.TemporaryDirectory(prefix="autoscout-pg-") as name:
        let_others_enter(Path(name))
        yield Path(name)


def tiny(data: Mapping[str, Any]) -> dict[str, Any]:
    pinned = {"full_page_writes": "on", "wal_compression": "off", "random_page_cost": 4.0, "effective_io_concurrency": 1}
    facts = {"scale": 1, "clients": 2, "seconds": 1}
    more = {"search": {"warm_start": False}, "finals": {"rounds": 0}, "measure": {"dirty_repeats": 0}}
    return {**data, "budget": {"trials": 3}, "set": pinned, "workload": {**data["workload"], "facts": facts}, **more}


def test_the_recipe_is_complete() -> None:
    setup = prepare(read_campaign(RECIPE))
    assert len(setup.space.knobs) == 10
    unsafe = {name for name, knob in setup.space.knobs.items() if knob.warning}
    assert unsafe == {"synchronous_commit", "full_page_writes"}
    launch = setup.backend.render(setup.default, setup.task, 0)
    assert "shared_buffers = 128MB\n" in str(launch.files["tuned.conf"])


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing() or "-")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv (util-linux)")
def test_a_small_study_of_a_real_server(open_folder: Path) -> None:
    setup = prepare(read_campaign(RECIPE, tiny))
    outcome = publish(run(setup, Folder(open_folder / "results" / setup.name)))
    assert [trial.measurement.reason for trial in outcome.trials if not trial.ok] == []
    assert len(outcome.trials) == 3
    for trial in outcome.trials:
        assert trial.measurement.metrics["tps"] > 0
        assert trial.measurement.metrics["latency_ms"] > 0
    assert list(open_folder.glob("**/data")) == [], "the databases are gone"
    assert outcome.folder is not None
    best = outcome.folder.best
    assert f"shared_buffers = {outcome.summary.answer['shared_buffers_mb']}MB" in (best / "tuned.conf").read_text()
    assert json.loads((best / "gain.json").read_text())["contributions"] == []
