"""Numbers out of whatever programs print."""

from __future__ import annotations

import re
from typing import Any

import pytest

from autoscout.backends.command.sources import CommandRun, MetricSource, OutputCheck, UnreadableError, calculate, documents
from autoscout.backends.command.workload import read_workload, try_workload
from autoscout.core.errors import Fault


def faults_of(**workload: Any) -> list[Fault]:
    return try_workload({"command": "true", **workload})[1]


def read(spec: Any, run: CommandRun, name: str = "tps") -> float:
    workload = read_workload({"command": "true", "metrics": {name: spec}})
    assert read_workload(workload.to_json()) == workload, "what is written back must read the same"
    return workload.metrics[name].read(name, run)[0]


def test_json_from_the_last_line_of_a_chatty_program() -> None:
    run = CommandRun(stdout='starting\n{"tps": 1}\nnoise {"tps": 9}\n{"tps": 2.5, "nested": {"a": [1, {"b": 7}]}}\nbye\n')
    assert read({"json": "tps"}, run) == 2.5
    assert read("json:nested.a.1.b", run) == 7
    assert read({"json": "nested.a.-1.b"}, run) == 7
    assert read({"json": "tps", "pick": "first"}, run) == 1
    assert read({"json": "tps", "pick": "mean"}, run) == 1.75


def test_pretty_printed_json_and_json_lines() -> None:
    assert read("json:a.b", CommandRun(stdout='log\n{\n  "a": {\n    "b": 3\n  }\n}\n')) == 3
    lines = "\n".join(f'{{"step_ms": {value}}}' for value in (100, 10, 12, 11))
    run = CommandRun(outputs={"steps.jsonl": lines})
    assert read({"json": "step_ms", "file": "steps.jsonl", "pick": "median", "skip": 1}, run) == 11
    assert read("json:steps.jsonl#step_ms", run) == 11
    assert read({"json": "v", "file": "r.json"}, CommandRun(outputs={"r.json": '{"v": "1,234.5"}'})) == 1234.5


def test_keys_that_contain_dots() -> None:
    assert read("json:a.b.c", CommandRun(stdout='{"a.b": {"c": 1}}')) == 1
    assert read("json:a.b", CommandRun(stdout='{"a.b": 2, "a": {"b": 1}}')) == 2


def test_regular_expressions() -> None:
    run = CommandRun(stdout="step 1 time 5.0\nstep 2 time 3.0\n", stderr="step 3 time 4.0\n")
    assert read("regex:time ([0-9.]+)", run) == 4.0
    assert read({"regex": r"time ([0-9.]+)", "stream": "stdout"}, run) == 3.0
    assert read({"regex": r"step (\d+) time (?P<value>[0-9.]+)", "pick": "max"}, run) == 5.0
    assert read({"regex": r"(\w+) (?P<tps>\d+) time", "pick": "sum"}, run) == 6
    assert read({"regex": r"time ([0-9.]+)", "scale": 1000}, run) == 4000
    assert read({"regex": r"^step 2.*?([\d.]+)$"}, run) == 3.0, "lines are looked at one by one"
    assert read({"regex": r"\d[\d.]*$", "pick": "min"}, run) == 3.0, "without a group the whole match counts"


def test_wall_time() -> None:
    assert read("wall", CommandRun(wall_s=1.5)) == 1.5
    assert read({"wall": True, "scale": 1000}, CommandRun(wall_s=1.5)) == 1500


@pytest.mark.parametrize(
    ("spec", "run", "why"),
    [
        ("json:tps", CommandRun(stdout="no json here"), "was not found"),
        ("json:tps", CommandRun(stdout='{"tps": NaN}'), "is nan"),
        ("json:tps", CommandRun(stdout='{"tps": Infinity}'), "is inf"),
        ("json:tps", CommandRun(stdout='{"tps": null}'), "not a number"),
        ("json:tps", CommandRun(stdout='{"tps": true}'), "not a number"),
        ("json:tps", CommandRun(stdout='{"tps": "fast"}'), "not a number"),
        ("json:r.json#tps", CommandRun(), "r.json was not written to the trial folder"),
        ("json:r.json#tps", CommandRun(outputs={"r.json": "{broken"}), "was not found"),
        ("regex:time (\\S+)", CommandRun(stdout="time soon"), "not a number"),
        ({"regex": "time (\\S+)", "skip": 2}, CommandRun(stdout="time 1\ntime 2"), "after skipping 2 of 2"),
    ],
)
def test_garbage_is_unreadable(spec: Any, run: CommandRun, why: str) -> None:
    with pytest.raises(UnreadableError, match=re.escape(why)):
        read(spec, run)


