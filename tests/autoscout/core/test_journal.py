from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.journal import NAME, decode, encode, read_trials, settled
from autoscout.core.origin import Origin
from autoscout.core.trial import Measurement, Proposal, Status, Trial

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=8,
)


def _trial(number: int = 0, study: str = "s", **changes: object) -> Trial:
    made = Trial(
        proposal=Proposal(config=Config(x=number)),
        measurement=Measurement(status=Status.OK, metrics={"time_s": 1.0}),
        study=study,
        number=number,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@given(origin=st.dictionaries(st.text(), JSON), tail=st.text(st.characters(codec=None)), cost_s=st.floats())
def test_any_trial_becomes_one_line_and_settles(origin: dict[str, object], tail: str, cost_s: float) -> None:
    sent = _trial(
        proposal=Proposal(config=Config(x=1), origin=Origin.from_json(origin)),
        measurement=Measurement(status=Status.CRASHED, log_tail=tail, cost_s=cost_s, samples={"time_s": (cost_s,)}),
    )
    line = encode(sent)
    assert line.isascii()
    assert "\n" not in line
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    once = settled(sent)
    assert encode(settled(once)) == encode(once) == encode(decode(line))
    assert once.measurement.log_tail == tail
    assert once.measurement.cost_s == cost_s or math.isnan(cost_s)


def test_foreign_objects_do_not_lose_a_trial() -> None:
    origin = {"array": np.arange(2), "float": np.float32(0.5), "set": {2, 1}, "object": Path("a"), 7: "key", "deep": [(1, np.int64(2))]}
    stored = settled(_trial(proposal=Proposal(config=Config(x=1), origin=Origin(notes=origin))))  # type: ignore[arg-type]
    assert stored.proposal.origin.notes == {"array": [0, 1], "float": 0.5, "set": [1, 2], "object": "a", "7": "key", "deep": [[1, 2]]}


def write_trials(path: Path, trials: list[Trial]) -> None:
    path.write_text("".join(encode(trial) + "\n" for trial in trials))


def test_a_file_or_its_folder_can_be_read(tmp_path: Path) -> None:
    trials = [_trial(number) for number in range(3)]
    write_trials(tmp_path / NAME, trials)
    assert read_trials(tmp_path) == read_trials(tmp_path / NAME) == read_trials(str(tmp_path)) == trials
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_studies_come_one_after_the_other(tmp_path: Path) -> None:
    mixed = [_trial(1, "b"), _trial(0, "a"), _trial(0, "b"), _trial(1, "a")]
    write_trials(tmp_path / NAME, mixed)
    assert [(t.study, t.number) for t in read_trials(tmp_path)] == [("b", 0), ("b", 1), ("a", 0), ("a", 1)]
    assert [t.study for t in read_trials(tmp_path, "a")] == ["a", "a"]
    assert read_trials(tmp_path, "c") == []


def test_all_bad_lines_are_reported_at_once(tmp_path: Path) -> None:
    good = encode(_trial(0))
    lines = [
        good,
        "not json",
        "[1, 2]",
        '{"config": {}}',
        '{"config": 3, "status": "ok"}',
        '{"config": {"x": [1]}, "status": "ok"}',
        '{"config": {}, "status": "fine"}',
        '{"config": {}, "status": "ok", "metrics": {"a": NaN}}',
        '{"config": {}, "status": "ok", "fidelity": "guessed"}',
        "\udcff\udcfe",
        "[" * 100_000,
        "",
        good,
    ]
    path = tmp_path / NAME
    path.write_bytes(("\n".join(lines) + "\n").encode(errors="surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        read_trials(path)
    assert [fault.where for fault in caught.value.faults] == [f"{path}:{line}" for line in [*range(2, 12), 13]]
    texts = [str(fault) for fault in caught.value.faults]
    assert "'status' is missing" in texts[2]
    assert "is already in line 1" in texts[-1]
    assert all(len(text) < len(str(path)) + 400 for text in texts), "long lines are shortened"
    assert all(fault.fix for fault in caught.value.faults)


def test_the_line_a_writer_is_at_is_left_out(tmp_path: Path) -> None:
    whole = encode(_trial(0)) + "\n" + encode(_trial(1))
    (tmp_path / NAME).write_text(whole[:-1])
    assert [t.number for t in read_trials(tmp_path)] == [0]
    (tmp_path / NAME).write_text(whole)
    assert [t.number for t in read_trials(tmp_path)] == [0, 1], "complete but for the newline"
    (tmp_path / NAME).write_text("")
    assert read_trials(tmp_path) == []


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="result folder"):
        read_trials(tmp_path)


def test_unnumbered_trials_may_be_many(tmp_path: Path) -> None:
    write_trials(tmp_path / NAME, [_trial(-1), _trial(-1)])
    assert len(read_trials(tmp_path)) == 2


@pytest.mark.parametrize(
    "change", [{"number": float("inf")}, {"number": 10**400}, {"number": 1.5}, {"batch": True}, {"cost_s": 10**400}, {"metrics": [1]}]
)
def test_numbers_that_no_trial_has(tmp_path: Path, change: dict[str, object]) -> None:
    data = {"config": {"x": 1}, "status": "ok", "number": 0, **change}
    path = tmp_path / "trials.jsonl"
    path.write_text(json.dumps(data) + "\n" + json.dumps({**data, "status": "maybe"}) + "\n")
    with pytest.raises(ConfigError) as caught:
        read_trials(path)
    assert [fault.where for fault in caught.value.faults] == [f"{path}:1", f"{path}:2"]
