"""Losses compared with the default's: what is called wrong, and what is kept."""

from __future__ import annotations

import pytest

from autoscout.training.steps import loss_fault, work_fault

DEFAULT = [8.0, 7.0, 6.5, 6.2, 6.0, 5.9]


@pytest.mark.parametrize(
    "losses", [DEFAULT, [loss * 1.01 for loss in DEFAULT], [8.0, *(loss * 0.8 for loss in DEFAULT[1:])], DEFAULT[:3], []]
)
def test_a_run_that_learns_as_the_default_does_is_right(losses: list[float]) -> None:
    assert loss_fault(losses, DEFAULT, 0.02, 0.05) == ""


def test_a_run_that_learns_less_is_wrong() -> None:
    told = loss_fault([8.0, 7.9, 7.8, 7.7, 7.7, 7.6], DEFAULT, 0.02, 0.05)
    assert "7.667 where the default's is 6.033" in told
    assert loss_fault([8.0, 7.9, 7.8, 7.7, 7.7, 7.6], [], 0.02, 0.05) == "", "unknown without the default"


@pytest.mark.parametrize("factor", [0.0, 0.9, 1.1])
def test_the_first_loss_is_that_of_the_same_weights_on_the_same_data(factor: float) -> None:
    """Both ways: a mask that leaves tokens out makes it smaller, and looks like learning."""
    told = loss_fault([8.0 * factor, *DEFAULT[1:]], DEFAULT, 0.02, 0.05)
    assert f"the first loss is {8 * factor:.4g} where the default's is 8" in told


def test_a_loss_that_is_no_number_or_rises_is_wrong_by_itself() -> None:
    assert loss_fault([8.0, None, 7.0], [], 0.02, 0.05) == "the loss of step 2 is not a finite number"
    assert "rises from 2 to 9" in loss_fault([2.0, 2.0, 2.0, 9.0], [], 0.02, 0.05)


def test_a_run_that_does_less_work_is_wrong() -> None:
    assert work_fault([100.0, 102.0, 98.0], [100.0, 100.0]) == ""
    assert "trains on 50 tokens a step where the default trains on 100" in work_fault([50.0, 50.0], [100.0, 100.0, 100.0])
    assert work_fault([0.0, 0.0], [100.0]) == work_fault([100.0], []) == "", "nobody counts"
