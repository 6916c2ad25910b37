from __future__ import annotations

import pickle

from autoscout.core.errors import MOST_FAULTS, MOST_TEXT, AutoScoutError, ConfigError, Fault


def test_a_fault_reads_as_one_sentence() -> None:
    fault = Fault(where="a.yaml:3", field="budget.trials", value="-1", rule="must be above zero", fix="Use a whole number")
    assert str(fault) == "a.yaml:3: budget.trials: must be above zero (found -1). Use a whole number"
    assert str(Fault(rule="plain")) == "plain"
    assert str(Fault(rule="more or less?", fix="Say it")) == "more or less? Say it"


def test_all_faults_travel_in_one_error_even_between_processes() -> None:
    error = ConfigError([Fault(rule="one"), Fault(rule="two")])
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, ConfigError)
    assert again.faults == error.faults
    assert str(again) == "one\ntwo"
    assert AutoScoutError("just text").faults == (Fault(rule="just text"),)
    assert error.exit_code == 2


def test_a_message_is_bounded_whatever_was_found() -> None:
    error = ConfigError([Fault(where="file", field="f" * 1000, value="v" * 10_000, rule="bad \x1b[31m") for _ in range(100_000)])
    assert len(str(error)) < 2 * MOST_TEXT
    assert "more faults" in error.faults[-1].rule
    assert "\\x1b[31m" in str(error)
    assert "\x1b" not in str(error)
    few = ConfigError(Fault(where=f"file:{line}", rule="bad") for line in range(MOST_FAULTS))
    assert len(few.faults) == MOST_FAULTS
