from __future__ import annotations

import csv
import io
import json

import pytest
from report_studies import DEFAULT, KNOBS, METRIC, make_study, make_task, make_trial, result_of, simulated

from autoscout.analysis.summary import summarise
from autoscout.core.config import Config
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.report.tables import report_json, summary_csv, t4, unit_of


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_one_row_per_trial() -> None:
    trials = make_study(30)
    rows = read(summary_csv(make_task(), trials, KNOBS))
    assert [int(row["number"]) for row in rows] == list(range(len(trials)))
    first = rows[0]
    assert first["knob.threads"] == "4"
    assert first["knob.flash"] == "false"
    assert first["knob.tile"] == ""
    assert first["status"] == "ok"
    assert first["phase"] == "search"
    assert first["keeps_limits"] == "true"
    assert float(first[f"metric.{METRIC}"]) == trials[0].measurement.metrics[METRIC]
    assert json.loads(first["origin"]) == {"by": "default"}
    assert rows[-1]["phase"] == "final"
    assert {len(row) for row in rows} == {len(first)}
    knobs = [name for name in first if name.startswith("knob.")]
    assert knobs == [f"knob.{knob.name}" for knob in KNOBS]  # in the order of the space


def test_commas_quotes_newlines_and_formulas_survive() -> None:
    nasty = Config(template='a,"b"\nc;d', nothing=None, minus="-O3")
    trials = [
        make_trial(0, nasty, status=Status.CRASHED, reason='=HYPERLINK("http://evil","x")\nsecond line', origin={"why": "a,b\nc"}),
        make_trial(1, nasty.extend(minus="x"), 3.5),
    ]
    rows = read(summary_csv(make_task(), trials))
    assert rows[0]["knob.template"] == 'a,"b"\nc;d'
    assert rows[0]["knob.nothing"] == "null"
    assert rows[0]["knob.minus"] == "'-O3", "a spreadsheet would take it for a formula"
    assert rows[0]["reason"] == '\'=HYPERLINK("http://evil","x")'
    assert json.loads(rows[0]["origin"]) == {"notes": {"why": "a,b\nc"}}
    assert rows[0][f"metric.{METRIC}"] == ""
    assert rows[1][f"metric.{METRIC}"] == "3.5"


def test_an_empty_study_is_a_header() -> None:
    text = summary_csv(make_task(), [])
    assert text.startswith("number,name,key,status")
    assert len(text.splitlines()) == 1


# The part of the T4 results schema 1.0.0 that Kernel Tuner ships and that readers rely on.
T4_REQUIRED = {"configuration", "times", "invalidity", "correctness"}
T4_INVALIDITY = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}


def test_t4_follows_the_schema() -> None:
    task = make_task(metric="mean_ttft_ms")
    statuses = list(Status)
    trials = [
        make_trial(i, DEFAULT.extend(noise=i), 5.0 if status is Status.OK else None, status=status, metric="mean_ttft_ms")
        for i, status in enumerate(statuses)
    ]
    trials.append(make_trial(20, DEFAULT, 7.0, metric="mean_ttft_ms", samples={"mean_ttft_ms": (6.0, 8.0)}, metrics={"peak_mem_gib": 2.0}))
    data = json.loads(json.dumps(t4(task, trials), allow_nan=False))
    assert data["schema_version"] == "1.0.0"
    assert len(data["results"]) == len(statuses) - 1  # T4 has no word for the bounded and the aborted one; one was added
    for result in data["results"]:
        assert result.keys() >= T4_REQUIRED
        assert result["invalidity"] in T4_INVALIDITY
        assert isinstance(result["timestamp"], str)
        assert isinstance(result["configuration"], dict)
        assert isinstance(result["correctness"], (int, float))
        assert result["objectives"] == ["mean_ttft_ms"]
        for name in ("compilation", "benchmark", "framework", "search_algorithm", "validation"):
            assert isinstance(result["times"][name], (int, float))
        for measurement in result["measurements"]:
            assert measurement.keys() == {"name", "value", "unit"}
    kinds = {trial.measurement.status.value: result["invalidity"] for trial, result in zip(trials, data["results"], strict=False)}
    assert kinds["ok"] == "correct"
    assert kinds["timeout"] == "timeout"
    assert kinds["invalid"] == "constraints"
    assert kinds["wrong_output"] == "correctness"
    last = data["results"][-1]
    assert last["timestamp"] == "1970-01-01T00:20:08+00:00"
    assert last["times"]["runtimes"] == [6.0, 8.0]
    assert last["times"]["benchmark"] == pytest.approx(8000.0)
    assert {"name": "peak_mem_gib", "value": 2.0, "unit": "GiB"} in last["measurements"]


def test_t4_takes_the_highest_fidelity_only() -> None:
    trials = [simulated(0, DEFAULT, 5.0), make_trial(1, DEFAULT, 6.0)]
    assert [result["measurements"][0]["value"] for result in t4(make_task(), trials)["results"]] == [6.0]
    assert t4(make_task(), [])["results"] == []


@pytest.mark.parametrize(("metric", "unit"), [("mean_ttft_ms", "ms"), ("step_time_s", "s"), ("output_throughput", ""), ("s", "")])
def test_units_come_from_names(metric: str, unit: str) -> None:
    assert unit_of(metric) == unit


def test_the_json_report_is_strict_json() -> None:
    task, trials = make_task(), make_study(30)
    summary = summarise(task, trials, DEFAULT, knobs=KNOBS)
    assert summary.best is not None
    data = report_json(result_of(task, trials))
    again = json.loads(json.dumps(data, allow_nan=False))
    assert again["importance"]["knobs"][0]["name"] == "threads"
    assert again["ablation"]["steps"][-1].keys() == {"knobs", "change"}, "the number of a knob is its contribution"
    assert again["gain"]["pairs"] == 5
    assert report_json(result_of(task, []))["answer"] is None


def test_no_cell_of_the_summary_is_a_formula() -> None:
    cells = {"a": "=1+1", "b": "@x", "c": "-1.5", "d": "+cmd", "e": -3}
    trials = [Trial(proposal=Proposal(config=Config(cells)), measurement=Measurement(status=Status.OK, metrics={"s": -2.5}), worker="=w")]
    (row,) = csv.DictReader(io.StringIO(summary_csv(Task(system="x", objective=Objective(metric="s")), trials)))
    assert [row[f"knob.{name}"] for name in cells] == ["'=1+1", "'@x", "-1.5", "'+cmd", "-3"]
    assert (row["metric.s"], row["worker"]) == ("-2.5", "'=w")
