"""Optuna's study.db in both directions: what goes out comes back, and what others wrote is read as far as it says something."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.origin import Origin
from autoscout.core.protocols import StudyRecord
from autoscout.core.task import Direction, Goal, Limit, Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.report.tracked import tracked_study, tracked_trials
from autoscout.space import Choice, Flag, Grid, Space, read_space, write_space
from autoscout.space.interchange.optuna import is_optuna, optuna_space, read_optuna
from autoscout.study.about import ABOUT, About, KnobAbout
from autoscout.trackers.optuna import OptunaOptions, OptunaTracker

pytestmark = pytest.mark.adapters
SPACE = Space(
    [
        Choice("engine", ["sync", "async"]),
        Grid("queue", 1, 64, log=True, when="engine == 'async'", default=8),
        Flag("pinned"),
        Choice("tp", [1, 2, 4, 8]),
        Grid("share", 0.0, 1.0, step=0.25),
    ],
    ["tp <= gpus"],
    {"gpus": 4},
)
OBJECTIVE = Objective(
    metric="tokens_per_s",
    direction=Direction.MAXIMIZE,
    also=(Goal(metric="p95_ms"),),
    limits=(Limit.parse("p95_ms<=40"), Limit.parse("memory_gb>=2")),
)
TASK = Task(system="toy", objective=OBJECTIVE)


def record() -> StudyRecord:
    knobs = tuple(KnobAbout(name=knob.name, values=tuple(knob.values), log=knob.log) for knob in SPACE.knobs.values())
    about = About(default=SPACE.default().to_json(), knobs=knobs, space=write_space(SPACE))
    return StudyRecord(name="round", task=TASK, space=SPACE.fingerprint(), spec={ABOUT: about.to_json()}, created_s=1e9)


def trials() -> list[Trial]:
    base = {"engine": "sync", "pinned": False, "tp": 1, "share": 0.25}
    metrics = {"tokens_per_s": 100.0, "p95_ms": 50.0, "memory_gb": 3.0}
    rows = [
        (base, Measurement(status=Status.OK, metrics=metrics, samples={"tokens_per_s": (90.0, 110.0)})),
        ({**base, "engine": "async", "queue": 16}, Measurement(status=Status.OK, metrics={**metrics, "p95_ms": 30.0, "memory_gb": 1.5})),
        ({**base, "tp": 2}, Measurement(status=Status.OOM_RUN, reason="out of memory")),
        ({**base, "tp": 4}, Measurement(status=Status.BOUNDED, metrics={"tokens_per_s": 10.0}, bounds={"tokens_per_s": 20.0})),
    ]
    return [
        Trial(
            proposal=Proposal(config=Config(config), origin=Origin(by="hybrid")), measurement=answer, number=number, started_s=1e9 + number
        )
        for number, (config, answer) in enumerate(rows)
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with OptunaTracker(OptunaOptions(folder=str(tmp_path))) as tracker:
        tracker.begin(tracked_study(record()))
        for trial in tracked_trials(record(), trials()):
            tracker.add(trial)
    return tmp_path / "study.db"


def test_optuna_reads_states_values_conditions_constraints_and_steps(file: Path) -> None:
    import optuna

    study = optuna.load_study(study_name="round", storage=f"sqlite:///{file}")
    assert [direction.name for direction in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert study.metric_names == ["tokens_per_s", "p95_ms"]
    first, second, failure, bounded = study.trials
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "FAIL", "PRUNED"]
    assert (first.values, second.values) == ([100.0, 50.0], [100.0, 30.0])
    assert first.intermediate_values == {0: 90.0, 1: 110.0}
    assert bounded.intermediate_values == {0: 10.0}
    assert "queue" not in first.params
    assert second.params == {"engine": "async", "queue": 16, "pinned": False, "tp": 1, "share": 0.25}
    assert second.distributions["tp"] == optuna.distributions.CategoricalDistribution((1, 2, 4, 8))
    assert second.distributions["share"] == optuna.distributions.FloatDistribution(0.0, 1.0)
    assert failure.user_attrs["autoscout.reason"] == "out of memory"
    excess = [list(trial.constraints.values()) for trial in (first, second, failure)]
    assert excess == [[10.0, -1.0], [-10.0, 0.5], []], "above 0 a limit is broken"
    assert not study.best_trials, "each of them breaks a limit, and Optuna heeds that"


def test_what_goes_out_comes_back(file: Path) -> None:
    (study,) = read_optuna(file)
    back = study.trials(OBJECTIVE)
    assert [trial.config for trial in back] == [trial.config for trial in trials()]
    assert [trial.measurement.status for trial in back] == [trial.measurement.status for trial in trials()]
    assert [trial.measurement.metrics for trial in back] == [trial.measurement.metrics for trial in trials()]
    assert [OBJECTIVE.losses(trial.measurement) for trial in back] == [OBJECTIVE.losses(trial.measurement) for trial in trials()]
    assert optuna_space(file).fingerprint() == SPACE.fingerprint()
    assert read_space(file).fingerprint() == SPACE.fingerprint()


def test_a_wider_space_writes_the_study_anew(file: Path, tmp_path: Path) -> None:
    import optuna

    wide = record()
    about = About.from_record(wide)
    knobs = [KnobAbout(name="tp", values=(1, 2, 4, 8, 16)) if knob.name == "tp" else knob for knob in about.knobs]
    wide = StudyRecord(**{**vars(wide), "spec": {ABOUT: {**about.to_json(), "knobs": [vars(knob) for knob in knobs]}}})
    with OptunaTracker(OptunaOptions(folder=str(tmp_path))) as tracker:
        tracker.begin(tracked_study(wide))
        assert not tracker.sent(), "Optuna allows no further values of a choice"
        for trial in tracked_trials(wide, trials()):
            tracker.add(trial)
    study = optuna.load_study(study_name="round", storage=f"sqlite:///{file}")
    assert len(study.trials) == len(trials())


def foreign(path: Path, *, names: bool = True) -> Path:
    """A study as people write one with Optuna."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=f"sqlite:///{path}", study_name="mine", sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial: optuna.Trial) -> float:
        kind = trial.suggest_categorical("kind", ["a", "b"])
        rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
        depth = trial.suggest_int("depth", 2, 8, step=2) if kind == "b" else 0
        if trial.number == 3:
            raise optuna.TrialPruned
        if trial.number == 4:
            raise ValueError("broken")
        trial.set_user_attr("accuracy", 0.5)
        return rate + depth

    study.optimize(objective, n_trials=14, catch=(ValueError,))
    if names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental
            study.set_metric_names(["loss"])
    return path


