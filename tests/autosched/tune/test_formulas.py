"""Metrics that an operator defines: what formulas are worth, what is refused, and that goals, gains and causes take them."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched.arrivals.arrivals import DAY_S
from autosched.arrivals.synthetic import Recipe, generate
from autosched.sim.cluster import Cluster
from autosched.sim.trace import Trace
from autosched.tune.case import Case
from autosched.tune.formulas import COLUMNS, MOST_CHARACTERS, STATISTICS, TEXTS, Jobs, read_formulas
from autosched.tune.goals import Causes, Goal
from autosched.tune.loop import Loop
from autosched.tune.measures import MEASURES
from autosched.tune.modes import MODES, Mode
from autoscout.core.errors import ConfigError
from autoscout.core.task import Direction

NUMBERS = {
    "wait": [0.0, 60.0, 600.0, 3_000.0], "run": [100.0, 100.0, 50.0, 10.0], "time": [100.0, 160.0, 650.0, 3_010.0],
    "work": [100.0, 80.0, 50.0, 10.0], "slowdown": [1.0, 2.0, 13.0, 301.0], "gpus": [1.0, 2.0, 8.0, 16.0],
    "preemptions": [0.0, 1.0, 0.0, 2.0], "hour": [0.0, 9.0, 12.0, 23.0],
}  # fmt: skip
WORDS = {"user": ["ann", "bob", "ann", "cy"], "vc": ["a", "a", "b", "b"], "kind": ["", "", "a100", "a100"]}
WEIGHTS = [1.0, 1.0, 2.0, 1.0]


def jobs(rows: int = 4) -> Jobs:
    columns: dict[str, Any] = {name: np.asarray(values[:rows]) for name, values in {**NUMBERS, **WORDS}.items()}
    return Jobs(columns=columns, weights=np.asarray(WEIGHTS[:rows]), metrics={"queue_s": 900.0})


def value(text: str, rows: int = 4) -> float:
    (formula,) = read_formulas({"mine": text}, tuple(MEASURES))
    return formula(jobs(rows))


VALUES = {
    "mean(wait)": (0 + 60 + 1_200 + 3_000) / 5,
    "mean(wait[gpus <= 2])": 30.0,
    "max(wait[user == 'ann'])": 600.0,
    "sum(gpus * run)": 100 + 200 + 800 + 160,
    "count(wait > 500)": 3.0,
    "share(wait > 500)": 0.6,
    "share((wait > 500)[kind == 'a100' and gpus < 16])": 1.0,
    "share(not (wait > 500 or preemptions >= 1))": 0.2,
    "count(2 <= gpus < 16)": 3.0,
    "median(wait)": 600.0,
    "p99(slowdown)": 301.0,
    "std(gpus[vc == 'a'])": 0.5,
    "min(time - run)": 0.0,
    "max((time - run)[gpus > 1][user in ['ann', 'bob']])": 600.0,
    "count(gpus in [1, 16])": 2.0,
    "count(user not in ('ann',))": 2.0,
    "queue_s / 2 + 3 * 50": 600.0,
    "-mean(wait) + 1000": 148.0,
    "maximize share(hour < 12)": 0.4,
}


@pytest.mark.parametrize(("text", "worth"), VALUES.items(), ids=VALUES)
def test_a_formula_is_worth_what_it_says(text: str, worth: float) -> None:
    assert value(text) == pytest.approx(worth)


@pytest.mark.parametrize("text", ["mean(wait[gpus > 99])", "mean(wait) / count(gpus > 99)", "min(wait) - 5", "1 / 0"])
def test_where_there_is_no_number_it_is_zero(text: str) -> None:
    assert value(text) == 0.0
    assert value("mean(wait)", rows=0) == 0.0


REFUSED = {
    "a column": ("wait", "not a number"),
    "a condition": ("user == 'ann'", "not a number"),
    "a typing error": ("mean(wiat)", "Did you mean 'wait'"),
    "its place": ("maximize  mean(wiat)", "column 16"),
    "a metric of nobody": ("queue_time + 1", "neither a column of jobs nor a metric"),
    "no statistic": ("average(wait)", "is no statistic"),
    "two arguments": ("mean(wait, gpus)", "takes one column"),
    "a filter that is none": ("mean(wait[gpus])", "must be a condition"),
    "a filter outside": ("mean(wait)[gpus < 2]", "inside the statistic"),
    "other jobs": ("mean(wait[gpus < 2] - run)", "different jobs"),
    "a share of numbers": ("share(wait)", "must be a condition"),
    "a mean of texts": ("mean(user)", "must be a column"),
    "a text and a number": ("count(user == 3)", "compared with a text"),
    "an order of texts": ("count(user < 'bob')", "compared with a text"),
    "a list of other things": ("count(user in [1])", "list of texts or numbers"),
    "numbers alone": ("mean(wait[1 < 2])", "compares no column"),
    "powers": ("9 ** 9", "no meaning"),
    "an attribute": ("wait.mean()", "no meaning"),
    "a call of Python": ("__import__('os').system('true')", "no meaning"),
    "a function": ("(lambda: 1)()", "no meaning"),
    "a comprehension": ("sum(x for x in wait)", "no meaning"),
    "a choice": ("mean(wait if gpus else run)", "no meaning"),
    "an assignment": ("(wait := 3)", "no meaning"),
    "stars": ("mean(*wait)", "no meaning"),
    "nothing": ("", "not a formula"),
    "half of one": ("mean(wait", "not a formula"),
    "a large number": ("1e300 * 1e300", "at most"),
    "depth": ("-" * 200 + "1", "inside one another"),
    "brackets": ("(" * 240 + "1" + ")" * 240, "not a formula"),
    "length": ("1 + " * 500 + "1", f"{MOST_CHARACTERS} characters"),
    "true": ("True", "no numbers"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_formula_is_refused_with_its_name(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        value(text)
    (fault,) = error.value.faults
    assert fault.field == "metrics.mine"
    assert words in f"{fault.rule} {fault.fix}"
    assert fault.fix, "a next step"
    assert len(str(fault)) < 500, "bounded"


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read_formulas({"queue_s": "mean(wait)", "2x": "mean(wait)", "a": "mean(wat)", "b": "mean(run)"}, tuple(MEASURES))
    assert [fault.field for fault in caught.value.faults] == ["metrics.queue_s", "metrics.2x", "metrics.a"]
    with pytest.raises(ConfigError, match="50 metrics at most"):
        read_formulas({f"m{number}": "mean(wait)" for number in range(51)}, ())


SIGNS = st.sampled_from(["+", "-", "*", "/", "<", "==", "and", "in", "[", "]", "(", ")", ",", "not", ".", "**", "@", ":=", "'"])
PARTS = st.sampled_from([*COLUMNS, *TEXTS, *STATISTICS, "share", "count", "7", "0.5", "'ann'", "queue_s", "x", "__class__", "lambda"])


@given(st.lists(st.one_of(SIGNS, PARTS), min_size=1, max_size=14).map(" ".join) | st.text(max_size=40))
def test_any_text_is_a_number_or_one_clear_error(text: str) -> None:
    before = len(sys.modules)
    try:
        answer = value(text)
    except ConfigError as error:
        answer = float(not all(fault.rule for fault in error.faults))
    assert 0 <= answer < np.inf
    assert len(sys.modules) == before, "reading imports nothing"


def test_goals_and_gains_take_an_operators_metric() -> None:
    causes = Causes.of(formulas={"small": "mean(wait[gpus <= 2])", "served": "maximize share(wait < 60)"})
    assert causes.metrics[-2:] == ("small", "served"), "nodes of the graph where no metrics are named"
    assert Causes.of(["queue_s", "small"], ["queues -> small"], formulas={"small": "mean(wait)"}).metrics == ("queue_s", "small")
    less, more = (Goal.of(name, causes.formulas) for name in ("small", "served"))
    assert (less.direction, more.direction) == (Direction.MINIMIZE, Direction.MAXIMIZE)
    assert less.gain(20.0, 10.0) == pytest.approx(2.0, rel=1e-3)
    assert more.gain(0.2, 0.8) == pytest.approx(4.0, rel=1e-2)
    assert [limit.metric for limit in more.objective({"time_s": 100.0}).limits] == ["time_s"], "as long as jobs take no longer"
    with pytest.raises(ConfigError, match="small, served"):
        Goal.of("smal", causes.formulas)


def test_limits_and_guards_of_an_operator() -> None:
    formulas = Causes.of(formulas={"small": "mean(wait[gpus <= 2])"}).formulas
    goal = Goal.of("time", formulas, ["small<=1.5x", "idle_gpus<=0.2"])
    assert goal.needs_default
    assert [str(limit) for limit in goal.objective({"small": 100.0, "time_s": 7.0}).limits] == ["small<=150", "idle_gpus<=0.2"]
    assert not Goal.of("time", formulas, ["idle_gpus<=0.2"]).needs_default
    assert [limit.metric for limit in Goal.of("small", formulas, ["idle_gpus<=0.2"]).objective({"time_s": 7.0}).limits] == [
        "time_s",
        "idle_gpus",
    ]
    with pytest.raises(ConfigError) as error:
        Goal.of("tim", formulas, ["small", "smal<=3", "fair_share>=0.9"])
    assert [fault.where for fault in error.value.faults] == ["goal", "limits", "limits", "limits"]
    assert all(fault.fix for fault in error.value.faults)


def philly() -> Trace:
    return generate(Recipe(profile="philly", jobs=500, days=4, load=1.2, cluster_gpus=24, start_s=0.0, seed=0))


def test_what_is_taken_keeps_the_limits() -> None:
    window = {"cluster": Cluster.parse("3x8"), "scheduler": "tiresias", "from_s": 3 * DAY_S, "to_s": 3.5 * DAY_S, "goal": "small"}
    causes = Causes.of(formulas={"small": "mean(wait[gpus <= 1])", "stops": "sum(preemptions)"})
    oracle = replace(MODES["fixed-oracle"], start_trials=30)

    def metrics(mode: Mode, *limits: str) -> dict[str, float]:
        return Loop(Case(trace=philly(), causes=causes, limits=limits, **window), mode, "x", 1).run().metrics

    static, free = metrics(MODES["static"]), metrics(oracle)
    assert free["stops"] > 1.2 * static["stops"], "or the limit below would change nothing"
    bound = metrics(oracle, "stops<=1.2x")
    assert bound["stops"] <= 1.2 * static["stops"]
    assert max(free["small"], bound["small"]) < static["small"], "and is tuned for the operator's metric all the same"


def test_the_loop_tunes_for_it_and_reasons_about_it() -> None:
    trace = philly()
    own = {"small": "mean(wait[gpus <= 1])", "served": "maximize share(wait < 600)"}
    causes = Causes.of(edges=["queues -> served"], no_edges=["placement -> served"], formulas=own)
    case = Case(
        trace=trace, cluster=Cluster.parse("3x8"), scheduler="tiresias", from_s=3 * DAY_S, to_s=3.5 * DAY_S, goal="small", causes=causes
    )
    mode = MODES["paper"]
    quick = replace(
        mode, every_s=10_800.0, watch_s=0.0, search=replace(mode.search, trials=8), predictor=replace(mode.predictor, model="frequency")
    )
    run = Loop(case, quick, "paper", 1).run()
    assert run.model is not None
    assert run.model.graph.objective == "small"
    assert "small" not in run.model.metrics
    assert ("queues", "served") in run.model.graph.edges
    assert ("placement", "served") not in run.model.graph.edges
    assert run.metrics["small"] == pytest.approx(run.metrics["small_queue_s"]), "the same number by its own name"
    assert 0 < run.metrics["served"] <= 1
    static = Loop(case, MODES["static"], "static", 1).run()
    best = Loop(case, replace(MODES["fixed-oracle"], start_trials=30), "fixed-oracle", 1).run()
    assert best.metrics["small"] < static.metrics["small"], "what is known beforehand is tuned for the operator's metric"