def test_deep_nesting_does_not_crash() -> None:
    assert list(documents("[" * 100_000)) == []


def test_all_numbers_of_an_object() -> None:
    source = MetricSource(json="")
    run = CommandRun(stdout='{"a": 1, "b": 2.5, "name": "x", "flag": true, "bad": NaN, "list": [1]}')
    assert source.read_all(run) == {"a": 1.0, "b": 2.5}
    with pytest.raises(UnreadableError):
        source.read_all(CommandRun(stdout="[1]"))


@pytest.mark.parametrize(
    "spec",
    [
        5,
        "tps",
        "json",
        {},
        {"json": "a", "regex": "b"},
        {"json": "a", "wall": True},
        {"regex": "("},
        {"regex": "(a)(b)"},
        {"json": 5},
        {"json": "a", "pick": "best"},
        {"json": "a", "stream": "file"},
        {"json": "a", "file": "/etc/passwd"},
        {"json": "a", "file": "../x"},
        {"json": "a", "skip": -1},
        {"json": "a", "scale": 0},
        {"json": "a", "colour": "red"},
        {"wall": True, "pick": "mean"},
    ],
)
def test_bad_sources_are_faults(spec: Any) -> None:
    assert faults_of(metrics={"tps": spec})


def test_several_faults_of_one_source_together() -> None:
    faults = faults_of(metrics={"tps": {"regex": "(", "pick": "best", "scale": "x"}})
    assert [fault.field for fault in faults] == ["metrics.tps.regex", "metrics.tps.pick", "metrics.tps.scale"]


def check(spec: Any, run: CommandRun, **metrics: float) -> str:
    workload = read_workload({"command": "true", "check": spec})
    assert read_workload(workload.to_json()) == workload
    return workload.checks[0].broken(run, metrics)


def test_checks() -> None:
    run = CommandRun(stdout='PASS\n{"ok": true, "rows": 10}', outputs={"log.txt": "all fine"})
    assert check("PASS", run) == ""
    assert "does not occur" in check("VERIFIED", run)
    assert "occurs" in check({"regex": "PASS", "absent": True}, run)
    assert check({"regex": "fine", "file": "log.txt"}, run) == ""
    assert "not written" in check({"regex": "fine", "file": "other.txt"}, run)
    assert check({"json": "ok", "equals": True}, run) == ""
    assert check({"json": "rows", "equals": 10}, run) == ""
    assert "10" in check({"json": "rows", "equals": 11}, run)
    assert "True" in check({"json": "ok", "equals": 1}, run), "true is not 1"
    assert check({"expression": "loss < 3 and rows == 10"}, run, loss=2.0, rows=10) == ""
    assert "loss is 5" in check({"expression": "loss < 3"}, run, loss=5.0)
    assert "neither a knob nor a fact" in check({"expression": "speed < 3"}, run, loss=5.0)


@pytest.mark.parametrize(
    "spec", [5, {}, {"regex": "("}, {"json": "a"}, {"equals": 1}, {"regex": "a", "json": "b", "equals": 1}, {"expression": "("}]
)
def test_bad_checks_are_faults(spec: Any) -> None:
    assert faults_of(check=spec)


def test_expressions_cannot_run_code() -> None:
    assert faults_of(check={"expression": "__import__('os').system('true')"})
    assert calculate("tp * pp", {"tp": 2, "pp": 4}) == 8
    assert calculate("1 / zero", {"zero": 0}) is None


def test_a_check_without_anything_holds_nothing_back() -> None:
    assert OutputCheck(regex=re.compile("")).broken(CommandRun(), {}) == ""
