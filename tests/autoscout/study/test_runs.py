"""How a study stands: every run notes that it began, and how it ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import autoscout
from _studies import campaign, tuned
from autoscout.core.actions import Action, ActionKind, Pulse
from autoscout.core.state import SILENT_S, State, state_of
from autoscout.core.worker import worker_identity
from autoscout.study import assemble
from autoscout.study.folder import Folder
from autoscout.study.stores import open_store

ELSEWHERE = "other-host:1:2:boot:space:machine"


def stands(place: Path, study: str) -> State:
    """How a study in a store stands now."""
    with closing(open_store(str(place), create=False)) as store:
        return state_of(store.actions(study), store.pulses()[study], time.time())


def test_a_study_that_used_its_budget_is_finished(tmp_path: Path) -> None:
    tuned(tmp_path, "whole", trials=2)
    assert stands(tmp_path / "all.db", "whole") is State.FINISHED


def test_a_study_that_somebody_stops_is_interrupted_until_it_is_resumed(tmp_path: Path) -> None:
    setup, stop = campaign(tmp_path, "stopped", trials=2), threading.Event()
    stop.set()
    assemble.run(setup, Folder(tmp_path / "stopped"), attach=lambda _: stop)
    assert stands(tmp_path / "all.db", "stopped") is State.INTERRUPTED
    assemble.run(setup, Folder(tmp_path / "stopped"))
    assert stands(tmp_path / "all.db", "stopped") is State.FINISHED


@pytest.mark.parametrize(("error", "state"), [(RuntimeError("broken"), State.FAILED), (KeyboardInterrupt(), State.INTERRUPTED)])
def test_a_run_that_raises_says_so(tmp_path: Path, error: BaseException, state: State) -> None:
    def attach(_: object) -> threading.Event:
        return _Raising(error)

    with pytest.raises(type(error)):
        assemble.run(campaign(tmp_path, "raised", trials=2), Folder(tmp_path / "raised"), attach=attach)
    assert stands(tmp_path / "all.db", "raised") is state


class _Raising(threading.Event):
    """Raises when the loop of a study looks whether it must end."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def is_set(self) -> bool:
        raise self._error


def test_a_killed_study_is_dead_until_it_is_resumed(tmp_path: Path) -> None:
    study = {
        "system": "command",
        "name": "killed",
        "workload": {"command": "sleep {nap}; echo took=1", "metrics": {"took": {"regex": "took=([0-9]+)"}}},
        "goal": {"metric": "took", "direction": "minimize"},
        "space": {"knobs": {"nap": {"values": [60], "default": 60}}},
        "store": str(tmp_path / "all.db"),
        "budget": {"trials": 1},
    }
    (tmp_path / "campaign.yaml").write_text(json.dumps(study))  # JSON is YAML
    command = [sys.executable, "-m", "autoscout", "tune", "campaign.yaml", "--json"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    place = tmp_path / "all.db"
    try:
        until(lambda: place.exists() and _has_run(place))
        assert stands(place, "killed") is State.RUNNING
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert stands(place, "killed") is State.DEAD


def _has_run(place: Path) -> bool:
    with closing(open_store(str(place), create=False)) as store:
        return any(store.actions(record.name) for record in store.studies())


def until(condition: Callable[[], bool], patience_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline_s, "it never happened"
        time.sleep(0.05)


def test_a_study_that_is_asked_and_told_is_interrupted_when_it_is_closed_early(tmp_path: Path) -> None:
    with autoscout.create_study({"x": range(9)}, trials=3, folder=tmp_path / "asked") as study:
        trial = study.ask()
        assert trial is not None
        study.tell(trial, 1.0)
    place = tmp_path / "asked" / "store.db"
    with closing(open_store(str(place), create=False)) as store:
        (record,) = store.studies()
    assert stands(place, record.name) is State.INTERRUPTED
    with autoscout.create_study({"x": range(9)}, trials=3, folder=tmp_path / "asked") as study:
        assert stands(place, record.name) is State.RUNNING
        while trial := study.ask():
            study.tell(trial, 1.0)
    assert stands(place, record.name) is State.FINISHED


def test_what_is_told_of_runs_elsewhere() -> None:
    def begun(worker: str, answer: str = "", at_s: float = 0.0) -> Action:
        return Action(kind=ActionKind.RUN, worker=worker, answer=answer, at_s=at_s)

    still = Pulse(trials=3)
    assert state_of([], Pulse(trials=0), 0.0) is State.WAITING
    assert state_of([], still, 0.0) is State.IDLE, "a store of an earlier version"
    assert state_of([begun(ELSEWHERE)], still, SILENT_S - 1) is State.RUNNING
    assert state_of([begun(ELSEWHERE)], still, SILENT_S + 1) is State.DEAD
    assert state_of([begun(ELSEWHERE)], still, SILENT_S + 1, seen_s=SILENT_S) is State.RUNNING
    assert state_of([begun(ELSEWHERE)], Pulse(trials=3, workers=(ELSEWHERE,)), SILENT_S + 1) is State.RUNNING
    ended, other = begun(ELSEWHERE, "finished: trial budget used"), begun(worker_identity(), at_s=1.0)
    assert state_of([other, ended], still, 2.0) is State.RUNNING, "one of two processes ended"
    assert state_of([begun(ELSEWHERE), ended], still, SILENT_S + 1) is State.FINISHED, "killed once, then resumed"
