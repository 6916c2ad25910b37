"""How long a proposal of the controller lives: until it is answered, replaced by a better one, or overtaken."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

from test_controller import BEGIN_S, HOUR_S, replay, small

from autosched.control import actions
from autosched.control.controller import Controller
from autosched.control.decide import mean_interval
from autosched.control.ledger import Entry
from autosched.live_scheduler import ClusterState


def proposals(controller: Controller) -> list[Entry]:
    return [entry for entry in controller.ledger.history() if entry.kind != "operator" and (entry.changes or entry.state == "proposed")]


def test_the_same_change_keeps_its_number(tmp_path: Path) -> None:
    controller = replay(tmp_path, "propose", every="1h")
    controller.run(until_s=BEGIN_S + 8 * HOUR_S)
    decisions = [entry for entry in controller.ledger.history() if entry.kind == "hourly"]
    assert len(decisions) >= 7
    made = proposals(controller)
    assert made, "on a busy cluster something is found"
    again = [entry for entry in decisions if "still waits" in entry.words]
    assert again, "and found again"
    assert len(made) + len(again) <= len(decisions)
    for earlier, later in itertools.pairwise(made):
        assert earlier.after != later.after
        assert f"proposal {later.id}, which is better" in earlier.why
    assert made[-1].state == "proposed"


def test_one_that_waited_for_hours_can_still_be_approved(tmp_path: Path) -> None:
    controller = replay(tmp_path, "propose", every="1h")
    controller.run(until_s=BEGIN_S + 8 * HOUR_S)
    last = proposals(controller)[-1]
    actions.approve(controller.ledger, last.id, "bob", controller.live.clock.now_s())
    controller.tick()
    assert controller.ledger.entry(last.id).state in ("applied", "kept", "undone"), controller.ledger.entry(last.id).why


def test_another_one_takes_its_place_only_beyond_noise(tmp_path: Path) -> None:
    controller = replay(tmp_path, "propose", every="1h")
    seen: list[ClusterState] = []
    look = controller.live.look
    controller.live.look = lambda: seen.append(look()) or seen[-1]  # type: ignore[method-assign, func-returns-value]
    until_s = BEGIN_S
    while not proposals(controller) and until_s < BEGIN_S + 12 * HOUR_S:
        until_s += HOUR_S
        controller.run(until_s=until_s)
    first, state = proposals(controller)[0], seen[-1]
    found = controller.adviser.decide(state, controller.known(state.at_s), controller.space(state))
    assert not found.is_better_than(found.best), "not than itself"
    assert found.best != controller.space(state).default()
    assert found.is_better_than(controller.space(state).default()) == (mean_interval(found.gains)[0] > 1)
    controller._propose(replace(first, id=0, state="same"), state, found)
    assert controller.ledger.entry(first.id).state == "proposed"


def test_an_overtaken_one_ends_and_people_are_not_outvoted(tmp_path: Path) -> None:
    controller = small(tmp_path, "propose")
    controller.tick()
    now_s = controller.live.clock.now_s
    mine = actions.propose(controller.ledger, {"priority_weight_age": 7}, "ann", now_s())
    controller._propose(replace(mine, id=0, kind="hourly", by=""), controller.live.look(), None)  # type: ignore[arg-type]
    assert controller.ledger.entry(mine.id).state == "proposed", "people's proposals are theirs to withdraw"
    other = actions.propose(controller.ledger, {"priority_weight_job_size": 100}, "ann", now_s(), approved=True)
    controller.tick()
    assert controller.ledger.entry(other.id).state == "applied"
    controller.tick()
    assert "overtaken" in controller.ledger.entry(mine.id).why
    assert not controller.ledger.in_state("proposed")
