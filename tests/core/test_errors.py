from __future__ import annotations

import pickle

from autoscout.core.errors import AutoScoutError, ConfigError, Fault


def test_a_fault_reads_as_one_sentence() -> None:
    fault = Fault(where="a.yaml:3", field="budget.trials", value="-1", rule="must be above zero", fix="Use a whole number")
    assert str(fault) == "a.yaml:3: budget.trials: must be above zero (found -1). Use a whole number"
    assert str(Fault(rule="plain")) == "plain"


def test_all_faults_travel_in_one_error_even_between_processes() -> None:
    error = ConfigError([Fault(rule="one"), Fault(rule="two")])
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, ConfigError)
    assert again.faults == error.faults
    assert str(again) == "one\ntwo"
    assert AutoScoutError("just text").faults == (Fault(rule="just text"),)
    assert error.exit_code == 2
