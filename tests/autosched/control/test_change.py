"""Changes: written down first, checked afterwards, taken back when they did not take; and what a crash leaves is found out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _file_scheduler import START, FileScheduler

from autosched.control.change import Changer
from autosched.control.ledger import Entry, Ledger
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError

AFTER = START.extend(priority_weight_job_size=100)


@pytest.fixture
def live(tmp_path: Path) -> FileScheduler:
    return FileScheduler(tmp_path / "settings.json")


@pytest.fixture
def changer(tmp_path: Path, live: FileScheduler) -> Changer:
    return Changer(live=live, ledger=Ledger(tmp_path / "control.db", "lab"), verify_s=2.0)


def approved(changer: Changer, after: Config = AFTER) -> Entry:
    entry = Entry(at_s=changer.live.clock.now_s(), state="approved", kind="operator", before=START, after=after)
    return changer.ledger.add(entry, "decided", "")


def events(changer: Changer) -> list[str]:
    return [line[3] for line in changer.ledger.log()]


def test_a_change_that_takes(changer: Changer, live: FileScheduler) -> None:
    made = changer.make(approved(changer))
    assert made.state == "applied"
    assert live.running == AFTER
    assert events(changer) == ["decided", "intent", "applied"], "the intent is written before the change"
    assert changer.ledger.entry(made.id).diff


def test_one_that_is_refused_is_taken_back(changer: Changer, live: FileScheduler) -> None:
    live.refuses = True
    first = live._reload

    def refuse_once() -> None:
        try:
            first()
        finally:
            live.refuses = False

    live._reload = refuse_once  # type: ignore[method-assign]
    made = changer.make(approved(changer))
    assert made.state == "failed"
    assert "refused" in made.why
    assert live.running == START
    assert Config(json.loads(live.path.read_text())) == START


def test_a_scheduler_that_keeps_reporting_old_settings(changer: Changer, live: FileScheduler) -> None:
    live.deaf = True
    made = changer.make(approved(changer))
    assert made.state == "failed"
    assert "reports other settings" in made.why
    assert live.reloads == 2, "one attempt, and one to take it back: never again and again"


def test_a_scheduler_that_does_not_answer_is_asked_before_anything_else(changer: Changer, live: FileScheduler) -> None:
    entry = approved(changer)
    real = live.apply

    def dies(plan: object) -> None:
        live.path.write_text(plan.data["new"])  # type: ignore[attr-defined]
        live.down = True
        live._answer()

    live.apply = dies  # type: ignore[method-assign, assignment]
    made = changer.make(entry)
    assert made.state == "unsure"
    live.apply = real  # type: ignore[method-assign]
    assert [entry.id for entry in changer.reconcile()] == [made.id], "still nobody answers"
    assert events(changer).count("unsure") == 1, "said once"
    live.down = False
    live.running = AFTER  # it came back with the new file
    assert changer.reconcile() == []
    assert live.running == START
    assert changer.ledger.entry(made.id).state == "failed"


@pytest.mark.parametrize(
    ("stored", "running", "state", "left"),
    [
        (START, START, "failed", START),  # killed before the file was written
        (AFTER, START, "failed", START),  # between the file and the reconfigure
        (AFTER, AFTER, "applied", AFTER),  # after it, before it was written down
        (START, AFTER, "failed", START),  # in the middle of taking it back
    ],
)
def test_what_a_crash_left(changer: Changer, live: FileScheduler, stored: Config, running: Config, state: str, left: Config) -> None:
    plan = live.plan(AFTER)
    entry = changer.ledger.move(approved(changer), "applying", 0.0, "intent", "", plan=dict(plan.data))
    live.path.write_text(plan.data["new" if stored == AFTER else "old"])
    live.running = running
    assert changer.reconcile() == []
    assert changer.ledger.entry(entry.id).state == state
    assert live.running == left
    assert changer.reconcile() == []
    assert events(changer).count("applied") == (state == "applied"), "never twice"


def test_two_cannot_move_the_same_decision(changer: Changer) -> None:
    entry = approved(changer)
    changer.ledger.move(entry, "refused", 0.0, "refused", "")
    with pytest.raises(ConfigError, match="no longer approved"):
        changer.ledger.move(entry, "applying", 0.0, "intent", "")
    assert events(changer) == ["decided", "refused"]
