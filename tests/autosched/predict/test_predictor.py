from __future__ import annotations

import numpy as np
import pytest

from autosched.arrivals.synthetic import Recipe, generate
from autosched.predict import models
from autosched.predict.accuracy import accuracy
from autosched.predict.features import RECENT, SIMILAR_ENDS, UNKNOWN, Features, Repository
from autosched.predict.models import classifier
from autosched.predict.predictor import Predictor, PredictorOptions, hourly_questions, training_questions
from autosched.predict.ranges import range_of
from autosched.sim.trace import Trace
from autoscout.core.errors import ConfigError, PluginError


def two_users(jobs: int = 600) -> Trace:
    """One user's jobs run two minutes, the other's three hours."""
    users = ["quick" if number % 2 else "slow" for number in range(jobs)]
    return Trace.of(np.arange(jobs) * 600.0, [120.0 if name == "quick" else 10_800.0 for name in users], np.ones(jobs), user=users)


def test_features_know_only_what_had_happened() -> None:
    """A job that ends later, or comes later, changes no feature."""
    trace = two_users(60)
    known = Repository.unqueued(trace)
    at = np.full(3, trace.submit_s[40] + 30.0)
    which = np.asarray([38, 39, 40])
    rows = Features(known).rows(which, at, np.asarray([100.0, 60.0, 30.0]))
    other = Trace.of(
        trace.submit_s, np.where(known.end_s > at[0], trace.duration_s * 3, trace.duration_s), trace.gpus, user=list(trace.user.texts())
    )
    assert np.array_equal(rows, Features(Repository.unqueued(other)).rows(which, at, np.asarray([100.0, 60.0, 30.0])))


def test_the_columns_of_the_features() -> None:
    trace = Trace.of([0, 10, 20], [5, 50, 100], [1, 2, 2], user=["a", "b", "b"])
    row = Features(Repository.unqueued(trace)).rows(np.asarray([2]), np.asarray([70.0]), np.asarray([50.0]))[0]
    assert row[: models.GPUS + 1].tolist() == [70 / 3600, 0.0, 50.0, 50.0, 2.0]
    arrivals = row[7 : 7 + 3 * RECENT].reshape(3, RECENT)
    assert arrivals[:, :3].T.tolist() == [[50, 50, 2], [60, 50, 2], [70, 5, 1]]
    assert (arrivals[:, 3:] == UNKNOWN).all()
    ends = row[7 + 3 * RECENT : 7 + 7 * RECENT].reshape(4, RECENT)
    assert ends[:, :2].T.tolist() == [[60, 10, 50, 2], [70, 65, 5, 1]]
    alike = row[7 + 7 * RECENT :]
    assert alike.tolist() == [50, UNKNOWN, UNKNOWN] * 2
    assert len(alike) == 2 * SIMILAR_ENDS


def test_questions_are_asked_at_whole_hours_of_a_life() -> None:
    known = Repository.unqueued(Trace.of([100.0, 4_000.0], [8_000.0, 10.0], [1, 1]))
    rows, moments, ran = hourly_questions(known, np.asarray([0, 1]))
    assert (rows.tolist(), moments.tolist(), ran.tolist()) == ([0, 0], [3_600.0, 7_200.0], [3_500.0, 7_100.0])
    rows, moments, ran = training_questions(known, np.asarray([0, 1]))
    assert rows.tolist() == [0, 1, 0, 0]
    assert moments[:2].tolist() == [100.0, 4_000.0]


def test_outlived_ranges_get_no_chance_and_draws_are_longer() -> None:
    trace = generate(Recipe(profile="venus", jobs=800, days=3, seed=3))
    known, at = Repository.unqueued(trace), float(trace.submit_s[600])
    predictor = Predictor(PredictorOptions(model="frequency"))
    predictor.fit(known, at)
    which = np.flatnonzero((known.end_s > at) & (trace.submit_s <= at))
    executed = at - trace.submit_s[which]
    chances = predictor.chances(known, which, at, executed)
    assert np.allclose(chances.sum(axis=1), 1.0)
    assert not chances[np.arange(6)[None, :] < range_of(executed)[:, None]].any()
    first, second = (predictor.draw_s(chances, executed, (0, number)) for number in (0, 1))
    assert (first > executed).all()
    assert not np.array_equal(first, second)
    assert np.array_equal(first, predictor.draw_s(chances, executed, (0, 0)))


def test_without_a_past_long_runs_run_on() -> None:
    trace = Trace.of([0.0], [100.0], [1])
    predictor = Predictor()
    predictor.fit(Repository.unqueued(trace), 50.0)
    chances = predictor.chances(Repository.unqueued(trace), np.asarray([0]), 50.0, np.asarray([50.0]))
    assert predictor.draw_s(chances, np.asarray([50.0]), (0,))[0] > 50.0


def test_it_is_fitted_once_a_day() -> None:
    known = Repository.unqueued(two_users())
    predictor = Predictor(PredictorOptions(model="majority"))
    predictor.fit(known, 100_000.0)
    before = predictor.chances(known, np.asarray([170]), 102_000.0, np.asarray([0.0]))
    predictor.fit(Repository.unqueued(two_users(599)), 110_000.0)  # too early
    assert np.array_equal(before, predictor.chances(known, np.asarray([170]), 102_000.0, np.asarray([0.0])))


@pytest.mark.parametrize("model", [name for name, package in models.PACKAGES.items() if package])
def test_classifiers_tell_users_apart_that_frequencies_cannot(model: str) -> None:
    pytest.importorskip(models.PACKAGES[model])
    found = accuracy(two_users(), models=("majority", "frequency", model), rounds=20)
    assert found[model].at_arrival > 0.95 > 0.6 > found["majority"].at_arrival
    assert found[model].fit_s > 0


def test_the_majority_is_always_there_and_missing_packages_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.PACKAGES, "mlp", "no_such_package")
    found = accuracy(two_users(200), models=("majority", "mlp"))
    assert list(found) == ["majority"]
    assert found["majority"].hourly > found["majority"].at_arrival  # what has run an hour is slow
    with pytest.raises(PluginError, match=r"autoscout\[autosched\]"):
        models.classifier("mlp")
    with pytest.raises(PluginError, match="must be one of"):
        models.classifier("oracle")


def test_wrong_options_are_refused_together() -> None:
    with pytest.raises(ConfigError) as caught:
        PredictorOptions(model="oracle", refit_s=0.0)
    assert len(caught.value.faults) == 2


def test_without_scikit_learn_the_frequencies_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.PACKAGES, models.DEFAULT, "no_such_package")
    assert models.installed() == models.installed("xgboost") == "frequency"


@pytest.mark.adapters
def test_threads_are_looked_up_once_for_all_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, sklearn = pytest.importorskip("threadpoolctl"), pytest.importorskip("sklearn.ensemble")
    looks, real = [], threads.ThreadpoolController

    def look() -> object:
        looks.append(real())
        return looks[-1]

    monkeypatch.setattr(threads, "ThreadpoolController", look)
    rng = np.random.default_rng(1)
    rows, ranges = rng.normal(size=(200, 6)), rng.integers(0, 3, 200)
    model = classifier("random-forest", rounds=5).fit(rows, ranges)
    answers = [model.chances(rows[number : number + 10]) for number in range(0, 200, 10)]
    assert len(looks) == 1
    plain = sklearn.RandomForestClassifier(n_estimators=5, max_depth=16, n_jobs=1, random_state=0).fit(rows, ranges)
    assert np.array_equal(np.concatenate(answers)[:, :3], plain.predict_proba(rows)), "the same answers as without any limit"
