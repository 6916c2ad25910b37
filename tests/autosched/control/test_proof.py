"""What `apply` needs before it changes a cluster by itself: enough past, and a gain on orders of it that was not chosen for."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from test_controller import BEGIN_S, HOUR_S, replay

from autosched.control.decide import Proof

DAY_S = 86_400.0


def test_a_gain_that_may_be_a_loss_cannot_be_told() -> None:
    wide = Proof(gains=(0.7, 1.6, 0.8, 1.5, 0.9, 1.4), jobs=500, past_s=7 * DAY_S)
    low, high = wide.interval
    assert low < 1 < high
    doubt = wide.doubt(100, 2 * DAY_S)
    assert doubt.startswith("cannot tell")
    assert f"between {low:.3f} and {high:.3f}" in doubt
    assert "must be above 1" in doubt
    sure = Proof(gains=(1.10, 1.12, 1.11, 1.13, 1.09, 1.10), jobs=500, past_s=7 * DAY_S)
    assert sure.interval[0] > 1
    assert sure.doubt(100, 2 * DAY_S) == ""
    assert Proof(gains=(1.0,) * 6, jobs=500, past_s=7 * DAY_S).doubt(1, 1.0), "what changes nothing gains nothing"


def test_the_interval_is_students_of_the_mean() -> None:
    low, high = Proof(gains=(1.0, 1.1, 1.21), jobs=1, past_s=0.0).interval
    reach = 2.919986 * math.log(1.1) / math.sqrt(3)
    assert (math.log(low), math.log(high)) == pytest.approx((math.log(1.1) - reach, math.log(1.1) + reach), rel=1e-5)


def test_what_is_missing_is_named_all_at_once() -> None:
    doubt = Proof(gains=(), jobs=12, past_s=DAY_S).doubt(100, 3 * DAY_S)
    assert "12 jobs are known, 100 are needed (tuning.least_jobs)" in doubt
    assert "1 d 0 h of past are known, 3 d 0 h are needed (tuning.least_past)" in doubt
    assert "could not be tried" in Proof(gains=(), jobs=200, past_s=4 * DAY_S, fault="jobs never end").doubt(100, DAY_S)


@pytest.mark.parametrize("tuning", [{"least_jobs": 10**6}, {"least_past": "30d"}])
def test_with_too_little_past_nothing_is_applied(tmp_path: Path, tuning: dict[str, object]) -> None:
    controller = replay(tmp_path, "apply", tuning=tuning)
    start = controller.live.settings()
    controller.run(until_s=BEGIN_S + 4 * HOUR_S)
    assert controller.live.settings() == start
    would = [entry for entry in controller.ledger.history() if entry.state == "observed"]
    assert would, "on a busy cluster something is found"
    assert all(entry.why.startswith("cannot tell") and "needed" in entry.why for entry in would)


def test_what_is_applied_was_proven_and_what_was_not_says_why(tmp_path: Path) -> None:
    controller = replay(tmp_path, "apply", every="1h", tuning={"least_gain": 1.0, "least_share": 0.0, "draws": 2})
    proofs: dict[float, Proof] = {}
    prove = controller.adviser.proof

    def keep(*given: object) -> Proof:
        proof = prove(*given)  # type: ignore[arg-type]
        proofs[given[0].at_s] = proof  # type: ignore[attr-defined]
        return proof

    controller.adviser.proof = keep  # type: ignore[method-assign, assignment]
    controller.run(until_s=BEGIN_S + 12 * HOUR_S)
    entries = [entry for entry in controller.ledger.history() if entry.at_s in proofs and entry.kind == "hourly"]
    assert entries
    for entry in entries:
        doubt = proofs[entry.at_s].doubt(100, 2 * DAY_S)
        assert (entry.state == "observed") == bool(doubt), (entry.state, doubt)
        assert entry.why == doubt or not doubt