def test_a_study_of_others_is_read_with_its_conditions(tmp_path: Path) -> None:
    file = foreign(tmp_path / "mine.db")
    assert is_optuna(file)
    space = read_space(file)
    assert list(space.knobs["kind"].values) == ["a", "b"]
    assert list(space.knobs["depth"].values) == [2, 4, 6, 8]
    assert space.knobs["depth"].when == "kind == 'b'"
    assert space.knobs["rate"].log
    (study,) = read_optuna(file)
    back = study.trials(Objective(metric="loss"))
    assert [trial.measurement.status for trial in back].count(Status.OK) == 12
    assert (back[3].measurement.status, back[4].measurement.status) == (Status.BOUNDED, Status.CRASHED)
    assert back[0].measurement.metrics.keys() == {"loss", "accuracy"}


def test_objectives_without_names_must_fit_the_campaign(tmp_path: Path) -> None:
    (study,) = read_optuna(foreign(tmp_path / "mine.db", names=False))
    assert study.trials(Objective(metric="anything"))[0].measurement.metrics.keys() == {"anything", "accuracy"}
    with pytest.raises(ConfigError, match="have no names and are not those of the campaign"):
        study.trials(Objective(metric="anything", direction=Direction.MAXIMIZE))


def test_files_that_are_no_study_are_told_apart(tmp_path: Path) -> None:
    import sqlite3

    (tmp_path / "text.db").write_text("SQLite format 3 is not what this is")
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE trials (x)").connection.close()
    assert not any(is_optuna(tmp_path / name) for name in ("text.db", "other.db", "absent.db", "."))
    file = foreign(tmp_path / "two.db")
    import optuna

    optuna.create_study(storage=f"sqlite:///{file}", study_name="second")
    with pytest.raises(ConfigError, match="must hold one study with parameters, and holds 2: mine, second"):
        optuna_space(file)
    with sqlite3.connect(file) as base:
        base.execute("UPDATE alembic_version SET version_num = 'of a later Optuna'")
    with pytest.raises(ConfigError, match="cannot read it"):
        read_optuna(file)
