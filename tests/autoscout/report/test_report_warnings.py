"""What a change gives up that no metric shows stands where its gain stands."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

import autoscout
from autoscout.core.config import Config
from autoscout.report.text import verdict_panel
from autoscout.space import Choice, Flag, Grid, Space, read_space, write_space

LOSS = "durability: a crash loses the last transactions"


def space() -> Space:
    return Space([Choice("sync", ["on", "off"], help="what a commit waits for", warning=LOSS), Grid("size", 1, 4, help="of the cache")])


def speed(config: Config) -> float:
    return (1.0 if config["sync"] == "on" else 0.4) / config.whole("size")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> autoscout.Outcome:
    return autoscout.minimize(speed, space(), trials=8, folder=tmp_path_factory.mktemp("study"))


def test_every_place_that_shows_the_gain_says_what_it_gives_up(outcome: autoscout.Outcome) -> None:
    assert outcome.folder is not None
    home = outcome.folder.path
    words = f"sync=off: {LOSS}"
    assert outcome.summary.gives_up == (words,)
    for text in ((home / "report.html").read_text(), (home / "best" / "README.md").read_text()):
        assert f"gives up: {words}" in text
    assert f"WARNING: {LOSS}" in (home / "best" / "diff.txt").read_text()
    assert json.loads((home / "report.json").read_text())["gives_up"] == [words]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(verdict_panel(outcome.summary))
    assert f"gives up: {words}" in console.export_text()


def test_a_knob_that_stays_as_it_is_warns_of_nothing(outcome: autoscout.Outcome) -> None:
    pinned = autoscout.minimize(speed, space(), trials=8, given={"sync": "on"})
    assert pinned.summary.gives_up == ()


def test_a_file_keeps_the_warning(tmp_path: Path) -> None:
    knobs = Space([Flag("fast", warning="answers"), *space().knobs.values()])
    file = tmp_path / "space.yaml"
    file.write_text(write_space(knobs))
    again = read_space(file)
    assert [knob.warning for knob in again.knobs.values()] == ["answers", LOSS, ""]
